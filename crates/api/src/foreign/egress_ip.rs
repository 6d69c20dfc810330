//! `EgressIP` of OVN-Kubernetes: addresses that pods leave the cluster with.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{absent_is_default, null_is_default};

/// What was asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "k8s.ovn.org",
    version = "v1",
    kind = "EgressIP",
    plural = "egressips",
    status = "EgressIPStatus",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq",
    doc = "Addresses that the pods of some namespaces leave the cluster with."
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct EgressIPSpec {
    /// The addresses, each on a node of its own. Always written: the vendor requires it.
    #[serde(rename = "egressIPs", deserialize_with = "null_is_default")]
    pub egress_ips: Vec<String>,
    /// Whose pods. Always written: the vendor requires it, and an empty one means every namespace.
    #[serde(deserialize_with = "null_is_default")]
    pub namespace_selector: LabelSelector,
    /// Which of their pods; unset means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
}
absent_is_default!(EgressIPSpec);

/// What OVN-Kubernetes did.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EgressIPStatus {
    /// The addresses that are in force. Always written: the vendor requires it.
    #[serde(deserialize_with = "null_is_default")]
    pub items: Vec<EgressIPItem>,
}

/// An address in force.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EgressIPItem {
    /// The node that carries it.
    pub node: String,
    /// The address.
    #[serde(rename = "egressIP")]
    pub egress_ip: String,
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_empty_is_readable, read};
    use super::*;

    #[test]
    fn the_addresses_and_their_nodes_are_read() {
        let egress: EgressIP = read(
            "
apiVersion: k8s.ovn.org/v1
kind: EgressIP
metadata: {name: shop}
spec:
  egressIPs: [10.0.128.5]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}
  trafficPolicy: later
status: {items: [{node: node-a, egressIP: 10.0.128.5, since: today}]}
",
        );
        assert_eq!(egress.spec.egress_ips, ["10.0.128.5"]);
        let labels = egress.spec.namespace_selector.match_labels.unwrap();
        assert_eq!(labels["kubernetes.io/metadata.name"], "shop");
        assert_eq!(egress.status.unwrap().items[0].node, "node-a");
    }

    #[test]
    fn a_status_that_lists_nothing_is_readable() {
        let status: EgressIPStatus = serde_json::from_str(r#"{"items": null}"#).unwrap();
        assert!(status.items.is_empty());
    }

    #[test]
    fn an_empty_object_is_readable() {
        assert_empty_is_readable::<EgressIP>();
    }
}
