//! `HostSubnet` of OpenShift SDN: one node, and the egress addresses that it carries.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::null_is_default;

/// Its fields, which stand beside `metadata`: this kind has no `spec`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "network.openshift.io",
    version = "v1",
    kind = "HostSubnet",
    plural = "hostsubnets",
    no_spec,
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq",
    doc = "One node of OpenShift SDN, and the egress addresses that it carries. Has the node's name."
)]
#[serde(rename_all = "camelCase", default)]
pub struct HostSubnetFields {
    /// The node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The node's own address.
    #[serde(rename = "hostIP", skip_serializing_if = "Option::is_none")]
    pub host_ip: Option<String>,
    /// The network of its pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet: Option<String>,
    /// Egress addresses that it carries.
    #[serde(
        rename = "egressIPs",
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub egress_ips: Vec<String>,
    /// Networks of which the SDN itself gives it egress addresses.
    #[serde(
        rename = "egressCIDRs",
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub egress_cidrs: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_empty_is_readable, read};
    use super::*;

    #[test]
    fn the_fields_beside_the_metadata_are_read() {
        let subnet: HostSubnet = read(
            "
apiVersion: network.openshift.io/v1
kind: HostSubnet
metadata: {name: node-a}
host: node-a
hostIP: 10.0.0.11
subnet: 10.128.2.0/23
egressIPs: [10.0.128.5]
egressCIDRs: null
later: field
",
        );
        assert_eq!(subnet.spec.host_ip.as_deref(), Some("10.0.0.11"));
        assert_eq!(subnet.spec.egress_ips, ["10.0.128.5"]);
        assert!(subnet.spec.egress_cidrs.is_empty());
    }

    #[test]
    fn an_empty_object_is_readable() {
        assert_empty_is_readable::<HostSubnet>();
    }
}
