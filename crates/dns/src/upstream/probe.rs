//! Bringing lost upstreams back, and finding those that only ask us in turn.
//!
//! A lost upstream gets a question when its pause is over; any answer brings it back. A loop is found by a
//! name that nobody else can know: if it comes in as a question that we would forward, the upstream that
//! got it from us sends our questions back to us. For that zone it is left out until a later probe is
//! answered and does not come back; other names it may well know.

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
use crate::wire::name::{self, Name};

/// For how long a probe waits.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often an upstream in a loop is tried again, in milliseconds.
const LOOP_PAUSE: u64 = 30_000;
/// How often the others are: somebody may make a loop of them later.
const CHECK_PAUSE: u64 = 60_000;

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

    /// Sends what is due and waits for all of it. `extra` is a zone that may be forwarded though it is our own: to the
    /// upstreams of the nearest zone above it.
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
                    let change = match send(&transport, &member, &ask, clock.millis()).await {
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
                if let Some(looped) = check_loop(&transport, &member, name, &probes, now).await
                    && member.set_loop(&zone, looped)
                {
                    notice.looped(&member, &zone, looped);
                }
            });
        }
        while running.join_next().await.is_some() {}
    }

    fn loop_checks(&mut self, groups: &Groups, extra: Option<&Name>, now: u64) -> Vec<(Name, Arc<Member>)> {
        let mut due = Vec::new();
        let above = |own: &Name| {
            let zones = groups.groups.iter().map(|group| &group.zone);
            let above = zones.filter(|zone| name::is_within(own.wire(), zone.wire()));
            above.max_by_key(|zone| zone.wire().len())
        };
        let asked = extra.and_then(above);
        for group in &groups.groups {
            let own = extra.filter(|_| asked == Some(&group.zone));
            for zone in std::iter::once(&group.zone).chain(own) {
                for member in &group.members {
                    let key = (member.target.clone(), zone.clone());
                    let looped = member.loops.read().contains(zone);
                    let pause = if looped { LOOP_PAUSE } else { CHECK_PAUSE };
                    if self.tried.get(&key).is_none_or(|&at| now >= at + pause) {
                        self.tried.insert(key, now);
                        due.push((zone.clone(), Arc::clone(member)));
                    }
                }
            }
        }
        due
    }
}

/// Whether a probe came back; nothing where it was lost, which says neither.
async fn check_loop(
    transport: &Transport,
    member: &Member,
    name: Name,
    probes: &LoopProbes,
    now: u64,
) -> Option<bool> {
    let seen = Arc::new(AtomicBool::new(false));
    probes.sent.lock().insert(name.clone(), Arc::clone(&seen));
    probes.active.fetch_add(1, Relaxed);
    // What it answers does not matter here, only whether we hear of it before it does.
    let answered = send(transport, member, &question(name.clone(), kind::TXT), now).await;
    probes.sent.lock().remove(&name);
    probes.active.fetch_sub(1, Relaxed);
    let seen = seen.load(Relaxed);
    (seen || answered.is_some()).then_some(seen)
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
async fn send(transport: &Transport, member: &Member, ask: &Ask, now: u64) -> Option<Duration> {
    let (reply_to, mut replies) = unbounded_channel();
    let by = By::usual(&member.target);
    let edns = member.takes_edns(now);
    let _held = transport.ask((0, member), ask, (by, edns), &reply_to).ok()?;
    let event = timeout(PATIENCE, replies.recv()).await.ok()??;
    match event.outcome {
        Ok(_) | Err(Trouble::Mismatch(_)) => Some(event.round_trip),
        Err(Trouble::Unreachable | Trouble::Guessing) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Group;
    use super::super::health::Change;
    use super::*;
    use crate::config::UpstreamPolicy;
    use tokio::task::LocalSet;

    /// A group of one upstream that nothing can be sent to.
    fn groups() -> Groups {
        Groups {
            groups: vec![group(".")],
        }
    }

    fn group(zone: &str) -> Group {
        let target = Target::Plain(([255, 255, 255, 255], 53).into());
        Group {
            zone: Name::parse(zone).unwrap(),
            policy: UpstreamPolicy::Sequential,
            members: vec![Arc::new(Member::new(target, "lost".into()))],
            turn: AtomicUsize::new(0),
        }
    }

    #[test]
    fn our_own_domain_is_looked_for_where_it_would_be_forwarded() {
        let own = Name::parse("hub.example.com").unwrap();
        let checks = |zones: &[&str]| {
            let groups = Groups {
                groups: zones.iter().copied().map(group).collect(),
            };
            let due = prober().loop_checks(&groups, Some(&own), 0);
            due.iter().map(|(zone, _)| zone.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(checks(&["example.org"]), ["example.org"]);
        assert_eq!(
            checks(&[".", "example.org"]),
            [".", "hub.example.com", "example.org"]
        );
        assert_eq!(checks(&["example.com"]), ["example.com", "hub.example.com"]);
    }

    fn prober() -> Prober {
        Prober::new(Rc::new(Transport::new(Arc::default())), Clock::start())
    }

    #[test]
    fn a_loop_is_looked_for_again_after_a_minute_and_a_known_one_after_half() {
        let (groups, mut prober) = (groups(), prober());
        let mut due = |now| prober.loop_checks(&groups, None, now).len();
        assert_eq!([due(0), due(CHECK_PAUSE - 1), due(CHECK_PAUSE)], [1, 0, 1]);
        groups.groups[0].members[0].set_loop(&Name::root(), true);
        let known = CHECK_PAUSE + LOOP_PAUSE;
        assert_eq!([due(known - 1), due(known)], [0, 1]);
    }

    struct Nobody;

    impl Notice for Nobody {
        fn changed(&self, _: &Member, _: Change) {}
        fn looped(&self, _: &Member, _: &Name, looped: bool) {
            panic!("a probe that was lost changed the state to {looped}")
        }
    }

    #[tokio::test]
    async fn a_probe_that_is_lost_does_not_end_a_loop() {
        let (groups, mut prober) = (groups(), prober());
        let member = &groups.groups[0].members[0];
        member.set_loop(&Name::root(), true);
        let notice: Rc<dyn Notice> = Rc::new(Nobody);
        LocalSet::new()
            .run_until(prober.round(&groups, None, &Arc::default(), &notice))
            .await;
        assert!(member.is_looping());
    }
}
