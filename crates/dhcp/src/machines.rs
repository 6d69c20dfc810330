//! Virtual machines that are known by their hardware address.
//!
//! Whoever watches them hands in a whole new index at each change; the server only looks up. A machine is known by
//! its hardware address alone: images that were cloned often share a client identifier, and a node must not get
//! the address of its clone.

use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;

use crate::mac::Mac;

/// A virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its name, which is also the name of its node.
    pub name: Arc<str>,
    /// The address that it is known to have, as a wish.
    pub address: Option<Ipv4Addr>,
}

/// Every virtual machine on the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machines {
    by_mac: HashMap<Mac, Machine>,
    /// DHCP servers of other hosted clusters on the same network, which are no strangers.
    pub servers: BTreeSet<Ipv4Addr>,
    /// Whether the index is whole. Until it is, a machine that is missing from it is not gone.
    pub complete: bool,
}

impl Machines {
    /// A whole index.
    pub fn complete(machines: impl IntoIterator<Item = (Mac, Machine)>) -> Self {
        Machines {
            by_mac: machines.into_iter().collect(),
            servers: BTreeSet::new(),
            complete: true,
        }
    }

    /// The machine with this hardware address.
    pub fn get(&self, mac: Mac) -> Option<&Machine> {
        self.by_mac.get(&mac)
    }

    /// Whether some machine has this hardware address.
    pub fn has(&self, mac: Mac) -> bool {
        self.by_mac.contains_key(&mac)
    }

    /// Whether no machine has this hardware address, for certain.
    pub fn lack(&self, mac: Mac) -> bool {
        self.complete && !self.has(mac)
    }

    /// Every machine, by hardware address.
    pub fn iter(&self) -> impl Iterator<Item = (Mac, &Machine)> {
        self.by_mac.iter().map(|(mac, machine)| (*mac, machine))
    }
}
