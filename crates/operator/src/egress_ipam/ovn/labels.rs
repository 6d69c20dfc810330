//! The label that lets OVN-Kubernetes put addresses on a node, and the record that it is ours.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::super::backend::{Scene, SeenNode};
use super::super::decide::Decision;
use super::super::faults::Faults;
use crate::apply::Writer;

/// A node with this label may carry egress addresses.
const ASSIGNABLE: &str = "k8s.ovn.org/egress-assignable";

/// The EgressIPAMs for which we labelled a node. A label without it is somebody else's, and stays.
const LABELLED_FOR: &str = "egressip-ipam-operator.redhat-cop.io/labelled-for";

/// Labels nodes that an EgressIPAM needs.
pub(super) async fn add(writer: &Writer, scene: &Scene<'_>, faults: &mut Faults) {
    write(writer, scene, faults, |change| change.adds).await;
}

/// Takes our label off nodes that no EgressIPAM needs any more.
pub(super) async fn remove(writer: &Writer, scene: &Scene<'_>, faults: &mut Faults) {
    write(writer, scene, faults, |change| !change.adds).await;
}

async fn write(writer: &Writer, scene: &Scene<'_>, faults: &mut Faults, now: fn(&Change) -> bool) {
    for node in scene.nodes {
        let Some(change) = change(node, scene.decision).filter(now) else {
            continue;
        };
        if let Err(error) = writer.change::<Node>(&*node.object, change.fields).await {
            for ipam in &change.ipams {
                faults.note(ipam, None, &error);
            }
        }
    }
}

struct Change {
    fields: Value,
    adds: bool,
    /// Whom it concerns.
    ipams: BTreeSet<String>,
}

fn change(node: &SeenNode, decision: &Decision) -> Option<Change> {
    let recorded = node.object.annotations().get(LABELLED_FOR).cloned();
    let before: BTreeSet<String> = recorded
        .iter()
        .flat_map(|names| names.split(','))
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    let labelled = node.facts.labels.contains_key(ASSIGNABLE);
    if labelled && recorded.is_none() {
        return None; // somebody else's
    }
    let serving = decision
        .layouts
        .iter()
        .filter(|layout| node.facts.serves(layout))
        .map(|layout| layout.name.clone());
    let frozen = before.iter().filter(|ipam| decision.is_frozen(ipam)).cloned();
    let after: BTreeSet<String> = serving.chain(frozen).collect();
    let adds = !after.is_empty();
    if before == after && (labelled == adds) {
        return None;
    }
    let fields = if adds {
        let names: Vec<&str> = after.iter().map(String::as_str).collect();
        json!({"metadata": {"labels": {ASSIGNABLE: ""}, "annotations": {LABELLED_FOR: names.join(",")}}})
    } else {
        json!({"metadata": {"labels": {ASSIGNABLE: null}, "annotations": {LABELLED_FOR: null}}})
    };
    Some(Change {
        fields,
        adds,
        ipams: &before | &after,
    })
}
