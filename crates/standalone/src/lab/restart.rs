//! One server restarts while a node goes on: only what needs that very server may fail, and not for long.

use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use oooi_doctor::client::dhcp::Lease;

use super::node::{self, Node};
use super::site::Site;
use super::story::Story;
use super::{Reached, expect, lookup, reached, renew};
use crate::up::{Running, Server};

/// How long a server that was started again may take until it serves: an Envoy takes its time.
const BACK: Duration = Duration::from_secs(20);

/// Restarts a server while a node resolves a name, opens connections and renews its lease. Nothing when there are no
/// servers any more.
pub(super) fn restart(
    story: &mut Story,
    site: &Site,
    (node, lease): (&Node, &Lease),
    servers: Running,
    server: Server,
) -> Option<Running> {
    let (name, own, others) = match server {
        Server::Dhcp => ("DHCP", "renewals", "names and connections"),
        Server::Dns => ("DNS", "names", "renewals and connections"),
        Server::Gateway => ("the gateway", "connections", "renewals and names"),
    };
    let mut again = None;
    story.step("lab", &format!("restart {name} under traffic"), || {
        let traffic = Traffic::of(site, node, lease)?;
        // The gateway's own restart ends what runs through it; nothing else does.
        let held = match server {
            Server::Gateway => None,
            Server::Dhcp | Server::Dns => Some(node.hold(traffic.gateway, &traffic.to.host)?),
        };
        let tallies = traffic.during(|| {
            again = Some(site.restart(servers, server)?);
            Ok::<_, super::Error>(())
        });
        let tallies = tallies.map_err(|error| node::Error::Unexpected(error.to_string()))?;
        let mut away = 0.0;
        for (kind, tally) in Server::ALL.into_iter().zip(&tallies) {
            tally.judge(kind == server)?;
            if kind == server {
                away = tally.gap.as_secs_f64() * 1000.0;
            }
        }
        if let Some(held) = held {
            traffic.expect(&held.ask()?)?;
        }
        Ok::<_, node::Error>(((), format!("{others} lost nothing; no {own} for {away:.1} ms")))
    });
    again
}

/// What a node does all the time: one kind of it for each server.
struct Traffic<'a> {
    node: &'a Node,
    lease: &'a Lease,
    to: Reached,
    gateway: SocketAddr,
    /// What answers there.
    service: String,
}

impl<'a> Traffic<'a> {
    fn of(site: &Site, node: &'a Node, lease: &'a Lease) -> Result<Self, node::Error> {
        let to = reached(site).into_iter().next();
        let to = to.ok_or_else(|| node::Error::Unexpected("nothing is published under a name".into()))?;
        let gateway = SocketAddr::from((lookup(node, lease, &to.host)?, to.port));
        Ok(Traffic {
            // Whatever it calls itself: it may have moved.
            service: node.ask(gateway, &to.host)?,
            node,
            lease,
            to,
            gateway,
        })
    }

    fn expect(&self, who: &str) -> Result<(), node::Error> {
        expect(who, &self.service)
    }

    /// Goes on while something happens, and after it until each kind worked once more. In the order of [`Server::ALL`].
    fn during<E>(&self, event: impl FnOnce() -> Result<(), E>) -> Result<[Tally; 3], E> {
        let (begun, over) = (Barrier::new(4), AtomicBool::new(false));
        let keep_at = |attempt: &dyn Fn() -> Result<(), node::Error>| {
            let mut tally = Tally::default();
            tally.count(attempt);
            begun.wait();
            let mut deadline = None;
            loop {
                if deadline.is_none() && over.load(Ordering::SeqCst) {
                    deadline = Some(Instant::now() + BACK);
                }
                let worked = tally.count(attempt);
                if deadline.is_some_and(|deadline| worked || Instant::now() > deadline) {
                    tally.back = worked;
                    return tally;
                }
            }
        };
        let (node, lease) = (self.node, self.lease);
        thread::scope(|scope| {
            let kinds = [
                scope.spawn(|| keep_at(&|| renew(node, lease).map(drop))),
                scope.spawn(|| keep_at(&|| lookup(node, lease, &self.to.host).map(drop))),
                scope.spawn(|| keep_at(&|| self.expect(&node.ask(self.gateway, &self.to.host)?))),
            ];
            begun.wait();
            let happened = event();
            over.store(true, Ordering::SeqCst);
            let tallies = kinds.map(|kind| kind.join().unwrap_or_default());
            happened.map(|()| tallies)
        })
    }
}

/// How one kind of traffic went.
#[derive(Default)]
struct Tally {
    worked: u32,
    failed: u32,
    /// When it worked at last.
    last: Option<Instant>,
    /// The longest time from once that it worked to the next.
    gap: Duration,
    /// What it failed of at first.
    why: Option<String>,
    /// Whether it worked in the end.
    back: bool,
}

impl Tally {
    /// Counts an attempt; says whether it worked.
    fn count(&mut self, attempt: impl Fn() -> Result<(), node::Error>) -> bool {
        match attempt() {
            Ok(()) => {
                self.worked += 1;
                if let Some(last) = self.last.replace(Instant::now()) {
                    self.gap = self.gap.max(last.elapsed());
                }
                true
            }
            Err(error) => {
                self.failed += 1;
                self.why.get_or_insert_with(|| error.to_string());
                false
            }
        }
    }

    /// Whether that is what must be seen, of a kind whose own server was away or not.
    fn judge(&self, away: bool) -> Result<(), node::Error> {
        if self.back && (away || self.failed == 0) {
            return Ok(());
        }
        let (all, failed, why) = (self.worked + self.failed, self.failed, self.why.as_deref());
        let why = why.unwrap_or("its thread died");
        Err(node::Error::Unexpected(format!(
            "{failed} of {all} attempts failed: {why}"
        )))
    }
}
