//! The Service that `*.apps` leads to where the hosted cluster's own router listens on node ports: its endpoints are
//! the nodes, by their addresses on the VLAN.
//!
//! The operator writes it into the cluster, standalone hands it to the gateway; both take it from here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use oooi_api::Infra;
use oooi_api::foreign::VirtualMachineInstance;

use super::Components;
use crate::object_name::object_name;

/// The label that ties a slice to its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The label by which other controllers know that a slice is not theirs.
const SLICES_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// So many endpoints are in one slice, as Kubernetes itself has it.
const IN_ONE_SLICE: usize = 100;

/// The router of a hosted cluster on its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apps {
    namespace: String,
    name: String,
    ports: Vec<(&'static str, i32)>,
    network: Ipv4Net,
    servers: BTreeSet<Ipv4Addr>,
}

impl Apps {
    /// The router that the gateway of a plan forwards to, if there is one.
    pub fn of(infra: &Infra, components: &Components) -> Option<Self> {
        let namespace = infra.metadata.namespace.as_deref().unwrap_or("default");
        let name = apps_service(infra.metadata.name.as_deref().unwrap_or_default());
        let backends = &components.proxy.as_ref()?.backends;
        let asked = infra
            .spec
            .infra_components
            .as_ref()?
            .proxy
            .as_ref()?
            .apps
            .as_ref()?;
        let mut ports: Vec<(&'static str, i32)> = Vec::new();
        for (word, port) in [("https", asked.https_port), ("http", asked.http_port)] {
            let Some(port) = port else { continue };
            let forwarded = backends.iter().any(|backend| {
                backend.target_namespace == namespace
                    && backend.target_service == name
                    && backend.target_port == IntOrString::Int(port)
            });
            if forwarded && !ports.iter().any(|(_, known)| *known == port) {
                ports.push((word, port));
            }
        }
        let addresses = components.addresses();
        let servers = [addresses.dhcp, addresses.dns, addresses.proxy];
        (!ports.is_empty()).then_some(Apps {
            namespace: namespace.to_owned(),
            name,
            ports,
            network: infra.spec.network_config.cidr.parse().ok()?,
            servers: servers
                .iter()
                .flatten()
                .filter_map(|text| text.parse().ok())
                .collect(),
        })
    }

    /// The name of the Service.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The Service. It has no address of its own: the gateway takes the endpoints, and nobody else could reach them.
    pub fn service(&self) -> Service {
        let port = |&(name, number): &(&str, i32)| ServicePort {
            name: Some(name.to_owned()),
            port: number,
            protocol: Some("TCP".into()),
            target_port: Some(IntOrString::Int(number)),
            ..ServicePort::default()
        };
        Service {
            metadata: self.metadata(self.name.clone(), None),
            spec: Some(ServiceSpec {
                cluster_ip: Some("None".into()),
                ports: Some(self.ports.iter().map(port).collect()),
                ..ServiceSpec::default()
            }),
            status: None,
        }
    }

    /// Its endpoints: those of the addresses that a node can have. There is always a slice, if only an empty one.
    pub fn slices(&self, addresses: &BTreeSet<Ipv4Addr>) -> Vec<EndpointSlice> {
        let nodes: Vec<Ipv4Addr> = addresses
            .iter()
            .copied()
            .filter(|node| self.may_have(*node))
            .collect();
        let pages = if nodes.is_empty() {
            vec![&[][..]]
        } else {
            nodes.chunks(IN_ONE_SLICE).collect()
        };
        let page = |(at, nodes): (usize, &[Ipv4Addr])| EndpointSlice {
            metadata: self.metadata(
                match at {
                    0 => self.name.clone(),
                    _ => object_name(&self.name, &(at + 1).to_string()),
                },
                Some(BTreeMap::from([
                    (SERVICE_NAME.to_owned(), self.name.clone()),
                    (SLICES_BY.to_owned(), "oooi".to_owned()),
                ])),
            ),
            address_type: "IPv4".into(),
            endpoints: nodes.iter().map(endpoint).collect(),
            ports: Some(self.ports.iter().map(slice_port).collect()),
        };
        pages.into_iter().enumerate().map(page).collect()
    }

    /// Whether a node can have this address: it is on the VLAN, and none of the servers'.
    fn may_have(&self, address: Ipv4Addr) -> bool {
        self.network.contains(&address) && !self.servers.contains(&address)
    }

    fn metadata(&self, name: String, labels: Option<BTreeMap<String, String>>) -> ObjectMeta {
        ObjectMeta {
            name: Some(name),
            namespace: Some(self.namespace.clone()),
            labels,
            ..ObjectMeta::default()
        }
    }
}

/// The name of the Service of an Infra's cluster's router.
pub fn apps_service(infra: &str) -> String {
    object_name(infra, "apps")
}

fn endpoint(address: &Ipv4Addr) -> Endpoint {
    Endpoint {
        addresses: vec![address.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(true),
            ..EndpointConditions::default()
        }),
        ..Endpoint::default()
    }
}

fn slice_port(&(name, number): &(&'static str, i32)) -> EndpointPort {
    EndpointPort {
        name: Some(name.to_owned()),
        port: Some(number),
        protocol: Some("TCP".into()),
        ..EndpointPort::default()
    }
}

/// The addresses that KubeVirt sees on the networks of a running machine, that of its pod not among them.
pub fn machine_addresses(machine: &VirtualMachineInstance) -> impl Iterator<Item = Ipv4Addr> {
    let status = machine.status.as_ref();
    let runs = machine.metadata.deletion_timestamp.is_none()
        && status.is_some_and(|status| status.phase.as_deref() == Some("Running"));
    let is_multus = |name: &str| {
        let mut networks = machine.spec.networks.iter();
        networks.any(|network| network.name.as_deref() == Some(name) && network.multus.is_some())
    };
    status
        .into_iter()
        .flat_map(|status| &status.interfaces)
        .filter(move |seen| runs && seen.name.as_deref().is_some_and(is_multus))
        .flat_map(|seen| seen.ip_address.iter().chain(&seen.ip_addresses))
        // Some versions write a prefix length behind it.
        .filter_map(|text| text.split('/').next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{Known, plan};

    fn infra(apps: Value) -> Infra {
        serde_json::from_value(json!({
            "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "Infra",
            "metadata": {"name": "x", "namespace": "clusters"},
            "spec": {
                "networkConfig": {
                    "cidr": "10.20.0.0/16", "gateway": "10.20.0.1", "networkAttachmentDefinition": "vlan",
                },
                "infraComponents": {
                    "dns": {"baseDomain": "example.com", "clusterName": "x"}, "proxy": {"apps": apps},
                },
            },
        }))
        .unwrap()
    }

    fn apps(ports: Value) -> Option<Apps> {
        let infra = infra(ports);
        Apps::of(&infra, &plan(&infra, &Known::default()).unwrap())
    }

    #[test]
    fn the_service_has_the_ports_that_the_gateway_asks_it_for() {
        let service = apps(json!({"httpsPort": 30443, "httpPort": 30080}))
            .unwrap()
            .service();
        assert_eq!(service.metadata.name.as_deref(), Some("x-apps"));
        assert_eq!(service.metadata.namespace.as_deref(), Some("clusters"));
        let spec = service.spec.unwrap();
        let ports: Vec<i32> = spec.ports.unwrap().iter().map(|port| port.port).collect();
        assert_eq!(ports, [30443, 30080]);
        assert_eq!(spec.selector, None, "its endpoints are no pods");
    }

    #[test]
    fn without_node_ports_there_is_none_and_one_port_for_both_is_one() {
        assert_eq!(apps(json!({})), None);
        let both = apps(json!({"httpsPort": 30443, "httpPort": 30443})).unwrap();
        assert_eq!(both.ports, [("https", 30443)]);
    }

    #[test]
    fn only_addresses_of_nodes_on_the_vlan_are_endpoints() {
        let apps = apps(json!({"httpsPort": 30443})).unwrap();
        let address = |text: &str| text.parse::<Ipv4Addr>().unwrap();
        let server = *apps.servers.first().unwrap();
        let slices = apps.slices(&BTreeSet::from([
            address("10.20.3.4"),
            address("10.244.0.7"),
            server,
        ]));
        assert_eq!(slices.len(), 1);
        let found: Vec<&str> = slices[0]
            .endpoints
            .iter()
            .map(|one| one.addresses[0].as_str())
            .collect();
        assert_eq!(found, ["10.20.3.4"]);
        assert_eq!(apps.slices(&BTreeSet::new())[0].endpoints, []);
    }

    #[test]
    fn many_nodes_are_several_slices_with_names_of_their_own() {
        let apps = apps(json!({"httpsPort": 30443})).unwrap();
        let nodes = (0..250_u8).map(|last| Ipv4Addr::new(10, 20, 9, last)).collect();
        let slices = apps.slices(&nodes);
        let names: Vec<&str> = slices
            .iter()
            .filter_map(|slice| slice.metadata.name.as_deref())
            .collect();
        assert_eq!(names, ["x-apps", "x-apps-2", "x-apps-3"]);
        assert_eq!(
            slices.iter().map(|slice| slice.endpoints.len()).sum::<usize>(),
            250
        );
    }

    #[test]
    fn a_machine_is_known_by_its_addresses_on_networks_while_it_runs() {
        let mut machine: VirtualMachineInstance = serde_json::from_value(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "w"},
            "spec": {"networks": [{"name": "pod"}, {"name": "vlan", "multus": {"networkName": "vlan"}}]},
            "status": {"phase": "Running", "interfaces": [
                {"name": "pod", "ipAddress": "10.244.0.7"},
                {"name": "vlan", "ipAddress": "fe80::1", "ipAddresses": ["fe80::1", "10.20.0.7/16"]},
            ]},
        }))
        .unwrap();
        let seen = |machine: &VirtualMachineInstance| machine_addresses(machine).collect::<Vec<_>>();
        assert_eq!(seen(&machine), [Ipv4Addr::new(10, 20, 0, 7)]);
        machine.status.as_mut().unwrap().phase = Some("Succeeded".into());
        assert!(seen(&machine).is_empty());
    }
}
