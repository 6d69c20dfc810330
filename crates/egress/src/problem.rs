//! What can be wrong with one namespace.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::claim::{self, GIVEN, Malformed};

/// What is wrong with one namespace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It asks an EgressIPAM that is not there.
    #[error("there is no EgressIPAM {0}: create it, or correct the annotation {asks}", asks = claim::ASKS)]
    UnknownIpam(String),
    /// It asks an EgressIPAM that is not carried out.
    #[error("EgressIPAM {0} is paused or has mistakes: its own status tells which")]
    FrozenIpam(String),
    /// Its list cannot be read.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It names more addresses than there are networks.
    #[error(
        "the annotation {GIVEN} has {given} addresses, but the EgressIPAM has {networks} networks: remove those that are too many"
    )]
    TooMany {
        /// How many it names.
        given: usize,
        /// How many there are.
        networks: usize,
    },
    /// An address is not of its network.
    #[error(
        "{address} in the annotation {GIVEN} is not in {cidr}: correct it, or remove the annotation to get new addresses"
    )]
    Outside {
        /// The address.
        address: Ipv4Addr,
        /// The network whose turn it is.
        cidr: Ipv4Net,
    },
    /// An address is that of the network itself, or its broadcast address.
    #[error(
        "{address} in the annotation {GIVEN} is the network or broadcast address of {cidr}: choose another one"
    )]
    Unusable {
        /// The address.
        address: Ipv4Addr,
        /// The network.
        cidr: Ipv4Net,
    },
    /// It names one address twice.
    #[error("{0} is named twice in the annotation {GIVEN}: name it once")]
    Twice(Ipv4Addr),
    /// Another namespace has it.
    #[error(
        "{address} in the annotation {GIVEN} belongs to namespace {namespace} already: choose another one"
    )]
    Duplicate {
        /// The address.
        address: Ipv4Addr,
        /// Whose it is.
        namespace: String,
    },
    /// A node has it.
    #[error("{address} in the annotation {GIVEN} is an address of node {node}: choose another one")]
    Host {
        /// The address.
        address: Ipv4Addr,
        /// Whose it is.
        node: String,
    },
    /// Something else has it.
    #[error("{address} in the annotation {GIVEN} is used by {user}: choose another one, or free it there")]
    Taken {
        /// The address.
        address: Ipv4Addr,
        /// Who uses it.
        user: String,
    },
    /// No address is left.
    #[error("{0} has no free address: enlarge it, free some, or remove reserved ones")]
    Exhausted(Ipv4Net),
}

impl Problem {
    /// One CamelCase word for it.
    pub fn reason(&self) -> &'static str {
        match self {
            Problem::UnknownIpam(_) => "UnknownEgressIPAM",
            Problem::FrozenIpam(_) => "EgressIPAMNotCarriedOut",
            Problem::Malformed(Malformed::Spaces(_)) => "SpacesInList",
            Problem::Malformed(Malformed::Address(_)) => "MalformedAddress",
            Problem::TooMany { .. } => "TooManyAddresses",
            Problem::Outside { .. } => "AddressOutsideNetwork",
            Problem::Unusable { .. } => "AddressUnusable",
            Problem::Twice(_) => "AddressNamedTwice",
            Problem::Duplicate { .. } => "DuplicateAddress",
            Problem::Host { .. } => "AddressOfNode",
            Problem::Taken { .. } => "AddressInUse",
            Problem::Exhausted(_) => "NetworkExhausted",
        }
    }
}
