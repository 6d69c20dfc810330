//! What could not be done in a pass, and whom it concerns.

use std::collections::{BTreeMap, BTreeSet};

use crate::apply::Error;

/// What could not be done.
#[derive(Default)]
pub(super) struct Faults {
    by_ipam: BTreeMap<String, Vec<String>>,
    by_namespace: BTreeMap<String, String>,
    /// EgressIPAMs for which something is to be looked at again.
    outdated: BTreeSet<String>,
    /// Whether everything is.
    again: bool,
}

impl Faults {
    /// Notes a failure for an EgressIPAM and, where it is about one, a namespace. What was only changed since it was
    /// looked at is looked at again, and nobody hears of it.
    pub(super) fn note(&mut self, ipam: &str, namespace: Option<&str>, error: &Error) {
        if error.is_outdated() {
            self.outdated.insert(ipam.to_owned());
            tracing::debug!(%error, ipam, "changed meanwhile, will be looked at again");
            return;
        }
        tracing::warn!(%error, ipam, namespace, "failed, will be tried again");
        self.say(ipam, namespace, error.to_string());
    }

    /// Notes that everything is to be looked at again, for a reason that conditions tell; or nobody, where no EgressIPAM
    /// is left to have any.
    pub(super) fn again(&mut self) {
        self.again = true;
    }

    /// Notes a failure that is no refused write.
    pub(super) fn say(&mut self, ipam: &str, namespace: Option<&str>, message: String) {
        if let Some(namespace) = namespace {
            self.by_namespace.insert(namespace.to_owned(), message.clone());
        }
        self.by_ipam.entry(ipam.to_owned()).or_default().push(message);
    }

    /// Whether nothing failed.
    pub(super) fn is_empty(&self) -> bool {
        self.by_ipam.is_empty() && self.outdated.is_empty() && !self.again
    }

    /// Whether something of an EgressIPAM changed meanwhile, so that nobody knows yet whether all is done.
    pub(super) fn is_outdated(&self, ipam: &str) -> bool {
        self.outdated.contains(ipam)
    }

    /// What failed for an EgressIPAM.
    pub(super) fn of(&self, ipam: &str) -> &[String] {
        self.by_ipam.get(ipam).map_or(&[], Vec::as_slice)
    }

    /// What failed for a namespace.
    pub(super) fn of_namespace(&self, namespace: &str) -> Option<&str> {
        self.by_namespace.get(namespace).map(String::as_str)
    }
}
