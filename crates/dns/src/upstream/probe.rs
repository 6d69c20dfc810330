//! Bringing lost upstreams back, and finding those that only ask us in turn.
//!
//! A lost upstream gets a question when its pause is over; any answer brings it back. A loop is found by a
//! name that nobody else can know: if it comes in as a question that we would forward, the upstream that
//! got it from us sends our questions back to us. For that zone it is left out until a later probe does not
//! come back; other names it may well know.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::exchange::Notice;
use super::pending::Trouble;
use super::transport::{Ask, By, Transport};
use super::{Groups, Member, Target};
use crate::clock::Clock;
use crate::wire::kind;
use crate::wire::name::Name;

/// For how long a probe waits.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often an upstream in a loop is tried again, in milliseconds.
const LOOP_PAUSE: u64 = 30_000;

/// Names that were sent out to see whether they come back.
#[derive(Default)]
pub struct LoopProbes {
    active: AtomicUsize,
    sent: Mutex<HashMap<Name, Arc<AtomicBool>>>,
}

impl LoopProbes {
    /// A question that would be forwarded: true where it is a probe that came back.
    pub fn caught(&self, name: &[u8]) -> bool {
        if self.active.load(Relaxed) == 0 {
            return false;
        }
        let sent = self.sent.lock();
        let Some(seen) = sent.get(name) else { return false };
        seen.store(true, Relaxed);
        true
    }
}

/// The prober of the server; it runs on one core.
pub struct Prober {
    transport: Rc<Transport>,
    clock: Clock,
    /// Upstreams and zones that have been tried, with the time of the last try.
    tried: HashMap<(Target, Name), u64>,
}

impl Prober {
    /// Has tried nothing yet.
    pub fn new(transport: Rc<Transport>, clock: Clock) -> Prober {
        Prober {
            transport,
            clock,
            tried: HashMap::new(),
        }
    }

    /// Sends what is due and waits for all of it. `extra` is a zone that may be forwarded to the default
    /// upstreams though it is our own.
    pub async fn round(
        &mut self,
        groups: &Groups,
        extra: Option<&Name>,
        probes: &Arc<LoopProbes>,
        notice: &Rc<dyn Notice>,
    ) {
        let now = self.clock.millis();
        let mut running = JoinSet::new();
        for group in &groups.groups {
            for member in group.members.iter().filter(|member| member.health.probe_due(now)) {
                let ask = question(group.zone.clone(), kind::SOA);
                let (member, transport) = (Arc::clone(member), Rc::clone(&self.transport));
                let (clock, notice) = (self.clock, Rc::clone(notice));
                running.spawn_local(async move {
                    let change = match send(&transport, &member, &ask).await {
                        Some(round_trip) => member.answered(round_trip),
                        None => member.failed(clock.millis()),
                    };
                    notice.changed(&member, change);
                });
            }
        }
        self.tried.retain(|(target, zone), _| {
            let uses = |group: &super::Group| group.members.iter().any(|member| member.target == *target);
            groups
                .groups
                .iter()
                .any(|group| uses(group) && (group.zone == *zone || extra == Some(zone)))
        });
        for (zone, member) in self.loop_checks(groups, extra, now) {
            let Some(random) = self.transport.random::<8>() else {
                continue;
            };
            let Ok(name) = zone.child(&format!("loop-{:016x}", u64::from_be_bytes(random))) else {
                continue;
            };
            let (transport, probes) = (Rc::clone(&self.transport), Arc::clone(probes));
            let notice = Rc::clone(notice);
            running.spawn_local(async move {
                let looped = check_loop(&transport, &member, name, &probes).await;
                if member.set_loop(&zone, looped) {
                    notice.looped(&member, &zone, looped);
                }
            });
        }
        while running.join_next().await.is_some() {}
    }

    fn loop_checks(&mut self, groups: &Groups, extra: Option<&Name>, now: u64) -> Vec<(Name, Arc<Member>)> {
        let mut due = Vec::new();
        for group in &groups.groups {
            let default = group.zone == Name::root();
            for zone in std::iter::once(&group.zone).chain(extra.filter(|_| default)) {
                for member in &group.members {
                    let key = (member.target.clone(), zone.clone());
                    let tried = self.tried.get(&key);
                    let looped = member.loops.read().contains(zone);
                    let again = looped && tried.is_some_and(|&at| now >= at + LOOP_PAUSE);
                    if tried.is_none() || again {
                        self.tried.insert(key, now);
                        due.push((zone.clone(), Arc::clone(member)));
                    }
                }
            }
        }
        due
    }
}

async fn check_loop(transport: &Transport, member: &Member, name: Name, probes: &LoopProbes) -> bool {
    let seen = Arc::new(AtomicBool::new(false));
    probes.sent.lock().insert(name.clone(), Arc::clone(&seen));
    probes.active.fetch_add(1, Relaxed);
    // Whether it answers does not matter here, only whether we hear of it before it does.
    let _ = send(transport, member, &question(name.clone(), kind::TXT)).await;
    probes.sent.lock().remove(&name);
    probes.active.fetch_sub(1, Relaxed);
    seen.load(Relaxed)
}

fn question(name: Name, kind: u16) -> Ask {
    Ask {
        name: name.wire().into(),
        kind,
        dnssec_ok: false,
        checking_disabled: false,
        cap: 0,
    }
}

/// One question to one upstream; the time to any answer at all.
async fn send(transport: &Transport, member: &Member, ask: &Ask) -> Option<Duration> {
    let (reply_to, mut replies) = unbounded_channel();
    let by = By::usual(&member.target);
    let _held = transport.ask((0, member), ask, by, &reply_to).ok()?;
    let event = timeout(PATIENCE, replies.recv()).await.ok()??;
    match event.outcome {
        Ok(_) | Err(Trouble::Mismatch(_)) => Some(event.round_trip),
        Err(Trouble::Unreachable | Trouble::Guessing) => None,
    }
}
