//! What the control plane of a plan looks like in the lab: for every Service that the gateway forwards to, one pod.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use oooi_api::proxy_server::{Protocol, ProxyBackend};
use oooi_plan::Components;

/// The pod port of a Service port that has only a name.
const NAMED_PORT: u16 = 8443;

/// A Service that the lab stands in for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandIn {
    /// The Service.
    pub service: String,
    /// Its namespace.
    pub namespace: String,
    /// Where its pod is.
    pub address: Ipv4Addr,
    /// The ports of its pod.
    pub ports: BTreeSet<u16>,
    /// The names in its certificate.
    pub names: Vec<String>,
    targets: Vec<IntOrString>,
}

/// All that a plan forwards to, one address each of the management network, from its tenth on.
pub(crate) fn stand_ins(components: &Components, management: Ipv4Net) -> Vec<StandIn> {
    let backends = components.proxy.iter().flat_map(|proxy| &proxy.backends);
    let mut all: BTreeMap<(&str, &str), Vec<&ProxyBackend>> = BTreeMap::new();
    for backend in backends.filter(|backend| backend.protocol != Protocol::Udp) {
        all.entry((&backend.target_namespace, &backend.target_service))
            .or_default()
            .push(backend);
    }
    all.into_iter()
        .zip(management.hosts().skip(9))
        .map(|(((namespace, service), backends), address)| {
            let mut targets: Vec<IntOrString> = Vec::new();
            for backend in &backends {
                if !targets.contains(&backend.target_port) {
                    targets.push(backend.target_port.clone());
                }
            }
            let names = backends
                .iter()
                .flat_map(|backend| std::iter::once(&backend.hostname).chain(&backend.alternate_hostnames))
                .filter(|name| *name != "*");
            StandIn {
                service: service.into(),
                namespace: namespace.into(),
                address,
                ports: targets.iter().map(pod_port).collect(),
                names: names.cloned().collect(),
                targets,
            }
        })
        .collect()
}

fn pod_port(target: &IntOrString) -> u16 {
    match target {
        IntOrString::Int(port) => u16::try_from(*port).unwrap_or(NAMED_PORT),
        IntOrString::String(_) => NAMED_PORT,
    }
}

fn port_name(target: &IntOrString) -> String {
    match target {
        IntOrString::Int(port) => format!("port-{port}"),
        IntOrString::String(name) => name.clone(),
    }
}

impl StandIn {
    /// The same at another address.
    pub fn at(&self, address: Ipv4Addr) -> Self {
        StandIn {
            address,
            ..self.clone()
        }
    }

    /// The Service and the EndpointSlice that a cluster would show.
    pub(crate) fn objects(&self) -> (Service, EndpointSlice) {
        let metadata = ObjectMeta {
            name: Some(self.service.clone()),
            namespace: Some(self.namespace.clone()),
            ..ObjectMeta::default()
        };
        let label = ("kubernetes.io/service-name".to_owned(), self.service.clone());
        let service_port = |target: &IntOrString| ServicePort {
            name: Some(port_name(target)),
            port: match target {
                IntOrString::Int(port) => *port,
                IntOrString::String(_) => i32::from(NAMED_PORT),
            },
            ..ServicePort::default()
        };
        let endpoint_port = |target: &IntOrString| EndpointPort {
            name: Some(port_name(target)),
            port: Some(i32::from(pod_port(target))),
            protocol: Some("TCP".into()),
            ..EndpointPort::default()
        };
        let endpoint = Endpoint {
            addresses: vec![self.address.to_string()],
            conditions: Some(EndpointConditions {
                ready: Some(true),
                ..EndpointConditions::default()
            }),
            ..Endpoint::default()
        };
        let service = Service {
            metadata: metadata.clone(),
            spec: Some(ServiceSpec {
                ports: Some(self.targets.iter().map(service_port).collect()),
                ..ServiceSpec::default()
            }),
            ..Service::default()
        };
        let slice = EndpointSlice {
            metadata: ObjectMeta {
                labels: Some([label].into()),
                ..metadata
            },
            address_type: "IPv4".into(),
            ports: Some(self.targets.iter().map(endpoint_port).collect()),
            endpoints: vec![endpoint],
        };
        (service, slice)
    }
}
