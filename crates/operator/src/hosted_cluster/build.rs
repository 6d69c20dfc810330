//! The Infra of a HostedCluster, with the fields that follow from it and no others. Pure.

use kube::ResourceExt;
use kube::api::ObjectMeta;
use oooi_api::Infra;
use oooi_api::foreign::HostedCluster;
use oooi_api::infra::InfraSpec;
use serde_json::{Value, json};

use crate::identity;

/// Fields that every Infra has, whether or not a HostedCluster says anything about them. Whoever applies a field owns
/// it; these belong to a person who wants something else than the default.
const NOT_DERIVED: [(&str, &str); 5] = [
    ("dhcp", "enabled"),
    ("dhcp", "leaseTime"),
    ("dns", "enabled"),
    ("proxy", "enabled"),
    ("proxy", "apiServerService"),
];

/// What is applied as the Infra of this HostedCluster: its metadata, and all of it.
pub(super) fn infra(cluster: &HostedCluster, spec: &InfraSpec) -> (ObjectMeta, Value) {
    let mut infra = Infra::new(&cluster.name_any(), spec.clone());
    infra.metadata = identity::metadata(cluster, cluster.name_any(), None);
    let mut body = json!(&infra);
    for (component, field) in NOT_DERIVED {
        if let Some(fields) = body["spec"]["infraComponents"][component].as_object_mut() {
            fields.remove(field);
        }
    }
    (infra.metadata, body)
}

#[cfg(test)]
mod tests {
    use oooi_plan::hosted_cluster::{Sources, derive};

    use super::*;

    fn cluster() -> HostedCluster {
        serde_json::from_value(json!({
            "apiVersion": "hypershift.openshift.io/v1beta1", "kind": "HostedCluster",
            "metadata": {
                "name": "tenant", "namespace": "clusters", "uid": "7",
                "annotations": {"hostedcluster.densityops.com/network-attachment": "vlan"},
            },
            "spec": {
                "platform": {"type": "KubeVirt"}, "dns": {"baseDomain": "example.com"},
                "networking": {"machineNetwork": [{"cidr": "192.168.100.0/24"}]},
            },
        }))
        .unwrap()
    }

    #[test]
    fn the_infra_belongs_to_its_hosted_cluster() {
        let cluster = cluster();
        let spec = derive(&cluster, &Sources::default()).infra.unwrap();
        let (_, body) = infra(&cluster, &spec);
        assert_eq!(body["metadata"]["name"], "tenant");
        assert_eq!(body["metadata"]["namespace"], "clusters");
        assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "7");
        assert_eq!(body["metadata"]["ownerReferences"][0]["controller"], true);
    }

    #[test]
    fn only_fields_that_follow_from_the_hosted_cluster_are_applied() {
        let cluster = cluster();
        let spec = derive(&cluster, &Sources::default()).infra.unwrap();
        let (_, body) = infra(&cluster, &spec);
        assert_eq!(body["spec"]["infraComponents"]["dhcp"], json!({}));
        let dns = json!({"baseDomain": "example.com", "clusterName": "tenant"});
        assert_eq!(body["spec"]["infraComponents"]["dns"], dns);
        let proxy = body["spec"]["infraComponents"]["proxy"].as_object().unwrap();
        let fields: Vec<&String> = proxy.keys().collect();
        assert_eq!(fields, ["controlPlaneNamespace"]);
    }
}
