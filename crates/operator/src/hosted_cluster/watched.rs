//! A HostedCluster as this controller watches it: with our condition, which nobody else of us reads.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use kube::api::ObjectMeta;
use oooi_api::foreign::{HostedCluster, HostedClusterSpec, HostedClusterStatus};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::status::ON_CLUSTER;

/// A HostedCluster, and what is said of it.
#[derive(Resource, Clone, Debug, Deserialize, Serialize)]
#[resource(inherit = "HostedCluster")]
pub(super) struct Watched {
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    spec: HostedClusterSpec,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Status {
    #[serde(flatten)]
    known: HostedClusterStatus,
    /// Also those of others, which may be of any form.
    #[serde(default)]
    conditions: Vec<Value>,
}

impl Watched {
    /// The HostedCluster itself.
    pub(super) fn cluster(&self) -> HostedCluster {
        HostedCluster {
            metadata: self.metadata.clone(),
            spec: self.spec.clone(),
            status: self.status.as_ref().map(|status| status.known.clone()),
        }
    }

    /// Our condition, if it has one.
    pub(super) fn condition(&self) -> Option<Condition> {
        let mut all = self.status.iter().flat_map(|status| &status.conditions);
        let own = all.find(|condition| condition["type"] == ON_CLUSTER)?;
        serde_json::from_value(own.clone()).ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn our_condition_is_found_among_those_of_hypershift() {
        let mut object = json!({
            "apiVersion": "hypershift.openshift.io/v1beta1", "kind": "HostedCluster",
            "metadata": {"name": "tenant", "namespace": "clusters"},
            "spec": {"infraID": "tenant-x7", "release": {"image": "registry.invalid/release:1"}},
            "status": {
                "controlPlaneEndpoint": {"host": "api.example.com", "port": 6443},
                "conditions": [{"type": "Available"}, {
                    "type": ON_CLUSTER, "status": "False", "reason": "OnlyIPv6", "message": "annotate it",
                    "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 3,
                }],
            },
        });
        let watched: Watched = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(watched.condition().unwrap().reason, "OnlyIPv6");
        assert_eq!(
            watched.cluster(),
            serde_json::from_value(object.clone()).unwrap(),
            "the same in every field that is read"
        );
        for nothing in [json!({}), Value::Null] {
            object["status"] = nothing;
            let watched: Watched = serde_json::from_value(object.clone()).unwrap();
            assert!(watched.condition().is_none());
        }
    }
}
