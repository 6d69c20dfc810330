//! Of several replicas one at a time is taken away when nodes are drained.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use super::metadata;
use crate::identity::labels;
use crate::server::{Server, Wants};

/// None for a single replica: it would only keep a node from being drained.
pub(super) fn build<S: Server>(server: &S, wants: &Wants) -> Option<PodDisruptionBudget> {
    (wants.addresses.len() > 1).then(|| PodDisruptionBudget {
        metadata: metadata(server, server.name_any()),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(LabelSelector {
                match_labels: Some(labels(&server.name_any(), Some(S::ROLE))),
                ..LabelSelector::default()
            }),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    })
}
