//! Packets as clients and relays send them.

use std::net::Ipv4Addr;

use crate::mac::Mac;
use crate::message::MessageType;
use crate::options::code;

/// A client's message under construction.
#[derive(Clone, Debug)]
pub struct Packet {
    bytes: Vec<u8>,
}

impl Packet {
    /// A message of a client with this hardware address; its transaction is that of the address's last bytes.
    pub fn new(kind: MessageType, mac: Mac) -> Self {
        let mut bytes = vec![0; 236];
        bytes[..4].copy_from_slice(&[1, 1, 6, 0]);
        bytes[4..8].copy_from_slice(&mac.0[2..]);
        bytes[28..34].copy_from_slice(&mac.0);
        bytes.extend([99, 130, 83, 99]);
        Packet { bytes }.option(code::MESSAGE_TYPE, &[kind as u8])
    }

    /// Appends an option, in pieces if it is long.
    pub fn option(mut self, code: u8, value: &[u8]) -> Self {
        if value.is_empty() {
            self.bytes.extend([code, 0]);
        }
        for piece in value.chunks(255) {
            self.bytes.extend([code, piece.len() as u8]);
            self.bytes.extend(piece);
        }
        self
    }

    /// Sets bytes of the header.
    pub fn at(mut self, offset: usize, value: &[u8]) -> Self {
        self.bytes[offset..offset + value.len()].copy_from_slice(value);
        self
    }

    /// Seconds since the client began.
    pub fn secs(self, secs: u16) -> Self {
        self.at(8, &secs.to_be_bytes())
    }

    /// The client takes broadcasts only.
    pub fn broadcast(self) -> Self {
        self.at(10, &[0x80, 0])
    }

    /// The address that the client has.
    pub fn ciaddr(self, address: Ipv4Addr) -> Self {
        self.at(12, &address.octets())
    }

    /// The relay.
    pub fn giaddr(self, address: Ipv4Addr) -> Self {
        self.at(24, &address.octets())
    }

    /// The address that the client asks for.
    pub fn requested(self, address: Ipv4Addr) -> Self {
        self.option(code::REQUESTED_ADDRESS, &address.octets())
    }

    /// The server that the client chose.
    pub fn server(self, address: Ipv4Addr) -> Self {
        self.option(code::SERVER_ID, &address.octets())
    }

    /// The client's identifier.
    pub fn client_id(self, id: &[u8]) -> Self {
        self.option(code::CLIENT_ID, id)
    }

    /// The finished packet.
    pub fn build(mut self) -> Vec<u8> {
        self.bytes.push(code::END);
        if self.bytes.len() < 300 {
            self.bytes.resize(300, 0);
        }
        self.bytes
    }
}

impl From<Vec<u8>> for Packet {
    /// A finished packet, to be sent again.
    fn from(bytes: Vec<u8>) -> Self {
        Packet { bytes }
    }
}

/// A server's answer, read back by hand so that a test does not trust the encoder.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The whole message.
    pub bytes: Vec<u8>,
}

impl Answer {
    /// The message type.
    pub fn kind(&self) -> u8 {
        self.option(code::MESSAGE_TYPE).expect("a type")[0]
    }

    /// The client's address.
    pub fn yiaddr(&self) -> Ipv4Addr {
        Ipv4Addr::new(self.bytes[16], self.bytes[17], self.bytes[18], self.bytes[19])
    }

    /// The pieces of an option joined, with `file` and `sname` if they are lent.
    pub fn option(&self, wanted: u8) -> Option<Vec<u8>> {
        let lent = scan(&self.bytes[240..], code::OVERLOAD).map_or(0, |value| value[0]);
        let mut fields = vec![&self.bytes[240..]];
        if lent & 1 != 0 {
            fields.push(&self.bytes[108..236]);
        }
        if lent & 2 != 0 {
            fields.push(&self.bytes[44..108]);
        }
        let pieces: Vec<Vec<u8>> = fields
            .into_iter()
            .filter_map(|field| scan(field, wanted))
            .collect();
        if pieces.is_empty() {
            None
        } else {
            Some(pieces.concat())
        }
    }

    /// The numbers of the options in the options field, in order.
    pub fn codes(&self) -> Vec<u8> {
        let mut codes = Vec::new();
        let mut at = 240;
        while self.bytes[at] != code::END {
            codes.push(self.bytes[at]);
            at += 2 + usize::from(self.bytes[at + 1]);
        }
        codes
    }
}

fn scan(field: &[u8], wanted: u8) -> Option<Vec<u8>> {
    let mut found = None;
    let mut at = 0;
    while field[at] != code::END {
        if field[at] == code::PAD {
            at += 1;
            continue;
        }
        let length = usize::from(field[at + 1]);
        if field[at] == wanted {
            found
                .get_or_insert_with(Vec::new)
                .extend(&field[at + 2..at + 2 + length]);
        }
        at += 2 + length;
    }
    found
}
