//! What a person says by annotations of a HostedCluster.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use kube::ResourceExt;
use oooi_api::foreign::HostedCluster;
use oooi_api::proxy_server::ProxyEngine;
use oooi_ipam::Range;

use super::Gaps;
use crate::infra::is_resolver;

/// What every annotation of ours begins with.
pub const PREFIX: &str = "hostedcluster.densityops.com/";
/// The annotation that asks for an Infra.
pub const OPT_IN: &str = "hostedcluster.densityops.com/infra";

/// So many resolvers an Infra takes.
const MOST_RESOLVERS: usize = 15;

/// Whether the HostedCluster asks for an Infra.
pub fn is_opted_in(cluster: &HostedCluster) -> bool {
    cluster
        .annotations()
        .get(OPT_IN)
        .is_some_and(|value| value == "true")
}

/// The overrides that could be read. One that cannot blocks: what it was to say is unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Annotations {
    /// `cidr`: the network of the VLAN.
    pub cidr: Option<Ipv4Net>,
    /// `gateway`: its default gateway.
    pub gateway: Option<Ipv4Addr>,
    /// `network-attachment`: its definition, as `name` or `namespace/name`.
    pub network_attachment: Option<(Option<String>, String)>,
    /// `dns-servers`: resolvers, separated by commas.
    pub dns_servers: Vec<String>,
    /// `dhcp-range`: what nodes get, as `first-last`.
    pub dhcp_range: Option<Range>,
    /// `proxy-engine`: `envoy` or `native`.
    pub proxy_engine: Option<ProxyEngine>,
}

impl Annotations {
    pub(super) fn read(cluster: &HostedCluster, gaps: &mut Gaps) -> Self {
        let get = |key: &str| {
            cluster
                .annotations()
                .get(&format!("{PREFIX}{key}"))
                .map(|text| text.trim())
        };
        let mut bad = |key: &str, text: &str, wanted: &str| {
            gaps.block(
                "BadAnnotation",
                format!("the annotation {PREFIX}{key} is `{text}`: write {wanted}"),
            );
        };
        let mut read = Annotations::default();
        if let Some(text) = get("cidr") {
            match text.parse::<Ipv4Net>() {
                Ok(cidr) if (8..=30).contains(&cidr.prefix_len()) => read.cidr = Some(cidr.trunc()),
                _ => bad("cidr", text, "a network from /8 to /30 such as 192.168.100.0/24"),
            }
        }
        if let Some(text) = get("gateway") {
            match text.parse() {
                Ok(gateway) => read.gateway = Some(gateway),
                Err(_) => bad("gateway", text, "an address such as 192.168.100.1"),
            }
        }
        if let Some(text) = get("network-attachment") {
            match attachment(text) {
                Some(attachment) => read.network_attachment = Some(attachment),
                None => bad(
                    "network-attachment",
                    text,
                    "a NetworkAttachmentDefinition as namespace/name",
                ),
            }
        }
        if let Some(text) = get("dns-servers") {
            let list = text.split(',').map(str::trim).filter(|server| !server.is_empty());
            read.dns_servers = list.map(str::to_owned).collect();
            let servers = &read.dns_servers;
            if servers.len() > MOST_RESOLVERS || !servers.iter().all(|server| is_resolver(server)) {
                bad(
                    "dns-servers",
                    text,
                    "up to 15 resolvers separated by commas, each an address (10.0.0.53 or 10.0.0.53:5353), \
                     tls://ADDRESS[:PORT][#NAME], or system",
                );
            }
        }
        if let Some(text) = get("dhcp-range") {
            match text.parse() {
                Ok(range) if text.contains('-') => read.dhcp_range = Some(range),
                _ => bad(
                    "dhcp-range",
                    text,
                    "a range such as 192.168.100.50-192.168.100.199",
                ),
            }
        }
        if let Some(text) = get("proxy-engine") {
            match text.to_ascii_lowercase().as_str() {
                "envoy" => read.proxy_engine = Some(ProxyEngine::Envoy),
                "native" => read.proxy_engine = Some(ProxyEngine::Native),
                _ => bad("proxy-engine", text, "envoy or native"),
            }
        }
        read
    }
}

/// Reads `name` or `namespace/name`.
pub(super) fn attachment(text: &str) -> Option<(Option<String>, String)> {
    let sound = |part: &str| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
        (1..=253).contains(&part.len()) && part.bytes().all(inner)
    };
    match text.split_once('/') {
        Some((namespace, name)) if sound(namespace) && sound(name) => {
            Some((Some(namespace.into()), name.into()))
        }
        None if sound(text) => Some((None, text.into())),
        _ => None,
    }
}
