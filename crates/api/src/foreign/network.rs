//! OpenShift's `Network` configuration: which network plugin the management cluster has.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::absent_is_default;

/// What was asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "Network",
    plural = "networks",
    status = "NetworkStatus",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq",
    doc = "The cluster's network plugin. There is one, `cluster`."
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct NetworkSpec {
    /// The plugin that was asked for; the status tells the one that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_type: Option<NetworkType>,
}
absent_is_default!(NetworkSpec);

/// What runs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkStatus {
    /// The plugin that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_type: Option<NetworkType>,
}

/// A network plugin.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum NetworkType {
    /// OVN-Kubernetes.
    OVNKubernetes,
    /// OpenShift SDN, gone since 4.17.
    OpenShiftSDN,
    /// Any other.
    #[serde(untagged)]
    Other(String),
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_empty_is_readable, read};
    use super::*;

    #[test]
    fn the_plugin_that_runs_is_read() {
        let network: Network = read(
            "
apiVersion: config.openshift.io/v1
kind: Network
metadata: {name: cluster}
spec: {networkType: Calico, serviceNetwork: [172.30.0.0/16]}
status: {networkType: OVNKubernetes, clusterNetworkMTU: 1400}
",
        );
        assert_eq!(
            network.spec.network_type,
            Some(NetworkType::Other("Calico".into()))
        );
        assert_eq!(
            network.status.unwrap().network_type,
            Some(NetworkType::OVNKubernetes)
        );
    }

    #[test]
    fn an_empty_object_is_readable() {
        assert_empty_is_readable::<Network>();
    }
}
