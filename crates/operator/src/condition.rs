//! Conditions, as the conventions of the Kubernetes API have them. Pure: the time is passed in.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The condition that sums up all others.
pub const READY: &str = "Ready";

/// Whether something holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// It does.
    True,
    /// It does not.
    False,
    /// Nobody can tell.
    Unknown,
}

impl Truth {
    fn text(self) -> &'static str {
        match self {
            Truth::True => "True",
            Truth::False => "False",
            Truth::Unknown => "Unknown",
        }
    }
}

/// One aspect of an object, as it was just found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which aspect.
    pub kind: &'static str,
    /// Whether it holds.
    pub truth: Truth,
    /// One CamelCase word.
    pub reason: String,
    /// A sentence that says what to do.
    pub message: String,
}

impl Finding {
    /// It holds.
    pub fn holds(kind: &'static str, reason: &str, message: impl Into<String>) -> Self {
        Self::new(kind, Truth::True, reason, message)
    }

    /// It does not hold.
    pub fn fails(kind: &'static str, reason: &str, message: impl Into<String>) -> Self {
        Self::new(kind, Truth::False, reason, message)
    }

    /// It may or may not hold.
    pub fn new(kind: &'static str, truth: Truth, reason: &str, message: impl Into<String>) -> Self {
        Finding {
            kind,
            truth,
            reason: reason.to_owned(),
            message: message.into(),
        }
    }

    /// Whether it holds.
    pub fn is_true(&self) -> bool {
        self.truth == Truth::True
    }
}

/// The findings as conditions. The time of one whose truth did not change stays what it was.
pub fn conditions(
    before: &[Condition],
    findings: &[Finding],
    generation: i64,
    now: Timestamp,
) -> Vec<Condition> {
    findings
        .iter()
        .map(|finding| {
            let same = find(before, finding.kind).filter(|old| old.status == finding.truth.text());
            Condition {
                type_: finding.kind.to_owned(),
                status: finding.truth.text().to_owned(),
                reason: finding.reason.clone(),
                message: finding.message.clone(),
                observed_generation: Some(generation),
                last_transition_time: same.map_or(Time(now), |old| old.last_transition_time.clone()),
            }
        })
        .collect()
}

/// A condition by its type.
pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// The reason of what is not there yet and needs nobody: it is no news.
pub const PENDING: &str = "Pending";

/// What a person should hear of: that something began to fail, fails for another reason, or holds again. The
/// condition that sums up all others stands for them, so that one mistake is one event.
pub fn news<'a>(before: &[Condition], findings: &'a [Finding]) -> Option<&'a Finding> {
    let ready = findings.iter().find(|finding| finding.kind == READY)?;
    let is_new = match find(before, READY) {
        None => !ready.is_true(),
        Some(old) => old.status != ready.truth.text() || old.reason != ready.reason,
    };
    (is_new && ready.reason != PENDING).then_some(ready)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_time_of_a_condition_is_that_of_its_last_change() {
        let first = conditions(&[], &[Finding::fails(READY, "Waiting", "wait")], 1, at(1));
        let second = conditions(&first, &[Finding::fails(READY, "Refused", "mend")], 2, at(2));
        assert_eq!(second[0].last_transition_time.0, at(1), "false as before");
        assert_eq!(second[0].observed_generation, Some(2));
        let third = conditions(&second, &[Finding::holds(READY, "Runs", "runs")], 2, at(3));
        assert_eq!(third[0].last_transition_time.0, at(3));
    }

    #[test]
    fn only_a_change_is_news() {
        let failing = [Finding::fails(READY, "Refused", "mend")];
        let before = conditions(&[], &failing, 1, at(1));
        assert!(news(&[], &failing).is_some());
        assert!(news(&before, &failing).is_none(), "said already");
        assert!(news(&before, &[Finding::holds(READY, "Runs", "runs")]).is_some());
        assert!(
            news(&[], &[Finding::holds(READY, "Runs", "runs")]).is_none(),
            "as expected"
        );
        assert!(
            news(&[], &[Finding::fails(READY, PENDING, "wait")]).is_none(),
            "needs nobody"
        );
    }
}
