//! HostedCluster → Infra.
//!
//! ```text
//! HostedCluster ─┬─ platform, domain ──────────────────────────┐
//!  annotations ──┼─ network: which VLAN, which addresses ──────┼─► InfraSpec, and the gaps in it
//!  NodePools ────┘                                             │
//!  status, Routes, Services, the router's domain ─ publishing ─┘
//! ```
//! What can be derived is; each thing that cannot becomes a [`Gap`] that says what to annotate or what to wait for.
//! A gap that blocks leaves no Infra to write. Any other one is partial: what is known is served already.

mod annotations;
mod backends;
mod endpoint;
mod network;

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Service;
use oooi_api::foreign::{HostedCluster, Ingress, NodePool, PlatformType, Route};
use oooi_api::infra::{
    DhcpComponent, DnsComponent, HostedClusterRef, InfraComponents, InfraSpec, NetworkConfig, ProxyComponent,
};

use crate::infra::{API_SERVER, ControlPlane};
use crate::object_name::control_plane_namespace;

pub use annotations::{Annotations, OPT_IN, PREFIX, is_opted_in};

/// Everything that is read besides the HostedCluster.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sources<'a> {
    /// NodePools of the HostedCluster's namespace; those of other clusters are passed over.
    pub node_pools: &'a [NodePool],
    /// Routes in the namespace of the control plane.
    pub routes: &'a [Route],
    /// Services there.
    pub services: &'a [Service],
    /// The management cluster's router.
    pub ingress: Option<&'a Ingress>,
    /// The addresses that the Infra's gateways have already, and those that were published for them.
    pub gateways: &'a [Ipv4Addr],
}

/// What follows from a HostedCluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Derived {
    /// The Infra, unless something blocks it.
    pub infra: Option<InfraSpec>,
    /// What is known of the control plane, for an Infra that a person wrote with a `hostedClusterRef`.
    pub control_plane: ControlPlane,
    /// The Service of the API server, where it waits for a load balancer to give it an address. If nobody else does,
    /// the gateway's address can be written there.
    pub waiting_load_balancer: Option<String>,
    /// What is missing, the blocking ones first.
    pub gaps: Vec<Gap>,
}

/// Something that cannot be derived, or not yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// In CamelCase: the reason of a condition.
    pub reason: &'static str,
    /// What is missing and what to do.
    pub message: String,
    /// Whether nothing can be made without it.
    pub blocks: bool,
}

/// Collects gaps.
#[derive(Default)]
struct Gaps(Vec<Gap>);

impl Gaps {
    fn block(&mut self, reason: &'static str, message: impl Into<String>) {
        self.add(reason, message.into(), true);
    }

    fn partial(&mut self, reason: &'static str, message: impl Into<String>) {
        self.add(reason, message.into(), false);
    }

    fn add(&mut self, reason: &'static str, message: String, blocks: bool) {
        self.0.push(Gap {
            reason,
            message,
            blocks,
        });
    }
}

/// Derives the Infra of a HostedCluster.
pub fn derive(cluster: &HostedCluster, sources: &Sources<'_>) -> Derived {
    let mut gaps = Gaps::default();
    let name = cluster.metadata.name.clone().unwrap_or_default();
    let namespace = cluster
        .metadata
        .namespace
        .clone()
        .unwrap_or_else(|| "default".into());
    check_platform(cluster, &mut gaps);
    let annotations = Annotations::read(cluster, &mut gaps);
    let domain = domain(cluster, &name, &mut gaps);
    let found = network::network(cluster, sources.node_pools, &annotations, &mut gaps);

    let mut plane = ControlPlane {
        namespace: control_plane_namespace(&namespace, &name),
        cluster: name.clone(),
        domain: domain.as_ref().map(Domain::name),
        apps_domain: apps_domain(cluster, domain.as_ref()),
        backends: Vec::new(),
        published_ips: Vec::new(),
    };
    let published = backends::backends(cluster, sources, &plane, found.as_ref(), &mut gaps);
    check_range(
        annotations.dhcp_range,
        published.gateway.or(published.kept),
        &mut gaps,
    );
    plane.backends = published.backends;
    plane.published_ips = published
        .addresses
        .iter()
        .copied()
        .chain(published.gateway)
        .collect();

    gaps.0.sort_by_key(|gap| !gap.blocks);
    let blocked = gaps.0.iter().any(|gap| gap.blocks);
    let infra = match (found, domain) {
        (Some(network), Some(domain)) if !blocked => Some(InfraSpec {
            network_config: NetworkConfig {
                cidr: network.cidr.to_string(),
                gateway: network.gateway.to_string(),
                network_attachment_definition: network.attachment.name,
                network_attachment_namespace: Some(network.attachment.namespace),
                dns_servers: annotations.dns_servers,
                ..NetworkConfig::default()
            },
            infra_components: Some(InfraComponents {
                dhcp: Some(dhcp(annotations.dhcp_range, published.on_vlan)),
                dns: Some(dns(&domain)),
                proxy: Some(ProxyComponent {
                    engine: annotations.proxy_engine,
                    server_ip: published
                        .gateway
                        .or(published.kept)
                        .map(|address| address.to_string()),
                    published_ips: published.addresses.iter().map(ToString::to_string).collect(),
                    ..proxy(&plane)
                }),
            }),
            hosted_cluster_ref: Some(HostedClusterRef {
                name,
                namespace: Some(namespace),
            }),
        }),
        _ => None,
    };
    Derived {
        infra,
        control_plane: plane,
        waiting_load_balancer: published.waiting_load_balancer,
        gaps: gaps.0,
    }
}

/// The address that nodes dial is the gateway's, which no node may get.
fn check_range(range: Option<oooi_ipam::Range>, dialled: Option<Ipv4Addr>, gaps: &mut Gaps) {
    if let (Some(range), Some(address)) = (range, dialled)
        && range.contains(address)
    {
        gaps.block(
            "BadAnnotation",
            format!(
                "the annotation {PREFIX}dhcp-range is {range}, in which {address} lies, where nodes reach their control \
                 plane: write a range without it"
            ),
        );
    }
}

fn check_platform(cluster: &HostedCluster, gaps: &mut Gaps) {
    let platform = cluster.spec.platform.as_ref();
    match platform.and_then(|platform| platform.type_.as_ref()) {
        Some(PlatformType::KubeVirt) => {}
        other => {
            let found = match other {
                Some(PlatformType::Other(name)) => name.as_str(),
                _ => "unset",
            };
            gaps.block(
                "PlatformUnsupported",
                format!(
                    "the platform is {found}, but only nodes of KubeVirt can be served: remove the annotation {OPT_IN}"
                ),
            );
        }
    }
    let credentials = platform
        .and_then(|p| p.kubevirt.as_ref())
        .and_then(|k| k.credentials.as_ref());
    if credentials.is_some_and(|credentials| credentials.infra_kube_config_secret.is_some()) {
        gaps.block(
            "ExternalInfraUnsupported",
            "the virtual machines run on another cluster (platform.kubevirt.credentials), where this operator has no \
             network: install it there and write an Infra by hand",
        );
    }
}

/// The domain of a cluster in its two parts.
struct Domain {
    base: String,
    /// Empty where the cluster has no prefix of its own.
    prefix: String,
}

impl Domain {
    fn name(&self) -> String {
        if self.prefix.is_empty() {
            self.base.clone()
        } else {
            format!("{}.{}", self.prefix, self.base)
        }
    }
}

fn domain(cluster: &HostedCluster, name: &str, gaps: &mut Gaps) -> Option<Domain> {
    let dns = cluster.spec.dns.as_ref();
    let base = dns
        .and_then(|dns| dns.base_domain.clone())
        .filter(|base| !base.is_empty());
    let Some(base) = base else {
        gaps.block(
            "NoBaseDomain",
            "the HostedCluster has no spec.dns.baseDomain, so its names are unknown: set it, or write an Infra by hand",
        );
        return None;
    };
    let prefix = dns.and_then(|dns| dns.base_domain_prefix.clone());
    Some(Domain {
        base,
        prefix: prefix.unwrap_or_else(|| name.to_owned()),
    })
}

fn apps_domain(cluster: &HostedCluster, domain: Option<&Domain>) -> Option<String> {
    let ingress = cluster
        .spec
        .configuration
        .as_ref()
        .and_then(|c| c.ingress.as_ref());
    let written = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    ingress
        .and_then(|ingress| written(&ingress.apps_domain).or_else(|| written(&ingress.domain)))
        .or_else(|| domain.map(|domain| format!("apps.{}", domain.name())))
}

fn dhcp(range: Option<oooi_ipam::Range>, exclusions: Vec<Ipv4Addr>) -> DhcpComponent {
    DhcpComponent {
        enabled: true,
        server_ip: None,
        additional_server_ips: Vec::new(),
        range_start: range.map(|range| range.first().to_string()),
        range_end: range.map(|range| range.last().to_string()),
        lease_time: "1h".into(),
        reservations: Vec::new(),
        exclusions: exclusions.iter().map(ToString::to_string).collect(),
        options: Vec::new(),
        unknown_clients: None,
        lease_storage: None,
        storage: None,
        replicas: None,
        resources: None,
        image: None,
    }
}

fn dns(domain: &Domain) -> DnsComponent {
    DnsComponent {
        enabled: true,
        server_ip: None,
        additional_server_ips: Vec::new(),
        base_domain: Some(domain.base.clone()),
        cluster_name: Some(domain.prefix.clone()),
        static_entries: Vec::new(),
        forward_zones: Vec::new(),
        cache_ttl: None,
        publish_to_cluster_dns: None,
        replicas: None,
        resources: None,
        image: None,
    }
}

fn proxy(plane: &ControlPlane) -> ProxyComponent {
    ProxyComponent {
        enabled: true,
        server_ip: None,
        additional_server_ips: Vec::new(),
        control_plane_namespace: Some(plane.namespace.clone()),
        api_server_service: API_SERVER.into(),
        internal_proxy_service: None,
        backends: plane.backends.clone(),
        engine: None,
        idle_timeout: None,
        log_level: None,
        network_policy: None,
        published_ips: Vec::new(),
        apps: None,
        replicas: None,
        resources: None,
        proxy_image: None,
        manager_image: None,
    }
}
