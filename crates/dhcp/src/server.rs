//! The loop around the decision: receive a batch, decide, store, answer.
//!
//! Leases that waiting packets grant are committed together, and their ACKs leave after it; offers and refusals leave
//! at once. While a store takes its time further packets are decided and wait for the next commit. A lease
//! enters the table when it is stored; until then its address is held for its client.
//!
//! New configurations and machine indexes apply between two packets. The loop ends when `shutdown` completes and
//! the last commit is done, or when a socket fails for good.

mod desk;
mod rogues;
mod standing;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oooi_api::report::Report;
use tokio::sync::{mpsc, watch};
use tracing::info;

use crate::config::Config;
use crate::control::Command;
use crate::machines::Machines;
use crate::metrics::Metrics;
use crate::socket::{Inbox, Outbox, Ready, Socket};
use crate::store::{LeaseStore, StoreError, Update};
use crate::time::{Clock, Timestamp};
use desk::Desk;

/// How many full batches of packets share one commit at most. More of them cost no more of the disk; the bound keeps
/// a flood from putting the commit off.
const GATHERED: usize = 8;

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
    leases: Vec<crate::lease::Lease>,
    /// The answer to each lease, by its place in `answers`; nothing for what needs none.
    answer_of: Vec<Option<usize>>,
    answers: Outbox,
    /// When its first message came in.
    since: Option<Instant>,
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
