//! The native engine: binds the ports of a snapshot, serves them on one thread a core, follows every update.
//!
//! [`Server::run`] owns the sockets. It opens one for each thread, address and port (SO_REUSEPORT), hands them to
//! the threads, and on an update opens what is new before it closes what is gone. Established connections are
//! never touched by an update. A port that cannot be bound is reported and tried again, while the others work.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use oooi_api::report::{Event, Report};
use parking_lot::RwLock;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::UdpSocket;
use tokio::sync::{oneshot, watch};

use crate::config::Transport;
use crate::limit::Limits;
use crate::metrics::Metrics;
use crate::shared::Shared;
use crate::snapshot::{ListenerKey, Snapshot};
use crate::table::Table;
use crate::view::View;
use crate::worker::{Command, Worker};
use crate::{announce, listen, udp};

/// How long to wait before a port that could not be bound is tried again.
const BIND_AGAIN: Duration = Duration::from_secs(1);

/// What a server is started with; everything else comes with snapshots.
#[derive(Debug, Clone)]
pub struct Options {
    /// The addresses to listen on, at every port of the snapshot.
    pub addresses: Vec<IpAddr>,
    /// Threads; one a core is best.
    pub threads: usize,
    /// What clients may take.
    pub limits: Limits,
}

impl Options {
    /// One thread a core, and as many connections as this process has file descriptors for.
    pub fn new(addresses: Vec<IpAddr>) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            addresses,
            threads,
            limits: Limits::for_descriptors(descriptors()),
        }
    }
}

/// As many file descriptors as this process may have: the limit that holds is often far below the one that it may be
/// raised to.
pub fn descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // Where that is not allowed, what there is must do.
    let _ = setrlimit(Resource::Nofile, raised);
    getrlimit(Resource::Nofile).current.unwrap_or(1 << 20)
}

/// Connections at a time that an engine beside this one may have: `most`, or what it has file descriptors for.
pub fn connections(most: u64) -> u64 {
    most.min(Limits::for_descriptors(descriptors()).connections as u64)
}

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is nothing to listen on.
    #[error(
        "no address to listen on: set networkConfig.serverIP to an address of this host, or pass one to listen on"
    )]
    NoAddress,
    /// A thread or its runtime could not be made.
    #[error("cannot start a thread of the gateway: {0}")]
    Thread(#[source] std::io::Error),
}

/// The native engine.
pub struct Server {
    options: Options,
    shared: Arc<Shared>,
    snapshot: Arc<RwLock<Arc<Snapshot>>>,
}

/// Shows what a running [`Server`] does. Clones show the same.
#[derive(Clone)]
pub struct Admin {
    shared: Arc<Shared>,
    snapshot: Arc<RwLock<Arc<Snapshot>>>,
}

impl Admin {
    /// Routes, endpoints and their health at this moment.
    pub fn view(&self) -> View {
        let snapshot = self.snapshot.read().clone();
        View::of_engine(&snapshot, &self.shared.table(), Instant::now())
    }

    /// Whether it serves: every port was bound, and no shutdown was asked for.
    pub fn is_ready(&self) -> bool {
        self.shared.ready.load(Ordering::Relaxed)
    }
}

impl Server {
    /// A server that listens on nothing yet.
    pub fn new(options: Options, metrics: Metrics, report: Arc<dyn Report>) -> Self {
        let shared = Shared::new(options.limits.clone(), metrics, report, Instant::now());
        Self {
            options,
            shared: Arc::new(shared),
            snapshot: Arc::default(),
        }
    }

    /// A handle to look at it while it runs.
    pub fn admin(&self) -> Admin {
        Admin {
            shared: self.shared.clone(),
            snapshot: self.snapshot.clone(),
        }
    }

    /// Serves until `shutdown` is ready or no further snapshot can come; then open connections have
    /// [`Limits::drain_time`] to end.
    pub async fn run(
        self,
        mut snapshots: watch::Receiver<Arc<Snapshot>>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        if self.options.addresses.is_empty() {
            return Err(Error::NoAddress);
        }
        let workers = (0..self.options.threads.max(1)).map(|index| Worker::start(index, self.shared.clone()));
        let workers = workers.collect::<Result<Vec<_>, _>>().map_err(Error::Thread)?;
        let mut ports = Ports {
            shared: self.shared.clone(),
            workers,
            udp: BTreeMap::new(),
            open: BTreeSet::new(),
            failing: BTreeMap::new(),
        };
        tokio::pin!(shutdown);
        loop {
            let snapshot = snapshots.borrow_and_update().clone();
            self.take_over(&snapshot, &mut ports);
            let again = !ports.failing.is_empty();
            tokio::select! {
                () = &mut shutdown => break,
                changed = snapshots.changed() => if changed.is_err() { break },
                () = tokio::time::sleep(BIND_AGAIN), if again => {}
            }
        }
        self.shared.ready.store(false, Ordering::Relaxed);
        ports.drain(self.shared.limits.drain_time).await;
        Ok(())
    }

    fn take_over(&self, snapshot: &Arc<Snapshot>, ports: &mut Ports) {
        let before = std::mem::replace(&mut *self.snapshot.write(), snapshot.clone());
        if !Arc::ptr_eq(&before, snapshot) {
            let table = Table::next(&self.shared.table(), snapshot, &self.shared.metrics);
            self.shared.table.send_replace(Arc::new(table));
            self.shared.metrics.lacking.show(&before, snapshot);
            announce::changes(&before, snapshot, &*self.shared.report);
        }
        let wanted: BTreeSet<_> = snapshot
            .listeners
            .keys()
            .flat_map(|key| {
                self.options
                    .addresses
                    .iter()
                    .map(|ip| (SocketAddr::new(*ip, key.port), *key))
            })
            .collect();
        ports.set(&wanted, &*self.shared.report);
        self.shared
            .metrics
            .updates
            .inc_by(u64::from(!Arc::ptr_eq(&before, snapshot)));
        let addresses = ports
            .open
            .iter()
            .map(|(address, key)| format!("{address}/{}", key.transport))
            .collect();
        let troubles: Vec<String> = ports.failing.values().cloned().collect();
        if troubles.is_empty() {
            // A port that cannot be bound later on is no reason to take the others from their clients.
            self.shared.ready.store(true, Ordering::Relaxed);
        }
        self.shared
            .report
            .state(announce::state(snapshot, addresses, &troubles));
    }
}

/// The sockets that are open, each on every thread.
struct Ports {
    shared: Arc<Shared>,
    workers: Vec<Worker>,
    /// What ends the relay of each UDP port.
    udp: BTreeMap<(SocketAddr, ListenerKey), oneshot::Sender<()>>,
    open: BTreeSet<(SocketAddr, ListenerKey)>,
    failing: BTreeMap<(SocketAddr, ListenerKey), String>,
}

impl Ports {
    fn set(&mut self, wanted: &BTreeSet<(SocketAddr, ListenerKey)>, report: &dyn Report) {
        self.failing.retain(|port, _| wanted.contains(port));
        for port in wanted.difference(&self.open.clone()) {
            let (address, key) = *port;
            match self.open(address, key) {
                Ok(()) => {
                    self.open.insert(*port);
                    if self.failing.remove(port).is_some() {
                        report.event(Event::normal(
                            "Listening",
                            format!("listening on {address} ({key}) now"),
                        ));
                    }
                }
                Err(error) => {
                    let message = format!("cannot listen on {address} ({key}): {error}; {}", advice(&error));
                    if self.failing.get(port) != Some(&message) {
                        report.event(Event::warning("CannotListen", message.clone()));
                        self.failing.insert(*port, message);
                    }
                }
            }
        }
        let gone: Vec<_> = self.open.difference(wanted).copied().collect();
        for (address, key) in gone {
            self.open.remove(&(address, key));
            self.close(address, key);
        }
    }

    /// Datagrams are relayed by tasks of this runtime; streams have threads of their own. There it is all sockets
    /// or none: a thread without its socket would leave connections unanswered.
    fn open(&mut self, address: SocketAddr, key: ListenerKey) -> std::io::Result<()> {
        if key.transport == Transport::Udp {
            let socket = UdpSocket::from_std(listen::open(address, key.transport)?.into())?;
            let (stop, stopped) = oneshot::channel();
            tokio::spawn(udp::run(socket, key, self.shared.clone(), stopped));
            self.udp.insert((address, key), stop);
            return Ok(());
        }
        let sockets = self.workers.iter().map(|_| listen::open(address, key.transport));
        let sockets = sockets.collect::<Result<Vec<_>, _>>()?;
        for (worker, socket) in self.workers.iter().zip(sockets) {
            worker.tell(Command::Listen(address, key, socket));
        }
        Ok(())
    }

    fn close(&mut self, address: SocketAddr, key: ListenerKey) {
        if self.udp.remove(&(address, key)).is_none() {
            for worker in &self.workers {
                worker.tell(Command::Stop(address, key));
            }
        }
    }

    async fn drain(self, time: Duration) {
        let deadline = Instant::now() + time;
        for worker in &self.workers {
            worker.tell(Command::Drain(deadline));
        }
        for worker in self.workers {
            let _ = worker.ended.await;
        }
    }
}

fn advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "ports below 1024 need net.ipv4.ip_unprivileged_port_start=0 or the capability NET_BIND_SERVICE"
        }
        std::io::ErrorKind::AddrInUse => "another process listens there: stop it, or choose another port",
        std::io::ErrorKind::AddrNotAvailable => "no interface of this host has the address yet",
        _ => "it is tried again every second",
    }
}
