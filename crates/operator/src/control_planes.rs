//! What HostedClusters say about their control planes: from the controller that reads them to the one of Infras.
//!
//! An Infra that a person wrote with a `hostedClusterRef` has no backends of its own; they follow from here.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::stream::{self, Stream};
use kube::ResourceExt;
use oooi_api::Infra;
use oooi_api::foreign::HostedCluster;
use oooi_plan::infra::ControlPlane;
use tokio::sync::watch;

type Known = BTreeMap<(String, String), ControlPlane>;

/// What is known of control planes. Clones share it.
#[derive(Clone, Default)]
pub struct ControlPlanes(Arc<watch::Sender<Known>>);

impl ControlPlanes {
    /// A HostedCluster says this now. What it said last stays when it is gone: what runs goes on running.
    pub(crate) fn set(&self, cluster: &HostedCluster, plane: &ControlPlane) {
        let key = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        self.0.send_if_modified(|known| {
            let changed = known.get(&key) != Some(plane);
            if changed {
                known.insert(key, plane.clone());
            }
            changed
        });
    }

    /// What the HostedCluster of an Infra says.
    pub(crate) fn of(&self, infra: &Infra) -> Option<ControlPlane> {
        let reference = infra.spec.hosted_cluster_ref.as_ref()?;
        let namespace = reference.namespace.clone().or_else(|| infra.namespace());
        let key = (namespace.unwrap_or_default(), reference.name.clone());
        self.0.borrow().get(&key).cloned()
    }

    /// An item for every change.
    pub(crate) fn changes(&self) -> impl Stream<Item = ()> + Send + 'static {
        stream::unfold(self.0.subscribe(), |mut known| async move {
            known.changed().await.ok()?;
            Some(((), known))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_infra_is_told_of_the_hosted_cluster_that_it_names() {
        let infra: Infra = serde_json::from_value(json!({
            "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "Infra",
            "metadata": {"name": "x", "namespace": "clusters"},
            "spec": {
                "networkConfig": {"cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "networkAttachmentDefinition": "v"},
                "hostedClusterRef": {"name": "tenant"},
            },
        }))
        .unwrap();
        let mut cluster = HostedCluster::default();
        (cluster.metadata.namespace, cluster.metadata.name) =
            (Some("clusters".into()), Some("tenant".into()));
        let planes = ControlPlanes::default();
        assert!(planes.of(&infra).is_none());
        planes.set(&cluster, &ControlPlane::default());
        assert!(planes.of(&infra).is_some());
    }
}
