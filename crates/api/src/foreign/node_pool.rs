//! HyperShift's `NodePool`: nodes of one hosted cluster that are alike.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PlatformType, absent_is_default, null_is_default};

/// What was asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "hypershift.openshift.io",
    version = "v1beta1",
    kind = "NodePool",
    plural = "nodepools",
    namespaced,
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq",
    doc = "Nodes of one hosted cluster that are alike."
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct NodePoolSpec {
    /// The HostedCluster in the same namespace that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// The platform of the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<NodePoolPlatform>,
}
absent_is_default!(NodePoolSpec);

/// The platform of a pool's nodes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePoolPlatform {
    /// Which platform.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<PlatformType>,
    /// Only with [`PlatformType::KubeVirt`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubevirt: Option<KubevirtNodes>,
}

/// Nodes as virtual machines of KubeVirt.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KubevirtNodes {
    /// The networks of the machines beside, or instead of, the pod network.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub additional_networks: Vec<AdditionalNetwork>,
    /// Whether the machines are on the pod network too; unset means yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attach_default_network: Option<bool>,
}

/// A network of the machines.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AdditionalNetwork {
    /// A NetworkAttachmentDefinition as `namespace/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_empty_is_readable, read};
    use super::*;

    #[test]
    fn the_networks_of_the_machines_are_read() {
        let pool: NodePool = read(
            "
apiVersion: hypershift.openshift.io/v1beta1
kind: NodePool
metadata: {name: workers, namespace: clusters}
spec:
  clusterName: tenant
  replicas: 3
  platform:
    type: KubeVirt
    kubevirt:
      attachDefaultNetwork: false
      additionalNetworks: [{name: default/vlan100}]
      compute: {cores: 4}
status: {replicas: 3}
",
        );
        assert_eq!(pool.spec.cluster_name.as_deref(), Some("tenant"));
        let machines = pool.spec.platform.unwrap().kubevirt.unwrap();
        assert_eq!(machines.attach_default_network, Some(false));
        assert_eq!(
            machines.additional_networks[0].name.as_deref(),
            Some("default/vlan100")
        );
    }

    #[test]
    fn an_empty_object_is_readable() {
        assert_empty_is_readable::<NodePool>();
    }
}
