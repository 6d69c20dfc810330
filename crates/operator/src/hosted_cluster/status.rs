//! What is said of a derivation. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use oooi_api::Infra;
use oooi_api::foreign::HostedCluster;
use oooi_plan::hosted_cluster::{Derived, Gap, OPT_IN};
use serde_json::{Value, json};

use crate::apply;
use crate::condition::{self, Finding, Truth};
use crate::first_look::Unlisted;

/// The condition about the derivation.
pub(crate) const DERIVED: &str = "Derived";

/// How the reasons of gaps end that close by themselves: nobody need hear of them.
const BY_ITSELF: &str = "Pending";

/// What follows from the gaps. They are one condition: its reason is the first one's, its message is all of them.
pub(super) fn derived(derived: &Derived) -> Finding {
    let Some(first) = first(&derived.gaps) else {
        return Finding::holds(DERIVED, "Complete", "everything follows from the HostedCluster");
    };
    let all: Vec<&str> = derived.gaps.iter().map(|gap| gap.message.as_str()).collect();
    let all = all.join("; ");
    let message = if first.blocks {
        all
    } else {
        format!("what is known is served already: {all}")
    };
    Finding::fails(DERIVED, first.reason, message)
}

/// The gap that matters most: one that blocks, else one that somebody must close.
fn first(gaps: &[Gap]) -> Option<&Gap> {
    let needs_somebody = |gap: &&Gap| gap.blocks || !gap.reason.ends_with(BY_ITSELF);
    gaps.iter().find(needs_somebody).or(gaps.first())
}

/// What is said while a person stopped writes.
pub(super) fn paused() -> Finding {
    let message = "nothing is derived while the annotation hostedcluster.densityops.com/paused is on the \
                   HostedCluster or the Infra: remove it to go on";
    Finding::new(DERIVED, Truth::Unknown, "Paused", message)
}

/// What is said while something that matters is not known. The Infra stays as it is.
pub(super) fn unobserved(unlisted: &Unlisted) -> Finding {
    Finding::new(DERIVED, Truth::Unknown, "NotObserved", unlisted.to_string())
}

/// What is said where somebody else's Infra has the name.
pub(super) fn in_the_way(cluster: &HostedCluster) -> Finding {
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let message = format!(
        "Infra {namespace}/{name} was not derived from this HostedCluster and is left alone: delete it, or remove the \
         annotation {OPT_IN}"
    );
    Finding::fails(DERIVED, "InfraExists", message)
}

/// What is said where the API server did not take the Infra: it is as it was, if there is one.
pub(super) fn refused(error: &apply::Error) -> Finding {
    let message = format!(
        "what follows from the HostedCluster was not taken: mend it or its annotations if they are what is wrong; {error}"
    );
    Finding::fails(DERIVED, "ApplyFailed", message)
}

/// The part of an Infra's status that this controller owns.
pub(super) fn status(infra: &Infra, before: &[Condition], finding: Finding, now: Timestamp) -> Value {
    let generation = infra.metadata.generation.unwrap_or_default();
    json!({"conditions": condition::conditions(before, &[finding], generation, now)})
}

/// The condition about the derivation in the HostedCluster's own status: types of others there have no prefix.
pub(super) const ON_CLUSTER: &str = "hostedcluster.densityops.com/Derived";

/// What is written into the status of a HostedCluster: this one condition. `before` is what it was.
pub(super) fn cluster_status(
    cluster: &HostedCluster,
    before: Option<&Condition>,
    finding: &Finding,
    now: Timestamp,
) -> Value {
    let finding = Finding {
        kind: ON_CLUSTER,
        ..finding.clone()
    };
    let generation = cluster.metadata.generation.unwrap_or_default();
    let before: Vec<Condition> = before.cloned().into_iter().collect();
    json!({"conditions": condition::conditions(&before, &[finding], generation, now)})
}

/// Whether somebody should hear of this: it fails anew, for another reason, or it holds again. `before` is the condition
/// as it was.
pub(super) fn is_news(before: Option<&Condition>, finding: &Finding) -> bool {
    match finding.truth {
        Truth::Unknown => false, // a person did that
        Truth::False => {
            let same = |old: &Condition| old.reason == finding.reason && old.message == finding.message;
            !finding.reason.ends_with(BY_ITSELF) && !before.is_some_and(same)
        }
        Truth::True => before.is_some_and(|old| old.status == "False" && !old.reason.ends_with(BY_ITSELF)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(reason: &'static str, blocks: bool) -> Gap {
        Gap {
            reason,
            message: format!("mend {reason}"),
            blocks,
        }
    }

    fn of(gaps: Vec<Gap>) -> Finding {
        derived(&Derived {
            infra: None,
            control_plane: Default::default(),
            waiting_load_balancer: None,
            gaps,
        })
    }

    #[test]
    fn all_gaps_are_one_condition_whose_reason_is_the_one_that_needs_somebody() {
        assert!(of(vec![]).is_true());
        let finding = of(vec![gap("EndpointPending", false), gap("BadHostname", false)]);
        assert_eq!(
            (finding.reason.as_str(), finding.is_true()),
            ("BadHostname", false)
        );
        assert!(
            finding.message.contains("mend EndpointPending; mend BadHostname"),
            "{}",
            finding.message
        );
    }

    #[test]
    fn news_are_told_once_and_what_comes_by_itself_is_no_news() {
        let cluster = HostedCluster::default();
        let mut before = None;
        let mut news = |finding: &Finding| {
            let news = is_news(before.as_ref(), finding);
            let status = cluster_status(&cluster, before.as_ref(), finding, Timestamp::UNIX_EPOCH);
            before = serde_json::from_value(status["conditions"][0].clone()).unwrap();
            news
        };
        let pending = of(vec![gap("EndpointPending", false)]);
        let blocked = of(vec![gap("SeveralNetworks", true)]);
        let complete = of(vec![]);
        assert!(!news(&pending));
        assert!(!news(&complete), "as expected");
        assert!(news(&blocked));
        assert!(!news(&blocked), "said already");
        assert!(news(&complete), "mended");
        assert!(!news(&complete));
        assert!(!news(&paused()), "a person did that");
        assert!(!news(&complete), "and that");
    }

    #[test]
    fn the_time_of_the_condition_on_the_hosted_cluster_is_that_of_its_last_change() {
        let mut cluster = HostedCluster::default();
        let blocked = of(vec![gap("SeveralNetworks", true)]);
        let written = |before: Option<&Condition>, finding: &Finding, cluster: &HostedCluster, second| {
            let now = Timestamp::from_second(second).unwrap();
            let status = cluster_status(cluster, before, finding, now);
            serde_json::from_value::<Condition>(status["conditions"][0].clone()).unwrap()
        };
        let first = written(None, &blocked, &cluster, 1);
        assert_eq!(first.type_, ON_CLUSTER);
        assert_eq!(
            first,
            written(Some(&first), &blocked, &cluster, 2),
            "nothing changed"
        );
        cluster.metadata.generation = Some(7);
        let other = written(Some(&first), &of(vec![gap("OnlyIPv6", true)]), &cluster, 3);
        assert_eq!(
            other.last_transition_time, first.last_transition_time,
            "false as before"
        );
        assert_eq!(other.observed_generation, Some(7));
        let complete = written(Some(&other), &of(vec![]), &cluster, 4);
        assert_ne!(complete.last_transition_time, first.last_transition_time);
    }
}
