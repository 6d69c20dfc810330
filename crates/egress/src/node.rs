//! What matters of a node.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1 as core;
use kube::core::SelectorExt;
use serde::Deserialize;

use crate::layout::Layout;
use crate::record::{PLACED, Record};

/// Written by OpenShift's cloud network controller: subnet and capacity of the node's interface.
const CLOUD_CONFIG: &str = "cloud.network.openshift.io/egress-ipconfig";
/// Written by OVN-Kubernetes: the node's own address with its subnet.
const PRIMARY: &str = "k8s.ovn.org/node-primary-ifaddr";
/// Written by OVN-Kubernetes: all addresses of the node with their subnets.
const HOST_CIDRS: &str = "k8s.ovn.org/host-cidrs";

/// The label of zones before Kubernetes 1.17, and the one since.
const ZONE: (&str, &str) = (
    "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/zone",
);

/// The taint of a node that a person declared dead.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// What matters of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it can carry addresses: Ready, not declared dead, not being deleted.
    pub healthy: bool,
    /// Its own addresses.
    pub addresses: Vec<Ipv4Addr>,
    /// The subnets that it is in, as far as they are known.
    pub subnets: Vec<Ipv4Net>,
    /// How many egress addresses it can carry; none if nobody says so.
    pub capacity: Option<u32>,
    /// What it is called in its cloud.
    pub provider_id: Option<String>,
    /// What we put there.
    pub placed: Record,
}

impl Node {
    /// Reads a node. Annotations that cannot be read count as absent: they are for preflight alone.
    pub fn read(node: &core::Node) -> Self {
        let annotation = |key: &str| node.metadata.annotations.as_ref()?.get(key);
        let cloud =
            annotation(CLOUD_CONFIG).and_then(|text| serde_json::from_str::<Vec<Interface>>(text).ok());
        let cloud = cloud.and_then(|interfaces| interfaces.into_iter().next());
        let primary = annotation(PRIMARY).and_then(|text| serde_json::from_str::<Pair>(text).ok());
        let host_cidrs =
            annotation(HOST_CIDRS).and_then(|text| serde_json::from_str::<Vec<String>>(text).ok());
        let host_cidrs: Vec<Ipv4Net> = host_cidrs
            .iter()
            .flatten()
            .filter_map(|text| text.parse().ok())
            .collect();

        let status = node.status.as_ref();
        let internal = status.iter().flat_map(|status| status.addresses.iter().flatten());
        let internal = internal.filter(|address| address.type_ == "InternalIP");
        let mut addresses: Vec<Ipv4Addr> = internal
            .filter_map(|address| address.address.parse().ok())
            .collect();
        addresses.extend(host_cidrs.iter().map(Ipv4Net::addr));
        addresses.sort_unstable();
        addresses.dedup();

        let subnet = |pair: &Pair| pair.ipv4.as_deref().and_then(|text| text.parse::<Ipv4Net>().ok());
        let mut subnets: Vec<Ipv4Net> = cloud
            .iter()
            .filter_map(|interface| subnet(&interface.ifaddr))
            .collect();
        subnets.extend(primary.as_ref().and_then(subnet));
        subnets.extend(&host_cidrs);
        let mut subnets: Vec<Ipv4Net> = subnets.iter().map(Ipv4Net::trunc).collect();
        subnets.sort_unstable();
        subnets.dedup();

        Node {
            name: node.metadata.name.clone().unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            healthy: is_healthy(node),
            addresses,
            subnets,
            capacity: cloud.and_then(|interface| interface.capacity.ipv4.or(interface.capacity.ip)),
            provider_id: node.spec.as_ref().and_then(|spec| spec.provider_id.clone()),
            placed: annotation(PLACED)
                .map(|text| Record::read(text))
                .unwrap_or_default(),
        }
    }

    /// The value of the topology label, if the EgressIPAM selects the node.
    pub fn value_for(&self, layout: &Layout) -> Option<&str> {
        if !layout.selector.matches(&self.labels) {
            return None;
        }
        let value = |label: &str| self.labels.get(label).map(String::as_str);
        let key = layout.topology_label.as_str();
        value(key).or_else(|| (key == ZONE.0).then(|| value(ZONE.1)).flatten())
    }

    /// Whether it is there for any network of the EgressIPAM.
    pub fn serves(&self, layout: &Layout) -> bool {
        self.value_for(layout)
            .is_some_and(|value| layout.networks.iter().any(|network| network.label_value == value))
    }
}

fn is_healthy(node: &core::Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions
        .filter(|condition| condition.type_ == "Ready")
        .any(|condition| condition.status == "True");
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let dead = taints.into_iter().any(|taint| taint.key == OUT_OF_SERVICE);
    ready && !dead && node.metadata.deletion_timestamp.is_none()
}

#[derive(Deserialize)]
struct Interface {
    #[serde(default)]
    ifaddr: Pair,
    #[serde(default)]
    capacity: Capacity,
}

#[derive(Default, Deserialize)]
struct Pair {
    ipv4: Option<String>,
}

#[derive(Default, Deserialize)]
struct Capacity {
    ipv4: Option<u32>,
    ip: Option<u32>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(value: serde_json::Value) -> Node {
        Node::read(&serde_json::from_value(value).unwrap())
    }

    fn healthy(conditions: serde_json::Value, taints: serde_json::Value) -> bool {
        node(json!({
            "metadata": {"name": "a"}, "spec": {"taints": taints}, "status": {"conditions": conditions},
        }))
        .healthy
    }

    #[test]
    fn addresses_subnets_and_capacity_are_read_from_all_that_tell_them() {
        let node = node(json!({
            "metadata": {"name": "a", "annotations": {
                CLOUD_CONFIG: r#"[{"interface":"eni-1","ifaddr":{"ipv4":"10.0.128.0/18"},"capacity":{"ipv4":14,"ipv6":15}}]"#,
                PRIMARY: r#"{"ipv4":"10.0.128.7/18"}"#,
                HOST_CIDRS: r#"["10.0.128.7/18","192.168.9.4/24","fd00::1/64"]"#,
                PLACED: "10.0.128.40",
            }},
            "status": {"addresses": [
                {"type": "InternalIP", "address": "10.0.128.7"}, {"type": "Hostname", "address": "a"},
            ]},
        }));
        let text = |all: Vec<String>| all.join(" ");
        assert_eq!(
            text(node.addresses.iter().map(ToString::to_string).collect()),
            "10.0.128.7 192.168.9.4"
        );
        assert_eq!(
            text(node.subnets.iter().map(ToString::to_string).collect()),
            "10.0.128.0/18 192.168.9.0/24"
        );
        assert_eq!(node.capacity, Some(14));
        assert_eq!(node.placed.to_string(), "10.0.128.40");
    }

    #[test]
    fn annotations_that_cannot_be_read_count_as_absent() {
        for text in ["", "{", "[]", "[{}]", r#"[{"capacity":{"ip":-1}}]"#, "null"] {
            let node = node(json!({"metadata": {"name": "a", "annotations": {
                CLOUD_CONFIG: text, PRIMARY: text, HOST_CIDRS: text,
            }}}));
            assert_eq!((node.capacity, node.subnets.len()), (None, 0), "{text}");
        }
    }

    #[test]
    fn a_node_that_is_not_ready_or_declared_dead_is_not_healthy() {
        let ready = |status: &str| json!([{"type": "Ready", "status": status}]);
        assert!(healthy(
            ready("True"),
            json!([{"key": "dedicated", "effect": "NoSchedule"}])
        ));
        assert!(!healthy(ready("False"), json!([])));
        assert!(!healthy(ready("Unknown"), json!([])));
        assert!(!healthy(json!([]), json!([])));
        assert!(!healthy(
            ready("True"),
            json!([{"key": OUT_OF_SERVICE, "effect": "NoExecute"}])
        ));
    }
}
