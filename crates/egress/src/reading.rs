//! The addresses that a namespace names, each with its network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::allocate::Used;
use crate::claim::{self, Claim};
use crate::layout::Layout;
use crate::problem::Problem;

/// The addresses of a claim, by network.
pub(crate) struct Reading {
    pub(crate) slots: Vec<Option<Ipv4Addr>>,
}

impl Reading {
    pub(crate) fn of(claim: &Claim, layout: &Layout, used: &Used) -> Result<Self, Problem> {
        let nothing = Reading {
            slots: vec![None; layout.networks.len()],
        };
        let Some(given) = &claim.given else {
            return Ok(nothing);
        };
        let reading = Self::given(given, layout).and_then(|reading| {
            reading.check(claim, layout, used)?;
            Ok(reading)
        });
        // What another EgressIPAM chose was good there. Where it is not good here, this one chooses anew.
        match reading {
            Err(_) if claim.allocated_by.as_ref().is_some_and(|by| *by != claim.ipam) => Ok(nothing),
            other => other,
        }
    }

    /// Each address with its network. A list that is shorter than that of the networks was complete before a network
    /// was added, wherever that was: its addresses belong to the networks that they are in, in their order.
    fn given(given: &str, layout: &Layout) -> Result<Self, Problem> {
        let addresses = claim::addresses(given)?;
        let networks = &layout.networks;
        if addresses.len() > networks.len() {
            return Err(Problem::TooMany {
                given: addresses.len(),
                networks: networks.len(),
            });
        }
        let whole = addresses.len() == networks.len();
        let mut slots = vec![None; networks.len()];
        let mut next = 0;
        for (index, address) in addresses.into_iter().enumerate() {
            let fits = |at: &usize| networks.get(*at).is_some_and(|n| n.cidr.contains(&address));
            let mut places = if whole {
                index..index + 1
            } else {
                next..networks.len()
            };
            let Some(at) = places.find(fits) else {
                let cidr = networks
                    .get(index)
                    .map_or_else(Ipv4Net::default, |network| network.cidr);
                return Err(Problem::Outside { address, cidr });
            };
            if let Some(slot) = slots.get_mut(at) {
                *slot = Some(address);
            }
            next = at + 1;
        }
        Ok(Reading { slots })
    }

    fn check(&self, claim: &Claim, layout: &Layout, used: &Used) -> Result<(), Problem> {
        let mut seen = BTreeSet::new();
        for (network, slot) in layout.networks.iter().zip(&self.slots) {
            let Some(address) = *slot else { continue };
            if !network.hosts().contains(address) {
                let cidr = network.cidr;
                return Err(Problem::Unusable { address, cidr });
            }
            if !seen.insert(address) {
                return Err(Problem::Twice(address));
            }
            // An address that is in force for it may be seen on its node too.
            let holds = used.held.get(&address) == Some(&claim.namespace);
            if let Some(node) = used.hosts.get(&address).filter(|_| !holds) {
                let node = node.clone();
                return Err(Problem::Host { address, node });
            }
            if let Some(user) = used.foreign.get(&address).filter(|_| !holds) {
                let user = user.clone();
                return Err(Problem::Taken { address, user });
            }
        }
        Ok(())
    }

    pub(crate) fn addresses(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.slots.iter().copied().flatten()
    }

    pub(crate) fn contested(&self, claim: &Claim, owners: &BTreeMap<Ipv4Addr, &str>) -> Option<Problem> {
        self.addresses().find_map(|address| {
            let owner = *owners.get(&address)?;
            (owner != claim.namespace).then(|| Problem::Duplicate {
                address,
                namespace: owner.to_owned(),
            })
        })
    }
}
