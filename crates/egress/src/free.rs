//! What can still be allocated.

use std::net::Ipv4Addr;

use oooi_api::egress_ipam::AllocationPolicy;
use oooi_ipam::{Range, Set};

use crate::allocate::Used;
use crate::claim::{self, Claim};
use crate::layout::{Layout, Network};
use crate::problem::Problem;
use crate::reading::Reading;

/// Addresses that nobody has, of all networks together: one that two networks hold is given once.
pub(crate) struct Free(Set);

impl Free {
    pub(crate) fn new(
        layouts: &[Layout],
        readings: &[(&Claim, Result<Reading, Problem>)],
        used: &Used,
    ) -> Self {
        let networks = || layouts.iter().flat_map(|layout| &layout.networks);
        let mut free: Set = networks().map(Network::hosts).collect();
        // The network and broadcast address of a network may be inside another one; they are usable there, but
        // whoever has both networks on one wire will not want them used.
        for network in networks() {
            if network.cidr.prefix_len() < 31 {
                free.remove(network.cidr.network());
                free.remove(network.cidr.broadcast());
            }
            network.reserved.ranges().for_each(|range| free.remove(range));
            let base = u32::from(network.cidr.network());
            let last = base.saturating_add(used.kept_by_cloud);
            if let Ok(kept) = Range::new(base.into(), last.min(u32::from(network.cidr.broadcast())).into())
                && used.kept_by_cloud > 0
            {
                free.remove(kept);
            }
        }
        let in_use = used
            .hosts
            .keys()
            .chain(used.foreign.keys())
            .chain(used.held.keys());
        in_use.for_each(|address| free.remove(*address));
        for (claim, reading) in readings {
            // What stands in an annotation is nobody else's, even where the annotation as a whole is wrong.
            let given = claim.given.as_deref().map(claim::addresses).and_then(Result::ok);
            let given = given.unwrap_or_default().into_iter();
            let read = reading.iter().flat_map(Reading::addresses);
            given.chain(read).for_each(|address| free.remove(address));
        }
        Free(free)
    }

    pub(crate) fn within(&self, network: &Network) -> Set {
        let hosts = network.hosts();
        self.0
            .ranges()
            .filter_map(|range| range.intersection(hosts))
            .collect()
    }

    pub(crate) fn take(
        &mut self,
        network: &Network,
        policy: AllocationPolicy,
        draw: &mut dyn FnMut(u64) -> u64,
    ) -> Option<Ipv4Addr> {
        let address = match policy {
            AllocationPolicy::Lowest => self.0.overlap(network.hosts())?.first(),
            AllocationPolicy::Random => {
                let free = self.within(network);
                let count = free.len();
                free.nth(if count == 0 { 0 } else { draw(count) % count })?
            }
        };
        self.0.remove(address);
        Some(address)
    }

    pub(crate) fn give_back(&mut self, address: Ipv4Addr) {
        self.0.insert(address);
    }
}
