//! The addresses that can be leased.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use oooi_api::dhcp_server::DhcpLeaseConfig;

use super::{Mistakes, read_address};

/// Addresses from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    first: u32,
    last: u32,
}

impl AddressRange {
    /// A range, if the first address is not after the last.
    pub fn new(first: Ipv4Addr, last: Ipv4Addr) -> Option<Self> {
        (first <= last).then_some(AddressRange {
            first: first.into(),
            last: last.into(),
        })
    }

    /// Whether the address is in it.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address.into())
    }

    /// How many addresses it has.
    pub fn size(self) -> u64 {
        u64::from(self.last) - u64::from(self.first) + 1
    }

    /// The first address.
    pub fn first(self) -> Ipv4Addr {
        self.first.into()
    }

    /// The last address.
    pub fn last(self) -> Ipv4Addr {
        self.last.into()
    }
}

/// The range of a server, less what is excluded from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    network: Ipv4Net,
    range: AddressRange,
    /// Inside the range, sorted, apart from each other.
    excluded: Vec<AddressRange>,
}

impl Pool {
    /// The network that the pool is part of.
    pub fn network(&self) -> Ipv4Net {
        self.network
    }

    /// The range, exclusions included.
    pub fn range(&self) -> AddressRange {
        self.range
    }

    /// Whether the address can be leased.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        self.range.contains(address) && !self.is_excluded(address)
    }

    /// How many addresses can be leased.
    pub fn size(&self) -> u64 {
        self.range.size() - self.excluded.iter().map(|range| range.size()).sum::<u64>()
    }

    fn is_excluded(&self, address: Ipv4Addr) -> bool {
        let after = self.excluded.partition_point(|range| range.first() <= address);
        let nearest = after.checked_sub(1).and_then(|before| self.excluded.get(before));
        nearest.is_some_and(|range| range.contains(address))
    }

    /// Reads the pool; `taken` are the addresses of the servers and the gateway, which are never leased.
    pub(super) fn read(
        lease: &DhcpLeaseConfig,
        network: Option<Ipv4Net>,
        taken: &[Ipv4Addr],
        mistakes: &mut Mistakes,
    ) -> Option<Self> {
        let first = mistakes.take("leaseConfig.rangeStart", read_address(&lease.range_start));
        let last = mistakes.take("leaseConfig.rangeEnd", read_address(&lease.range_end));
        let mut excluded = Vec::new();
        for (at, text) in lease.exclusions.iter().enumerate() {
            excluded.extend(mistakes.take(&format!("leaseConfig.exclusions[{at}]"), read_exclusion(text)));
        }
        let (network, first, last) = (network?, first?, last?);
        mistakes.inside("leaseConfig.rangeStart", network, first);
        mistakes.inside("leaseConfig.rangeEnd", network, last);
        let Some(range) = AddressRange::new(first, last) else {
            mistakes.add(
                "leaseConfig.rangeEnd",
                format!("{last} is before rangeStart {first}: swap them"),
            );
            return None;
        };
        excluded.extend(
            taken
                .iter()
                .filter_map(|address| AddressRange::new(*address, *address)),
        );
        let pool = Pool {
            network,
            range,
            excluded: joined(excluded, range),
        };
        if pool.size() == 0 {
            mistakes.add(
                "leaseConfig.exclusions",
                "nothing is left of the range: exclude less or widen it".into(),
            );
            return None;
        }
        Some(pool)
    }
}

fn read_exclusion(text: &str) -> Result<AddressRange, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (read_address(first)?, read_address(last)?);
    AddressRange::new(first, last).ok_or_else(|| format!("{last} is before {first}: swap them"))
}

/// The parts of `ranges` that are inside `within`, sorted, overlaps joined.
fn joined(mut ranges: Vec<AddressRange>, within: AddressRange) -> Vec<AddressRange> {
    ranges.sort_by_key(|range| range.first);
    let mut joined: Vec<AddressRange> = Vec::new();
    for range in ranges {
        let clipped = AddressRange {
            first: range.first.max(within.first),
            last: range.last.min(within.last),
        };
        if clipped.first > clipped.last {
            continue;
        }
        match joined.last_mut() {
            Some(before) if clipped.first <= before.last => before.last = before.last.max(clipped.last),
            _ => joined.push(clipped),
        }
    }
    joined
}
