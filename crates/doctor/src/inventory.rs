//! All that a cluster knows of one Infra. Whoever has a client fills it.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use oooi_api::foreign::NetworkAttachmentDefinition;
use oooi_api::{DhcpLease, DhcpServer, DnsServer, Infra, ProxyServer};
use serde_json::Value;

/// All that a cluster knows of one Infra.
#[derive(Clone, Debug)]
pub struct Inventory {
    /// The Infra.
    pub infra: Infra,
    /// Its DHCP server.
    pub dhcp: Option<DhcpServer>,
    /// Its DNS server.
    pub dns: Option<DnsServer>,
    /// Its gateway.
    pub proxy: Option<ProxyServer>,
    /// The network that it names.
    pub attachment: Option<NetworkAttachmentDefinition>,
    /// The pods of its servers.
    pub pods: Vec<Pod>,
    /// Its leases, where they are kept in the cluster.
    pub leases: Vec<DhcpLease>,
    /// The endpoints in the namespaces that the gateway forwards to.
    pub slices: Vec<EndpointSlice>,
    /// The policies there.
    pub policies: Vec<NetworkPolicy>,
}

/// A network of a pod, as Multus writes it down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodNetwork {
    /// Which one.
    pub name: String,
    /// The pod's addresses on it.
    pub addresses: Vec<String>,
}

impl Inventory {
    /// The pods of a component: `dhcp`, `dns` or `proxy`.
    pub fn pods_of(&self, component: &str) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(move |pod| {
            pod.labels()
                .get("app.kubernetes.io/component")
                .is_some_and(|label| label == component)
        })
    }

    /// The pod of a component that has an address on the VLAN.
    pub fn pod_at(&self, component: &str, address: &str) -> Option<&Pod> {
        let has_it = |network: &PodNetwork| network.addresses.iter().any(|own| own == address);
        self.pods_of(component)
            .find(|pod| networks(pod).iter().any(has_it))
    }

    /// Every condition of the Infra and of its servers, with the kind and name of its owner.
    pub fn conditions(&self) -> Vec<(String, &Condition)> {
        let Inventory {
            infra,
            dhcp,
            dns,
            proxy,
            ..
        } = self;
        let owners = [
            (
                "Infra",
                Some(infra.name_any()),
                infra.status.as_ref().map(|status| &status.conditions),
            ),
            (
                "DHCPServer",
                dhcp.as_ref().map(ResourceExt::name_any),
                dhcp.as_ref()
                    .and_then(|server| server.status.as_ref())
                    .map(|status| &status.conditions),
            ),
            (
                "DNSServer",
                dns.as_ref().map(ResourceExt::name_any),
                dns.as_ref()
                    .and_then(|server| server.status.as_ref())
                    .map(|status| &status.conditions),
            ),
            (
                "ProxyServer",
                proxy.as_ref().map(ResourceExt::name_any),
                proxy
                    .as_ref()
                    .and_then(|server| server.status.as_ref())
                    .map(|status| &status.conditions),
            ),
        ];
        let mut all = Vec::new();
        for (kind, name, conditions) in owners {
            let owner = format!("{kind} {}", name.unwrap_or_default());
            all.extend(
                conditions
                    .into_iter()
                    .flatten()
                    .map(|condition| (owner.clone(), condition)),
            );
        }
        all
    }

    /// How many endpoints of a Service are ready, and how many there are.
    pub fn endpoints(&self, namespace: &str, service: &str) -> (usize, usize) {
        let own = self.slices.iter().filter(|slice| {
            slice.namespace().as_deref() == Some(namespace)
                && slice
                    .labels()
                    .get("kubernetes.io/service-name")
                    .is_some_and(|label| label == service)
        });
        let all: Vec<bool> = own
            .flat_map(|slice| slice.endpoints.iter())
            .map(|endpoint| {
                endpoint
                    .conditions
                    .as_ref()
                    .is_none_or(|conditions| conditions.ready != Some(false))
            })
            .collect();
        (all.iter().filter(|ready| **ready).count(), all.len())
    }
}

/// Whether a pod says that it is ready.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The networks that a pod was attached to.
pub fn networks(pod: &Pod) -> Vec<PodNetwork> {
    let text = pod.annotations().get("k8s.v1.cni.cncf.io/network-status");
    let parsed: Option<Vec<Value>> = text.and_then(|text| serde_json::from_str(text).ok());
    let network = |entry: &Value| PodNetwork {
        name: entry["name"].as_str().unwrap_or_default().to_owned(),
        addresses: entry["ips"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|address| Some(address.as_str()?.to_owned()))
            .collect(),
    };
    parsed.iter().flatten().map(network).collect()
}
