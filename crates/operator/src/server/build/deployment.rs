//! One Deployment a replica, since each has an address of its own.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use oooi_plan::object_name::object_name;
use serde_json::json;

use super::{Platform, Pods, REPLICA, metadata, pod};
use crate::identity::{NETWORK_STATE, labels};
use crate::server::{Server, Wants};

/// What tells Multus the networks of a pod.
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

/// For so many seconds a replica is ready before the next one is changed.
const SETTLED: i32 = 10;

/// The Deployment of replica `number`, from 1 on.
pub(super) fn build<S: Server>(
    server: &S,
    wants: &Wants,
    platform: Platform,
    pods: &Pods,
    number: usize,
) -> Deployment {
    let name = server.name_any();
    let own = match number {
        1 => name.clone(),
        _ => object_name(&name, &format!("r{number}")),
    };
    let mut selector = labels(&name, Some(S::ROLE));
    selector.insert(REPLICA.into(), number.to_string());
    let mut pod_labels = selector.clone();
    pod_labels.insert("app".into(), S::ROLE.app());
    Deployment {
        metadata: metadata(server, own),
        spec: Some(DeploymentSpec {
            replicas: Some(1),
            // A pod that is ready is not admitted everywhere yet: NetworkPolicies follow it. The next replica waits.
            min_ready_seconds: (wants.addresses.len() > 1).then_some(SETTLED),
            // A surge pod would be a second one with the same address on the VLAN.
            strategy: Some(DeploymentStrategy {
                type_: Some("Recreate".into()),
                ..DeploymentStrategy::default()
            }),
            selector: LabelSelector {
                match_labels: Some(selector),
                ..LabelSelector::default()
            },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(pod_labels),
                    annotations: Some(annotations(server, wants, number)),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod::build(server, wants, platform, pods)),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

/// What tells Multus the networks of a pod, and which state of them it was made with.
fn annotations<S: Server>(server: &S, wants: &Wants, number: usize) -> BTreeMap<String, String> {
    let state = server.annotations().get(NETWORK_STATE);
    let networks = (NETWORKS.to_owned(), networks(server, wants, number));
    let state = state.map(|state| (NETWORK_STATE.to_owned(), state.clone()));
    std::iter::once(networks).chain(state).collect()
}

/// The networks of a pod: the VLAN, with the address of this replica and those that every replica answers for.
fn networks<S: Server>(server: &S, wants: &Wants, number: usize) -> String {
    let own = wants.addresses.get(number - 1).map(ToString::to_string);
    let published = wants.published.iter().map(|address| format!("{address}/32"));
    let ips: Vec<String> = own.into_iter().chain(published).collect();
    let namespace = wants.attachment_namespace.clone().or_else(|| server.namespace());
    json!([{
        "name": wants.attachment,
        "namespace": namespace,
        "interface": pod::INTERFACE,
        "ips": ips,
    }])
    .to_string()
}
