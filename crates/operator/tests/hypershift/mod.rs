//! HostedClusters and what HyperShift puts around them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "shared by several test programs, which use parts of it")]

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams};
use oooi_api::Infra;
use oooi_api::foreign::HostedCluster;
use serde::Deserialize;
use serde_json::{Value, json};

use super::world::{LIMIT, World, says};

/// The condition of a HostedCluster about its Infra.
pub(crate) const DERIVED: &str = "hostedcluster.densityops.com/Derived";

/// A HostedCluster as people see it: with the conditions of its status.
#[derive(Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "HostedCluster")]
pub(crate) struct Reported {
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) status: ReportedStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ReportedStatus {
    pub(crate) conditions: Vec<Condition>,
}

/// Waits until a HostedCluster says of its Infra what is expected, and gives it.
pub(crate) async fn told(world: &World, cluster: &str, status: &str, reason: &str) -> Reported {
    let told = |cluster: &Reported| says(&cluster.status.conditions, DERIVED, status, reason);
    world
        .wait(cluster, &format!("the HostedCluster to say {reason}"), told)
        .await
}

/// A HostedCluster that asks for an Infra.
pub(crate) fn cluster(name: &str, services: &Value) -> Value {
    json!({
        "apiVersion": "hypershift.openshift.io/v1beta1", "kind": "HostedCluster",
        "metadata": {"name": name, "annotations": {"hostedcluster.densityops.com/infra": "true"}},
        "spec": {
            "platform": {"type": "KubeVirt"},
            "dns": {"baseDomain": "example.com"},
            "networking": {"machineNetwork": [{"cidr": "192.168.100.0/24"}]},
            "services": services,
        },
    })
}

/// How a HostedCluster is published: by one strategy with names throughout, or as the CLI does it.
pub(crate) fn strategies(kind: &str) -> Value {
    let mut port = 30000;
    let services = [
        ("APIServer", "api"),
        ("Ignition", "ignition"),
        ("Konnectivity", "konnectivity"),
        ("OAuthServer", "oauth"),
    ];
    let services = services.map(|(service, label)| {
        port += 1;
        let host = format!("{label}.{kind}.example.com");
        let strategy = match (kind, service) {
            ("cli", "APIServer") => json!({"type": "LoadBalancer"}),
            ("cli", _) => json!({"type": "Route"}),
            ("route", _) => json!({"type": "Route", "route": {"hostname": host}}),
            // What else is published by a Route beside it, HyperShift has no load balancer for ignition.
            ("loadbalancer", "Ignition") => json!({"type": "Route", "route": {"hostname": host}}),
            ("loadbalancer", _) => json!({"type": "LoadBalancer", "loadBalancer": {"hostname": host}}),
            ("nodeport", _) => json!({"type": "NodePort", "nodePort": {"address": host, "port": port}}),
            other => panic!("no such strategy: {other:?}"),
        };
        json!({"service": service, "servicePublishingStrategy": strategy})
    });
    json!(services)
}

/// The nodes of a HostedCluster, on networks of the test's namespace.
pub(crate) fn pool(world: &World, cluster: &str, networks: &[&str]) -> Value {
    let namespace = world.namespace.name();
    let networks: Vec<Value> = networks
        .iter()
        .map(|network| json!({"name": format!("{namespace}/{network}")}))
        .collect();
    json!({
        "apiVersion": "hypershift.openshift.io/v1beta1", "kind": "NodePool", "metadata": {"name": cluster},
        "spec": {
            "clusterName": cluster,
            "platform": {"type": "KubeVirt", "kubevirt": {"additionalNetworks": networks}},
        },
    })
}

/// The management cluster's router.
pub(crate) async fn router(world: &World) {
    let ingress = json!({
        "apiVersion": "config.openshift.io/v1", "kind": "Ingress", "metadata": {"name": "cluster"},
        "spec": {"domain": "apps.mgmt.example.net"},
    });
    world.cluster.apply(&ingress.to_string()).await.unwrap();
}

/// The namespace of a control plane.
pub(crate) async fn plane(world: &World, cluster: &str) -> String {
    let name = format!("{}-{cluster}", world.namespace.name());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    world.cluster.apply(&namespace.to_string()).await.unwrap();
    name
}

/// Removes the namespace of a control plane.
pub(crate) async fn remove(world: &World, plane: &str) {
    world
        .cluster
        .kubectl(&["delete", "namespace", plane, "--wait=false"])
        .await
        .unwrap();
}

/// Sets or removes an annotation of ours on a HostedCluster.
pub(crate) async fn annotate(world: &World, cluster: &str, key: &str, value: Option<&str>) {
    let key = format!("hostedcluster.densityops.com/{key}");
    let patch = json!({"metadata": {"annotations": {key: value}}});
    let clusters = world.api::<HostedCluster>();
    clusters
        .patch(cluster, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

/// Waits for the one event about a HostedCluster with this reason, and gives what it says.
pub(crate) async fn events(world: &World, cluster: &str, reason: &str) -> String {
    let events = world.api::<Event>();
    let about = ListParams::default().fields(&format!("reason={reason}"));
    oooi_testkit::until(
        &format!("one event {reason} about {cluster}"),
        LIMIT,
        async || {
            let list = events.list(&about).await.map_err(|error| error.to_string())?;
            let about = |event: &&Event| {
                event.regarding.as_ref().is_some_and(|about| {
                    about.name.as_deref() == Some(cluster) && about.kind.as_deref() == Some("HostedCluster")
                })
            };
            match list.items.iter().filter(about).collect::<Vec<_>>()[..] {
                [event] => Ok(event.note.clone().unwrap_or_default()),
                _ => Err(format!("{:?}", list.items)),
            }
        },
    )
    .await
    .unwrap()
}

/// What an Infra's gateway forwards: name of the backend, first host, port.
pub(crate) fn infra_backends(infra: &Infra) -> Vec<String> {
    let parts = infra.spec.infra_components.clone().unwrap_or_default();
    let backends = parts.proxy.map(|proxy| proxy.backends).unwrap_or_default();
    backends
        .iter()
        .map(|backend| format!("{} {} {}", backend.name, backend.hostname, backend.port))
        .collect()
}

/// The conditions of an Infra.
pub(crate) fn conditions(infra: &Infra) -> &[Condition] {
    infra.status.as_ref().map_or(&[], |status| &status.conditions)
}
