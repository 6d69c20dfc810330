//! What is said of a derivation. Pure, but for the memory of what was said already.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use oooi_api::Infra;
use oooi_api::foreign::HostedCluster;
use oooi_plan::hosted_cluster::{Derived, Gap, OPT_IN};
use serde_json::{Value, json};

use crate::condition::{self, Finding, Truth};

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

/// What is said where somebody else's Infra has the name.
pub(super) fn in_the_way(cluster: &HostedCluster) -> Finding {
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let message = format!(
        "Infra {namespace}/{name} was not derived from this HostedCluster and is left alone: delete it, or remove the \
         annotation {OPT_IN}"
    );
    Finding::fails(DERIVED, "InfraExists", message)
}

/// The part of an Infra's status that this controller owns.
pub(super) fn status(infra: &Infra, before: &[Condition], finding: Finding, now: Timestamp) -> Value {
    let generation = infra.metadata.generation.unwrap_or_default();
    json!({"conditions": condition::conditions(before, &[finding], generation, now)})
}

/// What was said last of each HostedCluster, which has no condition of ours to remember it by.
#[derive(Default)]
pub(super) struct Told(Mutex<HashMap<String, (String, String)>>);

impl Told {
    /// Whether somebody should hear of this: it fails anew, for another reason, or it holds again.
    pub(super) fn is_news(&self, cluster: &HostedCluster, before: &[Condition], finding: &Finding) -> bool {
        let key = cluster.uid().unwrap_or_default();
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = (finding.reason.clone(), finding.message.clone());
        // After a restart the condition remembers.
        let last = told.insert(key, now.clone()).or_else(|| {
            let old = condition::find(before, DERIVED)?;
            Some((old.reason.clone(), old.message.clone()))
        });
        match finding.truth {
            Truth::Unknown => false, // a person did that
            Truth::False => !finding.reason.ends_with(BY_ITSELF) && last != Some(now),
            Truth::True => last.is_some_and(|last| last.0 != finding.reason && !last.0.ends_with(BY_ITSELF)),
        }
    }

    /// The HostedCluster is no longer ours.
    pub(super) fn forget(&self, cluster: &HostedCluster) {
        let key = cluster.uid().unwrap_or_default();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
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
        let (told, cluster) = (Told::default(), HostedCluster::default());
        let news = |finding: &Finding| told.is_news(&cluster, &[], finding);
        let pending = of(vec![gap("EndpointPending", false)]);
        let blocked = of(vec![gap("SeveralNetworks", true)]);
        let complete = of(vec![]);
        assert!(!news(&pending));
        assert!(!news(&complete), "as expected");
        assert!(news(&blocked));
        assert!(!news(&blocked), "said already");
        assert!(news(&complete), "mended");
        assert!(!news(&complete));
    }

    #[test]
    fn after_a_restart_the_condition_remembers_what_was_said() {
        let cluster = HostedCluster::default();
        let blocked = of(vec![gap("SeveralNetworks", true)]);
        let before = condition::conditions(&[], std::slice::from_ref(&blocked), 1, Timestamp::UNIX_EPOCH);
        assert!(!Told::default().is_news(&cluster, &before, &blocked));
        assert!(Told::default().is_news(&cluster, &[], &blocked));
    }
}
