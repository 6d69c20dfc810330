//! A DHCP message as a client or relay sent it.
//!
//! [`Message::parse`] borrows the packet and checks all that later steps rely on: lengths, the magic cookie, the
//! hardware type, the bounds of every option, and the size of the options that steer a decision. What it refuses
//! is a [`Malformed`], whose label counts it in a metric.

use std::net::Ipv4Addr;

use crate::mac::Mac;
use crate::options::{Options, code, fixed};

/// Length of the fields before the magic cookie.
pub(crate) const HEADER: usize = 236;
/// What tells DHCP from BOOTP vendor extensions of other kinds (RFC 2131, section 3).
pub(crate) const COOKIE: [u8; 4] = [99, 130, 83, 99];

/// Why a packet is not a message that the server can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Malformed {
    /// It ends before the options begin.
    #[error("the packet is shorter than a DHCP message")]
    Truncated,
    /// It is longer than the receive buffer.
    #[error("the packet is longer than any DHCP message on this link")]
    Oversized,
    /// It is not a request of a client.
    #[error("the packet is not a client's request (op {0})")]
    NotARequest(u8),
    /// The client is not an Ethernet station, or its address is a group.
    #[error("the client's hardware address is not that of an Ethernet station")]
    Hardware,
    /// The magic cookie is missing.
    #[error("the packet has no DHCP magic cookie")]
    Cookie,
    /// An option runs over its field, or has a length that it cannot have.
    #[error("option {0} has a wrong length or contradicts itself")]
    Option(u8),
    /// There is no message type.
    #[error("the packet is BOOTP, not DHCP: it has no message type")]
    NoType,
    /// The message type is none that a client sends.
    #[error("message type {0} is none that a client sends")]
    Type(u8),
    /// The client's identifier is too short (RFC 2132, section 9.14) or longer than a lease keeps.
    #[error("the client identifier has {0} bytes; 2 to 255 are allowed")]
    ClientId(usize),
    /// It went through too many relays.
    #[error("the packet passed {0} relays, which is a loop")]
    Hops(u8),
}

impl Malformed {
    /// One of each, for the series that are there from the beginning.
    pub(crate) const EXAMPLES: [Malformed; 10] = [
        Malformed::Truncated,
        Malformed::Oversized,
        Malformed::NotARequest(0),
        Malformed::Hardware,
        Malformed::Cookie,
        Malformed::Option(0),
        Malformed::NoType,
        Malformed::Type(0),
        Malformed::ClientId(0),
        Malformed::Hops(0),
    ];

    /// The reason as the label of a metric.
    pub fn label(self) -> &'static str {
        match self {
            Malformed::Truncated => "truncated",
            Malformed::Oversized => "oversized",
            Malformed::NotARequest(_) => "not_a_request",
            Malformed::Hardware => "hardware",
            Malformed::Cookie => "cookie",
            Malformed::Option(_) => "option",
            Malformed::NoType => "no_type",
            Malformed::Type(_) => "type",
            Malformed::ClientId(_) => "client_id",
            Malformed::Hops(_) => "hops",
        }
    }
}

/// What a message is for (option 53).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of RFC 2131")]
pub enum MessageType {
    Discover = 1,
    Offer = 2,
    Request = 3,
    Decline = 4,
    Ack = 5,
    Nak = 6,
    Release = 7,
    Inform = 8,
}

impl MessageType {
    /// The type as the label of a metric or a log field.
    pub fn label(self) -> &'static str {
        match self {
            MessageType::Discover => "discover",
            MessageType::Offer => "offer",
            MessageType::Request => "request",
            MessageType::Decline => "decline",
            MessageType::Ack => "ack",
            MessageType::Nak => "nak",
            MessageType::Release => "release",
            MessageType::Inform => "inform",
        }
    }

    /// The type of a message that a client may send.
    fn from_client(number: u8) -> Result<Self, Malformed> {
        Ok(match number {
            1 => MessageType::Discover,
            3 => MessageType::Request,
            4 => MessageType::Decline,
            7 => MessageType::Release,
            8 => MessageType::Inform,
            other => return Err(Malformed::Type(other)),
        })
    }
}

/// A client's message, checked.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    /// What it is for.
    pub kind: MessageType,
    /// The transaction that an answer repeats.
    pub xid: [u8; 4],
    /// Seconds since the client began.
    pub secs: u16,
    /// The flags field; an answer repeats it.
    pub flags: [u8; 2],
    /// The address that the client has, or none.
    pub ciaddr: Ipv4Addr,
    /// The relay that passed the message on, or none.
    pub giaddr: Ipv4Addr,
    /// The client's hardware address.
    pub mac: Mac,
    /// The options.
    pub options: Options<'a>,
    /// The address that the client asks for (option 50).
    pub requested: Option<Ipv4Addr>,
    /// The server that the client chose (option 54).
    pub server: Option<Ipv4Addr>,
    /// The largest message that the client takes (option 57).
    pub max_size: Option<u16>,
    /// What names a client that sends no identifier: hardware type and address (RFC 2131, section 4.2).
    hardware: [u8; 7],
}

impl<'a> Message<'a> {
    /// Reads a packet.
    pub fn parse(packet: &'a [u8]) -> Result<Self, Malformed> {
        let (header, rest) = packet.split_first_chunk::<HEADER>().ok_or(Malformed::Truncated)?;
        let header = Header(header);
        let (cookie, options) = rest.split_first_chunk::<4>().ok_or(Malformed::Truncated)?;
        let [op, htype, hlen, hops] = header.bytes::<0, 4>();
        if op != 1 {
            return Err(Malformed::NotARequest(op));
        }
        let mac = Mac(header.bytes::<28, 6>());
        if htype != 1 || hlen != 6 || !mac.is_unicast() {
            return Err(Malformed::Hardware);
        }
        if *cookie != COOKIE {
            return Err(Malformed::Cookie);
        }
        if hops > 16 {
            return Err(Malformed::Hops(hops)); // RFC 1542, section 4.1.1
        }
        let options = Options::read(options, header.file(), header.sname())?;
        let [kind] = fixed(&options.message_type, code::MESSAGE_TYPE)?.ok_or(Malformed::NoType)?;
        if let Some(id) = &options.client_id
            && !(2..=255).contains(&id.len())
        {
            return Err(Malformed::ClientId(id.len()));
        }
        let [a, b, c, d, e, f] = mac.0;
        Ok(Message {
            kind: MessageType::from_client(kind)?,
            xid: header.bytes::<4, 4>(),
            secs: u16::from_be_bytes(header.bytes::<8, 2>()),
            flags: header.bytes::<10, 2>(),
            ciaddr: Ipv4Addr::from(header.bytes::<12, 4>()),
            giaddr: Ipv4Addr::from(header.bytes::<24, 4>()),
            mac,
            requested: fixed(&options.requested_address, code::REQUESTED_ADDRESS)?.map(Ipv4Addr::from_octets),
            server: fixed(&options.server_id, code::SERVER_ID)?.map(Ipv4Addr::from_octets),
            max_size: fixed(&options.max_message_size, code::MAX_MESSAGE_SIZE)?.map(u16::from_be_bytes),
            options,
            hardware: [htype, a, b, c, d, e, f],
        })
    }

    /// Whether the client can take broadcasts only.
    pub fn wants_broadcast(&self) -> bool {
        self.flags[0] & 0x80 != 0
    }

    /// Whether a relay passed the message on.
    pub fn is_relayed(&self) -> bool {
        !self.giaddr.is_unspecified()
    }

    /// What names the client: its identifier (option 61), or else its hardware.
    pub fn identity(&self) -> &[u8] {
        self.options.client_id.as_deref().unwrap_or(&self.hardware)
    }

    /// The name that the client gives itself (option 81 or 12): letters, digits, dots and hyphens, or nothing.
    pub fn host_name(&self) -> Option<&str> {
        let name = match self.options.fqdn.as_deref() {
            // Flags and two bytes without meaning come first. Names in wire form (flag E) are left to option 12.
            Some([flags, _, _, name @ ..]) if flags & 4 == 0 && !name.is_empty() => name,
            _ => self.options.host_name.as_deref()?,
        };
        let name = name.strip_suffix(b"\0").unwrap_or(name);
        let sound = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        if name.is_empty() || name.len() > 253 || !name.iter().all(sound) {
            return None;
        }
        std::str::from_utf8(name).ok()
    }
}

/// The transaction of a packet that may be no message, if it reaches so far.
pub(crate) fn xid(packet: &[u8]) -> Option<[u8; 4]> {
    packet.get(4..8)?.try_into().ok()
}

/// The hardware address in a packet that may be no message, if it reaches so far and is of Ethernet.
pub(crate) fn mac(packet: &[u8]) -> Option<Mac> {
    let bytes = packet.get(28..34).filter(|_| packet.get(1..3) == Some(&[1, 6]))?;
    bytes.try_into().ok().map(Mac)
}

/// The fixed fields, whose positions are checked when the program is compiled.
struct Header<'a>(&'a [u8; HEADER]);

impl<'a> Header<'a> {
    #[allow(
        clippy::indexing_slicing,
        reason = "the line before makes it a compile error to be out of bounds"
    )]
    fn bytes<const AT: usize, const N: usize>(&self) -> [u8; N] {
        const { assert!(AT + N <= HEADER) };
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.0[AT..AT + N]);
        bytes
    }

    fn sname(&self) -> &'a [u8] {
        &self.0[44..108]
    }

    fn file(&self) -> &'a [u8] {
        &self.0[108..236]
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
