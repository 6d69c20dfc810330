//! What all threads of the native engine share, and the ticket that each UDP session holds of it.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use oooi_api::report::{Event, Report};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use crate::limit::{Clients, Limits, Rate};
use crate::metrics::Metrics;
use crate::table::Table;

/// Log lines about refused connections a second; the counters have them all.
const LOG_LINES_PER_SECOND: u32 = 50;

pub(crate) struct Shared {
    pub(crate) table: watch::Sender<Arc<Table>>,
    pub(crate) limits: Limits,
    pub(crate) metrics: Metrics,
    pub(crate) report: Arc<dyn Report>,
    pub(crate) accepts: Mutex<Rate>,
    pub(crate) slots: Semaphore,
    clients: Mutex<Clients>,
    log: Mutex<Rate>,
    exhausted: AtomicBool,
    full: AtomicBool,
    /// Every port was bound, and no shutdown was asked for.
    pub(crate) ready: AtomicBool,
}

impl Shared {
    pub(crate) fn new(limits: Limits, metrics: Metrics, report: Arc<dyn Report>, now: Instant) -> Self {
        Self {
            table: watch::Sender::default(),
            accepts: Mutex::new(Rate::new(limits.accepts_per_second, now)),
            slots: Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)),
            limits,
            metrics,
            report,
            clients: Mutex::default(),
            log: Mutex::new(Rate::new(LOG_LINES_PER_SECOND, now)),
            exhausted: AtomicBool::new(false),
            full: AtomicBool::new(false),
            ready: AtomicBool::new(false),
        }
    }

    pub(crate) fn table(&self) -> Arc<Table> {
        self.table.borrow().clone()
    }

    pub(crate) fn idle_timeout(&self) -> Duration {
        self.table.borrow().idle_timeout
    }

    /// Counts one more connection of a client; false if it has too many.
    pub(crate) fn enter(&self, client: IpAddr) -> bool {
        self.clients
            .lock()
            .enter(client, self.limits.connections_per_client)
    }

    /// Counts one less.
    pub(crate) fn leave(&self, client: IpAddr) {
        self.clients.lock().leave(client);
    }

    /// Whether a line about one connection may be logged: a flood of them must not fill the disk.
    pub(crate) fn may_log(&self) -> bool {
        self.log.lock().take(Instant::now()).is_ok()
    }

    /// Says once that file descriptors or memory for sockets ran out.
    pub(crate) fn ran_out(&self, error: &io::Error) {
        if !self.exhausted.swap(true, Ordering::Relaxed) {
            self.report.event(Event::warning(
                "FileDescriptorsExhausted",
                format!(
                    "no new connections are accepted for now: {error}; established ones go on. Raise the limit of \
                     open files, or look for a client that opens too many connections"
                ),
            ));
        }
    }

    /// Says once that as many connections are open as there may be.
    pub(crate) fn filled_up(&self) {
        if !self.full.swap(true, Ordering::Relaxed) {
            self.report.event(Event::warning(
                "ConnectionLimitReached",
                format!(
                    "{} connections are open, as many as there may be: new ones wait until some end. Raise the limit of \
                     open files, or look for a client that opens too many connections",
                    self.limits.connections
                ),
            ));
        }
    }

    /// Says once that it is over. One place alone is soon taken again: the limit counts as left when there are some.
    pub(crate) fn recovered(&self) {
        if self.full.load(Ordering::Relaxed)
            && self.slots.available_permits() > self.limits.connections / 16
            && self.full.swap(false, Ordering::Relaxed)
        {
            self.report.event(Event::normal(
                "ConnectionsAvailable",
                "there is room for new connections again",
            ));
        }
        if self.exhausted.load(Ordering::Relaxed) && self.exhausted.swap(false, Ordering::Relaxed) {
            self.report.event(Event::normal(
                "FileDescriptorsAvailable",
                "new connections are accepted again",
            ));
        }
    }
}

/// Whether the system has no descriptor or memory left for another socket. It says nothing about the peer.
pub(crate) fn is_exhaustion(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    error
        .raw_os_error()
        .is_some_and(|code| exhausted.iter().any(|errno| errno.raw_os_error() == code))
}

/// A session's share of the limits, given back when dropped.
pub(crate) struct Ticket {
    shared: Arc<Shared>,
    client: IpAddr,
}

impl Ticket {
    /// A ticket for a session that already took one of [`Shared::slots`]; `None`, and the slot given back, if
    /// its client has too many.
    pub(crate) fn issue(shared: &Arc<Shared>, client: IpAddr) -> Option<Self> {
        if shared
            .clients
            .lock()
            .enter(client, shared.limits.connections_per_client)
        {
            return Some(Self {
                shared: shared.clone(),
                client,
            });
        }
        shared.slots.add_permits(1);
        None
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.shared.leave(self.client);
        self.shared.slots.add_permits(1);
    }
}
