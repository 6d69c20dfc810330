//! What is known besides the Infra itself.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use oooi_api::Infra;
use oooi_api::dhcp_server::DhcpServerSpec;
use oooi_api::dns_server::DnsServerSpec;
use oooi_api::proxy_server::{ProxyBackend, ProxyServerSpec};
use oooi_ipam::Range;

use super::Components;
use super::fields::bare_address;

/// What is known besides the Infra itself. Empty on the first run, and where there is only a file.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The components as they are now: addresses that were chosen for them are kept.
    pub dhcp: Option<DhcpServerSpec>,
    /// As above.
    pub dns: Option<DnsServerSpec>,
    /// As above.
    pub proxy: Option<ProxyServerSpec>,
    /// What the HostedCluster of `hostedClusterRef` says, once it is known.
    pub control_plane: Option<ControlPlane>,
    /// The NetworkAttachmentDefinition that pods use, where it is not the one of the virtual machines.
    pub attachment: Option<Attachment>,
    /// The VLAN's gateway, where its network leaves it to pods to route by source.
    pub route_via: Option<Ipv4Addr>,
    /// The other Infras on the same VLAN.
    pub neighbours: Vec<Neighbour>,
}

impl Known {
    /// What is known after a plan was carried out.
    pub fn after(components: &Components) -> Self {
        Known {
            dhcp: components.dhcp.clone(),
            dns: components.dns.clone(),
            proxy: components.proxy.clone(),
            ..Known::default()
        }
    }

    /// The addresses of the DHCP servers so far, the first replica's first.
    pub(super) fn dhcp_servers(&self) -> Vec<Ipv4Addr> {
        let config = self.dhcp.as_ref().map(|dhcp| &dhcp.network_config);
        config.map_or_else(Vec::new, |c| addresses(&c.server_ip, &c.additional_server_ips))
    }

    /// The addresses of the DNS servers so far.
    pub(super) fn dns_servers(&self) -> Vec<Ipv4Addr> {
        let config = self.dns.as_ref().map(|dns| &dns.network_config);
        config.map_or_else(Vec::new, |c| addresses(&c.server_ip, &c.additional_server_ips))
    }

    /// The addresses of the gateways so far. A DNS server remembers those of a gateway that does not run yet.
    pub(super) fn gateways(&self) -> Vec<Ipv4Addr> {
        let own = self.proxy.as_ref().map(|proxy| &proxy.network_config);
        let told = self.dns.as_ref().map(|dns| &dns.network_config);
        own.map(|c| addresses(&c.server_ip, &c.additional_server_ips))
            .or_else(|| told.map(|c| addresses(&c.proxy_ip, &c.additional_proxy_ips)))
            .unwrap_or_default()
    }

    /// The range of the nodes so far.
    pub(super) fn range(&self) -> Option<Range> {
        let lease = &self.dhcp.as_ref()?.lease_config;
        Range::new(lease.range_start.parse().ok()?, lease.range_end.parse().ok()?).ok()
    }
}

fn addresses(first: &str, others: &[String]) -> Vec<Ipv4Addr> {
    let others = others.iter().map(String::as_str);
    std::iter::once(first)
        .chain(others)
        .filter_map(bare_address)
        .collect()
}

/// A NetworkAttachmentDefinition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What a HostedCluster says about its control plane.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ControlPlane {
    /// The name of the HostedCluster.
    pub cluster: String,
    /// The namespace of the control plane.
    pub namespace: String,
    /// The domain of the cluster.
    pub domain: Option<String>,
    /// The domain of its applications.
    pub apps_domain: Option<String>,
    /// What is published so far, and under which names.
    pub backends: Vec<ProxyBackend>,
    /// Published addresses that nodes dial.
    pub published_ips: Vec<Ipv4Addr>,
}

/// Another Infra on the same VLAN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whether it was there first. What overlaps with such a one is refused; with any other it is warned of, and the
    /// other is refused in turn.
    pub first: bool,
    /// The addresses that it uses.
    pub occupied: Vec<Occupied>,
}

/// Addresses that a neighbour uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupied {
    /// What for, such as `the DNS server`.
    pub by: &'static str,
    /// Which.
    pub range: Range,
}

/// What an address of a DHCP server is for.
pub const DHCP_SERVER: &str = "the DHCP server";

impl Neighbour {
    /// The addresses of its DHCP servers.
    pub fn dhcp_servers(&self) -> impl Iterator<Item = Ipv4Addr> {
        let own = self.occupied.iter().filter(|one| one.by == DHCP_SERVER);
        own.map(|one| one.range.first())
    }

    /// A neighbour as its Infra and its components say. What cannot be read of them is passed over: it is the
    /// neighbour's own mistake, and said there.
    pub fn new(infra: &Infra, components: &Known, first: bool) -> Self {
        let mut occupied = Vec::new();
        let mut add = |by, ranges: Vec<Range>| {
            occupied.extend(ranges.into_iter().map(|range| Occupied { by, range }));
        };
        let read = |texts: &[String]| -> Vec<Range> {
            texts
                .iter()
                .filter_map(|text| bare_address(text))
                .map(Range::from)
                .collect()
        };
        let own = |first: &Option<String>, others: &[String], chosen: Vec<Ipv4Addr>| {
            let mut list = read(others);
            list.extend(first.as_deref().and_then(bare_address).map(Range::from));
            list.extend(chosen.into_iter().map(Range::from));
            list
        };
        let parts = infra.spec.infra_components.clone().unwrap_or_default();
        if let Some(dhcp) = parts.dhcp.filter(|dhcp| dhcp.enabled) {
            add(
                DHCP_SERVER,
                own(
                    &dhcp.server_ip,
                    &dhcp.additional_server_ips,
                    components.dhcp_servers(),
                ),
            );
            let written = dhcp.range_start.zip(dhcp.range_end);
            let range = written.and_then(|(first, last)| format!("{first}-{last}").parse().ok());
            add(
                "the DHCP range",
                range.or(components.range()).into_iter().collect(),
            );
            let reserved: Vec<String> = dhcp.reservations.into_iter().map(|r| r.address).collect();
            add("a reservation", read(&reserved));
        }
        if let Some(dns) = parts.dns.filter(|dns| dns.enabled) {
            add(
                "the DNS server",
                own(
                    &dns.server_ip,
                    &dns.additional_server_ips,
                    components.dns_servers(),
                ),
            );
        }
        if let Some(proxy) = parts.proxy.filter(|proxy| proxy.enabled) {
            add(
                "the gateway",
                own(
                    &proxy.server_ip,
                    &proxy.additional_server_ips,
                    components.gateways(),
                ),
            );
            // A published address may be anywhere; it occupies the VLAN only if it lies there.
            let cidr: Option<Ipv4Net> = infra.spec.network_config.cidr.parse().ok();
            let mut published = read(&proxy.published_ips);
            published.retain(|range| cidr.is_some_and(|cidr| cidr.contains(&range.first())));
            add("a published address", published);
        }
        occupied.dedup();
        Neighbour {
            namespace: infra
                .metadata
                .namespace
                .clone()
                .unwrap_or_else(|| "default".into()),
            name: infra.metadata.name.clone().unwrap_or_default(),
            first,
            occupied,
        }
    }
}
