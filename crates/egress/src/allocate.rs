//! Which addresses each namespace has.
//!
//! An address that a namespace names is its own, unless another one has it already; what is missing is allocated.
//! Nothing that any namespace, node or other user of addresses has is ever allocated, whichever EgressIPAM it
//! belongs to. A namespace with a mistake keeps what is in force for it, and nobody else notices.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::claim::Claim;
use crate::free::Free;
use crate::layout::{Layout, Network};
use crate::problem::Problem;
use crate::reading::Reading;

/// Addresses that are in use, whoever uses them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Addresses of nodes, and the node.
    pub hosts: BTreeMap<Ipv4Addr, String>,
    /// Addresses of others, and what to call those.
    pub foreign: BTreeMap<Ipv4Addr, String>,
    /// Addresses that are in force, and the namespace that they are in force for.
    pub held: BTreeMap<Ipv4Addr, String>,
    /// How many addresses after the first one of each network the cloud keeps for itself.
    pub kept_by_cloud: u32,
}

/// What a namespace gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An address of each network.
    Complete {
        /// The addresses, in the order of the networks.
        addresses: Vec<Ipv4Addr>,
        /// Whether some of them are new and must be written to the namespace.
        fresh: bool,
    },
    /// What it has already, and no more.
    Partial {
        /// What it has.
        addresses: Vec<Ipv4Addr>,
        /// Why it gets no more.
        problem: Problem,
    },
    /// Nothing is known of what it should have: what is in force stays.
    Failed(Problem),
}

impl Outcome {
    /// What should be in force; none if nobody can tell.
    pub fn addresses(&self) -> Option<&[Ipv4Addr]> {
        match self {
            Outcome::Complete { addresses, .. } | Outcome::Partial { addresses, .. } => Some(addresses),
            Outcome::Failed(_) => None,
        }
    }

    /// What is wrong.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Outcome::Complete { .. } => None,
            Outcome::Partial { problem, .. } | Outcome::Failed(problem) => Some(problem),
        }
    }
}

/// How full a network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The network.
    pub cidr: Ipv4Net,
    /// Addresses that namespaces have.
    pub used: u64,
    /// Addresses that can still be given.
    pub free: u64,
}

/// What every namespace gets, and how full every network is then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// By namespace.
    pub outcomes: BTreeMap<String, Outcome>,
    /// By EgressIPAM, in the order of its networks.
    pub usage: BTreeMap<String, Vec<Usage>>,
}

/// Decides for all namespaces at once.
///
/// `draw(n)` gives a number below `n`, for the policy Random: chance stays outside. Apart from that the
/// same question has the same answer, in whatever order the claims come. `frozen` are EgressIPAMs that exist and
/// are not carried out.
pub fn allocate(
    layouts: &[Layout],
    frozen: &BTreeSet<String>,
    claims: &[Claim],
    used: &Used,
    draw: &mut dyn FnMut(u64) -> u64,
) -> Allocation {
    let mut claims: Vec<&Claim> = claims.iter().collect();
    claims.sort_by_key(|claim| (claim.created, &claim.namespace));
    let layout = |claim: &Claim| layouts.iter().find(|layout| layout.name == claim.ipam);

    let readings: Vec<(&Claim, Result<Reading, Problem>)> = claims
        .into_iter()
        .map(|claim| {
            let reading = match layout(claim) {
                Some(layout) => Reading::of(claim, layout, used),
                None if frozen.contains(&claim.ipam) => Err(Problem::FrozenIpam(claim.ipam.clone())),
                None => Err(Problem::UnknownIpam(claim.ipam.clone())),
            };
            (claim, reading)
        })
        .collect();
    let owners = owners(&readings, used);
    let mut free = Free::new(layouts, &readings, used);

    let mut allocation = Allocation::default();
    for (claim, reading) in &readings {
        let outcome = match reading {
            Err(problem) => Outcome::Failed(problem.clone()),
            Ok(reading) => match reading.contested(claim, &owners) {
                Some(problem) => Outcome::Failed(problem),
                None => match layout(claim) {
                    Some(layout) => complete(claim, reading, layout, &mut free, draw),
                    None => Outcome::Failed(Problem::UnknownIpam(claim.ipam.clone())),
                },
            },
        };
        allocation.outcomes.insert(claim.namespace.clone(), outcome);
    }
    for layout in layouts {
        let usage = layout.networks.iter().map(|network| Usage {
            cidr: network.cidr,
            used: count(layout, network, &readings, &allocation.outcomes),
            free: free.within(network).len(),
        });
        allocation.usage.insert(layout.name.clone(), usage.collect());
    }
    allocation
}

/// Whose each address is: of who has it in force, else of the oldest that names it.
fn owners<'a>(
    readings: &[(&'a Claim, Result<Reading, Problem>)],
    used: &'a Used,
) -> BTreeMap<Ipv4Addr, &'a str> {
    let mut owners = BTreeMap::new();
    let by_name: BTreeMap<&str, &Result<Reading, Problem>> = readings
        .iter()
        .map(|(claim, reading)| (claim.namespace.as_str(), reading))
        .collect();
    for (address, namespace) in &used.held {
        let keeps = match by_name.get(namespace.as_str()) {
            None => false,
            Some(Ok(reading)) => reading.addresses().any(|own| own == *address),
            Some(Err(_)) => true, // what is in force stays
        };
        if keeps {
            owners.insert(*address, namespace.as_str());
        }
    }
    for (claim, reading) in readings {
        for address in reading.iter().flat_map(Reading::addresses) {
            owners.entry(address).or_insert(claim.namespace.as_str());
        }
    }
    owners
}

/// Gives a namespace what it lacks: all of it, or nothing.
fn complete(
    claim: &Claim,
    reading: &Reading,
    layout: &Layout,
    free: &mut Free,
    draw: &mut dyn FnMut(u64) -> u64,
) -> Outcome {
    let before: Vec<Ipv4Addr> = reading.addresses().collect();
    if claim.leaving {
        return Outcome::Complete {
            addresses: before,
            fresh: false,
        };
    }
    let (mut addresses, mut chosen) = (Vec::new(), Vec::new());
    for (network, slot) in layout.networks.iter().zip(&reading.slots) {
        let address = match slot {
            Some(address) => *address,
            None => match free.take(network, layout.policy, draw) {
                Some(address) => {
                    chosen.push(address);
                    address
                }
                None => {
                    chosen.into_iter().for_each(|address| free.give_back(address));
                    return Outcome::Partial {
                        addresses: before,
                        problem: Problem::Exhausted(network.cidr),
                    };
                }
            },
        };
        addresses.push(address);
    }
    Outcome::Complete {
        addresses,
        fresh: !chosen.is_empty(),
    }
}

/// How many addresses of a network the namespaces of its EgressIPAM have.
fn count(
    layout: &Layout,
    network: &Network,
    readings: &[(&Claim, Result<Reading, Problem>)],
    outcomes: &BTreeMap<String, Outcome>,
) -> u64 {
    let claims = readings.iter().filter(|(claim, _)| claim.ipam == layout.name);
    let addresses = claims.filter_map(|(claim, _)| outcomes.get(&claim.namespace)?.addresses());
    let inside = addresses
        .flatten()
        .filter(|address| network.cidr.contains(*address));
    inside.count() as u64
}
