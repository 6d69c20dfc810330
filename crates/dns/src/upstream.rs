//! Asking other resolvers.
//!
//! [`Groups`] are the configuration's lists of upstreams with the state that outlives a change of the
//! configuration: [`Member`]s with their health. [`exchange`] asks one group one question: the members in
//! the order of its policy, one after the other as their patience runs out, the first good answer wins.
//! Underneath, [`udp`] keeps connected sockets on random ports and [`stream`] keeps connections for TCP
//! and TLS. [`in_flight`] sees that a question that is being asked already is not asked again, [`probe`]
//! brings lost upstreams back and finds those that only ask us in turn.

pub mod exchange;
pub mod health;
pub mod in_flight;
mod pending;
pub mod probe;
mod random;
mod stream;
pub mod system;
mod tls;
pub mod transport;
mod udp;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::RwLock;

use crate::config::{Config, Upstream, UpstreamPolicy};
use crate::metrics::Histogram;
use crate::wire::name::{self, Name};

use self::health::Health;

/// Where an upstream is and how it is spoken to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// UDP, and TCP where an answer does not fit.
    Plain(SocketAddr),
    /// TLS, with the name in its certificate.
    Tls(SocketAddr, Option<String>),
}

impl Target {
    /// Its address.
    pub fn address(&self) -> SocketAddr {
        match self {
            Target::Plain(address) | Target::Tls(address, _) => *address,
        }
    }
}

/// One upstream and how it does.
#[derive(Debug)]
pub struct Member {
    /// Where it is.
    pub target: Target,
    /// Its name in logs and metrics.
    pub label: String,
    /// How it does.
    pub health: Health,
    /// It stumbles over EDNS: until then, in milliseconds, it is asked without.
    plain_until: AtomicU64,
    /// Zones of which it asked us what we asked it.
    loops: RwLock<Vec<Name>>,
    /// How long its answers took.
    pub latency: Histogram,
    /// Questions that it did not answer.
    pub failures: AtomicU64,
}

impl Member {
    fn new(target: Target, label: String) -> Member {
        Member {
            target,
            label,
            health: Health::default(),
            plain_until: AtomicU64::new(0),
            loops: RwLock::default(),
            latency: Histogram::default(),
            failures: AtomicU64::new(0),
        }
    }

    /// Would it only ask us in turn for this lower-case name?
    pub fn loops_for(&self, name: &[u8]) -> bool {
        self.loops
            .read()
            .iter()
            .any(|zone| name::is_within(name, zone.wire()))
    }

    /// Does it ask us in turn for some zone?
    pub fn is_looping(&self) -> bool {
        !self.loops.read().is_empty()
    }

    /// Notes whether it asks us in turn for a zone; true where that is news.
    fn set_loop(&self, zone: &Name, looped: bool) -> bool {
        let mut loops = self.loops.write();
        let known = loops.contains(zone);
        match (known, looped) {
            (false, true) => loops.push(zone.clone()),
            (true, false) => loops.retain(|other| other != zone),
            _ => {}
        }
        known != looped
    }

    /// Is it asked with EDNS now?
    fn takes_edns(&self, now: u64) -> bool {
        now >= self.plain_until.load(Relaxed)
    }

    /// Notes that it answers without EDNS what it does not answer with it. Not for good: it may have been a
    /// device on the way, and what speaks no EDNS carries no DNSSEC.
    fn leave_edns_out(&self, now: u64) {
        self.plain_until.store(now + PLAIN_PAUSE, Relaxed);
    }

    /// Notes an answer.
    pub fn answered(&self, round_trip: Duration) -> health::Change {
        self.latency.observe(round_trip);
        self.health.answered(round_trip)
    }

    /// Notes that none came.
    pub fn failed(&self, now: u64) -> health::Change {
        self.failures.fetch_add(1, Relaxed);
        self.health.failed(now)
    }
}

/// A list of upstreams for one zone.
#[derive(Debug)]
pub struct Group {
    /// The zone.
    pub zone: Name,
    /// In which order they are asked.
    pub policy: UpstreamPolicy,
    /// The upstreams; none where `system` has none.
    pub members: Vec<Arc<Member>>,
    turn: AtomicUsize,
}

impl Group {
    /// The members in the order in which to ask them for a lower-case name: by the policy, those that are
    /// out last, and those that would only ask us in turn not at all.
    pub fn order(&self, name: &[u8]) -> Vec<usize> {
        let count = self.members.len();
        let mut order: Vec<usize> = (0..count)
            .filter(|&at| !self.members[at].loops_for(name))
            .collect();
        match self.policy {
            UpstreamPolicy::Sequential => {}
            UpstreamPolicy::RoundRobin if !order.is_empty() => {
                let turn = self.turn.fetch_add(1, Relaxed) % order.len();
                order.rotate_left(turn);
            }
            UpstreamPolicy::RoundRobin => {}
            // One that was never measured counts as fast, so that it is measured. Every so often another
            // one than the fastest goes first: it may have become faster.
            UpstreamPolicy::Fastest => {
                order.sort_by_key(|&at| self.members[at].health.round_trip());
                let turn = self.turn.fetch_add(1, Relaxed);
                if turn % EXPLORE == EXPLORE - 1 && order.len() > 1 {
                    let other = 1 + turn / EXPLORE % (order.len() - 1);
                    order.swap(0, other);
                }
            }
        }
        order.sort_by_key(|&at| !self.members[at].health.is_up());
        order
    }
}

/// For how long an upstream that stumbles over EDNS is asked without, in milliseconds.
const PLAIN_PAUSE: u64 = 300_000;
/// One question in so many measures an upstream that is not the fastest.
const EXPLORE: usize = 64;

/// All groups of one configuration, in its order.
#[derive(Debug, Default)]
pub struct Groups {
    /// As in the configuration.
    pub groups: Vec<Group>,
}

impl Groups {
    /// The groups of a configuration. Members that `known` has keep their state; `system` are the
    /// resolvers of the host.
    pub fn build(config: &Config, system: &[SocketAddr], known: &mut HashMap<Target, Arc<Member>>) -> Groups {
        let mut used = HashMap::new();
        let mut member = |target: Target, label: String| {
            let member = known.get(&target).cloned();
            let member = member.unwrap_or_else(|| Arc::new(Member::new(target.clone(), label)));
            Arc::clone(used.entry(target).or_insert(member))
        };
        let groups = config
            .forwards
            .iter()
            .map(|forward| {
                let mut members: Vec<Arc<Member>> = Vec::new();
                for upstream in &forward.upstreams {
                    let targets: Vec<Target> = match upstream {
                        Upstream::System => system.iter().copied().map(Target::Plain).collect(),
                        Upstream::Plain(address) => vec![Target::Plain(*address)],
                        Upstream::Tls { address, name } => vec![Target::Tls(*address, name.clone())],
                    };
                    for target in targets {
                        let label = match upstream {
                            Upstream::System => target.address().to_string(),
                            other => other.to_string(),
                        };
                        let member = member(target, label);
                        if !members.iter().any(|known| known.target == member.target) {
                            members.push(member);
                        }
                    }
                }
                Group {
                    zone: forward.zone.clone(),
                    policy: forward.policy,
                    members,
                    turn: AtomicUsize::new(0),
                }
            })
            .collect();
        *known = used;
        Groups { groups }
    }

    /// Every upstream once.
    pub fn members(&self) -> impl Iterator<Item = &Arc<Member>> {
        let all: Vec<&Arc<Member>> = self.groups.iter().flat_map(|group| &group.members).collect();
        let mut seen = std::collections::HashSet::new();
        all.into_iter().filter(move |member| seen.insert(&member.target))
    }
}

#[cfg(test)]
#[path = "upstream/order_tests.rs"]
mod tests;
