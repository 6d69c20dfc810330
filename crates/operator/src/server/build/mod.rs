//! The objects of a server, one kind a file. Pure.

mod claim;
mod config_map;
#[cfg(test)]
mod constraints_tests;
mod deployment;
mod disruption_budget;
mod envoy;
mod pod;
mod role_binding;
mod service;
mod service_account;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use oooi_plan::object_name::object_name;

use super::grant::{Grant, Reading};
use super::{Server, Wants};
use crate::context::{Platform, Pods};
use crate::identity;
pub(crate) use pod::{INTERFACE, LEASES, POD_IP, time_to_end};

/// The label that tells the replicas of a server apart, from 1 on.
pub(super) const REPLICA: &str = "hostedcluster.densityops.com/replica";

/// Where metrics and probes are on the pod's own address.
pub(super) const METRICS_PORT: i32 = 9090;

/// Everything that runs one server.
pub(super) struct Objects {
    pub(super) service_account: ServiceAccount,
    pub(super) role_binding: RoleBinding,
    /// What it reads, here and in other namespaces.
    pub(super) grants: Vec<RoleBinding>,
    pub(super) config_map: ConfigMap,
    pub(super) claim: Option<PersistentVolumeClaim>,
    pub(super) deployments: Vec<Deployment>,
    pub(super) service: Service,
    pub(super) disruption_budget: Option<PodDisruptionBudget>,
}

/// Builds everything that runs a server.
pub(super) fn build<S: Server>(server: &S, wants: &Wants, platform: Platform, pods: &Pods) -> Objects {
    let mut grants = server.grants();
    let constraints = match wants.route_via {
        Some(_) => Some(Reading::Routes),
        None => wants.raw_sockets.then_some(Reading::RawSockets),
    };
    grants.extend(
        constraints
            .filter(|_| platform == Platform::OpenShift)
            .map(|reading| Grant {
                namespace: server.namespace().unwrap_or_default(),
                reading,
            }),
    );
    Objects {
        service_account: service_account::build(server),
        role_binding: role_binding::build(server),
        grants: grants
            .iter()
            .map(|grant| role_binding::grant(server, grant))
            .collect(),
        config_map: config_map::build(server),
        claim: wants.claim.as_ref().map(|wanted| claim::build(server, wanted)),
        deployments: (1..=wants.addresses.len())
            .map(|number| deployment::build(server, wants, platform, pods, number))
            .collect(),
        service: service::build(server, wants),
        disruption_budget: disruption_budget::build(server, wants),
    }
}

/// The metadata of one of a server's objects.
fn metadata<S: Server>(server: &S, name: String) -> ObjectMeta {
    identity::metadata(server, name, Some(S::ROLE))
}

/// The name of a server's object that has a suffix.
fn named<S: Server>(server: &S, suffix: &str) -> String {
    object_name(&server.name_any(), suffix)
}

/// The names of the objects that pods refer to.
pub(super) fn account_name<S: Server>(server: &S) -> String {
    named(server, S::ROLE.word())
}

/// The name of a server's ConfigMap.
pub(crate) fn config_map_name<S: Server>(server: &S) -> String {
    named(server, S::ROLE.config_suffix())
}

/// The name of the volume of a server's leases.
pub(super) fn claim_name<S: Server>(server: &S) -> String {
    named(server, "dhcp-leases")
}
