//! The networks of an EgressIPAM, read once.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use kube::core::Selector;
use oooi_api::EgressIpam;
use oooi_api::egress_ipam::{AllocationPolicy, CidrAssignment, EgressIpamSpec};
use oooi_ipam::{Range, Set, hosts};

/// A network that can be given addresses of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// The network, its host bits masked.
    pub cidr: Ipv4Net,
    /// The value of the topology label of the nodes that carry its addresses.
    pub label_value: String,
    /// Addresses that are never allocated.
    pub reserved: Set,
}

impl Network {
    /// The addresses that hosts can have.
    pub fn hosts(&self) -> Range {
        hosts(self.cidr)
    }
}

/// An EgressIPAM that can be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The EgressIPAM's name.
    pub name: String,
    /// Which nodes may carry addresses.
    pub selector: Selector,
    /// The node label whose value tells which network a node is for.
    pub topology_label: String,
    /// Its networks, in order.
    pub networks: Vec<Network>,
    /// Which free address a namespace gets.
    pub policy: AllocationPolicy,
    /// What is odd about it, and does no harm.
    pub warnings: Vec<Warning>,
}

/// Why an EgressIPAM cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mistake {
    /// It has no network.
    #[error(
        "spec.cidrAssignments is empty: add a network such as 10.0.128.0/20 with the labelValue of its nodes"
    )]
    NoNetwork,
    /// A network is none.
    #[error(
        "spec.cidrAssignments[{index}].CIDR `{text}` is not an IPv4 network: write one such as 10.0.128.0/20"
    )]
    Cidr {
        /// Which one.
        index: usize,
        /// What is written.
        text: String,
    },
    /// Two entries are the same network.
    #[error(
        "spec.cidrAssignments[{index}].CIDR is {cidr}, which stands there already: remove one of the two"
    )]
    Twice {
        /// The second one.
        index: usize,
        /// The network.
        cidr: Ipv4Net,
    },
    /// The node selector has a mistake.
    #[error("spec.nodeSelector cannot be used: {0}")]
    Selector(String),
}

/// What is odd about an EgressIPAM.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// Host bits were passed over.
    #[error("{text} has host bits: it is taken as {cidr}")]
    HostBits {
        /// What is written.
        text: String,
        /// What is meant.
        cidr: Ipv4Net,
    },
    /// A reserved address is of no use.
    #[error("the reserved address {address} is not in {cidr}: it is passed over")]
    ReservedOutside {
        /// The address.
        address: Ipv4Addr,
        /// The network that it stands with.
        cidr: Ipv4Net,
    },
    /// A reserved address is none.
    #[error("`{text}` among the reserved addresses of {cidr} is not an IPv4 address: it is passed over")]
    ReservedUnreadable {
        /// What is written.
        text: String,
        /// The network that it stands with.
        cidr: Ipv4Net,
    },
    /// Two networks share addresses.
    #[error(
        "{cidr} and {other_cidr} of EgressIPAM {other} overlap: no address is given twice, but both draw on them"
    )]
    Overlap {
        /// The network.
        cidr: Ipv4Net,
        /// The other one.
        other_cidr: Ipv4Net,
        /// Whose it is.
        other: String,
    },
    /// Two networks of different nodes are one subnet for OVN-Kubernetes.
    #[error(
        "{first} and {second} are for nodes with different labels, but node {node} has a subnet that holds both: \
         OVN-Kubernetes places by subnet and passes the label over"
    )]
    SharedSubnet {
        /// The one.
        first: Ipv4Net,
        /// The other.
        second: Ipv4Net,
        /// A node that can carry both.
        node: String,
    },
}

/// Reads an EgressIPAM, or tells all its mistakes.
pub fn read(ipam: &EgressIpam) -> Result<Layout, Vec<Mistake>> {
    let EgressIpamSpec {
        cidr_assignments,
        topology_label,
        node_selector,
        allocation_policy,
    } = &ipam.spec;
    let (mut networks, mut warnings, mut mistakes) = (Vec::<Network>::new(), Vec::new(), Vec::new());
    for (index, assignment) in cidr_assignments.iter().enumerate() {
        match network(assignment, &mut warnings) {
            None => mistakes.push(Mistake::Cidr {
                index,
                text: assignment.cidr.clone(),
            }),
            Some(Network { cidr, .. }) if networks.iter().any(|other| other.cidr == cidr) => {
                mistakes.push(Mistake::Twice { index, cidr });
            }
            Some(network) => networks.push(network),
        }
    }
    if cidr_assignments.is_empty() {
        mistakes.push(Mistake::NoNetwork);
    }
    let selector = Selector::try_from(node_selector.clone().unwrap_or_default());
    let selector = selector.unwrap_or_else(|error| {
        mistakes.push(Mistake::Selector(error.to_string()));
        Selector::default()
    });
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    Ok(Layout {
        name: ipam.metadata.name.clone().unwrap_or_default(),
        selector,
        topology_label: topology_label.clone(),
        networks,
        policy: allocation_policy.unwrap_or_default(),
        warnings,
    })
}

fn network(assignment: &CidrAssignment, warnings: &mut Vec<Warning>) -> Option<Network> {
    let CidrAssignment {
        cidr: text,
        label_value,
        reserved_ips,
    } = assignment;
    let written: Ipv4Net = text.parse().ok()?;
    let cidr = written.trunc();
    if cidr != written {
        warnings.push(Warning::HostBits {
            text: text.clone(),
            cidr,
        });
    }
    let mut reserved = Set::new();
    for text in reserved_ips {
        match text.parse::<Ipv4Addr>() {
            Ok(address) if cidr.contains(&address) => reserved.insert(address),
            Ok(address) => warnings.push(Warning::ReservedOutside { address, cidr }),
            Err(_) => warnings.push(Warning::ReservedUnreadable {
                text: text.clone(),
                cidr,
            }),
        }
    }
    Some(Network {
        cidr,
        label_value: label_value.clone(),
        reserved,
    })
}

/// The networks of one EgressIPAM that share addresses with another network, its own included.
pub fn overlaps(layout: &Layout, all: &[Layout]) -> Vec<Warning> {
    let meets = |a: Ipv4Net, b: Ipv4Net| a.contains(&b) || b.contains(&a);
    let mut warnings = Vec::new();
    for (index, network) in layout.networks.iter().enumerate() {
        for other in all {
            let is_self = other.name == layout.name;
            for (other_index, other_network) in other.networks.iter().enumerate() {
                // A pair of one's own is told once.
                if meets(network.cidr, other_network.cidr) && (!is_self || index < other_index) {
                    warnings.push(Warning::Overlap {
                        cidr: network.cidr,
                        other_cidr: other_network.cidr,
                        other: other.name.clone(),
                    });
                }
            }
        }
    }
    warnings
}
