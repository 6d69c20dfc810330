//! `NetNamespace` of OpenShift SDN: one namespace, and the egress addresses that it leaves the cluster with.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::null_is_default;

/// Its fields, which stand beside `metadata`: this kind has no `spec`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "network.openshift.io",
    version = "v1",
    kind = "NetNamespace",
    plural = "netnamespaces",
    no_spec,
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq",
    doc = "One namespace of OpenShift SDN, and the addresses that it leaves the cluster with. Has the namespace's name."
)]
#[serde(rename_all = "camelCase", default)]
pub struct NetNamespaceFields {
    /// The namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netname: Option<String>,
    /// Its number in the SDN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netid: Option<i64>,
    /// Its egress addresses.
    #[serde(
        rename = "egressIPs",
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub egress_ips: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_empty_is_readable, read};
    use super::*;

    #[test]
    fn the_fields_beside_the_metadata_are_read() {
        let namespace: NetNamespace = read(
            "
apiVersion: network.openshift.io/v1
kind: NetNamespace
metadata: {name: shop}
netname: shop
netid: 4711
egressIPs: [10.0.128.5, 10.0.144.5]
later: field
",
        );
        assert_eq!(namespace.spec.netid, Some(4711));
        assert_eq!(namespace.spec.egress_ips, ["10.0.128.5", "10.0.144.5"]);
    }

    #[test]
    fn an_empty_object_is_readable() {
        assert_empty_is_readable::<NetNamespace>();
    }
}
