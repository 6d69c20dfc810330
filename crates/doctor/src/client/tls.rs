//! TLS by server name, and one HTTP request on it.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// More than this is no answer to a question of ours.
const LONGEST_ANSWER: usize = 64 * 1024;

/// Opens TLS to an address by a server name.
pub async fn open(
    tls: Arc<ClientConfig>,
    address: SocketAddr,
    name: &str,
) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    handshake(tls, stream, name).await
}

/// TLS on a connection that is there.
pub async fn handshake(
    tls: Arc<ClientConfig>,
    stream: TcpStream,
    name: &str,
) -> io::Result<TlsStream<TcpStream>> {
    let bad = || io::Error::new(io::ErrorKind::InvalidInput, format!("`{name}` is no server name"));
    let server = ServerName::try_from(name.to_owned()).map_err(|_| bad())?;
    TlsConnector::from(tls).connect(server, stream).await
}

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The server's clock.
    pub date: Option<Timestamp>,
    /// The body, as far as its length was given.
    pub body: String,
}

/// Asks for a page on an open connection.
pub async fn get(stream: &mut TlsStream<TcpStream>, host: &str, path: &str) -> io::Result<Answer> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nuser-agent: oooi\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut reply = Vec::new();
    while reply.len() < LONGEST_ANSWER {
        if stream.read_buf(&mut reply).await? == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the connection was closed before the answer",
            ));
        }
        if let Some(answer) = read(&reply) {
            return answer;
        }
    }
    Err(io::Error::other("what came is not an HTTP answer"))
}

/// An answer, once its head and as much of its body as it announces is there.
fn read(reply: &[u8]) -> Option<io::Result<Answer>> {
    if !reply.starts_with(b"HTTP/1.") && reply.len() >= 7 {
        return Some(Err(io::Error::other("what came is not an HTTP answer")));
    }
    let end = reply.windows(4).position(|window| window == b"\r\n\r\n")?;
    let (head, body) = reply.split_at_checked(end)?;
    let head = String::from_utf8_lossy(head);
    let body = body.get(4..)?;
    let header = |wanted: &str| {
        head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case(wanted).then(|| value.trim().to_owned())
        })
    };
    let length = header("content-length")
        .and_then(|length| length.parse().ok())
        .unwrap_or(0);
    let body = body.get(..length)?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let Some(status) = status else {
        return Some(Err(io::Error::other("what came is not an HTTP answer")));
    };
    Some(Ok(Answer {
        status,
        date: header("date").and_then(|date| {
            let parsed = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(&date);
            parsed.ok()
        }),
        body: String::from_utf8_lossy(body).into_owned(),
    }))
}

/// What is wrong with a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateFault {
    /// It is over.
    Expired {
        /// Since when.
        since: Option<Timestamp>,
    },
    /// It is not valid yet.
    NotYetValid {
        /// From when on.
        from: Option<Timestamp>,
    },
    /// It is for other names.
    Names {
        /// Those that it is for.
        presented: Vec<String>,
    },
    /// Nobody whom the client trusts made it.
    Issuer,
    /// Something else.
    Other(String),
}

/// Takes every certificate, and remembers what is wrong with it.
#[derive(Debug)]
pub struct Examiner {
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
    faults: Mutex<Vec<CertificateFault>>,
}

impl Examiner {
    /// One that trusts `roots`. With none of them nobody's certificate is from a known issuer.
    pub fn new(roots: RootCertStore) -> Arc<Self> {
        Arc::new(Examiner {
            roots,
            provider: Arc::new(rustls::crypto::ring::default_provider()),
            faults: Mutex::default(),
        })
    }

    /// A configuration of a client that asks this one.
    pub fn client(self: &Arc<Self>) -> Result<Arc<ClientConfig>, rustls::Error> {
        let config = ClientConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(self.clone())
            .with_no_client_auth();
        Ok(Arc::new(config))
    }

    /// What was wrong with the last certificate.
    pub fn faults(&self) -> Vec<CertificateFault> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ServerCertVerifier for Examiner {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let algorithms = self.provider.signature_verification_algorithms.all;
        let verdicts = match ParsedCertificate::try_from(end_entity) {
            Ok(parsed) => vec![
                verify_server_cert_signed_by_trust_anchor(
                    &parsed,
                    &self.roots,
                    intermediates,
                    now,
                    algorithms,
                ),
                verify_server_name(&parsed, server_name),
            ],
            Err(error) => vec![Err(error)],
        };
        let faults = verdicts.into_iter().filter_map(Result::err).map(fault).collect();
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner) = faults;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

fn fault(error: rustls::Error) -> CertificateFault {
    let moment = |time: UnixTime| {
        let seconds = i64::try_from(time.as_secs()).ok()?;
        Timestamp::from_second(seconds).ok()
    };
    match error {
        rustls::Error::InvalidCertificate(error) => match error {
            CertificateError::Expired => CertificateFault::Expired { since: None },
            CertificateError::ExpiredContext { not_after, .. } => CertificateFault::Expired {
                since: moment(not_after),
            },
            CertificateError::NotValidYet => CertificateFault::NotYetValid { from: None },
            CertificateError::NotValidYetContext { not_before, .. } => CertificateFault::NotYetValid {
                from: moment(not_before),
            },
            CertificateError::NotValidForName => CertificateFault::Names {
                presented: Vec::new(),
            },
            CertificateError::NotValidForNameContext { presented, .. } => {
                CertificateFault::Names { presented }
            }
            // A bad signature is that of another key under the same name.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => CertificateFault::Issuer,
            other => CertificateFault::Other(rustls::Error::InvalidCertificate(other).to_string()),
        },
        other => CertificateFault::Other(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    const ANSWER: &[u8] =
        b"HTTP/1.1 401 Unauthorized\r\nDate: Mon, 16 Nov 2026 02:19:37 GMT\r\nContent-Length: 2\r\n\r\nno";

    #[test]
    fn an_answer_is_read_when_all_of_it_is_there() {
        for length in 0..ANSWER.len() {
            assert!(read(&ANSWER[..length]).is_none(), "{length} bytes");
        }
        let answer = read(ANSWER).unwrap().unwrap();
        assert_eq!((answer.status, &*answer.body), (401, "no"));
        assert_eq!(answer.date.unwrap().to_string(), "2026-11-16T02:19:37Z");
    }

    #[test]
    fn what_is_not_http_is_said_to_be_so() {
        assert!(read(b"\x00\x00\x12\x04\x00\x00\x00\x00").unwrap().is_err());
    }
}
