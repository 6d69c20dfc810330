//! OpenShift's `CloudPrivateIPConfig`: an address that the cloud network controller puts on a node.
//!
//! OVN-Kubernetes writes these; we only read them, since their names are addresses in use.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::absent_is_default;

/// What was asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "cloud.network.openshift.io",
    version = "v1",
    kind = "CloudPrivateIPConfig",
    plural = "cloudprivateipconfigs",
    status = "CloudPrivateIPConfigStatus",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq",
    doc = "An address on a node's cloud interface. Its name is the address."
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct CloudPrivateIPConfigSpec {
    /// The node that it should be on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}
absent_is_default!(CloudPrivateIPConfigSpec);

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CloudPrivateIPConfigStatus {
    /// The node that it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_empty_is_readable, read};
    use super::*;

    #[test]
    fn the_node_of_an_address_is_read() {
        let config: CloudPrivateIPConfig = read(
            "
apiVersion: cloud.network.openshift.io/v1
kind: CloudPrivateIPConfig
metadata: {name: 10.0.128.5}
spec: {node: node-b, later: field}
status: {node: node-a, conditions: [{type: Assigned}]}
",
        );
        assert_eq!(config.spec.node.as_deref(), Some("node-b"));
        assert_eq!(config.status.unwrap().node.as_deref(), Some("node-a"));
    }

    #[test]
    fn an_empty_object_is_readable() {
        assert_empty_is_readable::<CloudPrivateIPConfig>();
    }
}
