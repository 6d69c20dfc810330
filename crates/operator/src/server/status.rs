//! What is said of a server. Pure.
//!
//! Ready means: the pods of every replica are ready, have the right address on the VLAN, and say that they serve the
//! newest generation of this very resource.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use oooi_plan::Mistake;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Error, Server};
use crate::apply;
use crate::condition::{self, Finding, PENDING, READY, Truth};

/// The condition about the specification, and about what servers make of it.
const CONFIGURATION_VALID: &str = "ConfigurationValid";
/// The condition about the pods.
pub(super) const AVAILABLE: &str = "Available";

/// What Multus says of a pod's networks.
pub(super) const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

/// What runs of a server.
pub struct Applied {
    /// Its replicas.
    pub replicas: Vec<Replica>,
    /// The address of its Service.
    pub service_address: Option<String>,
    /// Why the volume of its leases will not come.
    pub volume: Option<VolumeTrouble>,
    /// Entries of its status of pods that are gone, and their places.
    pub stale: Vec<(usize, String)>,
    /// Namespaces that it needs something in and that are not there.
    pub missing: BTreeSet<String>,
}

/// Why a volume will not come by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeTrouble {
    /// The claim names no StorageClass, and none is the default.
    NoDefaultClass,
    /// The claim names one that is not there.
    NoSuchClass(String),
}

impl VolumeTrouble {
    fn finding(&self) -> Finding {
        let (reason, what) = match self {
            VolumeTrouble::NoDefaultClass => (
                "NoDefaultStorageClass",
                "no StorageClass is the default: make one the default, name one in spec.storage.storageClassName".into(),
            ),
            VolumeTrouble::NoSuchClass(name) => (
                "StorageClassMissing",
                format!("there is no StorageClass {name}: create it, name another in spec.storage.storageClassName"),
            ),
        };
        let message = format!(
            "the volume of the leases does not come, since {what}, or set spec.leaseConfig.storage to Kubernetes"
        );
        Finding::fails(AVAILABLE, reason, message)
    }
}

/// One replica of a server.
pub struct Replica {
    /// Its Deployment as it is now.
    pub deployment: Deployment,
    /// Its pods.
    pub pods: Vec<Pod>,
    /// Its address.
    pub address: Ipv4Addr,
}

/// What is found when everything was applied.
pub(super) fn findings<S: Server>(server: &S, applied: &Applied, further: Vec<Finding>) -> Vec<Finding> {
    let mut findings = vec![configuration(server), available(applied)];
    findings.extend(further);
    let failing = findings.iter().find(|finding| !finding.is_true());
    let ready = match (failing, serving(server, applied)) {
        (Some(first), _) => Finding::fails(READY, &first.reason, &first.message),
        (None, Err(pending)) => Finding::fails(READY, PENDING, pending),
        (None, Ok(())) => Finding::holds(READY, "DeploymentReady", "it runs as this resource says"),
    };
    findings.insert(0, ready);
    findings
}

/// Whether a server refused what it was given.
fn configuration<S: Server>(server: &S) -> Finding {
    let uid = server.uid();
    let refusing = server
        .reports()
        .iter()
        .find(|report| !report.accepted && report.uid == uid && report.message.is_some());
    match refusing {
        Some(report) => Finding::fails(
            CONFIGURATION_VALID,
            "ConfigRejected",
            format!(
                "pod {}: {}",
                report.pod,
                report.message.as_deref().unwrap_or_default()
            ),
        ),
        None => Finding::holds(CONFIGURATION_VALID, "ConfigApplied", "the specification is valid"),
    }
}

/// Whether every replica has a ready pod at its address.
fn available(applied: &Applied) -> Finding {
    if let Some(trouble) = &applied.volume {
        return trouble.finding();
    }
    for replica in &applied.replicas {
        if let Some(trouble) = trouble(replica) {
            return trouble;
        }
    }
    Finding::holds(
        AVAILABLE,
        "DeploymentReady",
        "all replicas are ready at their addresses",
    )
}

fn trouble(replica: &Replica) -> Option<Finding> {
    let name = replica.deployment.name_any();
    let status = replica.deployment.status.clone().unwrap_or_default();
    let refused = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "ReplicaFailure" && condition.status == "True");
    if let Some(refused) = refused {
        let why = refused.message.as_deref().unwrap_or_default();
        let remedy = "if Pod Security refuses it, label the namespace pod-security.kubernetes.io/enforce=privileged \
                      (DHCP needs NET_RAW)";
        return Some(Finding::fails(
            AVAILABLE,
            "PodsRefused",
            format!("{name}: {why}; {remedy}"),
        ));
    }
    let current = status.observed_generation == replica.deployment.metadata.generation;
    let Some(pod) = replica.pods.iter().find(|pod| is_ready(pod)).filter(|_| current) else {
        let why = replica.pods.iter().find_map(waits_for).unwrap_or_default();
        let message = format!("Deployment {name} has no ready pod yet{why}");
        return Some(Finding::fails(AVAILABLE, PENDING, message));
    };
    if addresses(pod).contains(&replica.address) {
        return None;
    }
    let message = format!(
        "pod {} is ready and does not have {} on the VLAN: look at its annotation {NETWORK_STATUS} and at Multus",
        pod.name_any(),
        replica.address
    );
    Some(Finding::fails(AVAILABLE, "AddressMissing", message))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none()
        && conditions
            .into_iter()
            .any(|c| c.type_ == "Ready" && c.status == "True")
}

/// What keeps a pod from starting, as the scheduler or the kubelet says.
fn waits_for(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let unscheduled = status
        .conditions
        .iter()
        .flatten()
        .find(|c| c.type_ == "PodScheduled" && c.status == "False")
        .and_then(|c| c.message.clone());
    let waiting = status.container_statuses.iter().flatten().find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let message = waiting.message.as_deref().unwrap_or_default();
        Some(format!("{} {message}", waiting.reason.as_deref()?))
    });
    unscheduled.or(waiting).map(|why| format!(": {}", why.trim_end()))
}

#[derive(Deserialize)]
struct NetworkStatus {
    #[serde(default)]
    ips: Vec<String>,
}

/// The addresses that Multus gave a pod. An annotation that cannot be read shows none.
fn addresses(pod: &Pod) -> Vec<Ipv4Addr> {
    let text = pod.annotations().get(NETWORK_STATUS).map_or("[]", String::as_str);
    let networks: Vec<NetworkStatus> = serde_json::from_str(text).unwrap_or_default();
    let ips = networks.iter().flat_map(|network| &network.ips);
    ips.filter_map(|ip| ip.split('/').next()?.parse().ok()).collect()
}

/// Whether every replica says that it serves the newest generation; else who does not.
fn serving<S: Server>(server: &S, applied: &Applied) -> Result<(), String> {
    let (uid, generation) = (server.uid(), server.meta().generation);
    for replica in &applied.replicas {
        let Some(pod) = replica
            .pods
            .iter()
            .find(|pod| is_ready(pod))
            .map(ResourceExt::name_any)
        else {
            continue; // said by Available
        };
        let report = server.reports().iter().find(|report| report.pod == pod);
        let serves = report
            .is_some_and(|report| report.accepted && report.uid == uid && report.generation == generation);
        if !serves {
            let number = generation.unwrap_or_default();
            return Err(format!(
                "pod {pod} does not say yet that it serves generation {number}"
            ));
        }
    }
    Ok(())
}

/// What is found when the specification is wrong: what runs already goes on running.
pub(super) fn rejected(mistakes: &[Mistake]) -> Vec<Finding> {
    let all: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    let message = all.join("; ");
    vec![
        Finding::fails(READY, "InvalidSpec", &message),
        Finding::fails(CONFIGURATION_VALID, "InvalidSpec", message),
    ]
}

/// What is found when something could not be written.
pub(super) fn failed(error: &Error) -> Vec<Finding> {
    let reason = match error {
        Error::Apply(apply::Error::Replacing { .. }) => "Replacing",
        Error::Unlisted(_) | Error::Observe { .. } => "NotObserved",
        Error::Apply(_) => "ApplyFailed",
    };
    vec![Finding::fails(READY, reason, error.to_string())]
}

/// What is found when a person stopped writes.
pub(super) fn paused() -> Vec<Finding> {
    let message = "nothing is written for this resource: remove the annotation \
                   hostedcluster.densityops.com/paused to go on";
    vec![Finding::new(READY, Truth::Unknown, "Paused", message)]
}

/// The part of the status that the operator owns. What was not looked at this time stays as it was; what servers say
/// of themselves is theirs.
pub(super) fn status<S: Server>(server: &S, findings: &[Finding], fields: Value, now: Timestamp) -> Value {
    let generation = server.meta().generation.unwrap_or_default();
    let mut conditions = condition::conditions(server.conditions(), findings, generation, now);
    let looked_at = |kind: &str| findings.iter().any(|finding| finding.kind == kind);
    conditions.extend(
        server
            .conditions()
            .iter()
            .filter(|old| !looked_at(&old.type_))
            .cloned(),
    );
    let mut status = match fields {
        Value::Object(fields) => Value::Object(fields),
        _ => {
            let mut before = server.status_as_read();
            if let Some(before) = before.as_object_mut() {
                before.remove("servers");
            }
            before
        }
    };
    status["observedGeneration"] = json!(generation);
    status["conditions"] = json!(conditions);
    status
}
