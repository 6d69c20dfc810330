//! What a cluster says of an Infra, from the network up to the endpoints.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use oooi_api::infra::{InfraAddresses, NetworkPolicyMode};
use oooi_plan::Components;

use crate::diagnosis::{
    BACKEND_WITHOUT_ENDPOINTS, INFRA_NOT_READY, NETWORK_ATTACHMENT_MISSING, NETWORK_POLICY_MISSING,
    POD_NOT_READY, POD_WITHOUT_VLAN, SERVER_MISSING,
};
use crate::inventory::{Inventory, is_ready};
use crate::report::{Check, Finding};

/// What is wrong in the cluster. What is concrete comes first; the conditions repeat some of it in the operator's words.
pub fn diagnose(inventory: &Inventory, components: &Components) -> Vec<Check> {
    vec![
        attachment(inventory),
        servers(inventory, components),
        policies(inventory, components),
        backends(inventory, components),
        conditions(inventory),
    ]
}

fn attachment(inventory: &Inventory) -> Check {
    let name = &inventory.infra.spec.network_config.network_attachment_definition;
    let findings = match &inventory.attachment {
        Some(_) => Vec::new(),
        None => vec![Finding::new(
            &NETWORK_ATTACHMENT_MISSING,
            format!("there is no NetworkAttachmentDefinition {name}"),
        )],
    };
    Check::new("network attachment", name, findings)
}

fn servers(inventory: &Inventory, components: &Components) -> Check {
    let InfraAddresses {
        dhcp,
        dns,
        proxy,
        dhcp_range: _,
    } = components.addresses();
    let wanted = [("dhcp", dhcp), ("dns", dns), ("proxy", proxy)];
    let checks = wanted
        .iter()
        .flat_map(|(component, addresses)| addresses.iter().map(move |address| (*component, address)))
        .map(|(component, address)| server(inventory, component, address));
    Check::of("pods", "", checks.collect())
}

/// Why the scheduler found no node for a pod, in its own words.
fn unscheduled(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let refused =
        |condition: &&PodCondition| condition.type_ == "PodScheduled" && condition.status == "False";
    let condition = conditions.iter().find(refused)?;
    Some(
        condition
            .message
            .clone()
            .unwrap_or_else(|| "the scheduler does not say why".to_owned()),
    )
}

/// The pod that has, or should have, an address.
fn server(inventory: &Inventory, component: &str, address: &str) -> Check {
    let name = format!("{component} {address}");
    if let Some(pod) = inventory.pod_at(component, address) {
        let pod_name = pod.name_any();
        let findings = if is_ready(pod) {
            Vec::new()
        } else {
            vec![Finding::new(
                &POD_NOT_READY,
                format!("pod {pod_name} is not ready"),
            )]
        };
        return Check::new(name, format!("pod {pod_name}"), findings);
    }
    let asks_for_it = |pod: &&Pod| {
        let asked = pod.annotations().get("k8s.v1.cni.cncf.io/networks");
        asked.is_some_and(|asked| asked.contains(&format!("\"{address}/")))
    };
    let finding = match inventory.pods_of(component).find(asks_for_it) {
        Some(pod) => match unscheduled(pod) {
            // Nothing attaches a pod that has no node.
            Some(why) => Finding::new(
                &POD_NOT_READY,
                format!("pod {} has no node: {why}", pod.name_any()),
            ),
            None => Finding::new(
                &POD_WITHOUT_VLAN,
                format!(
                    "pod {} should have {address} on the VLAN and has not",
                    pod.name_any()
                ),
            ),
        },
        None => Finding::new(&SERVER_MISSING, format!("no {component} pod for {address}")),
    };
    Check::new(name, "", vec![finding])
}

/// The gateway is admitted where its backends are, if those namespaces are closed to strangers.
fn policies(inventory: &Inventory, components: &Components) -> Check {
    let name = "network policies";
    let parts = inventory.infra.spec.infra_components.as_ref();
    let proxy = parts.and_then(|parts| parts.proxy.as_ref());
    if proxy.and_then(|proxy| proxy.network_policy) == Some(NetworkPolicyMode::None) {
        return Check::skipped(name, "somebody else writes them (networkPolicy: None)");
    }
    let own = inventory.infra.namespace().unwrap_or_default();
    let ours = format!("oooi-{own}-{}", inventory.infra.name_any());
    let backends = components.proxy.iter().flat_map(|proxy| &proxy.backends);
    let namespaces: BTreeSet<&str> = backends.map(|backend| &*backend.target_namespace).collect();
    let mut findings = Vec::new();
    for namespace in namespaces {
        let there = || {
            let all = inventory.policies.iter();
            all.filter(|policy| policy.namespace().as_deref() == Some(namespace))
        };
        let closed: Vec<String> = there()
            .filter(|policy| !is_ours(policy) && closes_all(policy))
            .map(ResourceExt::name_any)
            .collect();
        let admitted = there().any(|policy| is_ours(policy) && policy.name_any().starts_with(&ours));
        if !closed.is_empty() && !admitted {
            let closed = super::list(&closed);
            let detail = format!(
                "namespace {namespace} is closed ({closed}), and no policy {ours}-… admits the gateway"
            );
            findings.push(Finding::new(&NETWORK_POLICY_MISSING, detail));
        }
    }
    Check::new(name, "the gateway is admitted", findings)
}

fn is_ours(policy: &NetworkPolicy) -> bool {
    policy.name_any().starts_with("oooi-")
}

/// Whether a policy closes every pod of its namespace to whom no policy admits.
fn closes_all(policy: &NetworkPolicy) -> bool {
    policy.spec.as_ref().is_some_and(|spec| {
        let selector = spec.pod_selector.as_ref();
        let everyone = selector.is_none_or(|selector| {
            selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
                && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
        });
        everyone
            && spec
                .policy_types
                .as_ref()
                .is_none_or(|types| types.iter().any(|kind| kind == "Ingress"))
    })
}

fn backends(inventory: &Inventory, components: &Components) -> Check {
    let backends = components.proxy.iter().flat_map(|proxy| &proxy.backends);
    let mut targets: Vec<(&str, &str)> = backends
        .map(|backend| (&*backend.target_namespace, &*backend.target_service))
        .collect();
    targets.sort_unstable();
    targets.dedup();
    let checks = targets.into_iter().map(|(namespace, service)| {
        let (ready, all) = inventory.endpoints(namespace, service);
        let findings = if ready > 0 {
            Vec::new()
        } else {
            let detail = format!("Service {namespace}/{service} has {all} endpoints, none of them ready");
            vec![Finding::new(&BACKEND_WITHOUT_ENDPOINTS, detail)]
        };
        Check::new(
            format!("{namespace}/{service}"),
            format!("{ready} of {all} endpoints ready"),
            findings,
        )
    });
    Check::of("endpoints", "", checks.collect())
}

fn conditions(inventory: &Inventory) -> Check {
    let all = inventory.conditions();
    let bad = all
        .iter()
        .filter(|(_, condition)| condition.status != "True")
        .map(|(owner, condition)| {
            let Condition {
                type_,
                reason,
                message,
                ..
            } = condition;
            Finding::new(
                &INFRA_NOT_READY,
                format!("{owner}: {type_} ({reason}): {message}"),
            )
        });
    let findings: Vec<Finding> = bad.collect();
    if all.is_empty() {
        let detail = "nobody reports on the Infra: is `oooi manager` running?";
        return Check::new("conditions", "", vec![Finding::new(&INFRA_NOT_READY, detail)]);
    }
    Check::new("conditions", format!("all {} are True", all.len()), findings)
}
