//! What a running server says of itself, and how it says it.
//!
//! A server knows no Kubernetes: it hands facts and events to a [`Report`], and whoever started it decides where
//! they go. In a cluster they become the server's own entry of `status.servers[]` and Kubernetes Events, on a
//! host they become log lines.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What one running server says of itself.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerReport {
    /// The pod that it runs in.
    pub pod: String,
    /// The uid of the resource that it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The generation of the resource that it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Whether it accepted the newest generation that it has seen.
    #[serde(default)]
    pub accepted: bool,
    /// Why not, if it did not; else what keeps it from serving all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The addresses that it listens on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Counts that people like to see, such as leases or backends, by their name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, i64>,
}

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Worth knowing.
    Normal,
    /// Needs a look.
    Warning,
}

/// Something that happened once and that a person should see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// How much it matters.
    pub severity: Severity,
    /// One CamelCase word, such as `AddressConflict`.
    pub reason: &'static str,
    /// A sentence that says what happened and what to do.
    pub message: String,
}

impl Event {
    /// Something that needs a look.
    pub fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Event {
            severity: Severity::Warning,
            reason,
            message: message.into(),
        }
    }

    /// Something worth knowing.
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Event {
            severity: Severity::Normal,
            reason,
            message: message.into(),
        }
    }
}

/// Where a server says how it is. Neither method blocks: an implementation queues what takes time.
pub trait Report: Send + Sync {
    /// The server's state changed. `pod` is left empty; the implementation knows it.
    fn state(&self, report: ServerReport);
    /// Something happened that a person should see.
    fn event(&self, event: Event);
}

/// Keeps what was reported in memory, for tests and for `oooi up`.
#[derive(Default)]
pub struct Recorded {
    inner: std::sync::Mutex<(Option<ServerReport>, Vec<Event>)>,
}

impl Recorded {
    fn inner(&self) -> std::sync::MutexGuard<'_, (Option<ServerReport>, Vec<Event>)> {
        // A poisoned lock only means that another thread died while it held plain data.
        self.inner
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The latest state.
    pub fn latest(&self) -> Option<ServerReport> {
        self.inner().0.clone()
    }

    /// Every event so far, in order.
    pub fn events(&self) -> Vec<Event> {
        self.inner().1.clone()
    }
}

impl Report for Recorded {
    fn state(&self, report: ServerReport) {
        self.inner().0 = Some(report);
    }

    fn event(&self, event: Event) {
        self.inner().1.push(event);
    }
}
