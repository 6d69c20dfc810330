//! What a node should find, by an Infra; or by its lease alone.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use oooi_api::proxy_server::{Protocol, ProxyBackend};
use oooi_dhcp::config::Config;
use oooi_plan::{Components, infra::API_SERVER};

/// The Service that gives nodes their first configuration.
const IGNITION: &str = "ignition-server-proxy";

/// What a node should find.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// DHCP, if the Infra has a server.
    pub dhcp: Option<ExpectedDhcp>,
    /// The DNS servers.
    pub resolvers: Vec<Ipv4Addr>,
    /// Names with their addresses. No addresses: whatever they are.
    pub names: Vec<(String, Vec<Ipv4Addr>)>,
    /// Whether names outside of the cluster are resolved, and one of them. Unknown without an Infra.
    pub outside: Option<Outside>,
    /// The gateway's addresses.
    pub gateways: Vec<Ipv4Addr>,
    /// What is reached through it.
    pub services: Vec<Service>,
}

/// What a DHCP server should offer.
#[derive(Clone, Debug)]
pub struct ExpectedDhcp {
    /// The servers.
    pub servers: Vec<Ipv4Addr>,
    /// The network of the addresses.
    pub network: Ipv4Net,
    /// Options in wire form, by number.
    pub options: Vec<(u8, Vec<u8>)>,
}

/// Names outside of the cluster.
#[derive(Clone, Debug)]
pub struct Outside {
    /// A name that the DNS server does not own.
    pub name: String,
    /// Whether it has anybody to ask. Unknown without an Infra.
    pub upstreams: Option<bool>,
}

/// What a Service answers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The API server.
    Api,
    /// The ignition server.
    Ignition,
    /// Anything else that speaks TLS.
    Other,
}

/// A Service of the control plane, as nodes reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The name that nodes ask for.
    pub name: String,
    /// The port of the gateway.
    pub port: u16,
    /// What it is.
    pub role: Role,
}

impl Expected {
    /// What the servers of a plan should do.
    pub fn of(components: &Components) -> Self {
        let addresses = components.addresses();
        let read = |list: &[String]| {
            list.iter()
                .filter_map(|text| text.parse().ok())
                .collect::<Vec<_>>()
        };
        let dhcp = components.dhcp.as_ref().and_then(|spec| {
            // The plan is held against the server by tests: it takes what the plan says.
            let config = Config::from_spec(spec, &[]).ok()?;
            Some(ExpectedDhcp {
                servers: read(&addresses.dhcp),
                network: config.pool().network(),
                options: config
                    .options()
                    .iter()
                    .map(|(code, value)| (code, value.to_vec()))
                    .collect(),
            })
        });
        let dns = components.dns.as_ref();
        let names = dns.iter().flat_map(|dns| &dns.static_entries).map(|entry| {
            let all: Vec<String> = std::iter::once(&entry.ip)
                .chain(&entry.additional_ips)
                .cloned()
                .collect();
            (example(&entry.hostname), read(&all))
        });
        let outside = dns.and_then(|dns| {
            let (_, above) = dns.hosted_cluster_domain.split_once('.')?;
            Some(Outside {
                name: above.to_owned(),
                upstreams: Some(!dns.upstream_dns.is_empty()),
            })
        });
        let names: Vec<(String, Vec<Ipv4Addr>)> = names.collect();
        let backends = components.proxy.iter().flat_map(|proxy| &proxy.backends);
        let mut services: Vec<Service> = backends.filter_map(service).collect();
        if dns.is_some() {
            // What has no name on the VLAN is for pods, which come through the node's own proxy.
            services.retain(|service| names.iter().any(|(name, _)| *name == service.name));
        }
        Expected {
            dhcp,
            resolvers: read(&addresses.dns),
            names,
            outside,
            gateways: read(&addresses.proxy),
            services,
        }
    }

    /// What a domain of a hosted cluster has by convention.
    pub fn by_convention(domain: &str, resolvers: &[Ipv4Addr]) -> Self {
        let services = [
            ("api", 6443, Role::Api),
            ("ignition", 443, Role::Ignition),
            ("konnectivity", 443, Role::Other),
            ("oauth", 443, Role::Other),
        ];
        let services = services.map(|(host, port, role)| Service {
            name: format!("{host}.{domain}"),
            port,
            role,
        });
        Expected {
            dhcp: None,
            resolvers: resolvers.to_vec(),
            names: services
                .iter()
                .map(|service| (service.name.clone(), Vec::new()))
                .collect(),
            outside: domain.split_once('.').map(|(_, above)| Outside {
                name: above.to_owned(),
                upstreams: None,
            }),
            gateways: Vec::new(),
            services: services.to_vec(),
        }
    }
}

/// A name that a wildcard stands for.
fn example(hostname: &str) -> String {
    match hostname.strip_prefix("*.") {
        Some(rest) => format!("oooi-doctor.{rest}"),
        None => hostname.to_owned(),
    }
}

/// What a node asks a backend for. Datagrams, bare ports and what a wildcard stands for have no name to ask for.
fn service(backend: &ProxyBackend) -> Option<Service> {
    if backend.protocol == Protocol::Udp || backend.hostname.starts_with('*') {
        return None;
    }
    Some(Service {
        name: backend.hostname.clone(),
        port: u16::try_from(backend.port).ok()?,
        role: match (&*backend.name, &*backend.target_service) {
            (API_SERVER, _) | (_, API_SERVER) => Role::Api,
            (_, IGNITION) => Role::Ignition,
            _ => Role::Other,
        },
    })
}
