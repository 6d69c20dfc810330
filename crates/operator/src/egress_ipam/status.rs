//! What is said of an EgressIPAM. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use oooi_api::EgressIpam;
use oooi_api::egress_ipam::{CidrUsage, EgressIpamStatus, FailingNamespace};
use oooi_egress::Mistake;
use serde_json::{Value, json};

use super::backend::{CLOUD, Carried, NODES};
use super::decide::Decision;
use super::faults::Faults;
use crate::condition::{self, Finding, PENDING, READY, Truth};

/// The condition that every namespace has its addresses.
const NAMESPACES: &str = "NamespacesAssigned";

/// So many failing namespaces are listed at most: the object must not grow with the cluster.
pub(super) const LISTED: usize = 100;

/// So many of them are named in a message.
const NAMED: usize = 5;

/// So long after a person deleted an EgressIPAM it goes, whatever could not be undone.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// What is wrong with the namespaces of an EgressIPAM, in the order of their names.
pub(super) fn failing(
    ipam: &str,
    decision: &Decision,
    carried: &Carried,
    faults: &Faults,
) -> Vec<FailingNamespace> {
    let asking = decision.claims.values().filter(|claim| claim.ipam == ipam);
    let failing = asking.filter_map(|claim| {
        let name = claim.namespace.as_str();
        let problem = decision
            .allocation
            .outcomes
            .get(name)
            .and_then(|outcome| outcome.problem());
        let (reason, message) = if let Some(problem) = problem {
            (problem.reason(), problem.to_string())
        } else if let Some(message) = faults.of_namespace(name) {
            ("ApplyFailed", message.to_owned())
        } else {
            let waiting = carried.waiting.get(name)?;
            (waiting.reason, waiting.message.clone())
        };
        Some(FailingNamespace {
            name: name.to_owned(),
            reason: reason.to_owned(),
            message,
        })
    });
    failing.collect()
}

/// What is found of an EgressIPAM that is carried out.
pub(super) fn carried_out(
    ipam: &str,
    failing: &[FailingNamespace],
    decision: &Decision,
    carried: &Carried,
    faults: &Faults,
) -> Vec<Finding> {
    let asking = decision
        .claims
        .values()
        .filter(|claim| claim.ipam == ipam)
        .count();
    let assigned = match failing {
        [] => Finding::holds(
            NAMESPACES,
            "AllAssigned",
            format!("{asking} namespaces have their addresses"),
        ),
        [first, ..] => {
            let named = failing
                .iter()
                .take(NAMED)
                .map(|one| format!("{} ({})", one.name, one.reason));
            let mut named: Vec<String> = named.collect();
            if failing.len() > NAMED {
                named.push(format!("{} more", failing.len() - NAMED));
            }
            let message = format!(
                "{} of {asking} namespaces lack addresses: {}; status.failingNamespaces and their events tell more",
                failing.len(),
                named.join(", ")
            );
            // What is only waited for needs nobody; what is wrong comes first.
            let worst = failing
                .iter()
                .find(|one| one.reason != "NotPlaced")
                .unwrap_or(first);
            let reason = if worst.reason == "NotPlaced" {
                PENDING
            } else {
                worst.reason.as_str()
            };
            Finding::fails(NAMESPACES, reason, message)
        }
    };
    let mut findings = vec![assigned];
    findings.extend(carried.nodes.get(ipam).cloned());
    findings.extend(carried.cloud.get(ipam).cloned());
    let failed = faults.of(ipam);
    let ready = if let Some(first) = failed.first() {
        Finding::fails(
            READY,
            "ApplyFailed",
            format!("{} writes failed, the first: {first}", failed.len()),
        )
    } else {
        // A cloud that does not answer is the cause of what namespaces lack, not the other way round.
        let cloud = findings.iter().filter(|finding| finding.kind == CLOUD);
        match cloud.chain(&findings).find(|finding| !finding.is_true()) {
            Some(first) => Finding::fails(READY, &first.reason, format!("{}: {}", first.kind, first.message)),
            None => Finding::holds(
                READY,
                "AllReady",
                "every namespace has its addresses and every address a node",
            ),
        }
    };
    findings.insert(0, ready);
    findings
}

/// What is found of one with mistakes: what is in force stays.
pub(super) fn rejected(mistakes: &[Mistake]) -> Vec<Finding> {
    let all: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    vec![Finding::fails(READY, "InvalidSpec", all.join("; "))]
}

/// What is found of one that a person paused.
pub(super) fn paused() -> Vec<Finding> {
    let message = "nothing is written for this resource: remove the annotation \
                   hostedcluster.densityops.com/paused to go on";
    vec![Finding::new(READY, Truth::Unknown, "Paused", message)]
}

/// What is found of one that is being deleted, while something is left to undo.
pub(super) fn leaving(left: &[String]) -> Vec<Finding> {
    vec![Finding::fails(READY, "CleanupFailed", what_is_left(left))]
}

/// What could not be undone, as a sentence.
pub(super) fn what_is_left(left: &[String]) -> String {
    let named: Vec<&str> = left.iter().take(NAMED).map(String::as_str).collect();
    format!("{} things could not be undone: {}", left.len(), named.join("; "))
}

/// Whether an EgressIPAM that is being deleted has waited long enough for what cannot be undone.
pub(super) fn is_out_of_patience(ipam: &EgressIpam, now: Timestamp) -> bool {
    let since = ipam.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    since.is_some_and(|since| now.duration_since(since) >= PATIENCE)
}

/// The status of an EgressIPAM. Aspects that were not looked at this time stay as they were.
pub(super) fn status(
    ipam: &EgressIpam,
    findings: &[Finding],
    decision: &Decision,
    failing: &[FailingNamespace],
    now: Timestamp,
) -> Value {
    let nothing = EgressIpamStatus::default();
    let before = ipam.status.as_ref().unwrap_or(&nothing);
    let name = ipam.name_any();
    let generation = ipam.metadata.generation.unwrap_or_default();
    let mut conditions = condition::conditions(&before.conditions, findings, generation, now);
    for kind in [READY, NAMESPACES, NODES, CLOUD] {
        let looked_at = findings.iter().any(|finding| finding.kind == kind);
        let old = condition::find(&before.conditions, kind).filter(|_| !looked_at);
        conditions.extend(old.cloned());
    }
    let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    // Networks under the text that the specification has: one with host bits is found again.
    let texts = ipam
        .spec
        .cidr_assignments
        .iter()
        .map(|assignment| &assignment.cidr);
    let usage = decision.allocation.usage.get(&name);
    let cidrs: Vec<CidrUsage> = usage
        .iter()
        .flat_map(|usage| usage.iter())
        .zip(texts)
        .map(|(usage, text)| CidrUsage {
            cidr: text.clone(),
            total: count(usage.used + usage.free),
            used: count(usage.used),
            free: count(usage.free),
        })
        .collect();
    let asking = decision
        .claims
        .values()
        .filter(|claim| claim.ipam == name)
        .count();
    json!({
        "observedGeneration": generation,
        "conditions": conditions,
        "namespaces": asking,
        "cidrs": if usage.is_some() { cidrs } else { before.cidrs.clone() },
        "failingNamespaces": failing.iter().take(LISTED).collect::<Vec<_>>(),
    })
}

/// What was told already, so that one thing is told once.
#[derive(Default)]
pub(super) struct Told(BTreeMap<String, Vec<String>>);

impl Told {
    /// Those of the messages about an object that are new.
    pub(super) fn news(&mut self, object: &str, messages: Vec<String>) -> Vec<String> {
        let before = self.0.remove(object).unwrap_or_default();
        let news = messages
            .iter()
            .filter(|message| !before.contains(message))
            .cloned()
            .collect();
        if !messages.is_empty() {
            self.0.insert(object.to_owned(), messages);
        }
        news
    }

    /// Forgets objects that are gone.
    pub(super) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.0.retain(|object, _| is_there(object));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(name: &str, reason: &str) -> FailingNamespace {
        FailingNamespace {
            name: name.into(),
            reason: reason.into(),
            message: "said".into(),
        }
    }

    fn found(failing: &[FailingNamespace], faults: &Faults) -> Vec<Finding> {
        carried_out("x", failing, &Decision::default(), &Carried::default(), faults)
    }

    #[test]
    fn what_is_wrong_comes_before_what_is_waited_for() {
        let both = [failing("a", "NotPlaced"), failing("b", "SpacesInList")];
        assert_eq!(found(&both, &Faults::default())[1].reason, "SpacesInList");
        assert_eq!(found(&both[..1], &Faults::default())[1].reason, PENDING);
        assert!(found(&[], &Faults::default())[0].is_true());
    }

    #[test]
    fn a_message_names_a_few_and_the_status_lists_a_hundred() {
        let many: Vec<FailingNamespace> = (0..250)
            .map(|n| failing(&format!("n{n}"), "NetworkExhausted"))
            .collect();
        let findings = found(&many, &Faults::default());
        assert!(
            findings[1].message.contains("245 more"),
            "{}",
            findings[1].message
        );
        let ipam = EgressIpam::new("x", oooi_api::egress_ipam::EgressIpamSpec::default());
        let status = status(
            &ipam,
            &findings,
            &Decision::default(),
            &many,
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(status["failingNamespaces"].as_array().unwrap().len(), LISTED);
    }

    #[test]
    fn a_failed_write_keeps_an_egressipam_from_being_ready() {
        let mut faults = Faults::default();
        faults.say("x", None, "cannot".into());
        assert_eq!(found(&[], &faults)[0].reason, "ApplyFailed");
        faults = Faults::default();
        faults.say("y", None, "cannot".into());
        assert!(found(&[], &faults)[0].is_true(), "of another one");
    }

    #[test]
    fn deletion_waits_for_a_minute_and_no_longer() {
        let mut ipam = EgressIpam::new("x", oooi_api::egress_ipam::EgressIpamSpec::default());
        let at = |second| Timestamp::from_second(second).unwrap();
        assert!(!is_out_of_patience(&ipam, at(1000)), "nobody deleted it");
        ipam.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(1000)));
        assert!(!is_out_of_patience(&ipam, at(1059)));
        assert!(is_out_of_patience(&ipam, at(1060)));
    }

    #[test]
    fn one_thing_is_told_once_and_again_after_it_was_well() {
        let mut told = Told::default();
        assert_eq!(told.news("a", vec!["bad".into()]), ["bad"]);
        assert!(told.news("a", vec!["bad".into()]).is_empty());
        assert!(told.news("a", vec![]).is_empty());
        assert_eq!(told.news("a", vec!["bad".into()]), ["bad"]);
    }
}
