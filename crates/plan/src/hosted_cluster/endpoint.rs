//! Where one service of a control plane is published.

use std::net::{IpAddr, Ipv4Addr};

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use oooi_api::foreign::{HostedCluster, PublishingStrategy, PublishingType, Route, ServiceType};

use super::Sources;
use crate::name;

/// A service of the control plane that nodes or pods use.
pub(super) struct Published {
    pub(super) service: ServiceType,
    /// What its backend is called.
    pub(super) backend: &'static str,
    /// The Service behind it, and that Service's port.
    pub(super) target: (&'static str, i32),
    /// Its Route, if it has one.
    pub(super) route: &'static str,
    /// Whether nodes cannot do without it.
    pub(super) needed: bool,
}

/// Every one of them, the API server first.
pub(super) const ALL: [Published; 4] = [
    Published {
        service: ServiceType::APIServer,
        backend: "kube-apiserver",
        target: ("kube-apiserver", 6443),
        route: "kube-apiserver",
        needed: true,
    },
    Published {
        service: ServiceType::Ignition,
        backend: "ignition-server",
        target: ("ignition-server-proxy", 443),
        route: "ignition-server",
        needed: true,
    },
    Published {
        service: ServiceType::Konnectivity,
        backend: "konnectivity-server",
        target: ("konnectivity-server", 8091),
        route: "konnectivity-server",
        needed: true,
    },
    Published {
        service: ServiceType::OAuthServer,
        backend: "oauth-openshift",
        target: ("oauth-openshift", 6443),
        route: "oauth",
        needed: false,
    },
];

/// What nodes dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Host {
    Name(String),
    Address(Ipv4Addr),
}

/// Where a service is published, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) host: Option<Host>,
    pub(super) port: Option<i32>,
}

/// Why nothing is known of an endpoint and nothing will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unserved {
    /// The HostedCluster does not publish it.
    NotPublished,
    /// In a way that is not known here.
    Strange(String),
    /// By an address that nodes on the VLAN cannot be routed to.
    IPv6(String),
    /// Under a name that no client can ask for; why.
    BadName(String),
}

impl Published {
    /// Its strategy in the HostedCluster.
    pub(super) fn strategy<'a>(&self, cluster: &'a HostedCluster) -> Option<&'a PublishingStrategy> {
        let entry = cluster
            .spec
            .services
            .iter()
            .find(|entry| entry.service.as_ref() == Some(&self.service))?;
        entry.service_publishing_strategy.as_ref()
    }

    /// Where it is published. What the strategy says goes first, then the objects that carry it out, then the status
    /// of the HostedCluster.
    pub(super) fn endpoint(
        &self,
        cluster: &HostedCluster,
        sources: &Sources<'_>,
        namespace: &str,
    ) -> Result<Endpoint, Unserved> {
        let strategy = self.strategy(cluster).ok_or(Unserved::NotPublished)?;
        let status = self.status(cluster);
        let own = sources
            .services
            .iter()
            .find(|service| service.name_any() == self.target.0);
        let set = |text: Option<&String>| text.cloned().filter(|text| !text.is_empty());
        let (host, port) = match strategy.type_.as_ref() {
            Some(PublishingType::Route) => {
                let written = set(strategy.route.as_ref().and_then(|route| route.hostname.as_ref()));
                let host = written
                    .or_else(|| route_host(sources.routes, self.route))
                    .or(status.0)
                    .or_else(|| self.default_route(sources, namespace));
                (host, Some(443))
            }
            Some(PublishingType::LoadBalancer) => {
                let written = set(strategy
                    .load_balancer
                    .as_ref()
                    .and_then(|lb| lb.hostname.as_ref()));
                let host = written.or_else(|| own.and_then(load_balancer)).or(status.0);
                (host, Some(status.1.unwrap_or(self.target.1)))
            }
            Some(PublishingType::NodePort) => {
                let node_port = strategy.node_port.as_ref();
                let written = set(node_port.and_then(|node_port| node_port.address.as_ref()));
                let fixed = node_port
                    .and_then(|node_port| node_port.port)
                    .filter(|port| *port > 0);
                let port = fixed.or_else(|| own.and_then(assigned_node_port)).or(status.1);
                (written.or(status.0), port)
            }
            Some(PublishingType::None) | None => return Err(Unserved::NotPublished),
            Some(PublishingType::Other(other)) if other == "S3" => return Err(Unserved::NotPublished),
            Some(PublishingType::Other(other)) => return Err(Unserved::Strange(other.clone())),
        };
        let host = match host.as_deref().map(|host| (host, host.parse::<IpAddr>())) {
            Some((_, Ok(IpAddr::V4(address)))) => Some(Host::Address(address)),
            Some((text, Ok(IpAddr::V6(_)))) => return Err(Unserved::IPv6(text.to_owned())),
            Some((text, Err(_))) => match name::exact(text.trim_end_matches('.')) {
                Ok(name) => Some(Host::Name(name)),
                Err(why) => return Err(Unserved::BadName(why.to_string())),
            },
            None => None,
        };
        let port = port.filter(|port| (1..=65535).contains(port));
        Ok(Endpoint { host, port })
    }

    /// What the status of the HostedCluster says of it.
    fn status(&self, cluster: &HostedCluster) -> (Option<String>, Option<i32>) {
        let Some(status) = &cluster.status else {
            return (None, None);
        };
        match self.service {
            ServiceType::APIServer => {
                let endpoint = status.control_plane_endpoint.as_ref();
                let host = endpoint
                    .and_then(|endpoint| endpoint.host.clone())
                    .filter(|host| !host.is_empty());
                (
                    host,
                    endpoint
                        .and_then(|endpoint| endpoint.port)
                        .filter(|port| *port > 0),
                )
            }
            ServiceType::Ignition => host_and_port(status.ignition_endpoint.as_deref().unwrap_or_default()),
            ServiceType::OAuthServer => {
                // https://host[:port]/path…
                let url = status.oauth_callback_url_template.as_deref().unwrap_or_default();
                let rest = url.split_once("://").map_or("", |(_, rest)| rest);
                host_and_port(rest.split('/').next().unwrap_or_default())
            }
            ServiceType::Konnectivity | ServiceType::Other(_) => (None, None),
        }
    }

    /// The name that the router gives a Route without one. The API server has no such Route.
    fn default_route(&self, sources: &Sources<'_>, namespace: &str) -> Option<String> {
        if self.service == ServiceType::APIServer {
            return None;
        }
        let spec = &sources.ingress?.spec;
        let domain = spec
            .apps_domain
            .as_ref()
            .or(spec.domain.as_ref())
            .filter(|domain| !domain.is_empty())?;
        Some(format!("{}-{namespace}.{domain}", self.route))
    }
}

fn route_host(routes: &[Route], name: &str) -> Option<String> {
    let route = routes.iter().find(|route| route.name_any() == name)?;
    let admitted = route
        .status
        .iter()
        .flat_map(|status| &status.ingress)
        .find_map(|ingress| ingress.host.clone());
    route
        .spec
        .host
        .clone()
        .filter(|host| !host.is_empty())
        .or(admitted)
}

/// What a load balancer gave a Service: its name, else its address.
pub(super) fn load_balancer(service: &Service) -> Option<String> {
    let ingress = service
        .status
        .as_ref()?
        .load_balancer
        .as_ref()?
        .ingress
        .as_ref()?
        .first()?;
    let name = ingress.hostname.clone().filter(|name| !name.is_empty());
    name.or_else(|| ingress.ip.clone())
}

fn assigned_node_port(service: &Service) -> Option<i32> {
    let ports = service.spec.as_ref()?.ports.as_ref()?;
    ports.iter().find_map(|port| port.node_port)
}

/// Reads `host` or `host:port`.
fn host_and_port(text: &str) -> (Option<String>, Option<i32>) {
    let some = |host: &str| Some(host.to_owned()).filter(|host| !host.is_empty());
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => {
            let port = port.parse().ok().filter(|port| (1..=65535).contains(port));
            (some(host), port)
        }
        _ => (some(text), None),
    }
}
