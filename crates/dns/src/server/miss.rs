//! A question that must be asked of an upstream, as a task of its core.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Serving;
use super::handler::{Handler, Origin};
use crate::cache::{Age, Entry, Key};
use crate::upstream::exchange::{NoAnswer, exchange};
use crate::upstream::in_flight::{Lead, Part};
use crate::upstream::transport::Ask;
use crate::view::ViewKind;
use crate::wire::query::Query;
use crate::wire::writer::ExtendedError;
use crate::wire::{Rcode, TCP_LIMIT, flag};

/// An old answer leaves when the upstreams have not answered after this time (RFC 8767, 5).
const STALE_AFTER: Duration = Duration::from_millis(1800);
/// Who waits for another's answer waits a little longer than that one does.
const FOLLOW: Duration = Duration::from_secs(6);

/// A question on its way to an upstream, with all that its answer needs.
pub(super) struct Miss {
    serving: Arc<Serving>,
    group: usize,
    message: Box<[u8]>,
    origin: Origin,
    view: ViewKind,
    stale: Option<Arc<Entry>>,
}

thread_local! {
    /// Where answers are written that do not go into a batch; none is kept over a wait.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; TCP_LIMIT]);
}

/// Lends this core's buffer, which holds any message.
pub(super) fn with_scratch<T>(write: impl FnOnce(&mut [u8]) -> T) -> T {
    SCRATCH.with_borrow_mut(|out| write(out))
}

impl Miss {
    pub(super) fn new(
        serving: &Arc<Serving>,
        group: usize,
        message: &[u8],
        origin: Origin,
        view: ViewKind,
        stale: Option<Arc<Entry>>,
    ) -> Miss {
        Miss {
            serving: Arc::clone(serving),
            group,
            message: message.into(),
            origin,
            view,
            stale,
        }
    }

    /// Asks, and hands the answer to `reply` as soon as there is one.
    pub(super) async fn resolve(self, handler: &Handler, reply: impl FnOnce(&[u8])) {
        let Ok(query) = Query::parse(&self.message) else {
            return;
        };
        let key = Key::of(&query);
        let answer = self.ask(handler, &query, &key);
        let mut answer = pin!(answer);
        let Some(stale) = &self.stale else {
            let entry = answer.await;
            return self.answer(handler, &query, &entry, Age::Fresh(0), reply);
        };
        match timeout(STALE_AFTER, &mut answer).await {
            Ok(entry) if entry.is_conclusive() => self.answer(handler, &query, &entry, Age::Fresh(0), reply),
            Ok(_) => self.answer(handler, &query, stale, Age::Stale, reply),
            Err(_) => {
                self.answer(handler, &query, stale, Age::Stale, reply);
                answer.await; // a late answer is good for the next client
            }
        }
    }

    /// Fetches the answer for the cache alone, before the old one ends.
    pub(super) async fn refresh(self, handler: &Handler) {
        let Ok(query) = Query::parse(&self.message) else {
            return;
        };
        let entry = self.ask(handler, &query, &Key::of(&query)).await;
        if let Some(old) = &self.stale
            && !entry.is_conclusive()
        {
            old.refresh_ended();
        }
    }

    async fn ask(&self, handler: &Handler, query: &Query<'_>, key: &Key) -> Arc<Entry> {
        let error = ExtendedError {
            code: 22,
            text: "no upstream answered in time",
        };
        match handler.shared.in_flight.join(key.octets()) {
            Part::Lead(lead) => self.lead(handler, query, lead).await,
            Part::Follow(answer) => match timeout(FOLLOW, answer).await {
                Ok(Ok(entry)) => entry,
                _ => Arc::new(self.failure(query, Rcode::SERVFAIL, error, 0)),
            },
        }
    }

    async fn lead(&self, handler: &Handler, query: &Query<'_>, lead: Lead) -> Arc<Entry> {
        let shared = &handler.shared;
        let ask = Ask {
            name: query.question.folded.wire().into(),
            kind: query.question.kind,
            dnssec_ok: query.dnssec_ok(),
            checking_disabled: query.flags & flag::CHECKING_DISABLED != 0,
            cap: self.serving.horizon.config().cache_ttl,
        };
        let group = &self.serving.groups.groups[self.group];
        let outcome = exchange(&handler.transport, group, &ask, &shared.clock, &*handler.notice).await;
        let now = shared.clock.seconds();
        let entry = Arc::new(match outcome {
            Ok(reply) => Entry::new(reply, now),
            Err(NoAnswer::Nobody) => {
                let error = ExtendedError {
                    code: 20,
                    text: "there is no upstream to ask for this name",
                };
                self.failure(query, Rcode::REFUSED, error, now)
            }
            Err(NoAnswer::Silence) => {
                let error = ExtendedError {
                    code: 22,
                    text: "no upstream answered in time",
                };
                self.failure(query, Rcode::SERVFAIL, error, now)
            }
        });
        match &self.stale {
            // A failure never takes the place of an old answer.
            Some(stale) if !entry.is_conclusive() => stale.rest(now),
            _ => self.store(handler, &lead, &entry),
        }
        lead.finish(&entry);
        entry
    }

    /// Keeps the answer, unless it came from upstreams that have been replaced meanwhile.
    fn store(&self, handler: &Handler, lead: &Lead, entry: &Arc<Entry>) {
        let forwards = &self.serving.horizon.config().forwards;
        let current = handler.shared.serving();
        if current.is_some_and(|current| current.horizon.config().forwards == *forwards) {
            handler.shared.cache.store(lead.key(), entry);
        }
    }

    fn failure(&self, query: &Query<'_>, rcode: Rcode, error: ExtendedError, now: u32) -> Entry {
        Entry::failure(query.question.name, query.question.kind, rcode, error, now)
    }

    fn answer(
        &self,
        handler: &Handler,
        query: &Query<'_>,
        entry: &Entry,
        age: Age,
        reply: impl FnOnce(&[u8]),
    ) {
        if age == Age::Stale {
            handler.counters().cache_stale.bump();
        }
        handler.count(query, self.origin, self.view, entry.rcode());
        let limit = if self.origin.datagram {
            query.udp_limit()
        } else {
            TCP_LIMIT
        };
        with_scratch(|out| {
            let length = entry.write(out, limit, query, age);
            reply(&out[..length]);
        });
    }
}

/// Counts a task as outstanding for as long as it lives.
pub(super) struct Outstanding(Rc<Handler>);

impl Outstanding {
    pub(super) fn new(handler: &Rc<Handler>) -> Outstanding {
        handler.outstanding.set(handler.outstanding.get() + 1);
        Outstanding(Rc::clone(handler))
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.0.outstanding.set(self.0.outstanding.get().saturating_sub(1));
    }
}
