//! The loop around the decision: receive a batch, decide, store, answer.
//!
//! Leases that waiting packets grant are committed together, and their ACKs leave after it; offers and refusals leave
//! at once. While a store takes its time further packets are decided and wait for the next commit. A lease
//! enters the table when it is stored; until then its address is held for its client.
//!
//! New configurations and machine indexes apply between two packets. The loop ends when `shutdown` completes and
//! the last commit is done, or when a socket fails for good.

mod desk;
mod lines;
mod rogues;
mod standing;
mod unfreed;

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oooi_api::report::Report;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::info;

use crate::config::Config;
use crate::control::{Command, Released};
use crate::lease::Lease;
use crate::mac::Mac;
use crate::machines::Machines;
use crate::message::MessageType;
use crate::metrics::Metrics;
use crate::respond::MAX_PER_MAC;
use crate::socket::{Inbox, Outbox, Ready, Socket};
use crate::store::{LeaseStore, StoreError, Update};
use crate::time::{Clock, Timestamp};
use desk::Desk;

/// How many full batches of packets share one commit at most. More of them cost no more of the disk; the bound keeps
/// a flood from putting the commit off.
const GATHERED: usize = 8;

/// From so many leases on that wait for a commit, which only a slow store lets come together, each client adds no more
/// than it may hold.
const CROWDED: usize = 256;
/// The most leases that wait for a commit. A store that is so far behind is not helped by more of them.
const MOST_WAITING: usize = 4096;

/// What tells the server about the world.
pub struct Feeds {
    /// What to serve.
    pub config: watch::Receiver<Arc<Config>>,
    /// Which machines there are.
    pub machines: watch::Receiver<Arc<Machines>>,
    /// What people ask of the running server.
    pub commands: mpsc::Receiver<Command>,
}

/// Why a server ended.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The leases could not be read.
    #[error("cannot load the leases: {0}")]
    Load(#[source] StoreError),
    /// A socket failed.
    #[error("cannot receive on {interface}: {source}")]
    Receive {
        /// The interface.
        interface: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Serves until `shutdown` completes.
///
/// A journal waits for the disk in the thread that polls this future: give it a current-thread runtime of its own.
pub async fn run<S: LeaseStore>(
    socket: Socket,
    mut feeds: Feeds,
    mut store: S,
    report: Arc<dyn Report>,
    metrics: Metrics,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServerError> {
    let loaded = store.load().await.map_err(ServerError::Load)?;
    let clock = Clock::start(Timestamp::wall(), loaded.newest);
    let config = feeds.config.borrow_and_update().clone();
    let machines = feeds.machines.borrow_and_update().clone();
    info!(
        interface = socket.interface(), server = %config.server(), pool = config.pool_size(),
        leases = loaded.leases.len(), "serving DHCP"
    );
    let mut updates = loaded.updates;
    let mut desk = Desk::new(&socket, config, loaded.leases, report, metrics, clock);
    let (mut requests, mut frames) = (Inbox::default(), Inbox::default());
    let mut batch = Batch::default();
    let mut shutdown = std::pin::pin!(shutdown);
    let mut ending = false;
    desk.check_address();
    desk.doubt_time_since(loaded.newest, updates.is_some());
    desk.learn(machines);
    desk.announce();
    desk.flush();
    loop {
        // Before the first turn too: machines may have gone while no server ran.
        while desk.has_pending() {
            desk.take_batch(&mut batch);
            let started = Instant::now();
            let outcome = {
                let mut commit = std::pin::pin!(store.commit(&batch.leases));
                loop {
                    // Biased: a store that is done at once is never kept waiting by packets.
                    tokio::select! {
                        biased;
                        outcome = commit.as_mut() => break outcome,
                        turned = turn(
                            &mut desk, &socket, &mut feeds, &mut updates, (&mut requests, &mut frames), shutdown.as_mut(),
                        ), if !ending => ending = turned?,
                    }
                }
            };
            desk.committed(&mut batch, outcome, started.elapsed());
        }
        if ending {
            break;
        }
        ending = turn(
            &mut desk,
            &socket,
            &mut feeds,
            &mut updates,
            (&mut requests, &mut frames),
            shutdown.as_mut(),
        )
        .await?;
    }
    desk.announce();
    info!(interface = socket.interface(), "stopped serving DHCP");
    Ok(())
}

/// Leases that are stored together, and the answers that wait for it.
#[derive(Debug, Default)]
struct Batch {
    leases: Vec<Lease>,
    /// Who waits for each lease.
    waiting: Vec<Waiting>,
    answers: Outbox,
    /// When its first message came in.
    since: Option<Instant>,
    /// What each client added since it is crowded.
    late: HashMap<Mac, usize>,
}

impl Batch {
    /// Whether another lease of this client may wait, so that one that floods the network leaves room for others.
    fn admits(&mut self, mac: Mac) -> bool {
        match self.leases.len() {
            ..CROWDED => true,
            MOST_WAITING.. => false,
            _ => {
                let added = self.late.entry(mac).or_default();
                *added += 1;
                *added <= MAX_PER_MAC
            }
        }
    }
}

/// Who wants to know whether a lease is stored.
#[derive(Debug)]
enum Waiting {
    /// Nobody.
    Nobody,
    /// A client.
    Client(Answer),
    /// Whoever freed it by hand.
    Person(oneshot::Sender<Released>),
    /// Nobody, since its machine is gone: what is not stored is tried again.
    Machine,
}

/// An answer that waits for a commit.
#[derive(Clone, Copy, Debug)]
struct Answer {
    /// Its place among the answers.
    place: usize,
    /// What the client asked by.
    kind: MessageType,
    /// The transaction that it ends.
    xid: [u8; 4],
}

/// Waits for one thing to happen and handles it. True when the server should end.
async fn turn(
    desk: &mut Desk<'_>,
    socket: &Socket,
    feeds: &mut Feeds,
    updates: &mut Option<mpsc::Receiver<Update>>,
    (requests, frames): (&mut Inbox, &mut Inbox),
    shutdown: std::pin::Pin<&mut impl Future<Output = ()>>,
) -> Result<bool, ServerError> {
    let wake = desk.next_wake();
    if wake.is_some_and(|wake| wake.is_zero()) {
        // Not left to the timer: under a flood it would be made anew for each packet and never end.
        desk.tick();
        desk.flush();
        return Ok(false);
    }
    // Packets come last: under a flood there is always one more, and everything else is rare.
    tokio::select! {
        biased;
        () = shutdown => return Ok(true),
        () = sleep(wake), if wake.is_some() => desk.tick(),
        Ok(()) = feeds.config.changed() => {
            let config = feeds.config.borrow_and_update().clone();
            desk.configure(config);
        }
        Ok(()) = feeds.machines.changed() => {
            let machines = feeds.machines.borrow_and_update().clone();
            desk.learn(machines);
        }
        Some(command) = feeds.commands.recv() => desk.obey(command),
        Some(update) = next(updates) => desk.update(update),
        ready = socket.receive(requests, frames) => {
            let failed = |source| ServerError::Receive { interface: socket.interface().into(), source };
            match ready.map_err(failed)? {
                Ready::Requests => {
                    desk.requests(requests);
                    for _ in 1..GATHERED {
                        if !socket.receive_more(requests).map_err(failed)? {
                            break;
                        }
                        desk.requests(requests);
                    }
                }
                Ready::Frames => desk.frames(frames),
            }
        }
    }
    desk.flush();
    Ok(false)
}

async fn sleep(wake: Option<Duration>) {
    tokio::time::sleep(wake.unwrap_or(Duration::MAX)).await;
}

async fn next(updates: &mut Option<mpsc::Receiver<Update>>) -> Option<Update> {
    match updates {
        Some(updates) => updates.recv().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::State;
    use crate::testing::battery::lease;

    /// How many of the leases a client gets into a batch, if it asks again and again.
    fn flood(batch: &mut Batch, client: u8) -> usize {
        let lease = lease(1, client, State::Bound);
        let admitted = (0..2 * MOST_WAITING).filter(|_| {
            let admitted = batch.admits(lease.mac);
            if admitted {
                batch.leases.push(lease.clone());
            }
            admitted
        });
        admitted.count()
    }

    #[test]
    fn a_client_that_floods_a_slow_store_leaves_room_for_others_and_all_together_are_bounded() {
        let mut batch = Batch::default();
        assert_eq!(flood(&mut batch, 1), CROWDED + MAX_PER_MAC);
        for client in 2..=u8::MAX {
            flood(&mut batch, client);
            assert!(batch.leases.len() <= MOST_WAITING);
        }
        assert!(batch.leases.iter().any(|lease| lease.mac.0[5] == 200));
        assert_eq!(batch.leases.len(), MOST_WAITING);
    }
}
