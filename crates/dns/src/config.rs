//! A `DNSServer`'s specification, read once into a type that cannot be wrong.
//!
//! [`Config::from_resource`] takes the manifest and gives either a [`Config`] or all mistakes at once, each
//! with the path of its field. Nothing downstream checks again.

mod forward;
mod mistakes;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::Ipv4Net;
use oooi_api::dns_server::{DnsNetworkConfig, DnsServer, DnsServerSpec, DnsStaticEntry};

pub use self::forward::{Forward, Upstream, UpstreamPolicy};
pub use self::mistakes::{Mistake, Mistakes};
use crate::wire::name::Name;

/// What one server serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The zone that the server owns.
    pub domain: Name,
    /// The VLAN addresses of this server and its replicas.
    pub servers: Vec<Ipv4Addr>,
    /// The port of UDP and TCP.
    pub port: u16,
    /// Whose questions are answered at the VLAN addresses.
    pub network: Ipv4Net,
    /// The gateway's VLAN addresses.
    pub gateways: Vec<Ipv4Addr>,
    /// What the gateway's addresses become for pods; without it pods' questions are only forwarded.
    pub internal: Option<Internal>,
    /// Names with their addresses, each name once.
    pub entries: Vec<Entry>,
    /// Zones and their upstreams; the root's are the default.
    pub forwards: Vec<Forward>,
    /// The most seconds for which an answer is kept, and the TTL of own names.
    pub cache_ttl: u32,
    /// Which resource, and which state of it, this is.
    pub source: Source,
}

/// Which resource a configuration was read from; all empty for a bare file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The resource's uid.
    pub uid: Option<String>,
    /// The resource's generation.
    pub generation: Option<i64>,
}

/// What names of the control plane resolve to for pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Internal {
    /// This address.
    Address(IpAddr),
    /// Whatever this name resolves to now, by the resolvers of the host.
    Service(String),
}

/// A name with its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name; may begin with `*`.
    pub name: Name,
    /// Its addresses, without repetition.
    pub addresses: Vec<Ipv4Addr>,
}

impl Config {
    /// Reads a whole resource: its specification, its uid and its generation.
    pub fn from_resource(resource: &DnsServer) -> Result<Config, Mistakes> {
        let mut config = Config::from_spec(&resource.spec)?;
        let metadata = &resource.metadata;
        config.source = Source {
            uid: metadata.uid.clone(),
            generation: metadata.generation,
        };
        Ok(config)
    }

    /// Reads a specification.
    pub fn from_spec(spec: &DnsServerSpec) -> Result<Config, Mistakes> {
        // Without `..`: a new field of the specification must be thought of here.
        let DnsServerSpec {
            network_config,
            hosted_cluster_domain,
            static_entries,
            upstream_dns,
            upstream_policy,
            forward_zones,
            cache_ttl,
            reload_interval: _, // changes apply at once
            image: _,           // the operator's
            replicas: _,        // the operator's
            resources: _,       // the operator's
        } = spec;
        let DnsNetworkConfig {
            server_ip,
            additional_server_ips,
            proxy_ip,
            additional_proxy_ips,
            internal_proxy_ip,
            secondary_network_cidr,
            dns_port,
            network_attachment_name: _,      // the operator's
            network_attachment_namespace: _, // the operator's
            route_via: _,                    // the operator's
        } = network_config;
        let mut mistakes = Mistakes::default();
        let check = &mut mistakes;

        let domain = check
            .name("spec.hostedClusterDomain", hosted_cluster_domain)
            .filter(|name| {
                if name.is_wildcard() {
                    check.add("spec.hostedClusterDomain", "must be one domain, without `*`");
                }
                !name.is_wildcard()
            });
        let server = read_server(check, server_ip);
        let mut servers: Vec<Ipv4Addr> = server.iter().map(|(address, _)| *address).collect();
        servers.extend(check.addresses("spec.networkConfig.additionalServerIPs", additional_server_ips));
        let network = match secondary_network_cidr {
            Some(text) => check.network("spec.networkConfig.secondaryNetworkCIDR", text),
            None => server.map(|(_, network)| network),
        };
        let mut gateways: Vec<Ipv4Addr> = check
            .address("spec.networkConfig.proxyIP", proxy_ip)
            .into_iter()
            .collect();
        gateways.extend(check.addresses("spec.networkConfig.additionalProxyIPs", additional_proxy_ips));
        let internal = internal_proxy_ip
            .as_deref()
            .and_then(|text| read_internal(check, "spec.networkConfig.internalProxyIP", text));
        let port = u16::try_from(*dns_port).ok().filter(|port| *port > 0);
        if port.is_none() {
            check.add(
                "spec.networkConfig.dnsPort",
                format!("is {dns_port}; a port is between 1 and 65535"),
            );
        }
        let entries = read_entries(check, static_entries);
        let forwards = forward::read(check, upstream_dns, *upstream_policy, forward_zones);
        let cache_ttl = check.duration("spec.cacheTTL", cache_ttl);

        match (domain, network, port, cache_ttl) {
            (Some(domain), Some(network), Some(port), Some(cache_ttl)) if mistakes.is_empty() => Ok(Config {
                domain,
                servers,
                port,
                network,
                gateways,
                internal,
                entries,
                forwards,
                cache_ttl,
                source: Source::default(),
            }),
            _ => Err(mistakes),
        }
    }

    /// The addresses to listen on: those of the VLAN at which this host may or may not be found.
    pub fn listen_addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.servers
            .iter()
            .map(|&address| SocketAddr::new(address.into(), self.port))
    }
}

/// The server's address and its network, /24 where no prefix is written.
fn read_server(check: &mut Mistakes, text: &str) -> Option<(Ipv4Addr, Ipv4Net)> {
    const PATH: &str = "spec.networkConfig.serverIP";
    let read: Result<Ipv4Net, _> = if text.contains('/') {
        text.parse()
    } else {
        format!("{text}/24").parse()
    };
    match read {
        Ok(network) => Some((network.addr(), network.trunc())),
        Err(_) => {
            check.add(
                PATH,
                format!("is {text:?}; write an IPv4 address, with or without a prefix (10.0.0.3/24)"),
            );
            None
        }
    }
}

/// An address, or the name of a Service.
fn read_internal(check: &mut Mistakes, path: &str, text: &str) -> Option<Internal> {
    if text.is_empty() {
        return None; // as the field left out: what a template renders for "nothing"
    }
    if let Ok(address) = text.parse() {
        return Some(Internal::Address(address));
    }
    // `10.0.0` and `10.0.0.256` are mistyped addresses, not names.
    if text.chars().all(|c| c.is_ascii_digit() || c == '.') {
        check.add(
            path,
            format!("is {text:?}; write an IP address or the name of a Service"),
        );
        return None;
    }
    check.name(path, text).map(|_| Internal::Service(text.to_owned()))
}

/// Entries in their order; one that repeats a name adds its addresses to the first.
fn read_entries(check: &mut Mistakes, written: &[DnsStaticEntry]) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for (index, entry) in written.iter().enumerate() {
        let path = format!("spec.staticEntries[{index}]");
        let DnsStaticEntry {
            hostname,
            ip,
            additional_ips,
        } = entry;
        let name = check.name(&format!("{path}.hostname"), hostname);
        let mut addresses: Vec<Ipv4Addr> = check.address(&format!("{path}.ip"), ip).into_iter().collect();
        addresses.extend(check.addresses(&format!("{path}.additionalIPs"), additional_ips));
        let Some(name) = name else { continue };
        let at = entries
            .iter()
            .position(|known| known.name == name)
            .unwrap_or_else(|| {
                entries.push(Entry {
                    name,
                    addresses: Vec::new(),
                });
                entries.len() - 1
            });
        for address in addresses {
            if !entries[at].addresses.contains(&address) {
                entries[at].addresses.push(address);
            }
        }
    }
    entries
}

#[cfg(test)]
#[path = "config/tests.rs"]
mod tests;
