//! Answers of upstreams, kept in wire form.
//!
//! An [`Entry`] is a clean message as [`Reply::read`] leaves it, with the places of its TTLs. A hit copies
//! it and patches what differs between clients: id, flags, spelling, TTLs; [`Entry::write`] does that for
//! fresh answers as well, so that a cached one can differ from the first in nothing else. Entries outlive
//! their TTL: while no upstream answers, an old answer is better than none (RFC 8767). The bound is octets,
//! the least useful entries go first. Time is seconds on any clock that does not go back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use crate::wire::name::{Folded, MAX_NAME};
use crate::wire::query::Query;
use crate::wire::reply::Reply;
use crate::wire::writer::{ExtendedError, append_opt};
use crate::wire::{CLASS_IN, HEADER, Rcode, flag, read_u32};

/// For how long an old answer may stand in for upstreams that are gone.
const STALE: u32 = 86_400;
/// The TTL of an old answer, and the time for which no upstream is tried again on its account (RFC 8767, 5).
const STALE_TTL: u32 = 30;
/// For how long a failure is remembered (RFC 9520: at least a second).
const FAILURE: u32 = 2;
/// An answer that was asked for so often is fetched anew in the last tenth of its time.
const HOT: u32 = 3;
/// What an entry costs beside its octets, as measured: four allocations, its slot, its share of the index.
const OVERHEAD: usize = 450;

/// What an answer depends on: name, type, and whether DNSSEC records and unchecked data were asked for.
pub struct Key {
    octets: [u8; MAX_NAME + 3],
    len: usize,
}

impl Key {
    /// The key of a question.
    pub fn new(name: &Folded, kind: u16, dnssec_ok: bool, checking_disabled: bool) -> Key {
        let wire = name.wire();
        let len = wire.len() + 3;
        let mut octets = [0; MAX_NAME + 3];
        octets[..wire.len()].copy_from_slice(wire);
        octets[wire.len()..len - 1].copy_from_slice(&kind.to_be_bytes());
        octets[len - 1] = u8::from(dnssec_ok) | u8::from(checking_disabled) << 1;
        Key { octets, len }
    }

    /// The key of a parsed query.
    pub fn of(query: &Query<'_>) -> Key {
        let checking_disabled = query.flags & flag::CHECKING_DISABLED != 0;
        Key::new(
            &query.question.folded,
            query.question.kind,
            query.dnssec_ok(),
            checking_disabled,
        )
    }

    /// The key as octets.
    pub fn octets(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}

/// One kept answer.
#[derive(Debug)]
pub struct Entry {
    message: Box<[u8]>,
    ttls: Box<[u16]>,
    rcode: Rcode,
    error: Option<ExtendedError>,
    stored: u32,
    lifetime: u32,
    hits: AtomicU32,
    refreshing: AtomicBool,
    /// No upstream is tried before this time on account of this entry.
    rest_until: AtomicU32,
}

/// How old the data in an answer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// So many seconds, within their time.
    Fresh(u32),
    /// Past their time, for want of newer ones.
    Stale,
}

/// What the cache has for a question.
pub enum Hit {
    /// An answer within its time; `refresh` says that this caller should fetch it anew.
    Fresh {
        /// The answer.
        entry: Arc<Entry>,
        /// Seconds since it was stored.
        age: u32,
        /// It is hot and will soon end.
        refresh: bool,
    },
    /// An answer past its time, for the case that no upstream answers.
    Stale {
        /// The answer.
        entry: Arc<Entry>,
        /// Upstreams failed a moment ago: answer at once.
        resting: bool,
    },
    /// Nothing.
    Miss,
}

impl Entry {
    /// Keeps a reply as of `now`.
    pub fn new(reply: Reply, now: u32) -> Entry {
        let (lifetime, error) = match reply.rcode {
            Rcode::NOERROR | Rcode::NXDOMAIN => (reply.lifetime, None),
            _ => (
                FAILURE,
                Some(ExtendedError {
                    code: 0,
                    text: "the upstream answered with a failure",
                }),
            ),
        };
        Entry {
            // Copied to their size: shrinking the buffers they were built in would leave holes behind.
            message: reply.message.as_slice().into(),
            ttls: reply.ttls.as_slice().into(),
            rcode: reply.rcode,
            error,
            stored: now,
            lifetime,
            hits: AtomicU32::new(0),
            refreshing: AtomicBool::new(false),
            rest_until: AtomicU32::new(0),
        }
    }

    /// Keeps it for a moment that nobody answered a question.
    pub fn failure(name: &[u8], kind: u16, rcode: Rcode, error: ExtendedError, now: u32) -> Entry {
        let flags = flag::RESPONSE | flag::RECURSION_AVAILABLE | rcode.0 & 0xf;
        let mut message = vec![0, 0];
        message.extend(flags.to_be_bytes());
        message.extend([0, 1, 0, 0, 0, 0, 0, 0]);
        message.extend(name);
        message.extend(kind.to_be_bytes());
        message.extend(CLASS_IN.to_be_bytes());
        let reply = Reply {
            message,
            ttls: Vec::new(),
            lifetime: 0,
            rcode,
            edns: false,
        };
        Entry {
            error: Some(error),
            ..Entry::new(reply, now)
        }
    }

    /// The response code.
    pub fn rcode(&self) -> Rcode {
        self.rcode
    }

    /// It answers or denies; anything else is a failure of the upstreams.
    pub fn is_conclusive(&self) -> bool {
        matches!(self.rcode, Rcode::NOERROR | Rcode::NXDOMAIN)
    }

    /// Upstreams failed: do not try again for the next half minute on account of this old answer.
    pub fn rest(&self, now: u32) {
        self.rest_until.store(now.saturating_add(STALE_TTL), Relaxed);
    }

    /// The fetch that [`Hit::Fresh`] asked for has ended without a new answer: the next hit may try again.
    pub fn refresh_ended(&self) {
        self.refreshing.store(false, Relaxed);
    }

    /// Writes the answer for this client; gives its length, 0 where `out` is too small for the question.
    pub fn write(&self, out: &mut [u8], limit: usize, query: &Query<'_>, age: Age) -> usize {
        let question_end = HEADER + query.question.len();
        let limit = limit.min(out.len());
        let edns = query.edns.is_some();
        let fits = self.message.len() + if edns { 11 } else { 0 } <= limit;
        let mut len = if fits { self.message.len() } else { question_end };
        if len > out.len() || question_end > self.message.len() {
            return 0;
        }
        out[..len].copy_from_slice(&self.message[..len]);
        out[..2].copy_from_slice(&query.id.to_be_bytes());
        self.write_flags(out, query, !fits);
        // The spelling of this client; pointers to the question carry it into the records.
        out[HEADER..HEADER + query.question.name.len()].copy_from_slice(query.question.name);
        if fits {
            self.write_ttls(out, age);
        } else {
            out[6..10].fill(0);
        }
        if edns {
            let error = match age {
                Age::Stale => Some(ExtendedError {
                    code: 3,
                    text: "no upstream answers; this answer is old",
                }),
                Age::Fresh(_) => self.error,
            };
            let room = if fits { limit } else { out.len() };
            let opt = append_opt(&mut out[len..room], query.dnssec_ok(), self.rcode, error);
            out[11] = u8::from(opt > 0);
            len += opt;
        }
        len
    }

    fn write_flags(&self, out: &mut [u8], query: &Query<'_>, truncated: bool) {
        let mut flags = u16::from_be_bytes([out[2], out[3]]) & !flag::CHECKING_DISABLED;
        flags |= query.flags & (flag::RECURSION_DESIRED | flag::CHECKING_DISABLED);
        // AD is for those who asked for it in either way (RFC 6840, 5.8).
        if query.flags & flag::AUTHENTIC == 0 && !query.dnssec_ok() {
            flags &= !flag::AUTHENTIC;
        }
        if truncated {
            flags |= flag::TRUNCATED;
        }
        out[2..4].copy_from_slice(&flags.to_be_bytes());
    }

    fn write_ttls(&self, out: &mut [u8], age: Age) {
        if age == Age::Fresh(0) {
            return;
        }
        for &at in &self.ttls {
            let at = usize::from(at);
            let stored = read_u32(&self.message, at).unwrap_or(0);
            let ttl = match age {
                Age::Fresh(age) => stored.saturating_sub(age),
                Age::Stale => STALE_TTL,
            };
            out[at..at + 4].copy_from_slice(&ttl.to_be_bytes());
        }
    }
}

#[derive(Clone)]
struct ByOctets;

impl quick_cache::Weighter<Box<[u8]>, Arc<Entry>> for ByOctets {
    fn weight(&self, key: &Box<[u8]>, entry: &Arc<Entry>) -> u64 {
        (key.len() + entry.message.len() + 2 * entry.ttls.len() + OVERHEAD) as u64
    }
}

/// All kept answers, shared by all cores.
pub struct Cache {
    entries: quick_cache::sync::Cache<Box<[u8]>, Arc<Entry>, ByOctets>,
}

impl Cache {
    /// A cache of at most so many octets.
    pub fn new(octets: usize) -> Cache {
        let usual_entry = 600;
        Cache {
            entries: quick_cache::sync::Cache::with_weighter(octets / usual_entry, octets as u64, ByOctets),
        }
    }

    /// Looks a question up.
    pub fn find(&self, key: &Key, now: u32) -> Hit {
        let Some(entry) = self.entries.get(key.octets()) else {
            return Hit::Miss;
        };
        let age = now.saturating_sub(entry.stored);
        if age < entry.lifetime {
            let hits = entry.hits.load(Relaxed);
            entry.hits.store(hits.saturating_add(1), Relaxed); // a lost count does no harm
            let ending = entry.lifetime >= 10 && (entry.lifetime - age) * 10 <= entry.lifetime;
            let refresh = ending && hits >= HOT && !entry.refreshing.swap(true, Relaxed);
            return Hit::Fresh { entry, age, refresh };
        }
        if entry.is_conclusive() && age - entry.lifetime < STALE {
            let resting = now < entry.rest_until.load(Relaxed);
            return Hit::Stale { entry, resting };
        }
        Hit::Miss
    }

    /// Keeps an answer, unless it may not be kept at all.
    pub fn store(&self, key: &[u8], entry: &Arc<Entry>) {
        if entry.lifetime > 0 {
            self.entries.insert(key.into(), Arc::clone(entry));
        }
    }

    /// Forgets everything: other upstreams may answer otherwise.
    pub fn clear(&self) {
        self.entries.clear();
    }

    /// How many answers are kept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// None is kept.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Octets that they take, with an estimate of what each costs beside its message.
    pub fn octets(&self) -> u64 {
        self.entries.weight()
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
