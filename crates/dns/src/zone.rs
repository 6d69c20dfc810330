//! What the server knows by itself: names with addresses, and addresses with names.
//!
//! A [`Zone`] is built once for each view and never changes. It owns the domain of the hosted cluster and
//! the reverse names of the VLAN: what is missing there does not exist. Entries outside are single names in
//! somebody else's domain: what is missing beside them is not ours to deny. Wildcards follow RFC 4592: an
//! existing name, even one without records, keeps the wildcard above it away from itself and from all below.

mod build;
pub(crate) mod reverse;

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::Ipv4Net;

use crate::wire::name::{self, Name};

pub use self::build::Translation;

/// The records of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its A records.
    pub v4: Vec<Ipv4Addr>,
    /// Its AAAA records.
    pub v6: Vec<Ipv6Addr>,
    /// Its PTR records.
    pub pointers: Vec<Name>,
    /// It has addresses that are not known yet: a Service that has not been resolved.
    pub pending: bool,
}

/// All own names of one view.
#[derive(Clone, Debug)]
pub struct Zone {
    domain: Name,
    network: Ipv4Net,
    /// Every existing name, also those that only have names below them.
    nodes: HashMap<Name, Node>,
    /// Records for all names below the key.
    wildcards: HashMap<Name, Node>,
    /// Some wildcard is outside the domain, so that foreign names must be walked up, too.
    wildcards_outside: bool,
    name_server: Name,
    soa: Vec<u8>,
    ttl: u32,
}

/// What a zone says of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<'z> {
    /// The records, or nothing where the name does not exist.
    pub node: Option<&'z Node>,
    /// Octets of the zone's apex, a parent of the name or the name itself.
    pub apex: usize,
    /// A forwarded zone of at least so many octets has a better claim to the name.
    pub cut: usize,
}

/// The cut of a name with records of its own: nobody has a better claim.
pub const NO_CUT: usize = usize::MAX;

impl Zone {
    /// Looks a lower-case name up; nothing where it is not ours to answer.
    pub fn find(&self, name: &[u8]) -> Option<Found<'_>> {
        let ours = self.apex(name);
        if let Some(node) = self.nodes.get(name) {
            let apex = ours.unwrap_or(name.len());
            // A name that is only the parent of others says nothing of what is below it.
            let cut = if *node == Node::default() { apex } else { NO_CUT };
            return Some(Found {
                node: Some(node),
                apex,
                cut,
            });
        }
        if ours.is_some() || self.wildcards_outside {
            for parent in name::ancestors(name).skip(1) {
                if let Some(node) = self.wildcards.get(parent) {
                    return Some(Found {
                        node: Some(node),
                        apex: ours.unwrap_or(parent.len()),
                        cut: parent.len() + 1,
                    });
                }
                if self.nodes.contains_key(parent) {
                    break; // the closest existing parent has no wildcard
                }
            }
        }
        ours.map(|apex| Found {
            node: None,
            apex,
            cut: apex,
        })
    }

    /// Octets of the apex of the owned zone that this name belongs to.
    pub fn apex(&self, name: &[u8]) -> Option<usize> {
        if name::is_within(name, self.domain.wire()) {
            return Some(self.domain.wire().len());
        }
        reverse::apex(name, self.network)
    }

    /// The data of the SOA record of every owned zone.
    pub fn soa(&self) -> &[u8] {
        &self.soa
    }

    /// The name in the NS record of every owned zone.
    pub fn name_server(&self) -> &Name {
        &self.name_server
    }

    /// The TTL of every own record.
    pub fn ttl(&self) -> u32 {
        self.ttl
    }

    /// How many names have records.
    pub fn len(&self) -> usize {
        let filled = |node: &&Node| **node != Node::default();
        self.nodes.values().filter(filled).count() + self.wildcards.len()
    }

    /// No name has records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
#[path = "zone/tests.rs"]
pub(crate) mod tests;
