//! What is said of an Infra. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use oooi_api::Infra;
use oooi_api::infra::{ComponentStatus, InfraAddresses};
use oooi_plan::{Mistake, Warning};
use serde_json::{Value, json};

use super::Error;
use crate::condition::{self, Finding, PENDING, READY, Truth};

/// The condition of each component, in their order: DHCP, DNS, gateway.
const COMPONENTS: [&str; 3] = ["DHCPReady", "DNSReady", "ProxyReady"];

/// The reason of a specification that cannot be planned.
const INVALID: &str = "InvalidSpec";

/// A component as the Infra sees it.
pub(super) struct Part<'a> {
    /// What to call it.
    pub(super) name: String,
    /// Its conditions.
    pub(super) conditions: &'a [Condition],
    /// The generation of its specification.
    pub(super) generation: Option<i64>,
}

/// What is found when all was applied.
pub(super) fn applied(
    network: Finding,
    parts: [Option<Part<'_>>; 3],
    warnings: &[Warning],
    derived: Option<&Condition>,
) -> Vec<Finding> {
    let mut findings = vec![network];
    for (kind, part) in COMPONENTS.into_iter().zip(parts) {
        let missing = || {
            warnings
                .iter()
                .find(|warning| MISSED_BY.contains(&(kind, warning.reason)))
        };
        findings.push(match (part, missing()) {
            (Some(part), _) => component(kind, &part, warnings),
            (None, Some(warning)) => Finding::fails(kind, warning.reason, &warning.message),
            (None, None) => Finding::holds(kind, "Disabled", "it is not enabled, so it does not run"),
        });
    }
    findings.insert(0, ready(&findings, derived));
    findings
}

/// Warnings of a plan that are the reason of a component's condition, which holds all the same.
const TOLD_BY: [(&str, &str); 2] = [("DNSReady", "NoUpstream"), ("ProxyReady", "AppsNotServed")];

/// Warnings of a plan that tell why a component which is enabled is not there.
const MISSED_BY: [(&str, &str); 1] = [("ProxyReady", "NothingPublished")];

fn component(kind: &'static str, part: &Part<'_>, warnings: &[Warning]) -> Finding {
    let Some(found) = condition::find(part.conditions, READY) else {
        let message = format!("{} was applied and has not been looked at yet", part.name);
        return Finding::fails(kind, PENDING, message);
    };
    if found.observed_generation != part.generation {
        let message = format!(
            "the newest specification of {} has not been looked at yet",
            part.name
        );
        return Finding::fails(kind, PENDING, message);
    }
    let message = format!("{}: {}", part.name, found.message);
    let warning = warnings
        .iter()
        .find(|warning| TOLD_BY.contains(&(kind, warning.reason)));
    match (found.status.as_str(), warning) {
        ("True", Some(warning)) => Finding::holds(kind, warning.reason, &warning.message),
        ("True", None) => Finding::holds(kind, &found.reason, message),
        _ => Finding::fails(kind, &found.reason, message),
    }
}

/// The first aspect that does not hold is what keeps the Infra from being ready. How far it was derived from its
/// HostedCluster is said by another controller, and matters once all that is known already runs.
fn ready(findings: &[Finding], derived: Option<&Condition>) -> Finding {
    let fails =
        |reason: &str, kind: &str, message: &str| Finding::fails(READY, reason, format!("{kind}: {message}"));
    match (findings.iter().find(|finding| !finding.is_true()), derived) {
        (Some(first), _) => fails(&first.reason, first.kind, &first.message),
        (None, Some(derived)) if derived.status == "False" => {
            fails(&derived.reason, &derived.type_, &derived.message)
        }
        (None, _) => Finding::holds(READY, "AllReady", "everything runs as this resource says"),
    }
}

/// Whether the newest generation of an Infra was carried out before. What was said of its components shows it: that is
/// said only then, whatever else was reported since.
pub(super) fn was_applied(infra: &Infra) -> bool {
    let conditions = infra.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let said = condition::find(conditions, COMPONENTS[0]);
    said.is_some_and(|said| said.observed_generation == infra.metadata.generation)
}

/// Whether it was refused, perhaps for a neighbour.
pub(crate) fn is_refused(infra: &Infra) -> bool {
    let conditions = infra.status.as_ref().map_or(&[][..], |status| &status.conditions);
    condition::find(conditions, READY).is_some_and(|ready| ready.reason == INVALID)
}

/// What is found when the network is of no use: what runs already goes on running.
pub(super) fn without_network(problem: Finding) -> Vec<Finding> {
    vec![Finding::fails(READY, &problem.reason, &problem.message), problem]
}

/// What is found when the specification cannot be planned.
pub(super) fn rejected(network: Finding, mistakes: &[Mistake]) -> Vec<Finding> {
    let all: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    vec![Finding::fails(READY, INVALID, all.join("; ")), network]
}

/// What is found when it could not be carried out.
pub(super) fn failed(error: &Error) -> Vec<Finding> {
    let reason = match error {
        Error::Unlisted(_) | Error::Observe(_) => "NotObserved",
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

/// The part of the status that this controller owns. Aspects that were not looked at this time stay as they were.
pub(super) fn status(
    infra: &Infra,
    findings: &[Finding],
    addresses: Option<InfraAddresses>,
    now: Timestamp,
) -> Value {
    let nothing = oooi_api::infra::InfraStatus::default();
    let before = infra.status.as_ref().unwrap_or(&nothing);
    let generation = infra.metadata.generation.unwrap_or_default();
    let mut conditions = condition::conditions(&before.conditions, findings, generation, now);
    for kind in [READY, super::network::NETWORK_READY]
        .into_iter()
        .chain(COMPONENTS)
    {
        let looked_at = findings.iter().any(|finding| finding.kind == kind);
        conditions.extend(
            condition::find(&before.conditions, kind)
                .filter(|_| !looked_at)
                .cloned(),
        );
    }
    let is_ready = |kind| {
        condition::find(&conditions, kind).is_some_and(|c| c.status == "True" && c.reason != "Disabled")
    };
    let [dhcp, dns, proxy] = COMPONENTS;
    let mut status = json!({
        "observedGeneration": generation,
        "componentStatus": ComponentStatus {
            dhcp_ready: is_ready(dhcp),
            dns_ready: is_ready(dns),
            proxy_ready: is_ready(proxy),
        },
        "conditions": conditions,
    });
    if let Some(addresses) = addresses.or_else(|| before.addresses.clone()) {
        status["addresses"] = json!(addresses);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network() -> Finding {
        Finding::holds(
            super::super::network::NETWORK_READY,
            "NetworkAttachmentFound",
            "found",
        )
    }

    fn condition(status: &str, generation: i64) -> Vec<Condition> {
        let truth = if status == "True" {
            Truth::True
        } else {
            Truth::False
        };
        let finding = Finding::new(READY, truth, "DeploymentReady", "said");
        condition::conditions(&[], &[finding], generation, Timestamp::UNIX_EPOCH)
    }

    fn part(conditions: &[Condition]) -> Option<Part<'_>> {
        Some(Part {
            name: "x-dns".into(),
            conditions,
            generation: Some(2),
        })
    }

    #[test]
    fn ready_names_the_first_aspect_that_does_not_hold() {
        let (good, bad) = (condition("True", 2), condition("False", 2));
        let findings = applied(network(), [part(&good), part(&bad), None], &[], None);
        assert_eq!(findings[0].truth, Truth::False);
        assert!(
            findings[0].message.starts_with("DNSReady: x-dns: said"),
            "{findings:?}"
        );
        let findings = applied(network(), [part(&good), part(&good), None], &[], None);
        assert!(findings[0].is_true());
    }

    #[test]
    fn a_gateway_that_waits_for_something_to_forward_is_not_called_disabled() {
        let good = condition("True", 2);
        let waits = Warning {
            reason: "NothingPublished",
            path: "spec.infraComponents.proxy.backends".into(),
            message: "the gateway starts once the HostedCluster publishes a service".into(),
        };
        let findings = applied(network(), [part(&good), part(&good), None], &[waits], None);
        assert_eq!(
            (findings[0].truth, findings[0].message.as_str()),
            (
                Truth::False,
                "ProxyReady: the gateway starts once the HostedCluster publishes a service"
            )
        );
    }

    #[test]
    fn a_component_that_was_ready_for_an_older_specification_is_not_ready() {
        let old = condition("True", 1);
        let findings = applied(network(), [part(&old), None, None], &[], None);
        assert_eq!(
            (findings[0].truth, findings[0].reason.as_str()),
            (Truth::False, PENDING)
        );
    }

    #[test]
    fn a_warning_is_said_of_a_component_that_is_ready_all_the_same() {
        let good = condition("True", 2);
        let warnings = ["NoUpstream", "AppsNotServed"].map(|reason| Warning {
            reason,
            path: "spec".into(),
            message: "mend it".into(),
        });
        let findings = applied(network(), [None, part(&good), part(&good)], &warnings, None);
        for (kind, reason) in TOLD_BY {
            let told = findings.iter().find(|finding| finding.kind == kind).unwrap();
            assert!(told.is_true());
            assert_eq!(told.reason, reason);
        }
    }
}
