//! Addresses on the interfaces of machines: given and taken by the cloud, and what it would not do.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use oooi_cloud::{Error, Machine, Pools};

use super::machines::Machines;

/// What a cloud did not do for a node.
#[derive(Clone)]
pub(super) struct Trouble {
    pub(super) node: String,
    pub(super) addresses: BTreeSet<Ipv4Addr>,
    pub(super) error: Error,
}

/// Takes addresses from the machine of a node.
pub(super) async fn take(
    machines: &Machines,
    node: &str,
    machine: &Machine,
    addresses: BTreeSet<Ipv4Addr>,
) -> Result<(), Trouble> {
    match machines.cloud.unassign(machine, &addresses).await {
        Ok(()) => {
            machines.changed(&machine.id, |on| on.retain(|one| !addresses.contains(one)));
            Ok(())
        }
        Err(error) => {
            machines.doubt();
            Err(Trouble {
                node: node.to_owned(),
                addresses,
                error,
            })
        }
    }
}

/// Gives addresses to the machine of a node: all at once, and where that is refused each by itself, so that one bad
/// address stops no other. What it did not get is in the troubles.
pub(super) async fn give(
    machines: &Machines,
    node: &str,
    machine: &Machine,
    addresses: &BTreeMap<Ipv4Addr, Pools>,
) -> Vec<Trouble> {
    let trouble = |addresses: &BTreeMap<Ipv4Addr, Pools>, error: Error| Trouble {
        node: node.to_owned(),
        addresses: addresses.keys().copied().collect(),
        error,
    };
    let error = match assign(machines, machine, addresses).await {
        Ok(()) => return Vec::new(),
        Err(error) => error,
    };
    if !error.is_refusal() || addresses.len() == 1 {
        return vec![trouble(addresses, error)];
    }
    let mut troubles = Vec::new();
    for (address, pools) in addresses {
        let one = BTreeMap::from([(*address, *pools)]);
        if let Err(error) = assign(machines, machine, &one).await {
            troubles.push(trouble(&one, error));
        }
    }
    troubles
}

async fn assign(
    machines: &Machines,
    machine: &Machine,
    addresses: &BTreeMap<Ipv4Addr, Pools>,
) -> Result<(), Error> {
    let result = machines.cloud.assign(machine, addresses).await;
    match &result {
        Ok(()) => machines.changed(&machine.id, |on| on.extend(addresses.keys())),
        Err(_) => machines.doubt(),
    }
    result
}
