//! What is said of a derivation. Pure, but for the memory of what was said already.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
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

/// Events are forgotten by the API server after an hour: what keeps a HostedCluster from having an Infra at all is told
/// again before that, since nothing else would show it.
pub(super) const AGAIN: Duration = Duration::from_secs(55 * 60);

/// What was said last of each HostedCluster, which has no condition of ours to remember it by: the reason, the message,
/// and when.
#[derive(Default)]
pub(super) struct Told(Mutex<HashMap<String, (String, String, Timestamp)>>);

impl Told {
    /// Whether somebody should hear of this: it fails anew, for another reason, it holds again, or it was told so long
    /// ago that nobody can read it any more and no condition of an Infra says it.
    pub(super) fn is_news(
        &self,
        cluster: &HostedCluster,
        before: &[Condition],
        finding: &Finding,
        now: Timestamp,
    ) -> bool {
        let key = cluster.uid().unwrap_or_default();
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let condition = condition::find(before, DERIVED);
        // After a restart the condition remembers.
        let last = told.get(&key).cloned().or_else(|| {
            let old = condition?;
            Some((old.reason.clone(), old.message.clone(), now))
        });
        let same = last
            .as_ref()
            .filter(|last| last.0 == finding.reason && last.1 == finding.message);
        let is_forgotten = |last: &(String, String, Timestamp)| {
            condition.is_none()
                && now.duration_since(last.2) >= SignedDuration::try_from(AGAIN).unwrap_or_default()
        };
        let news = match finding.truth {
            Truth::Unknown => false, // a person did that
            Truth::False => !finding.reason.ends_with(BY_ITSELF) && same.is_none_or(is_forgotten),
            Truth::True => {
                let last = last.as_ref();
                last.is_some_and(|last| last.0 != finding.reason && !last.0.ends_with(BY_ITSELF))
            }
        };
        let since = same.filter(|_| !news).map_or(now, |same| same.2);
        told.insert(key, (finding.reason.clone(), finding.message.clone(), since));
        news
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
        let news = |finding: &Finding| told.is_news(&cluster, &[], finding, Timestamp::UNIX_EPOCH);
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
    fn what_no_condition_shows_is_told_again_before_its_event_is_forgotten() {
        let (told, cluster) = (Told::default(), HostedCluster::default());
        let blocked = of(vec![gap("SeveralNetworks", true)]);
        let at = |pauses: i32| {
            let again = SignedDuration::try_from(AGAIN).unwrap();
            Timestamp::UNIX_EPOCH + again * pauses
        };
        let before = condition::conditions(&[], std::slice::from_ref(&blocked), 1, at(0));
        assert!(told.is_news(&cluster, &[], &blocked, at(0)));
        assert!(!told.is_news(&cluster, &[], &blocked, at(1) - SignedDuration::from_secs(1)));
        assert!(told.is_news(&cluster, &[], &blocked, at(1)));
        assert!(!told.is_news(&cluster, &[], &blocked, at(1)), "said already");
        assert!(
            !told.is_news(&cluster, &before, &blocked, at(9)),
            "the condition of the Infra says it"
        );
    }

    #[test]
    fn after_a_restart_the_condition_remembers_what_was_said() {
        let cluster = HostedCluster::default();
        let blocked = of(vec![gap("SeveralNetworks", true)]);
        let before = condition::conditions(&[], std::slice::from_ref(&blocked), 1, Timestamp::UNIX_EPOCH);
        assert!(!Told::default().is_news(&cluster, &before, &blocked, Timestamp::UNIX_EPOCH));
        assert!(Told::default().is_news(&cluster, &[], &blocked, Timestamp::UNIX_EPOCH));
    }
}
