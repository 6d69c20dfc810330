//! What a HostedCluster publishes, as backends of the gateway.

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use oooi_api::foreign::{HostedCluster, PublishingType, ServiceType};
use oooi_api::proxy_server::ProxyBackend;
use oooi_ipam::hosts;

use super::endpoint::{self, Host, Published, Unserved};
use super::network::Found;
use super::{Gaps, Sources};
use crate::infra::{ControlPlane, backend, pod_names};
use crate::name;

/// What the gateway has to do.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) backends: Vec<ProxyBackend>,
    /// Addresses that nodes dial and that the gateway answers for.
    pub(super) addresses: Vec<Ipv4Addr>,
    /// An address on the VLAN that nodes dial: the gateway's own, then.
    pub(super) gateway: Option<Ipv4Addr>,
    /// The gateway's own address that nodes dial already: it must not move.
    pub(super) kept: Option<Ipv4Addr>,
    /// Addresses on the VLAN that belong to somebody else's load balancer.
    pub(super) on_vlan: Vec<Ipv4Addr>,
    pub(super) waiting_load_balancer: Option<String>,
}

/// The backends that are known so far; each that is not is a gap.
pub(super) fn backends(
    cluster: &HostedCluster,
    sources: &Sources<'_>,
    plane: &ControlPlane,
    network: Option<&Found>,
    gaps: &mut Gaps,
) -> Plan {
    let mut plan = Plan::default();
    for published in &endpoint::ALL {
        let endpoint = match published.endpoint(cluster, sources, &plane.namespace) {
            Ok(endpoint) => endpoint,
            Err(unserved) => {
                say_unserved(published, &unserved, gaps);
                continue;
            }
        };
        let by_load_balancer = published
            .strategy(cluster)
            .and_then(|strategy| strategy.type_.as_ref())
            == Some(&PublishingType::LoadBalancer);
        let is_api = published.service == ServiceType::APIServer;
        let mut names = Vec::new();
        match &endpoint.host {
            Some(Host::Name(name)) => names.push(name.clone()),
            Some(Host::Address(address)) => plan.dial(*address, by_load_balancer, sources, network),
            None => {
                let what = published.backend;
                gaps.partial(
                    "EndpointPending",
                    format!("the published address of {what} is not known yet: it is served once HyperShift reports it"),
                );
                if is_api && by_load_balancer {
                    plan.waiting_load_balancer = Some(published.target.0.to_owned());
                }
            }
        }
        if is_api {
            let further = further_name(cluster, gaps).filter(|name| !names.contains(name));
            names.extend(further);
            // Pods ask by these names whatever the published one is, and so does nobody else.
            let mut own = pod_names(&plane.cluster);
            own.rotate_right(1); // the cluster's own name first, where there is no better one
            own.retain(|name| !names.contains(name));
            names.extend(own);
        } else if endpoint.host.is_none() {
            continue;
        } else if names.is_empty() {
            // Clients send no server name for an address, and the port is this service's alone.
            names.push("*".to_owned());
        }
        let Some(port) = endpoint.port else {
            let what = published.backend;
            gaps.partial(
                "EndpointPending",
                format!("the node port of {what} is not known yet: it is served once its Service has one"),
            );
            continue;
        };
        if let Some(other) = plan.backends.iter().find(|other| collides(other, port, &names)) {
            let (what, other) = (published.backend, &other.name);
            gaps.partial(
                "NameTaken",
                format!(
                    "{what} is published under the same name and port {port} as {other}: give it another one"
                ),
            );
            continue;
        }
        let (service, service_port) = published.target;
        let target = (plane.namespace.as_str(), service, IntOrString::Int(service_port));
        plan.backends
            .push(backend(published.backend, names, port, target));
    }
    apps(cluster, sources, plane, &mut plan, gaps);
    plan
}

/// A further name of the API server, which its certificate carries.
fn further_name(cluster: &HostedCluster, gaps: &mut Gaps) -> Option<String> {
    let text = cluster
        .spec
        .kube_api_server_dns_name
        .as_deref()
        .filter(|text| !text.is_empty())?;
    match name::exact(text.trim_end_matches('.')) {
        Ok(name) => Some(name),
        Err(why) => {
            gaps.partial(
                "BadHostname",
                format!("spec.kubeAPIServerDNSName does not work: {why}"),
            );
            None
        }
    }
}

/// Whether a connection could belong to either of two backends.
fn collides(other: &ProxyBackend, port: i32, names: &[String]) -> bool {
    let whole = |name: &String| name == "*";
    let theirs = || std::iter::once(&other.hostname).chain(&other.alternate_hostnames);
    other.port == port
        && (names.iter().any(whole) || theirs().any(|name| whole(name) || names.contains(name)))
}

impl Plan {
    /// Nodes dial this address: it must lead to the gateway.
    fn dial(
        &mut self,
        address: Ipv4Addr,
        by_load_balancer: bool,
        sources: &Sources<'_>,
        network: Option<&Found>,
    ) {
        let on_vlan = network.is_some_and(|network| hosts(network.cidr).contains(address));
        if sources.gateways.contains(&address) {
            self.kept = self.kept.or(Some(address).filter(|_| on_vlan));
            return; // it does
        }
        let list = match (on_vlan, by_load_balancer) {
            // Somebody else announces it on the VLAN, where nodes reach it by themselves.
            (true, true) => &mut self.on_vlan,
            (true, false) if self.gateway.is_none_or(|gateway| gateway == address) => {
                self.gateway = Some(address);
                return;
            }
            _ => &mut self.addresses,
        };
        if !list.contains(&address) {
            list.push(address);
        }
    }
}

fn say_unserved(published: &Published, unserved: &Unserved, gaps: &mut Gaps) {
    let what = published.backend;
    match unserved {
        Unserved::NotPublished if !published.needed => {}
        Unserved::NotPublished => gaps.partial(
            "NotPublished",
            format!("{what} is not published, and nodes cannot do without it: add it to the HostedCluster's spec.services"),
        ),
        Unserved::Strange(strategy) => gaps.partial(
            "StrategyUnsupported",
            format!("{what} is published by {strategy}, which is unknown here: use LoadBalancer, NodePort or Route"),
        ),
        Unserved::BadName(why) => gaps.partial(
            "BadHostname",
            format!("{what} is published under a name that does not work: {why}"),
        ),
        Unserved::IPv6(address) => gaps.partial(
            "OnlyIPv6",
            format!("{what} is published at {address}, and nodes are served over IPv4: publish it by a name or by IPv4"),
        ),
    }
}

/// Applications of the cluster: with passthrough, HyperShift keeps a Service of the nodes' routers.
fn apps(
    cluster: &HostedCluster,
    sources: &Sources<'_>,
    plane: &ControlPlane,
    plan: &mut Plan,
    gaps: &mut Gaps,
) {
    let kubevirt = cluster
        .spec
        .platform
        .as_ref()
        .and_then(|platform| platform.kubevirt.as_ref());
    let Some(kubevirt) = kubevirt.filter(|kubevirt| kubevirt.base_domain_passthrough == Some(true)) else {
        return;
    };
    let (Some(id), Some(domain)) = (&kubevirt.generate_id, &plane.apps_domain) else {
        gaps.partial(
            "AppsPending",
            "the HostedCluster has no platform.kubevirt.generateID yet: its applications are served once it has",
        );
        return;
    };
    let service = format!("default-ingress-passthrough-service-{id}");
    let known = sources.services.iter().find(|known| known.name_any() == service);
    for (name, host, port) in [
        ("apps-https", format!("*.{domain}"), 443),
        ("apps-http", "*".to_owned(), 80),
    ] {
        // Which ports the Service has depends on the release of HyperShift.
        if known.is_none_or(|known| has_port(known, port)) {
            let target = (plane.namespace.as_str(), service.as_str(), IntOrString::Int(port));
            plan.backends.push(backend(name, vec![host], port, target));
        }
    }
}

fn has_port(service: &Service, port: i32) -> bool {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref());
    ports.is_some_and(|ports| ports.iter().any(|known| known.port == port))
}
