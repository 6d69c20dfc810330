//! What one Envoy is owed: the state of one ADS stream. No socket, no clock.
//!
//! Requests go in by [`Stream::request`], responses come out of [`Stream::next`], for both variants of the
//! protocol. For each kind one response is on its way at a time; what changes in the meantime is in the next
//! one, so that a slow Envoy skips versions instead of queueing them.
//!
//! The order is make before break. Listeners wait until the clusters that they may name, and their endpoints,
//! were acknowledged; clusters that are gone stay until the listeners without them were acknowledged. If the
//! client never asks for some endpoints, [`Stream::lift_gate`] ends the wait.
//!
//! A resource that was refused (NACK) is not sent again until it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::resources::{Kind, Resource, Resources, Set};

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

#[derive(Debug, Default)]
struct Subscription {
    /// Whether the client ever asked for this kind.
    asked: bool,
    /// Whether it got an answer, be it empty.
    answered: bool,
    wildcard: bool,
    names: BTreeSet<String>,
    /// What the client has or refused, by name; `None` is "it was told that there is none".
    sent: BTreeMap<String, Option<Has>>,
    /// The nonce of the response on its way.
    pending: Option<String>,
}

/// A resource that a client has.
#[derive(Debug)]
struct Has {
    version: String,
    /// Unknown where the client brought it along.
    resource: Option<Arc<Resource>>,
}

impl Has {
    fn of(resource: &Arc<Resource>) -> Option<Self> {
        Some(Self {
            version: resource.version.clone(),
            resource: Some(resource.clone()),
        })
    }
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
        let variant = self.variant;
        let subscription = &mut self.subscriptions[kind as usize];
        let answers_pending =
            !request.nonce.is_empty() && subscription.pending.as_deref() == Some(&*request.nonce);
        if !request.nonce.is_empty() && !answers_pending && variant == Variant::StateOfTheWorld {
            return Verdict::Noted; // speaks of an older response: its names are outdated too
        }
        let verdict = match request.error.clone() {
            _ if !answers_pending => Verdict::Noted,
            Some(message) => Verdict::Refused(kind, message),
            None => Verdict::Accepted(kind),
        };
        if answers_pending {
            subscription.pending = None;
        }
        match variant {
            Variant::StateOfTheWorld => subscription.subscribe_to_exactly(kind, request, resources),
            Variant::Delta => subscription.change(kind, request),
        }
        verdict
    }

    /// The next response that can be sent, if any.
    pub fn next(&mut self, resources: &Resources) -> Option<Response> {
        let gate = self.gate_lifted || self.may_send_listeners(resources);
        let retained = self.retained_clusters(resources);
        for kind in Kind::ALL {
            if kind == Kind::Listeners && !gate {
                continue;
            }
            let retained = match kind {
                Kind::Clusters => &retained,
                Kind::Endpoints => &self.known_clusters(), // they go with their cluster
                Kind::Listeners => &BTreeSet::new(),
            };
            let subscription = &mut self.subscriptions[kind as usize];
            if let Some((resources_sent, removed)) =
                subscription.owed(self.variant, kind, resources, retained)
            {
                self.nonces += 1;
                let nonce = self.nonces.to_string();
                subscription.pending = Some(nonce.clone());
                subscription.answered = true;
                let version = resources.version(kind);
                return Some(Response {
                    kind,
                    version,
                    nonce,
                    resources: resources_sent,
                    removed,
                });
            }
        }
        None
    }

    /// Whether the client has answered for everything that it was owed. Asked after [`next`](Self::next) had nothing.
    pub fn is_settled(&self, resources: &Resources) -> bool {
        let [clusters, _, listeners] = &self.subscriptions;
        let asked = clusters.asked || listeners.asked;
        asked && !self.is_gated(resources) && self.subscriptions.iter().all(|s| s.pending.is_none())
    }

    /// Whether listeners wait for something that may never come.
    pub fn is_gated(&self, resources: &Resources) -> bool {
        let listeners = &self.subscriptions[Kind::Listeners as usize];
        !self.gate_lifted
            && listeners.is_behind(resources.set(Kind::Listeners))
            && !self.may_send_listeners(resources)
    }

    /// Sends listeners without waiting any longer, until [`restore_gate`](Self::restore_gate).
    pub fn lift_gate(&mut self) {
        self.gate_lifted = true;
    }

    /// Waits again from the next update on.
    pub fn restore_gate(&mut self) {
        self.gate_lifted = false;
    }

    fn may_send_listeners(&self, resources: &Resources) -> bool {
        let [clusters, endpoints, _] = &self.subscriptions;
        let settled = |subscription: &Subscription, kind| {
            subscription.pending.is_none() && !subscription.is_behind(resources.set(kind))
        };
        if !clusters.asked {
            return true;
        }
        let all_asked_for = || {
            resources
                .set(Kind::Endpoints)
                .keys()
                .all(|name| endpoints.wants(name))
        };
        settled(clusters, Kind::Clusters)
            && (!endpoints.asked || (settled(endpoints, Kind::Endpoints) && all_asked_for()))
    }

    /// Clusters that the client has, that are gone, and that its listeners may still name.
    fn retained_clusters(&self, resources: &Resources) -> BTreeSet<String> {
        let listeners = &self.subscriptions[Kind::Listeners as usize];
        let wanted = resources.set(Kind::Listeners);
        let has_gone = listeners
            .sent
            .iter()
            .any(|(name, sent)| sent.is_some() && !wanted.contains_key(name));
        let settled = listeners.pending.is_none() && !listeners.is_behind(wanted) && !has_gone;
        if !listeners.asked || settled {
            return BTreeSet::new();
        }
        let has = self.known_clusters().into_iter();
        has.filter(|name| !resources.set(Kind::Clusters).contains_key(name))
            .collect()
    }

    /// Clusters that the client has.
    fn known_clusters(&self) -> BTreeSet<String> {
        let clusters = &self.subscriptions[Kind::Clusters as usize];
        let has = clusters.sent.iter().filter(|(_, sent)| sent.is_some());
        has.map(|(name, _)| name.clone()).collect()
    }
}

impl Subscription {
    fn wants(&self, name: &str) -> bool {
        self.wildcard || self.names.contains(name)
    }

    /// Whether something that the client wants is newer than what it was sent.
    fn is_behind(&self, set: &Set) -> bool {
        self.asked
            && (!self.answered
                || set.values().any(|resource| {
                    self.wants(&resource.name) && self.version_of(&resource.name) != Some(&resource.version)
                }))
    }

    fn version_of(&self, name: &str) -> Option<&String> {
        self.sent
            .get(name)
            .and_then(Option::as_ref)
            .map(|has| &has.version)
    }

    fn subscribe_to_exactly(&mut self, kind: Kind, request: Request, resources: &Resources) {
        let first = !self.asked;
        self.asked = true;
        let names: BTreeSet<String> = request.subscribe.into_iter().collect();
        // No names in the first request mean all of them, except for endpoints, which are always named.
        self.wildcard =
            names.contains("*") || (names.is_empty() && (first || self.wildcard) && kind != Kind::Endpoints);
        self.sent.retain(|name, _| self.wildcard || names.contains(name));
        self.names = names;
        if first
            && !request.has_version.is_empty()
            && request.has_version == resources.version(kind)
            && self.wildcard
        {
            // The client comes back with all that there is.
            self.answered = true;
            self.sent = resources
                .set(kind)
                .values()
                .map(|r| (r.name.clone(), Has::of(r)))
                .collect();
        }
    }

    fn change(&mut self, kind: Kind, request: Request) {
        let first = !self.asked;
        if first {
            self.asked = true;
            self.wildcard = request.subscribe.is_empty() && kind != Kind::Endpoints;
            let has = request.has.into_iter();
            self.sent = has
                .map(|(name, version)| {
                    (
                        name,
                        Some(Has {
                            version,
                            resource: None,
                        }),
                    )
                })
                .collect();
        }
        for name in request.subscribe {
            if name == "*" {
                self.wildcard = true;
                continue;
            }
            // Asking again for a name means: tell me again.
            if !first {
                self.sent.remove(&name);
            }
            self.names.insert(name);
        }
        for name in request.unsubscribe {
            if name == "*" {
                self.wildcard = false;
            }
            self.names.remove(&name);
            if !self.wildcard {
                self.sent.remove(&name);
            }
        }
    }

    /// What the client lacks, noted as sent. `None` if nothing, or if a response is on its way.
    fn owed(
        &mut self,
        variant: Variant,
        kind: Kind,
        resources: &Resources,
        retained: &BTreeSet<String>,
    ) -> Option<(Vec<Arc<Resource>>, Vec<String>)> {
        if !self.asked || self.pending.is_some() {
            return None;
        }
        let set = resources.set(kind);
        let wanted: Vec<&Arc<Resource>> = if self.wildcard {
            set.values().collect()
        } else {
            self.names.iter().filter_map(|name| set.get(name)).collect()
        };
        let changed: Vec<Arc<Resource>> = wanted
            .iter()
            .filter(|r| self.version_of(&r.name) != Some(&r.version))
            .copied()
            .cloned()
            .collect();
        let gone = self
            .sent
            .iter()
            .filter(|(name, sent)| sent.is_some() && !set.contains_key(*name));
        let gone: Vec<String> = gone
            .map(|(name, _)| name)
            .filter(|name| !retained.contains(*name))
            .cloned()
            .collect();
        let absent = self
            .names
            .iter()
            .filter(|name| !set.contains_key(*name) && !self.sent.contains_key(*name));
        let absent: Vec<String> = absent.cloned().collect();
        // Listeners and clusters that are missing in a whole response are gone by that; endpoints go with clusters.
        let whole = variant == Variant::StateOfTheWorld && kind != Kind::Endpoints;
        let matters = !changed.is_empty()
            || !self.answered
            || (!gone.is_empty() && (whole || variant == Variant::Delta))
            || (!absent.is_empty() && variant == Variant::Delta);
        if !matters {
            return None;
        }
        // A whole response removes what it does not hold: what must stay for a moment is put in again.
        let kept: Vec<Arc<Resource>> = if whole { self.bodies(retained) } else { Vec::new() };
        for name in gone.iter().chain(&absent) {
            // Who asked for it by name is told once; a wildcard forgets it.
            match self.names.contains(name) {
                true => self.sent.insert(name.clone(), None),
                false => self.sent.remove(name),
            };
        }
        for resource in &changed {
            self.sent.insert(resource.name.clone(), Has::of(resource));
        }
        let resources = if whole {
            wanted.into_iter().cloned().chain(kept).collect()
        } else {
            changed
        };
        let removed = if variant == Variant::Delta {
            [gone, absent].concat()
        } else {
            Vec::new()
        };
        Some((resources, removed))
    }

    fn bodies(&self, names: &BTreeSet<String>) -> Vec<Arc<Resource>> {
        let sent = names.iter().filter_map(|name| self.sent.get(name)?.as_ref());
        sent.filter_map(|has| has.resource.clone()).collect()
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
