//! Ethernet frames: answers to clients that have no address yet, ARP probes, and what other stations send.

use std::net::Ipv4Addr;

use crate::mac::Mac;
use crate::message::{COOKIE, HEADER};
use crate::options::{self, Options, code};

const ETHERNET: usize = 14;
const IPV4: [u8; 2] = [0x08, 0x00];
const ARP: [u8; 2] = [0x08, 0x06];

/// Appends a frame that carries `message` from port 67 of `source` to port 68 of the client.
pub fn answer(out: &mut Vec<u8>, from: (Mac, Ipv4Addr), to: (Mac, Ipv4Addr), message: &[u8]) {
    let udp_length = (message.len() as u16 + 8).to_be_bytes(); // a message fits into one frame
    let ip_length = (message.len() as u16 + 28).to_be_bytes();
    out.extend(to.0.0);
    out.extend(from.0.0);
    out.extend(IPV4);

    let mut ip = [
        0x45,
        0x10,
        ip_length[0],
        ip_length[1],
        0,
        0,
        0x40,
        0,
        64,
        17,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
    ];
    ip[12..16].copy_from_slice(&from.1.octets());
    ip[16..20].copy_from_slice(&to.1.octets());
    let checksum = finish(sum(0, &ip)).to_be_bytes();
    ip[10..12].copy_from_slice(&checksum);
    out.extend(ip);

    let mut udp = [0, 67, 0, 68, udp_length[0], udp_length[1], 0, 0];
    let pseudo = [&ip[12..20], &[0, 17], &udp_length]
        .iter()
        .fold(0, |total, part| sum(total, part));
    let total = sum(sum(pseudo, &udp), message);
    let checksum = match finish(total) {
        0 => 0xffff, // zero would mean that there is none
        sum => sum,
    };
    udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    out.extend(udp);
    out.extend(message);
}

/// Adds 16-bit words; only the last part of a sum may have an odd length.
fn sum(total: u32, bytes: &[u8]) -> u32 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let total = pairs
        .iter()
        .fold(total, |total, pair| total + u32::from(u16::from_be_bytes(*pair)));
    total + rest.iter().map(|byte| u32::from(*byte) << 8).sum::<u32>()
}

fn finish(total: u32) -> u16 {
    let folded = (total & 0xffff) + (total >> 16);
    !(((folded & 0xffff) + (folded >> 16)) as u16)
}

/// Appends an ARP probe (RFC 5227): who has `address`, asked without claiming one.
pub fn probe(out: &mut Vec<u8>, from: Mac, address: Ipv4Addr) {
    out.extend(Mac::BROADCAST.0);
    out.extend(from.0);
    out.extend(ARP);
    out.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    out.extend(from.0);
    out.extend([0; 10]);
    out.extend(address.octets());
}

/// What another station said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It has this address.
    Has(Ipv4Addr, Mac),
    /// It answers DHCP clients as this server.
    Serves(Ipv4Addr, Mac),
}

/// Reads a frame of another station; nothing if it says neither.
pub fn hear(frame: &[u8]) -> Option<Heard> {
    let (ethernet, rest) = frame.split_first_chunk::<ETHERNET>()?;
    let [_, _, _, _, _, _, a, b, c, d, e, f, kind @ ..] = *ethernet;
    let sender = Mac([a, b, c, d, e, f]);
    match kind {
        ARP => {
            let (arp, _) = rest.split_first_chunk::<28>()?;
            let [0, 1, 8, 0, 6, 4, 0, 2, a, b, c, d, e, f, p, q, r, s, ..] = *arp else {
                return None;
            };
            Some(Heard::Has(Ipv4Addr::new(p, q, r, s), Mac([a, b, c, d, e, f])))
        }
        IPV4 => {
            let header = usize::from(rest.first()? & 0x0f) * 4;
            let (udp, message) = rest.get(header..)?.split_first_chunk::<8>()?;
            let [0, 67, 0, 68, ..] = *udp else { return None };
            let (fixed, rest) = message.split_first_chunk::<HEADER>()?;
            let (cookie, options) = rest.split_first_chunk::<4>()?;
            if fixed.first() != Some(&2) || *cookie != COOKIE {
                return None;
            }
            let options = Options::read(options, &[], &[]).ok()?;
            let server = options::fixed::<4>(&options.server_id, code::SERVER_ID).ok()??;
            Some(Heard::Serves(Ipv4Addr::from(server), sender))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const THEM: Mac = Mac([2, 0, 0, 0, 0, 2]);

    fn ours() -> Vec<u8> {
        let mut message = vec![0; 240];
        message[0] = 2;
        message[236..].copy_from_slice(&COOKIE);
        message.extend([54, 4, 10, 0, 0, 1, 255]);
        let mut frame = Vec::new();
        answer(
            &mut frame,
            (US, Ipv4Addr::new(10, 0, 0, 1)),
            (THEM, Ipv4Addr::new(10, 0, 0, 9)),
            &message,
        );
        frame
    }

    #[test]
    fn checksums_are_right() {
        let frame = ours();
        assert_eq!(finish(sum(0, &frame[14..34])), 0, "IP");
        let udp = &frame[34..];
        let pseudo = sum(sum(0, &frame[26..34]), &[0, 17, udp[4], udp[5]]);
        assert_eq!(finish(sum(pseudo, udp)), 0, "UDP");
        assert_eq!(
            usize::from(u16::from_be_bytes([frame[16], frame[17]])),
            frame.len() - 14
        );
    }

    #[test]
    fn another_server_is_heard_and_every_prefix_is_harmless() {
        let frame = ours();
        assert_eq!(hear(&frame), Some(Heard::Serves(Ipv4Addr::new(10, 0, 0, 1), US)));
        for length in 0..frame.len() - 1 {
            assert_eq!(hear(&frame[..length]), None, "{length}");
        }
    }

    #[test]
    fn an_answer_to_a_probe_is_heard_and_a_probe_is_not() {
        let mut frame = Vec::new();
        probe(&mut frame, US, Ipv4Addr::new(10, 0, 0, 9));
        assert_eq!((frame.len(), hear(&frame)), (42, None));
        frame[21] = 2;
        frame[28..32].copy_from_slice(&[10, 0, 0, 9]);
        assert_eq!(hear(&frame), Some(Heard::Has(Ipv4Addr::new(10, 0, 0, 9), US)));
        for length in 0..frame.len() {
            assert_eq!(hear(&frame[..length]), None, "{length}");
        }
    }
}
