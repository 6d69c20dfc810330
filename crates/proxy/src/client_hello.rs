//! Reads the server name out of the first bytes of a TLS connection, without decrypting anything.
//!
//! [`parse_client_hello`] is called with everything received so far and answers one of three things: a
//! [`Hello`], [`HelloError::Incomplete`] (call again with more), or why these bytes can never become one.
//! It looks at the record layer (RFC 8446 section 5.1: a hello may be spread over several records, and
//! records over several segments), the handshake header and the extensions. Unknown extensions, cipher suites
//! and groups, GREASE values (RFC 8701) among them, are stepped over. With Encrypted Client Hello the outer
//! name counts, since it is the only one that is visible.
//!
//! Refused: SSLv2 hellos, other content types, other handshake messages, lengths that disagree, a second
//! server name (RFC 6066 section 3), and hellos above [`MAX_HELLO`].

use std::borrow::Cow;

use crate::server_name::ServerName;

/// The longest handshake message that is read. Post-quantum hellos are about 2 KiB, with large tickets 4 KiB.
pub const MAX_HELLO: usize = 16 * 1024;

/// The most bytes that are read before a verdict: a hello of [`MAX_HELLO`] in the usual one or two records, or a
/// usual hello cut into records of single bytes, which is six times its size.
pub const MAX_RECEIVED: usize = 2 * MAX_HELLO;

const MAX_RECORD: usize = 16 * 1024;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

/// What a client says before it knows with whom it speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The name that it asks for; clients that dial an address send none.
    pub server_name: Option<ServerName>,
    /// Whether an encrypted inner hello is there, so that `server_name` is only the outer one.
    pub encrypted: bool,
}

/// Why there is no [`Hello`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// So far so good: more bytes are needed.
    #[error("the hello is not complete yet")]
    Incomplete,
    /// The first bytes are no TLS handshake record.
    #[error("not a TLS handshake")]
    NotTls,
    /// A hello in the format of SSLv2, which cannot carry a server name.
    #[error("an SSLv2 hello, which cannot carry a server name")]
    SslV2,
    /// The hello says that it is longer than [`MAX_HELLO`], or is not there after [`MAX_RECEIVED`] bytes.
    #[error("the hello is larger than {MAX_HELLO} bytes")]
    TooLarge,
    /// TLS, but not a hello that follows the RFC.
    #[error("malformed hello: {0}")]
    Malformed(&'static str),
}

use HelloError::{Incomplete, Malformed, NotTls, SslV2, TooLarge};

/// Reads the hello at the start of `received`. Bytes after it are left alone.
pub fn parse_client_hello(received: &[u8]) -> Result<Hello, HelloError> {
    match handshake_message(received) {
        Ok(handshake) => client_hello(&handshake),
        Err(Incomplete) if received.len() >= MAX_RECEIVED => Err(TooLarge),
        Err(error) => Err(error),
    }
}

/// The body of the first handshake message, joined from as many records as carry it.
fn handshake_message(received: &[u8]) -> Result<Cow<'_, [u8]>, HelloError> {
    let first = record(received, true)?;
    if let Some(body) = handshake_body(first.payload)? {
        return Ok(Cow::Borrowed(body)); // nearly always: one record holds it all
    }
    let mut joined = first.payload.to_vec();
    let mut last = first;
    while last.complete {
        last = record(last.rest, false)?;
        joined.extend_from_slice(last.payload);
        if let Some(body) = handshake_body(&joined)? {
            return Ok(Cow::Owned(body.to_vec()));
        }
    }
    Err(Incomplete)
}

struct Record<'a> {
    /// What is there of the payload.
    payload: &'a [u8],
    complete: bool,
    rest: &'a [u8],
}

/// Reads one record, judging each byte as soon as it is there: what can be refused is refused early.
fn record(bytes: &[u8], first: bool) -> Result<Record<'_>, HelloError> {
    let mut bytes = Reader(bytes);
    let content = bytes.u8().ok_or(Incomplete)?;
    if content != HANDSHAKE {
        if !first {
            return Err(Malformed("another record type inside the hello"));
        }
        // An SSLv2 hello has a length with the top bit set, then message type 1.
        return match (content & 0x80 != 0, bytes.0.get(1)) {
            (true, None) => Err(Incomplete),
            (true, Some(&CLIENT_HELLO)) => Err(SslV2),
            _ => Err(NotTls),
        };
    }
    if bytes.u8().ok_or(Incomplete)? != 3 {
        return Err(if first {
            NotTls
        } else {
            Malformed("another record version inside the hello")
        });
    }
    bytes.u8().ok_or(Incomplete)?; // minor version: clients send 1 or 3, and must be free to (RFC 8446 5.1)
    let length = usize::from(bytes.u16().ok_or(Incomplete)?);
    match length {
        0 => Err(Malformed("an empty handshake record")),
        1..=MAX_RECORD => {
            let (payload, rest) = bytes.0.split_at(length.min(bytes.0.len()));
            Ok(Record {
                payload,
                complete: payload.len() == length,
                rest,
            })
        }
        _ if first => Err(NotTls),
        _ => Err(Malformed("a record above 16 KiB")),
    }
}

/// The message's body if it is all there; `None` if bytes are missing.
fn handshake_body(bytes: &[u8]) -> Result<Option<&[u8]>, HelloError> {
    let mut bytes = Reader(bytes);
    match bytes.u8() {
        Some(CLIENT_HELLO) => {}
        Some(_) => return Err(Malformed("the first handshake message is no client hello")),
        None => return Ok(None),
    }
    let Some(length) = bytes.u24() else {
        return Ok(None);
    };
    if length > MAX_HELLO {
        return Err(TooLarge);
    }
    Ok(bytes.0.get(..length))
}

/// RFC 8446 section 4.1.2, with the extensions of RFC 6066 section 3.
fn client_hello(body: &[u8]) -> Result<Hello, HelloError> {
    let mut body = Reader(body);
    body.take(2).ok_or(Malformed("no version"))?;
    body.take(32).ok_or(Malformed("no random"))?;
    let session = body.u8().ok_or(Malformed("no session id"))?;
    body.take(usize::from(session))
        .ok_or(Malformed("session id cut short"))?;
    body.vec16().ok_or(Malformed("cipher suites cut short"))?;
    let compression = body.u8().ok_or(Malformed("no compression methods"))?;
    body.take(usize::from(compression))
        .ok_or(Malformed("compression methods cut short"))?;

    let mut hello = Hello {
        server_name: None,
        encrypted: false,
    };
    if body.0.is_empty() {
        return Ok(hello); // before TLS 1.2 the extensions were optional
    }
    let mut extensions = Reader(body.vec16().ok_or(Malformed("extensions cut short"))?);
    if !body.0.is_empty() {
        return Err(Malformed("bytes after the extensions"));
    }
    let mut seen = false;
    while !extensions.0.is_empty() {
        let kind = extensions.u16().ok_or(Malformed("extension cut short"))?;
        let data = extensions.vec16().ok_or(Malformed("extension cut short"))?;
        match kind {
            SERVER_NAME if seen => return Err(Malformed("two server name extensions")),
            SERVER_NAME => {
                seen = true;
                hello.server_name = server_name(data)?;
            }
            ENCRYPTED_CLIENT_HELLO => hello.encrypted = true,
            _ => {}
        }
    }
    Ok(hello)
}

fn server_name(data: &[u8]) -> Result<Option<ServerName>, HelloError> {
    let mut data = Reader(data);
    let mut list = Reader(data.vec16().ok_or(Malformed("server name list cut short"))?);
    if !data.0.is_empty() || list.0.is_empty() {
        return Err(Malformed("server name list with a wrong length"));
    }
    let mut found = None;
    while !list.0.is_empty() {
        let kind = list.u8().ok_or(Malformed("server name cut short"))?;
        let name = list.vec16().ok_or(Malformed("server name cut short"))?;
        if kind != HOST_NAME {
            continue; // no other kind was ever defined
        }
        if found.is_some() {
            return Err(Malformed("two server names"));
        }
        found = Some(ServerName::from_wire(name).ok_or(Malformed("a server name that is no DNS name"))?);
    }
    Ok(found)
}

/// Takes bytes off the front, or nothing at all.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn u24(&mut self) -> Option<usize> {
        self.take(3)
            .map(|b| usize::from(b[0]) << 16 | usize::from(b[1]) << 8 | usize::from(b[2]))
    }

    fn vec16(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }
}

#[cfg(test)]
#[path = "client_hello_tests.rs"]
mod tests;
