//! What one Envoy is owed: the state of one ADS stream. No socket, no clock.
//!
//! Requests go in by [`Stream::request`], responses come out of [`Stream::next`], for both variants of the
//! protocol. For each kind one response is on its way at a time; what changes in the meantime is in the next
//! one, so that a slow Envoy skips versions instead of queueing them.
//!
//! The order is make before break. Listeners wait until the clusters that they may name, and their endpoints,
//! were acknowledged; clusters that are gone stay until the listeners without them were acknowledged. If the
//! client never asks for some endpoints, or for listeners, [`Stream::lift_gate`] ends the wait.
//!
//! A response that was refused (NACK) is not sent again by itself: its resources go with the next that are sent of
//! their kind, since the client does not say which of them it minds. So an answer stands for all of the kind.
//! Listeners are the exception: one may be refused because another process has its port, so [`Stream::retry`] sends
//! them again without a change.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::resources::{Kind, Resource, Resources};
use crate::subscription::Subscription;

/// The two variants of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// Each response of listeners or clusters holds all of them.
    StateOfTheWorld,
    /// Each response holds what changed.
    Delta,
}

/// A request of either variant.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// What it is about.
    pub type_url: String,
    /// The response that it answers; empty in the first request of a kind.
    pub nonce: String,
    /// Why that response was refused.
    pub error: Option<String>,
    /// State of the world: all names wanted. Delta: names wanted in addition.
    pub subscribe: Vec<String>,
    /// Delta: names not wanted any more.
    pub unsubscribe: Vec<String>,
    /// Delta, first request: what the client already has, by name.
    pub has: BTreeMap<String, String>,
    /// State of the world, first request: the version that the client already has.
    pub has_version: String,
}

/// A response of either variant.
#[derive(Debug)]
pub struct Response {
    /// What it is about.
    pub kind: Kind,
    /// The version of all resources of the kind together.
    pub version: String,
    /// To be given back in the answer.
    pub nonce: String,
    /// New and changed, or all of them.
    pub resources: Vec<Arc<Resource>>,
    /// Delta: gone.
    pub removed: Vec<String>,
}

/// What a request turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A subscription, or an answer to something older.
    Noted,
    /// The last response was taken over.
    Accepted(Kind),
    /// The last response was refused.
    Refused(Kind, String),
    /// A kind that is not served here.
    Unknown,
}

/// The state of one stream.
#[derive(Debug)]
pub struct Stream {
    variant: Variant,
    subscriptions: [Subscription; 3],
    nonces: u64,
    gate_lifted: bool,
}

impl Stream {
    /// A stream on which nothing was asked yet.
    pub fn new(variant: Variant) -> Self {
        Self {
            variant,
            subscriptions: Default::default(),
            nonces: 0,
            gate_lifted: false,
        }
    }

    /// Takes a request.
    pub fn request(&mut self, request: Request, resources: &Resources) -> Verdict {
        let Some(kind) = Kind::of_type_url(&request.type_url) else {
            return Verdict::Unknown;
        };
        self.look(resources);
        let variant = self.variant;
        let subscription = &mut self.subscriptions[kind as usize];
        let is_latest = !request.nonce.is_empty() && subscription.nonce == request.nonce;
        let answers_pending = is_latest && subscription.pending;
        if !request.nonce.is_empty() && !is_latest && variant == Variant::StateOfTheWorld {
            return Verdict::Noted; // speaks of an older response: its names are outdated too
        }
        let verdict = match request.error.clone() {
            _ if !answers_pending => Verdict::Noted,
            Some(message) => Verdict::Refused(kind, message),
            None => Verdict::Accepted(kind),
        };
        if answers_pending {
            subscription.answered(request.error.is_some());
        }
        match variant {
            Variant::StateOfTheWorld => {
                subscription.subscribe_to_exactly(kind, request, &resources.version(kind));
            }
            Variant::Delta => subscription.change(kind, request),
        }
        verdict
    }

    /// The next response that can be sent, if any.
    pub fn next(&mut self, resources: &Resources) -> Option<Response> {
        self.look(resources);
        let gate = self.gate_lifted || self.may_send_listeners();
        let variant = self.variant;
        let [clusters, endpoints, listeners] = &mut self.subscriptions;
        // Clusters that are gone stay while the client's listeners may still name them; endpoints go with their cluster.
        // One that comes back asks for clusters first, and has listeners nevertheless.
        let named = match listeners.asked {
            true => !listeners.is_settled() || listeners.has_gone() || listeners.has_refused(),
            false => !self.gate_lifted,
        };
        let (kind, owed) = None
            .or_else(|| Some((Kind::Clusters, clusters.owed(variant, Kind::Clusters, |_| named)?)))
            .or_else(|| {
                let owed = endpoints.owed(variant, Kind::Endpoints, |name| clusters.has(name));
                Some((Kind::Endpoints, owed?))
            })
            .or_else(|| {
                let owed = gate.then(|| listeners.owed(variant, Kind::Listeners, |_| false))?;
                Some((Kind::Listeners, owed?))
            })?;
        self.nonces += 1;
        let nonce = self.nonces.to_string();
        let subscription = &mut self.subscriptions[kind as usize];
        subscription.nonce.clone_from(&nonce);
        subscription.pending = true;
        subscription.answered = true;
        Some(Response {
            kind,
            version: resources.version(kind),
            nonce,
            resources: owed.resources,
            removed: owed.removed,
        })
    }

    /// Whether the client has answered for everything that it was owed. Asked after [`next`](Self::next) had nothing.
    pub fn is_settled(&mut self, resources: &Resources) -> bool {
        let gated = self.is_gated(resources);
        let [clusters, _, listeners] = &self.subscriptions;
        let asked = clusters.asked || listeners.asked;
        asked && !gated && self.subscriptions.iter().all(|s| !s.pending)
    }

    /// Whether something waits for a request that may never come: listeners for one of endpoints, or clusters that are
    /// gone for one of listeners.
    pub fn is_gated(&mut self, resources: &Resources) -> bool {
        self.look(resources);
        let [clusters, _, listeners] = &self.subscriptions;
        let waits = match listeners.asked {
            true => listeners.is_behind() && !self.may_send_listeners(),
            false => clusters.asked && clusters.has_gone(),
        };
        !self.gate_lifted && waits
    }

    /// Whether the client goes on with other listeners than those that there are, since it refused these.
    pub fn has_refused(&self) -> bool {
        self.subscriptions[Kind::Listeners as usize].has_refused()
    }

    /// Sends the listeners again that were refused.
    pub fn retry(&mut self) {
        self.subscriptions[Kind::Listeners as usize].retry();
    }

    /// Sends what is owed without waiting any longer, until [`restore_gate`](Self::restore_gate).
    pub fn lift_gate(&mut self) {
        self.gate_lifted = true;
    }

    /// Waits again from the next update on.
    pub fn restore_gate(&mut self) {
        self.gate_lifted = false;
    }

    /// Takes note of what differs from the resources that were looked at before.
    fn look(&mut self, resources: &Resources) {
        for kind in Kind::ALL {
            self.subscriptions[kind as usize].look(resources.set(kind));
        }
    }

    fn may_send_listeners(&self) -> bool {
        let [clusters, endpoints, _] = &self.subscriptions;
        !clusters.asked
            || (clusters.is_settled()
                && (!endpoints.asked || (endpoints.is_settled() && endpoints.is_asked_for_all())))
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
