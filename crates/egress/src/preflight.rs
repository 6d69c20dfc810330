//! Whether OVN-Kubernetes will find a node for every address.
//!
//! It chooses the node itself: one that is labelled and healthy, whose subnet holds the address, that has room, and
//! that carries no other address of the same namespace. What it cannot do is seen here before anybody misses it.

use ipnet::Ipv4Net;

use crate::layout::{Layout, Warning};
use crate::node::Node;

/// What is lacking.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lack {
    /// Nobody can carry the addresses of a network.
    #[error(
        "no healthy node that the EgressIPAM selects has the label {label}={value}: the addresses of {cidr} are on no node"
    )]
    NoNode {
        /// The network.
        cidr: Ipv4Net,
        /// The topology label.
        label: String,
        /// The value that no node has.
        value: String,
    },
    /// A namespace has more addresses than there are nodes.
    #[error(
        "{networks} networks need as many healthy nodes, since two addresses of a namespace never share one: there are {nodes}"
    )]
    TooFewNodes {
        /// Addresses of a namespace.
        networks: usize,
        /// Nodes for them.
        nodes: usize,
    },
    /// A network is none that the nodes are in.
    #[error("{cidr} is in no subnet of its nodes: correct the network, or select nodes that are in it")]
    NoSubnet {
        /// The network.
        cidr: Ipv4Net,
    },
    /// The nodes cannot carry all addresses.
    #[error("the nodes of {cidr} can carry {capacity} addresses and {needed} are needed: add nodes")]
    NoRoom {
        /// The network.
        cidr: Ipv4Net,
        /// What they can carry together.
        capacity: u64,
        /// What they should.
        needed: u64,
    },
}

impl Lack {
    /// One CamelCase word for it.
    pub fn reason(&self) -> &'static str {
        match self {
            Lack::NoNode { .. } => "NoEligibleNode",
            Lack::TooFewNodes { .. } => "TooFewNodes",
            Lack::NoSubnet { .. } => "NetworkNotOnNodes",
            Lack::NoRoom { .. } => "NodesFull",
        }
    }
}

/// What is lacking for one EgressIPAM. `needed` is how many addresses of each network are in use.
pub fn preflight(layout: &Layout, nodes: &[Node], needed: &[u64]) -> Vec<Lack> {
    let mut lacks = Vec::new();
    let serving = nodes
        .iter()
        .filter(|node| node.healthy && node.serves(layout))
        .count();
    for (index, network) in layout.networks.iter().enumerate() {
        let carriers = nodes
            .iter()
            .filter(|node| node.healthy && node.value_for(layout) == Some(network.label_value.as_str()));
        let carriers: Vec<&Node> = carriers.collect();
        let cidr = network.cidr;
        if carriers.is_empty() {
            lacks.push(Lack::NoNode {
                cidr,
                label: layout.topology_label.clone(),
                value: network.label_value.clone(),
            });
            continue;
        }
        // A node that tells nothing of its subnets may be in the right one.
        let may_hold = |node: &&&Node| {
            node.subnets.is_empty() || node.subnets.iter().any(|subnet| subnet.contains(&cidr))
        };
        if carriers.iter().find(may_hold).is_none() {
            lacks.push(Lack::NoSubnet { cidr });
        }
        // Unknown capacity is no limit.
        let room: Option<u64> = carriers.iter().map(|node| node.capacity.map(u64::from)).sum();
        let needed = needed.get(index).copied().unwrap_or_default();
        if let Some(capacity) = room.filter(|room| *room < needed) {
            lacks.push(Lack::NoRoom {
                cidr,
                capacity,
                needed,
            });
        }
    }
    if serving > 0 && serving < layout.networks.len() {
        lacks.push(Lack::TooFewNodes {
            networks: layout.networks.len(),
            nodes: serving,
        });
    }
    lacks
}

/// Networks for different nodes that OVN-Kubernetes cannot tell apart.
pub fn shared_subnets(layout: &Layout, nodes: &[Node]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for (index, first) in layout.networks.iter().enumerate() {
        for second in layout.networks.iter().skip(index + 1) {
            let holds_both = |node: &&Node| {
                node.serves(layout)
                    && node
                        .subnets
                        .iter()
                        .any(|subnet| subnet.contains(&first.cidr) && subnet.contains(&second.cidr))
            };
            if first.label_value != second.label_value
                && let Some(node) = nodes.iter().find(holds_both)
            {
                warnings.push(Warning::SharedSubnet {
                    first: first.cidr,
                    second: second.cidr,
                    node: node.name.clone(),
                });
            }
        }
    }
    warnings
}
