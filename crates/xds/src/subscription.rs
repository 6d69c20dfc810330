//! What one Envoy was sent of one kind, and what it lacks.
//!
//! The work is in proportion to what changed: [`Subscription::look`] notes the names that differ between the set that
//! was looked at before and the one now, and everything else is asked of those names alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::resources::{Kind, Resource, Set};
use crate::stream::{Request, Variant};

/// One kind of one stream.
#[derive(Debug, Default)]
pub(crate) struct Subscription {
    /// Whether the client ever asked for this kind.
    pub(crate) asked: bool,
    /// Whether it got an answer, be it empty.
    pub(crate) answered: bool,
    /// The nonce of the last response.
    pub(crate) nonce: String,
    /// Whether that response is on its way.
    pub(crate) pending: bool,
    /// What that response is about.
    in_flight: Vec<String>,
    /// What the client refused: it has what was before, or nothing. The next response holds it again, so that an
    /// answer always stands for all of the kind.
    refused: Vec<String>,
    wildcard: bool,
    names: BTreeSet<String>,
    /// What the client has or refused, by name; `None` is "it was told that there is none".
    sent: BTreeMap<String, Option<Has>>,
    /// What there is.
    seen: Arc<Set>,
    /// The names for which what the client has may not be what there is. Those that it did not ask for stay until it
    /// does.
    due: BTreeSet<Arc<str>>,
}

/// What is owed at once.
#[derive(Debug)]
pub(crate) struct Owed {
    /// New and changed, or all of them.
    pub(crate) resources: Vec<Arc<Resource>>,
    /// Delta: gone.
    pub(crate) removed: Vec<String>,
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

impl Subscription {
    /// Takes note of what there is now.
    pub(crate) fn look(&mut self, set: &Arc<Set>) {
        if !Arc::ptr_eq(&self.seen, set) {
            let changed = set.differences(&self.seen).map(|one| one.name.clone());
            self.due.extend(changed);
            self.seen = set.clone();
        }
    }

    /// The last response was answered.
    pub(crate) fn answered(&mut self, refused: bool) {
        self.pending = false;
        let in_flight = std::mem::take(&mut self.in_flight);
        self.refused = if refused { in_flight } else { Vec::new() };
    }

    /// Whether the client refused something, and so still has what was before it.
    pub(crate) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Lets be sent again what was refused.
    pub(crate) fn retry(&mut self) {
        for name in std::mem::take(&mut self.refused) {
            if let Some(Some(has)) = self.sent.get_mut(&name) {
                has.version.clear();
            }
            self.due.insert(name.into());
        }
    }

    /// Whether the client has this resource.
    pub(crate) fn has(&self, name: &str) -> bool {
        matches!(self.sent.get(name), Some(Some(_)))
    }

    /// Whether something that the client wants is newer than what it was sent.
    pub(crate) fn is_behind(&self) -> bool {
        self.asked && (!self.answered || self.changed().next().is_some())
    }

    /// Whether the client has answered for everything that is new.
    pub(crate) fn is_settled(&self) -> bool {
        !self.pending && !self.is_behind()
    }

    /// Whether the client has something that is gone.
    pub(crate) fn has_gone(&self) -> bool {
        self.gone().next().is_some()
    }

    /// Whether there is nothing that the client did not ask for.
    pub(crate) fn is_asked_for_all(&self) -> bool {
        !self
            .due
            .iter()
            .any(|name| self.seen.contains_key(name) && !self.wants(name))
    }

    fn wants(&self, name: &str) -> bool {
        self.wildcard || self.names.contains(name)
    }

    fn version_of(&self, name: &str) -> Option<&String> {
        let has = self.sent.get(name).and_then(Option::as_ref);
        has.map(|has| &has.version)
    }

    fn changed(&self) -> impl Iterator<Item = &Arc<Resource>> {
        let there = self.due.iter().filter_map(|name| self.seen.get(name));
        there.filter(|one| self.wants(&one.name) && self.version_of(&one.name) != Some(&one.version))
    }

    fn gone(&self) -> impl Iterator<Item = &Arc<str>> {
        let gone = self.due.iter().filter(|name| !self.seen.contains_key(name));
        gone.filter(|name| self.has(name))
    }

    /// Names that the client asked for and does not know to be missing.
    fn absent(&self) -> impl Iterator<Item = &Arc<str>> {
        let absent = self.due.iter().filter(|name| !self.seen.contains_key(name));
        absent.filter(|name| self.names.contains(&***name) && !self.sent.contains_key(&***name))
    }

    /// Looks at every name again: what the client wants has changed.
    fn all_due(&mut self) {
        self.due.extend(self.seen.keys().cloned());
        let known = self.sent.keys().chain(&self.names);
        self.due.extend(known.map(|name| Arc::from(name.as_str())));
    }

    /// State of the world: a request names all that is wanted. `version` is that of everything there is.
    pub(crate) fn subscribe_to_exactly(&mut self, kind: Kind, request: Request, version: &str) {
        let first = !self.asked;
        self.asked = true;
        let names: BTreeSet<String> = request.subscribe.into_iter().collect();
        // No names in the first request mean all of them, except for endpoints, which are always named.
        let wildcard =
            names.contains("*") || (names.is_empty() && (first || self.wildcard) && kind != Kind::Endpoints);
        if !first && wildcard == self.wildcard && names == self.names {
            return;
        }
        self.wildcard = wildcard;
        self.sent.retain(|name, _| wildcard || names.contains(name));
        self.names = names;
        if first && !request.has_version.is_empty() && request.has_version == version && self.wildcard {
            // The client comes back with all that there is.
            self.answered = true;
            let all = self.seen.values();
            self.sent = all.map(|one| (one.name.clone(), Has::of(one))).collect();
        }
        self.all_due();
    }

    /// Delta: a request says what else is wanted, and what is not any more.
    pub(crate) fn change(&mut self, kind: Kind, request: Request) {
        let first = !self.asked;
        if first {
            self.asked = true;
            self.wildcard = request.subscribe.is_empty() && kind != Kind::Endpoints;
            let brought = |version| Has {
                version,
                resource: None,
            };
            let has = request.has.into_iter();
            self.sent = has
                .map(|(name, version)| (name, Some(brought(version))))
                .collect();
        }
        let wildcard = self.wildcard;
        for name in request.subscribe {
            if name == "*" {
                self.wildcard = true;
                continue;
            }
            // Asking again for a name means: tell me again.
            if !first {
                self.sent.remove(&name);
            }
            self.due.insert(name.as_str().into());
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
            self.due.insert(name.into());
        }
        if first || self.wildcard != wildcard {
            self.all_due();
        }
    }

    /// What the client lacks, noted as sent. `None` if nothing, or if a response is on its way. What is gone
    /// stays with the client for as long as it is `retained`.
    pub(crate) fn owed(
        &mut self,
        variant: Variant,
        kind: Kind,
        retained: impl Fn(&str) -> bool,
    ) -> Option<Owed> {
        if !self.asked || self.pending {
            return None;
        }
        let mut changed: Vec<Arc<Resource>> = self.changed().cloned().collect();
        let name = |name: &Arc<str>| name.to_string();
        let gone: Vec<String> = self.gone().filter(|name| !retained(name)).map(name).collect();
        let absent: Vec<String> = self.absent().map(name).collect();
        // Listeners and clusters that are missing in a whole response are gone by that; endpoints go with clusters.
        let whole = variant == Variant::StateOfTheWorld && kind != Kind::Endpoints;
        let matters = !changed.is_empty()
            || !self.answered
            || (!gone.is_empty() && (whole || variant == Variant::Delta))
            || (!absent.is_empty() && variant == Variant::Delta);
        if !matters {
            return None;
        }
        if self.has_refused() {
            self.retry();
            changed = self.changed().cloned().collect();
        }
        // A whole response removes what it does not hold: what must stay for a moment is put in again.
        let kept = if whole {
            self.bodies_of_gone(retained)
        } else {
            Vec::new()
        };
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
        self.forget_what_is_done();
        let removed = [gone, absent].concat();
        let resources: Vec<Arc<Resource>> = if whole {
            self.wanted().chain(kept).collect()
        } else {
            changed
        };
        let names = resources.iter().map(|one| &one.name).chain(&removed);
        self.in_flight = names.cloned().collect();
        Some(Owed {
            resources,
            removed: if variant == Variant::Delta {
                removed
            } else {
                Vec::new()
            },
        })
    }

    fn wanted(&self) -> Box<dyn Iterator<Item = Arc<Resource>> + '_> {
        match self.wildcard {
            true => Box::new(self.seen.values().cloned()),
            false => Box::new(self.names.iter().filter_map(|name| self.seen.get(name)).cloned()),
        }
    }

    /// Names are due no longer where the client has what there is, or knows that there is nothing.
    fn forget_what_is_done(&mut self) {
        let mut due = std::mem::take(&mut self.due);
        due.retain(|name| match self.seen.get(name) {
            Some(one) => !self.wants(name) || self.version_of(name) != Some(&one.version),
            None => self.has(name),
        });
        self.due = due;
    }

    fn bodies_of_gone(&self, retained: impl Fn(&str) -> bool) -> Vec<Arc<Resource>> {
        let gone = self
            .sent
            .iter()
            .filter(|(name, _)| !self.seen.contains_key(name) && retained(name));
        gone.filter_map(|(_, sent)| sent.as_ref()?.resource.clone())
            .collect()
    }
}
