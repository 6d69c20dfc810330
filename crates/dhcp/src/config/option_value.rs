//! Values of options: from the text of a manifest to the bytes of a packet.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use oooi_api::dhcp_server::{DhcpOption, OptionFormat};

use super::{Mistakes, OptionSet, read_address};
use crate::options::code;

/// What the value of a known option must be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Address,
    Addresses,
    U8,
    U16,
    U32,
    Domains,
    Routes,
    Text,
    Any,
}

/// The kind of a value by RFC 2132 and its successors.
fn kind(code: u8) -> Kind {
    match code {
        16 | 32 | 118 => Kind::Address,
        4..=11 | 41 | 42 | 44 | 45 | 48 | 49 | 65 | 68..=76 | 85 | 150 => Kind::Addresses,
        19 | 20 | 23 | 27 | 29..=31 | 34 | 36 | 37 | 39 | 46 | 116 => Kind::U8,
        13 | 22 | 26 => Kind::U16,
        2 | 24 | 35 | 38 | 108 => Kind::U32,
        14 | 15 | 17 | 18 | 40 | 47 | 60 | 62 | 64 | 66 | 67 | 77 | 100 | 101 | 114 | 209 | 210 | 252 => {
            Kind::Text
        }
        119 => Kind::Domains,
        249 => Kind::Routes,
        _ => Kind::Any,
    }
}

/// Why a manifest cannot set an option, if it cannot.
fn owned_elsewhere(number: u8, set: &OptionSet) -> Option<&'static str> {
    Some(match number {
        code::PAD | code::END => "it is not an option but a mark",
        code::SUBNET_MASK | code::BROADCAST_ADDRESS => "it follows from networkConfig.cidr",
        code::ROUTERS => "it is networkConfig.gateway",
        code::HOST_NAME => "it differs from client to client: use a reservation's hostname",
        code::LEASE_TIME | code::RENEWAL_TIME | code::REBINDING_TIME => {
            "it follows from leaseConfig.leaseTime"
        }
        code::DNS_SERVERS if set.get(number).is_some() => "networkConfig.dnsServers says it already",
        code::MTU if set.get(number).is_some() => "networkConfig.mtu says it already",
        code::NTP_SERVERS if set.get(number).is_some() => "networkConfig.ntpServers says it already",
        code::DOMAIN_SEARCH if set.get(number).is_some() => "networkConfig.searchDomains says it already",
        // Its default route must be there too, or clients would have none.
        code::CLASSLESS_ROUTES => "write networkConfig.routes",
        50 | 52..=57 | 61 | 80..=82 | 90 => "the protocol itself uses it",
        _ => return None,
    })
}

/// Reads one entry of `options[]`.
pub(super) fn read(
    option: &DhcpOption,
    path: &str,
    set: &OptionSet,
    mistakes: &mut Mistakes,
) -> Option<(u8, Vec<u8>)> {
    let number = u8::try_from(option.code).map_err(|_| format!("{} is not 1 to 254", option.code));
    let number = mistakes.take(&format!("{path}.code"), number)?;
    if let Some(reason) = owned_elsewhere(number, set) {
        mistakes.add(
            &format!("{path}.code"),
            format!("option {number} cannot be set here: {reason}"),
        );
        return None;
    }
    let value = encode(number, option.value.trim(), option.format).and_then(|value| check(number, value));
    mistakes
        .take(&format!("{path}.value"), value)
        .map(|value| (number, value))
}

fn encode(number: u8, text: &str, format: Option<OptionFormat>) -> Result<Vec<u8>, String> {
    match (format, kind(number)) {
        (Some(OptionFormat::Hex), _) => hex(text.strip_prefix("0x").unwrap_or(text)),
        (Some(OptionFormat::Addresses), _) => addresses(text),
        (None, _) if text.starts_with("0x") => hex(text.trim_start_matches("0x")),
        (Some(OptionFormat::Text), Kind::Any) | (_, Kind::Text) => Ok(text.as_bytes().to_vec()),
        (_, Kind::Address | Kind::Addresses) => addresses(text),
        (_, Kind::U8) => number_in::<u8>(text).map(|value| vec![value]),
        (_, Kind::U16) => number_in::<u16>(text).map(|value| value.to_be_bytes().to_vec()),
        (_, Kind::U32) => number_in::<u32>(text).map(|value| value.to_be_bytes().to_vec()),
        (_, Kind::Domains) => text.split(',').try_fold(Vec::new(), |mut list, name| {
            list.extend(domain(name.trim())?);
            Ok(list)
        }),
        (_, Kind::Routes) => Err(format!(
            "write routes in networkConfig.routes, or option {number} as 0x…"
        )),
        (None, Kind::Any) => Ok(addresses(text).unwrap_or_else(|_| text.as_bytes().to_vec())),
    }
}

/// A value of a known option has the length that clients expect, in whatever form it was written.
fn check(number: u8, value: Vec<u8>) -> Result<Vec<u8>, String> {
    let fits = match kind(number) {
        Kind::Address | Kind::U32 => value.len() == 4,
        Kind::Addresses => value.len().is_multiple_of(4),
        Kind::U8 => value.len() == 1,
        Kind::U16 => value.len() == 2,
        Kind::Domains | Kind::Routes | Kind::Text | Kind::Any => true,
    };
    match value.len() {
        0 => Err(format!("option {number} is empty: remove it or give it a value")),
        1..=1024 if fits => Ok(value),
        length => Err(format!(
            "{length} bytes are not what clients expect of option {number}"
        )),
    }
}

fn number_in<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not a number that fits into {} bytes", size_of::<T>()))
}

fn addresses(text: &str) -> Result<Vec<u8>, String> {
    text.split(',').try_fold(Vec::new(), |mut list, address| {
        list.extend(read_address(address)?.octets());
        Ok(list)
    })
}

/// Bytes from hexadecimal digits; colons between the bytes do no harm.
pub(super) fn hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .filter(|c| *c != ':')
        .map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()))
        .collect();
    match digits {
        Some(digits) if digits.len().is_multiple_of(2) => Ok(digits
            .chunks_exact(2)
            .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit))
            .collect()),
        _ => Err(format!(
            "`{text}` is not a sequence of hexadecimal bytes such as 01a2ff"
        )),
    }
}

/// A name in the wire form of RFC 1035, as option 119 wants it.
pub(super) fn domain(name: &str) -> Result<Vec<u8>, String> {
    let bad = || format!("`{name}` is not a domain name such as cluster.example.com");
    let mut wire = Vec::with_capacity(name.len() + 2);
    for label in name.trim_end_matches('.').split('.') {
        let sound = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        let length = u8::try_from(label.len())
            .ok()
            .filter(|length| (1..=63).contains(length))
            .ok_or_else(bad)?;
        if !label.bytes().all(sound) {
            return Err(bad());
        }
        wire.push(length);
        wire.extend(label.bytes());
    }
    wire.push(0);
    if wire.len() > 255 { Err(bad()) } else { Ok(wire) }
}

/// Appends a route in the form of RFC 3442: only the bytes of the destination that its prefix covers.
pub(super) fn route(list: &mut Vec<u8>, destination: Ipv4Net, gateway: Ipv4Addr) {
    list.push(destination.prefix_len());
    list.extend(
        destination
            .network()
            .octets()
            .iter()
            .take(destination.prefix_len().div_ceil(8).into()),
    );
    list.extend(gateway.octets());
}
