//! The DNS message on the wire, as far as this server needs it.
//!
//! Four parts, all of them pure: [`name`] reads and compares names, [`query`] reads what a client sends,
//! [`writer`] writes what it gets, and [`reply`] reads what an upstream sends and keeps of it only what
//! answers the question. Nothing here allocates on the way of a question that can be answered at once.

pub mod name;
pub mod query;
mod rebuild;
pub mod reply;
pub mod writer;

/// Record types, as far as some rule here depends on them (IANA "DNS Parameters").
pub mod kind {
    #![allow(missing_docs, reason = "the names are those of the IANA registry")]
    pub const A: u16 = 1;
    pub const NS: u16 = 2;
    pub const CNAME: u16 = 5;
    pub const SOA: u16 = 6;
    pub const PTR: u16 = 12;
    pub const HINFO: u16 = 13;
    pub const MX: u16 = 15;
    pub const TXT: u16 = 16;
    pub const AAAA: u16 = 28;
    pub const SRV: u16 = 33;
    pub const DNAME: u16 = 39;
    pub const OPT: u16 = 41;
    pub const DS: u16 = 43;
    pub const RRSIG: u16 = 46;
    pub const NSEC: u16 = 47;
    pub const DNSKEY: u16 = 48;
    pub const NSEC3: u16 = 50;
    pub const SVCB: u16 = 64;
    pub const HTTPS: u16 = 65;
    pub const TKEY: u16 = 249;
    pub const TSIG: u16 = 250;
    pub const IXFR: u16 = 251;
    pub const AXFR: u16 = 252;
    pub const MAILB: u16 = 253;
    pub const MAILA: u16 = 254;
    pub const ANY: u16 = 255;
}

/// The Internet class; every other one is refused.
pub const CLASS_IN: u16 = 1;

/// Size of the fixed header of a message.
pub const HEADER: usize = 12;

/// The largest UDP answer that is sent, whatever the client would take: it passes every link of 1280
/// octets unfragmented (DNS Flag Day 2020).
pub const UDP_LIMIT: usize = 1232;

/// The largest message there is: TCP counts its length in two octets.
pub const TCP_LIMIT: usize = 65_535;

/// Bits of the second 16-bit word of the header.
pub mod flag {
    /// This is an answer.
    pub const RESPONSE: u16 = 0x8000;
    /// The opcode's four bits.
    pub const OPCODE: u16 = 0x7800;
    /// The answer comes from the owner of the zone.
    pub const AUTHORITATIVE: u16 = 0x0400;
    /// The answer did not fit; ask by TCP.
    pub const TRUNCATED: u16 = 0x0200;
    /// The client wants recursion.
    pub const RECURSION_DESIRED: u16 = 0x0100;
    /// The server would recurse (or forward).
    pub const RECURSION_AVAILABLE: u16 = 0x0080;
    /// The upstream validated the answer by DNSSEC.
    pub const AUTHENTIC: u16 = 0x0020;
    /// The client wants data that did not validate, too.
    pub const CHECKING_DISABLED: u16 = 0x0010;
}

/// Response codes that this server sends or reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rcode(pub u16);

#[allow(missing_docs, reason = "the names are those of the IANA registry")]
impl Rcode {
    pub const NOERROR: Rcode = Rcode(0);
    pub const FORMERR: Rcode = Rcode(1);
    pub const SERVFAIL: Rcode = Rcode(2);
    pub const NXDOMAIN: Rcode = Rcode(3);
    pub const NOTIMP: Rcode = Rcode(4);
    pub const REFUSED: Rcode = Rcode(5);
    pub const BADVERS: Rcode = Rcode(16);
}

/// Reads a big-endian 16-bit number, or nothing where the message ends before it.
pub(crate) fn read_u16(message: &[u8], at: usize) -> Option<u16> {
    let octets = message.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes([octets[0], octets[1]]))
}

/// Reads a big-endian 32-bit number, or nothing where the message ends before it.
pub(crate) fn read_u32(message: &[u8], at: usize) -> Option<u32> {
    let octets = message.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes([octets[0], octets[1], octets[2], octets[3]]))
}
