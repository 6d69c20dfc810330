//! Building the zone of one view.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use super::{Node, Zone, reverse};
use crate::config::Config;
use crate::names::Names;
use crate::wire::name::{self, Name};

/// What the gateway's addresses become in this view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Translation<'a> {
    /// They stay: the view of the VLAN.
    None,
    /// They become these: the view of pods.
    To(&'a [IpAddr]),
    /// They become something that is not known yet.
    Pending,
}

impl Zone {
    /// Builds the zone of a view from the configuration and the names learnt meanwhile. Static entries win
    /// over learnt names, wildcards as well: nobody takes a name of the cluster by calling a machine so. Names
    /// that are no host names, or too long below the domain, are left out, and so are addresses of other
    /// networks that a machine has.
    pub fn build(config: &Config, names: &Names, translation: Translation<'_>) -> Zone {
        let domain = config.domain.clone();
        // A domain too long for `ns.` in front of it stands for its own name server.
        let name_server = domain.child("ns").unwrap_or_else(|_| domain.clone());
        let mut zone = Zone {
            soa: soa(&domain, &name_server, config),
            nodes: HashMap::new(),
            wildcards: HashMap::new(),
            wildcards_outside: false,
            network: config.network,
            ttl: config.cache_ttl,
            name_server,
            domain,
        };
        zone.exist(zone.domain.clone());
        for entry in &config.entries {
            let node = translate(&entry.addresses, &config.gateways, translation);
            zone.insert(&entry.name, node);
        }
        let name_server = zone.name_server.clone();
        if zone
            .nodes
            .get(&name_server)
            .is_none_or(|known| *known == Node::default())
        {
            zone.insert(&name_server, translate(&config.servers, &[], Translation::None));
        }
        for (host, addresses) in &names.hosts {
            let Ok(name) = zone.domain.child(host) else {
                continue;
            };
            // A machine that calls itself `*` does not get every name.
            if name.is_wildcard() || zone.answers(&name) {
                continue;
            }
            let mut node = Node::default();
            let on_the_vlan =
                |address: &&IpAddr| matches!(address, IpAddr::V4(v4) if config.network.contains(v4));
            addresses
                .iter()
                .filter(on_the_vlan)
                .for_each(|&address| node.add(address));
            if node != Node::default() {
                zone.insert(&name, node);
            }
        }
        zone.add_pointers(config, names);
        zone
    }

    fn insert(&mut self, name: &Name, node: Node) {
        if !name.is_wildcard() {
            self.exist_above(name.wire());
            self.nodes.insert(name.clone(), node);
            return;
        }
        let parent = Name::from_checked_wire(&name.wire()[2..]);
        self.wildcards_outside |= self.apex(parent.wire()).is_none();
        if self.apex(parent.wire()).is_some() {
            self.exist(parent.clone());
            self.exist_above(parent.wire());
        }
        self.wildcards.insert(parent, node);
    }

    /// Has it records for this name, be it by a wildcard?
    fn answers(&self, name: &Name) -> bool {
        let found = self.find(name.wire()).and_then(|found| found.node);
        found.is_some_and(|node| *node != Node::default())
    }

    /// Makes the owned parents of a name exist (RFC 4592, 2.2.2).
    fn exist_above(&mut self, wire: &[u8]) {
        for parent in name::ancestors(wire).skip(1) {
            if self.apex(parent).is_none() {
                break;
            }
            self.exist(Name::from_checked_wire(parent));
        }
    }

    fn exist(&mut self, name: Name) {
        self.nodes.entry(name).or_default();
    }

    /// PTR for every address: names in the order of the manifest, then learnt ones.
    fn add_pointers(&mut self, config: &Config, names: &Names) {
        let learnt = names.hosts.keys().filter_map(|host| self.domain.child(host).ok());
        let own = std::iter::once(self.name_server.clone());
        let static_names = config.entries.iter().map(|entry| entry.name.clone());
        let all: Vec<Name> = static_names.chain(own).chain(learnt).collect();
        for name in all {
            let Some(node) = self.nodes.get(&name) else {
                continue;
            };
            let v4 = node.v4.iter().map(|&address| IpAddr::V4(address));
            let addresses: Vec<IpAddr> = v4
                .chain(node.v6.iter().map(|&address| IpAddr::V6(address)))
                .collect();
            for reverse in addresses.into_iter().filter_map(reverse::name_of) {
                self.exist_above(reverse.wire());
                let node = self.nodes.entry(reverse).or_default();
                if !node.pointers.contains(&name) {
                    node.pointers.push(name.clone());
                }
            }
        }
    }
}

impl Node {
    fn add(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) if !self.v4.contains(&address) => self.v4.push(address),
            IpAddr::V6(address) if !self.v6.contains(&address) => self.v6.push(address),
            _ => {}
        }
    }
}

fn translate(addresses: &[Ipv4Addr], gateways: &[Ipv4Addr], translation: Translation<'_>) -> Node {
    let mut node = Node::default();
    for &address in addresses {
        match translation {
            Translation::To(internal) if gateways.contains(&address) => {
                internal.iter().for_each(|&address| node.add(address));
            }
            Translation::Pending if gateways.contains(&address) => node.pending = true,
            _ => node.add(address.into()),
        }
    }
    node
}

/// The data of the SOA record. Negative answers live as long as positive ones.
fn soa(domain: &Name, name_server: &Name, config: &Config) -> Vec<u8> {
    let mailbox = domain.child("hostmaster").unwrap_or_else(|_| domain.clone());
    let serial = config.source.generation.unwrap_or(1) as u32; // serials wrap around by design (RFC 1982)
    let mut data = [name_server.wire(), mailbox.wire()].concat();
    for number in [serial, 3600, 600, 86_400, config.cache_ttl] {
        data.extend(number.to_be_bytes());
    }
    data
}
