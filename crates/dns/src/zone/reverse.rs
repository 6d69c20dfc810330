//! Reverse names: `4.0.0.10.in-addr.arpa` and the VLAN's share of them.
//!
//! The VLAN owns whole octets of the reverse tree: for 10.0.0.0/20 the zones `0.0.10.in-addr.arpa` to
//! `15.0.10.in-addr.arpa`. Of a network smaller than /24 it owns the single names of its addresses.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::Ipv4Net;

use crate::wire::name::{self, Name};

/// `in-addr.arpa` in wire form.
const ARPA: &[u8] = b"\x07in-addr\x04arpa\x00";

/// The reverse name of an address.
pub(crate) fn name_of(address: IpAddr) -> Option<Name> {
    let text = match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(address) => {
            let nibbles = address
                .octets()
                .into_iter()
                .rev()
                .flat_map(|octet| [octet & 15, octet >> 4]);
            let labels: Vec<String> = nibbles.map(|nibble| format!("{nibble:x}")).collect();
            format!("{}.ip6.arpa", labels.join("."))
        }
    };
    Name::parse(&text).ok()
}

/// Octets of the apex of the zone in which the VLAN owns this lower-case reverse name.
pub(super) fn apex(name: &[u8], network: Ipv4Net) -> Option<usize> {
    let numbers = name.strip_suffix(ARPA)?;
    let labels: Vec<&[u8]> = name::labels(numbers).collect();
    let used: usize = labels.iter().map(|label| label.len() + 1).sum();
    if used != numbers.len() || labels.is_empty() {
        return None;
    }
    let prefix = usize::from(network.prefix_len());
    let owned = prefix.div_ceil(8).clamp(1, 3);
    let needed = if prefix > 24 { 4 } else { owned };
    if labels.len() < needed {
        return None;
    }
    let mut octets = [0; 4];
    for (octet, label) in octets.iter_mut().zip(labels.iter().rev()).take(needed) {
        *octet = parse_octet(label)?;
    }
    if !network.contains(&Ipv4Addr::from(octets)) {
        return None;
    }
    let owned_labels: usize = labels.iter().rev().take(owned).map(|label| label.len() + 1).sum();
    Some(owned_labels + ARPA.len())
}

/// A decimal octet as reverse names write it: no sign, no leading zero.
fn parse_octet(label: &[u8]) -> Option<u8> {
    if label.len() > 1 && label[0] == b'0' || !label.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(label).ok()?.parse().ok()
}
