//! An answer, and its bytes.
//!
//! [`Reply`] says what an answer is; [`Reply::encode`] writes it for one request into a buffer that is used again.
//! Options come in this order: those that every answer has, those that the client asked for in its own order
//! (all, if it asked for none), its identifier, and the relay's information last (RFC 3046). Options longer than
//! 255 bytes are written in pieces, what does not fit into the options field goes to `file` and `sname`
//! (option 52), and what fits nowhere is left out and named in the result.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::mac::Mac;
use crate::message::{COOKIE, HEADER, Message, MessageType};
use crate::options::code;

/// The shortest message: some relays and boot loaders drop shorter ones (RFC 1542, section 2.1).
const SHORTEST: usize = 300;
/// What IP and UDP add to a message.
const IP_UDP: usize = 28;
/// The longest message: it must fit into one Ethernet frame.
const LONGEST: usize = 1500 - IP_UDP;
/// What a client that names no size takes (RFC 2131, section 2).
const DEFAULT: usize = 576 - IP_UDP;

/// An answer to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What it is.
    pub kind: MessageType,
    /// The client's address, or none.
    pub yiaddr: Ipv4Addr,
    /// How long the client may use it.
    pub times: Option<Times>,
    /// The client's name.
    pub host_name: Option<Arc<str>>,
    /// Why it is a NAK.
    pub message: Option<&'static str>,
    /// Whether two messages stand for four (RFC 4039).
    pub rapid: bool,
    /// Where it goes.
    pub to: Destination,
}

/// Where an answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To the relay's port 67.
    Relay(Ipv4Addr),
    /// To a client that has this address.
    Address(Ipv4Addr),
    /// To a client that has no address yet, by its hardware address.
    Hardware(Mac, Ipv4Addr),
    /// To every station.
    Broadcast,
}

/// How long an address may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The lease, in seconds.
    pub lease: u32,
    /// When the client asks its server for more, in seconds.
    pub renew: u32,
    /// When it asks any server, in seconds.
    pub rebind: u32,
}

impl Times {
    /// Times for a lease. Renewal comes a little before the half of it and rebinding before seven eighths, each
    /// client by its own bit, so that nodes which started together do not renew together (RFC 2131, section 4.4.5).
    pub fn new(lease: Duration, mac: Mac, xid: [u8; 4]) -> Self {
        let lease = lease.as_secs().min(u64::from(u32::MAX - 1));
        let mix = |sum: u64, byte: &u8| sum * 31 + u64::from(*byte); // ten bytes stay below 2⁶⁴
        let fuzz = mac.0.iter().chain(&xid).fold(0, mix) % 1009;
        let early = lease * fuzz / (1009 * 20); // up to a twentieth
        let seconds = |value: u64| u32::try_from(value).unwrap_or(u32::MAX - 1);
        Times {
            lease: seconds(lease),
            renew: seconds(lease / 2 - early),
            rebind: seconds(lease * 7 / 8 - early),
        }
    }
}

impl Reply {
    /// Writes the answer to `request`, in place of what `out` had. Returns the options that fitted nowhere.
    pub fn encode(&self, config: &Config, request: &Message<'_>, out: &mut Vec<u8>) -> Vec<u8> {
        self.header(config, request, out);
        // These are short: they fit into the shortest message.
        put_pieces(out, code::MESSAGE_TYPE, &[self.kind as u8]);
        put_pieces(out, code::SERVER_ID, &config.server.octets());
        if let Some(times) = self.times {
            put_pieces(out, code::LEASE_TIME, &times.lease.to_be_bytes());
            put_pieces(out, code::RENEWAL_TIME, &times.renew.to_be_bytes());
            put_pieces(out, code::REBINDING_TIME, &times.rebind.to_be_bytes());
        }
        if let Some(message) = self.message {
            put_pieces(out, code::MESSAGE, message.as_bytes());
        }
        if self.rapid {
            put_pieces(out, code::RAPID_COMMIT, &[]);
        }
        let size = request
            .max_size
            .map_or(DEFAULT, |size| usize::from(size).saturating_sub(IP_UDP));
        let size = size.clamp(DEFAULT, LONGEST);
        // What a relay says is repeated whole or not at all.
        let room = size.saturating_sub(out.len() + 4);
        let said = request.options.relay_agent.as_deref();
        let relay = said.filter(|value| wire_length(value) <= room);
        let last = relay.map_or(0, wire_length) + 1;
        let limit = size.saturating_sub(last + 3); // three for option 52
        let mut writer = Writer {
            out,
            limit,
            spilled: Vec::new(),
        };
        if let Some(id) = &request.options.client_id {
            writer.put(code::CLIENT_ID, id); // RFC 6842
        }
        if self.kind != MessageType::Nak {
            self.parameters(config, request, &mut writer);
        }
        let (lent, mut left_out) = writer.lend();
        if lent > 0 {
            out.extend([code::OVERLOAD, 1, lent]);
        } else if self.kind != MessageType::Nak {
            boot_fields(config, out);
        }
        if let Some(relay) = relay {
            put_pieces(out, code::RELAY_AGENT, relay);
        }
        if relay.is_none() && said.is_some() {
            left_out.push(code::RELAY_AGENT);
        }
        out.push(code::END);
        if out.len() < SHORTEST {
            out.resize(SHORTEST, code::PAD);
        }
        left_out
    }

    fn header(&self, config: &Config, request: &Message<'_>, out: &mut Vec<u8>) {
        let nak = self.kind == MessageType::Nak;
        out.clear();
        out.extend([2, 1, 6, 0]);
        out.extend(request.xid);
        out.extend([0, 0]);
        // A relay broadcasts a NAK: the client may have no right to the address that it uses (section 4.3.2).
        out.extend([
            request.flags[0] | if nak && request.is_relayed() { 0x80 } else { 0 },
            request.flags[1],
        ]);
        let ciaddr = if nak || self.kind == MessageType::Offer {
            Ipv4Addr::UNSPECIFIED
        } else {
            request.ciaddr
        };
        out.extend(ciaddr.octets());
        out.extend(self.yiaddr.octets());
        out.extend(if nak { [0; 4] } else { next_server(config).octets() });
        out.extend(request.giaddr.octets());
        out.extend(request.mac.0);
        out.resize(HEADER, 0);
        out.extend(COOKIE);
    }

    /// What the client asked for.
    fn parameters<'a>(&'a self, config: &'a Config, request: &Message<'_>, writer: &mut Writer<'_, 'a>) {
        let value = |wanted: u8| match wanted {
            code::HOST_NAME => self.host_name.as_deref().map(str::as_bytes),
            _ => config.options.get(wanted),
        };
        if let Some(mask) = value(code::SUBNET_MASK) {
            writer.put(code::SUBNET_MASK, mask);
        }
        let mut done = Seen::default();
        done.first_time(code::SUBNET_MASK);
        let mut put = |wanted: u8| {
            if let (true, Some(value)) = (done.first_time(wanted), value(wanted)) {
                writer.put(wanted, value);
            }
        };
        match &request.options.parameter_list {
            // Option 3 before option 121 would be read first by clients that know both; the order is theirs.
            Some(wanted) => wanted.iter().copied().for_each(&mut put),
            None => (1..code::END).for_each(&mut put),
        }
    }
}

/// The server of the next stage, for boot loaders that read it from the header.
fn next_server(config: &Config) -> Ipv4Addr {
    let text = config
        .options
        .get(code::TFTP_SERVER)
        .and_then(|value| std::str::from_utf8(value).ok());
    text.and_then(|text| text.parse().ok())
        .unwrap_or(Ipv4Addr::UNSPECIFIED)
}

/// Repeats options 66 and 67 in the header fields that older boot loaders read.
fn boot_fields(config: &Config, out: &mut [u8]) {
    for (number, start, length) in [(code::TFTP_SERVER, 44, 64), (code::BOOT_FILE, 108, 128)] {
        if let Some(value) = config.options.get(number).filter(|value| value.len() < length)
            && let Some(field) = out.get_mut(start..start + value.len())
        {
            field.copy_from_slice(value);
        }
    }
}

/// The bytes of an option with the code and length of each of its pieces.
fn wire_length(value: &[u8]) -> usize {
    value.len() + 2 * value.len().div_ceil(255).max(1)
}

fn put_pieces(out: &mut Vec<u8>, code: u8, value: &[u8]) {
    if value.is_empty() {
        out.extend([code, 0]);
    }
    for piece in value.chunks(255) {
        out.extend([code, piece.len() as u8]); // at most 255 by the line above
        out.extend(piece);
    }
}

/// Which options were written, a bit each.
#[derive(Default)]
struct Seen([u128; 2]);

impl Seen {
    fn first_time(&mut self, code: u8) -> bool {
        let [low, high] = &mut self.0;
        let (half, bit) = (if code < 128 { low } else { high }, 1 << (code % 128));
        let first = *half & bit == 0;
        *half |= bit;
        first
    }
}

struct Writer<'o, 'v> {
    out: &'o mut Vec<u8>,
    limit: usize,
    spilled: Vec<(u8, &'v [u8])>,
}

impl<'v> Writer<'_, 'v> {
    fn put(&mut self, code: u8, value: &'v [u8]) {
        if self.out.len() + wire_length(value) <= self.limit {
            put_pieces(self.out, code, value);
        } else {
            self.spilled.push((code, value));
        }
    }

    /// Puts what spilled over into `file` and `sname`. Returns the value of option 52 and what fitted nowhere.
    fn lend(self) -> (u8, Vec<u8>) {
        let mut lent = 0;
        let mut left_out = Vec::new();
        let mut fields = [(1, 108..HEADER, Vec::new()), (2, 44..108, Vec::new())];
        for (code, value) in self.spilled {
            let room = fields
                .iter_mut()
                .find(|(_, field, used)| used.len() + wire_length(value) < field.len());
            match room {
                Some((bit, _, used)) => {
                    lent |= *bit;
                    put_pieces(used, code, value);
                }
                None => left_out.push(code),
            }
        }
        for (_, field, mut used) in fields {
            if !used.is_empty()
                && let Some(field) = self.out.get_mut(field)
            {
                used.push(code::END);
                used.resize(field.len(), code::PAD);
                field.copy_from_slice(&used);
            }
        }
        (lent, left_out)
    }
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
