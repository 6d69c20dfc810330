//! From a message to its answer, on one core.
//!
//! [`Handler::handle`] answers at once what can be: own names, refusals, hits in the cache. What must be
//! asked of an upstream comes back as a [`Miss`], which the caller turns into a task.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use super::miss::Miss;
use super::rate_limit::Allowance;
use super::{Serving, Shared};
use crate::answer::{self, Decision, Refusal};
use crate::cache::{Age, Hit, Key};
use crate::metrics::Counters;
use crate::upstream::exchange::Notice;
use crate::upstream::transport::Transport;
use crate::view::ViewKind;
use crate::wire::name::Text;
use crate::wire::query::{Query, Rejection};
use crate::wire::writer::Writer;
use crate::wire::{Rcode, TCP_LIMIT, flag, kind};

/// Questions that may wait for upstreams on one core. More are turned away: memory is bounded.
const OUTSTANDING: usize = 4096;

/// What one core answers with.
pub(super) struct Handler {
    pub(super) shared: Arc<Shared>,
    pub(super) core: usize,
    pub(super) transport: Rc<Transport>,
    pub(super) notice: Rc<dyn Notice>,
    pub(super) outstanding: Cell<usize>,
    turn: Cell<usize>,
    logged: Cell<u32>,
}

/// Where a message came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    /// The address asked.
    pub(super) asked: IpAddr,
    /// The client.
    pub(super) client: SocketAddr,
    /// It came in a datagram, whose sender nobody has proven.
    pub(super) datagram: bool,
}

/// What becomes of a message.
pub(super) enum Outcome {
    /// The answer of this length leaves.
    Answer(usize),
    /// It leaves, and the same question is asked anew for the cache.
    AnswerAndRefresh(usize, Miss),
    /// No answer leaves.
    Silence,
    /// An answer leaves later.
    Later(Miss),
}

impl Handler {
    pub(super) fn new(
        shared: Arc<Shared>,
        core: usize,
        transport: Rc<Transport>,
        notice: Rc<dyn Notice>,
    ) -> Handler {
        Handler {
            turn: Cell::new(core), // cores begin at different addresses
            logged: Cell::new(0),
            outstanding: Cell::new(0),
            shared,
            core,
            transport,
            notice,
        }
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.shared.counters[self.core]
    }

    /// Answers one message, into `out`, which holds 1232 octets for a datagram and any message else.
    pub(super) fn handle(
        &self,
        serving: &Arc<Serving>,
        message: &[u8],
        origin: Origin,
        out: &mut [u8],
        now: u32,
    ) -> Outcome {
        let query = match Query::parse(message) {
            Ok(query) => query,
            Err(Rejection::Silence(_)) => {
                self.counters().silent.bump();
                return Outcome::Silence;
            }
            Err(Rejection::Code {
                rcode,
                question,
                edns,
            }) => {
                self.counters().malformed.bump();
                // Nobody who sends this would come by TCP.
                if self.allowance(origin) != Allowance::Answer {
                    self.counters().rate_limited.bump();
                    return Outcome::Silence;
                }
                return Outcome::Answer(Writer::reject(out, message, question, rcode, edns));
            }
        };
        if let Some(outcome) = self.limit(&query, origin, out) {
            return outcome;
        }
        let limit = if origin.datagram {
            query.udp_limit()
        } else {
            TCP_LIMIT
        };
        let view = match serving.horizon.view(origin.asked, origin.client.ip()) {
            Ok(view) => view,
            Err(kind) => {
                self.count(&query, origin, kind, Rcode::REFUSED);
                return Outcome::Answer(answer::refuse(out, limit, &query, Refusal::Client, false));
            }
        };
        let recursion = !view.forwards.is_empty();
        match answer::decide(&view, &query) {
            Decision::Own(zone, found) => {
                let turn = self.turn.get();
                // Not at each question: between two of a client that asks for A and AAAA by turns it would
                // come round.
                if answer::takes_turns(found, query.question.kind) {
                    self.turn.set(turn.wrapping_add(1));
                }
                let (rcode, length) = answer::write(out, limit, &query, (zone, found), recursion, turn);
                self.count(&query, origin, view.kind, rcode);
                Outcome::Answer(length)
            }
            Decision::Refuse(refusal) => {
                self.count(&query, origin, view.kind, Rcode::REFUSED);
                Outcome::Answer(answer::refuse(out, limit, &query, refusal, recursion))
            }
            Decision::Forward(_) if query.question.kind == kind::ANY => {
                self.count(&query, origin, view.kind, Rcode::NOERROR);
                let cap = serving.horizon.config().cache_ttl;
                Outcome::Answer(answer::any(out, limit, &query, cap))
            }
            Decision::Forward(group) => {
                let miss = |stale| Miss::new(serving, group, message, origin, view.kind, stale);
                self.forward(&query, origin, view.kind, out, limit, now, miss)
            }
        }
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "the parts of one question, called from one place"
    )]
    fn forward(
        &self,
        query: &Query<'_>,
        origin: Origin,
        view: ViewKind,
        out: &mut [u8],
        limit: usize,
        now: u32,
        miss: impl FnOnce(Option<Arc<crate::cache::Entry>>) -> Miss,
    ) -> Outcome {
        if self.shared.probes.caught(query.question.folded.wire()) {
            self.count(query, origin, view, Rcode::REFUSED);
            return Outcome::Answer(answer::fail(out, limit, query, Rcode::REFUSED, true, None));
        }
        match self.shared.cache.find(&Key::of(query), now) {
            Hit::Fresh { entry, age, refresh } => {
                self.counters().cache_hits.bump();
                self.count(query, origin, view, entry.rcode());
                let length = entry.write(out, limit, query, Age::Fresh(age));
                if refresh && self.outstanding.get() < OUTSTANDING {
                    self.counters().prefetches.bump();
                    return Outcome::AnswerAndRefresh(length, miss(Some(entry)));
                }
                Outcome::Answer(length)
            }
            Hit::Stale { entry, resting } if resting || self.outstanding.get() >= OUTSTANDING => {
                self.counters().cache_stale.bump();
                self.count(query, origin, view, entry.rcode());
                Outcome::Answer(entry.write(out, limit, query, Age::Stale))
            }
            Hit::Stale { entry, .. } => Outcome::Later(miss(Some(entry))),
            Hit::Miss if self.outstanding.get() >= OUTSTANDING => {
                self.counters().overloaded.bump();
                self.count(query, origin, view, Rcode::SERVFAIL);
                Outcome::Answer(answer::fail(out, limit, query, Rcode::SERVFAIL, true, None))
            }
            Hit::Miss => {
                self.counters().cache_misses.bump();
                Outcome::Later(miss(None))
            }
        }
    }

    /// What the rate limit leaves of an answer. Over a connection it does not count: that client is proven.
    fn allowance(&self, origin: Origin) -> Allowance {
        match &self.shared.limiter {
            Some(limiter) if origin.datagram => limiter.take(origin.client.ip(), self.shared.clock.millis()),
            _ => Allowance::Answer,
        }
    }

    /// What the rate limit makes of a question; nothing where it may be answered.
    fn limit(&self, query: &Query<'_>, origin: Origin, out: &mut [u8]) -> Option<Outcome> {
        match self.allowance(origin) {
            Allowance::Answer => None,
            Allowance::Truncate => {
                self.counters().rate_limited.bump();
                let writer = Writer::answer(out, 512, query, flag::TRUNCATED, Rcode::NOERROR);
                Some(Outcome::Answer(writer.finish(query, Rcode::NOERROR, None)))
            }
            Allowance::Drop => {
                self.counters().rate_limited.bump();
                Some(Outcome::Silence)
            }
        }
    }

    /// Counts an answer, and logs it if it is its turn.
    pub(super) fn count(&self, query: &Query<'_>, origin: Origin, view: ViewKind, rcode: Rcode) {
        self.counters().answered(view, query.question.kind, rcode);
        let Some(every) = self.shared.options.query_log else {
            return;
        };
        let logged = self.logged.get();
        self.logged.set(if logged + 1 >= every { 0 } else { logged + 1 });
        if logged == 0 {
            tracing::info!(
                target: "oooi_dns::query",
                client = %origin.client,
                view = view.label(),
                name = %Text(query.question.name),
                kind = query.question.kind,
                rcode = rcode.0,
                "query"
            );
        }
    }
}
