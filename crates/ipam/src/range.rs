//! An interval of addresses.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use ipnet::Ipv4Net;

/// Addresses from the first to the last, both included. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Range {
    first: u32,
    last: u32,
}

/// A text that is no range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRange {
    /// One of its ends is no address.
    #[error(
        "`{0}` is not an IPv4 address: write one address (192.168.100.20) or a range (192.168.100.20-192.168.100.29)"
    )]
    Address(String),
    /// It ends before it begins.
    #[error("{last} is below {first}: swap them")]
    Reversed {
        /// What is written first.
        first: Ipv4Addr,
        /// What is written last.
        last: Ipv4Addr,
    },
}

impl Range {
    /// The range between two addresses.
    pub fn new(first: Ipv4Addr, last: Ipv4Addr) -> Result<Self, BadRange> {
        if first > last {
            return Err(BadRange::Reversed { first, last });
        }
        Ok(Range {
            first: first.into(),
            last: last.into(),
        })
    }

    /// As [`Range::new`], for numbers of which it is not yet known whether anything lies between them.
    pub(crate) fn between(first: u32, last: u32) -> Option<Self> {
        (first <= last).then_some(Range { first, last })
    }

    /// The lowest address.
    pub fn first(self) -> Ipv4Addr {
        self.first.into()
    }

    /// The highest address.
    pub fn last(self) -> Ipv4Addr {
        self.last.into()
    }

    /// How many addresses it holds: at least one, at most 2³².
    #[allow(clippy::len_without_is_empty)] // no range is empty
    pub fn len(self) -> u64 {
        u64::from(self.last) - u64::from(self.first) + 1
    }

    /// Whether the address is one of them.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address.into())
    }

    /// Whether every address of the other is one of them.
    pub fn covers(self, other: Range) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// The addresses that both have.
    pub fn intersection(self, other: Range) -> Option<Range> {
        Range::between(self.first.max(other.first), self.last.min(other.last))
    }

    /// The range without its highest addresses. Nothing is left of a range that has no more than those.
    pub fn without_last(self, count: u32) -> Option<Range> {
        Range::between(self.first, self.last.checked_sub(count)?)
    }

    pub(crate) fn bounds(self) -> (u32, u32) {
        (self.first, self.last)
    }
}

/// The addresses of a network that hosts can have: all but the network and the broadcast address. A /31 has two of
/// them (RFC 3021) and a /32 one. Host bits in the network are passed over.
pub fn hosts(network: Ipv4Net) -> Range {
    let (first, last) = (u32::from(network.network()), u32::from(network.broadcast()));
    if network.prefix_len() >= 31 {
        Range { first, last }
    } else {
        Range {
            first: first + 1,
            last: last - 1,
        }
    }
}

impl From<Ipv4Addr> for Range {
    fn from(address: Ipv4Addr) -> Self {
        let number = address.into();
        Range {
            first: number,
            last: number,
        }
    }
}

impl FromStr for Range {
    type Err = BadRange;

    /// Reads `192.168.100.20`, or `192.168.100.20-192.168.100.29` with or without spaces around the dash.
    fn from_str(text: &str) -> Result<Self, BadRange> {
        let address = |part: &str| {
            let part = part.trim();
            part.parse().map_err(|_| BadRange::Address(part.to_owned()))
        };
        match text.split_once('-') {
            Some((first, last)) => Range::new(address(first)?, address(last)?),
            None => address(text).map(Ipv4Addr::into),
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first())
        } else {
            write!(f, "{}-{}", self.first(), self.last())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Range {
        text.parse().unwrap()
    }

    #[test]
    fn a_range_is_read_as_it_is_written() {
        for text in ["10.0.0.1", "10.0.0.1-10.0.0.9", "0.0.0.0-255.255.255.255"] {
            assert_eq!(range(text).to_string(), text);
        }
        assert_eq!(range(" 10.0.0.1 - 10.0.0.9 "), range("10.0.0.1-10.0.0.9"));
        assert_eq!(range("0.0.0.0-255.255.255.255").len(), 1 << 32);
    }

    #[test]
    fn what_is_no_range_is_refused_with_the_remedy() {
        for text in [
            "",
            "-",
            "10.0.0.1-",
            "-10.0.0.1",
            "10.0.0.256",
            "10.0.0.1-10.0.0.2-10.0.0.3",
            "::1",
        ] {
            let error = text.parse::<Range>().unwrap_err().to_string();
            assert!(error.contains("write one address"), "{text}: {error}");
        }
        let error = "10.0.0.9-10.0.0.1".parse::<Range>().unwrap_err();
        assert_eq!(error.to_string(), "10.0.0.1 is below 10.0.0.9: swap them");
    }

    #[test]
    fn every_prefix_of_a_range_is_a_range_or_refused() {
        let text = "192.168.100.20-192.168.100.29";
        let read = (0..=text.len()).filter(|end| text[..*end].parse::<Range>().is_ok());
        // `…100.2`, `…100.20`, the whole. Without its last digit the whole ends below its beginning.
        assert_eq!(read.collect::<Vec<_>>(), [13, 14, 29]);
    }

    #[test]
    fn hosts_have_neither_the_network_nor_the_broadcast_address() {
        for (network, expected) in [
            ("10.0.0.0/8", "10.0.0.1-10.255.255.254"),
            ("10.1.2.77/24", "10.1.2.1-10.1.2.254"),
            ("10.0.0.4/30", "10.0.0.5-10.0.0.6"),
            ("10.0.0.4/31", "10.0.0.4-10.0.0.5"),
            ("10.0.0.4/32", "10.0.0.4"),
            ("0.0.0.0/0", "0.0.0.1-255.255.255.254"),
        ] {
            assert_eq!(hosts(network.parse().unwrap()).to_string(), expected);
        }
    }

    #[test]
    fn a_range_loses_its_highest_addresses() {
        assert_eq!(
            range("10.0.0.1-10.0.0.9").without_last(8),
            Some(range("10.0.0.1"))
        );
        assert_eq!(range("10.0.0.1-10.0.0.9").without_last(9), None);
        assert_eq!(range("0.0.0.0-0.0.0.3").without_last(9), None);
    }
}
