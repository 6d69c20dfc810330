//! Names that are learnt while the server runs: virtual machines and leases.
//!
//! Whoever knows them (a watch, the lease store) publishes a whole [`Names`] at each change; the server
//! serves them below its domain, after its static entries.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Host names with their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// By the host's own name, one label or more, without the domain. What is no host name is left out.
    pub hosts: BTreeMap<String, Vec<IpAddr>>,
}

impl Names {
    /// Adds an address to a host.
    pub fn add(&mut self, host: impl Into<String>, address: IpAddr) {
        let addresses = self.hosts.entry(host.into()).or_default();
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
}
