//! The running server: sockets, cores, and what they share.
//!
//! [`Server::run`] takes bound [`Listeners`] and two channels: the configuration, and names learnt while it
//! runs. One task ([`control`]) turns every change into a new immutable state and publishes it; each core
//! ([`worker`]) has its own sockets on every address and its own event loop, takes the newest state before
//! each batch of questions, and never waits for another core. What cannot be answered at once becomes a
//! task of that core, which asks upstreams and answers later.

mod addresses;
mod batch;
mod control;
mod handler;
mod listen;
mod miss;
mod rate_limit;
mod service;
mod tcp;
mod udp;
mod worker;

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use oooi_api::report::Report;
use tokio::sync::{mpsc, watch};

use crate::cache::Cache;
use crate::clock::Clock;
use crate::config::Config;
use crate::metrics::{Counters, Metrics};
use crate::names::Names;
use crate::upstream::Groups;
use crate::upstream::in_flight::InFlight;
use crate::upstream::probe::LoopProbes;
use crate::upstream::transport::TlsClient;
use crate::view::Horizon;

use self::addresses::Move;
use self::rate_limit::Limiter;

pub use self::addresses::Addresses;
pub use self::listen::{ListenError, Listeners};
pub use self::rate_limit::RateLimit;

/// The cache of a server that is told nothing else, in MiB.
pub const CACHE_MIB: usize = 8;

/// What is not in the manifest: how this process runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Octets that the cache may take.
    pub cache_octets: usize,
    /// One question in so many is logged; nothing: none.
    pub query_log: Option<u32>,
    /// The rate of answers that one client is allowed; nothing: any.
    pub rate_limit: Option<RateLimit>,
    /// Where the resolvers of the host are listed.
    pub resolv_conf: PathBuf,
    /// TCP connections that may be open at a time, on all addresses together.
    pub connections: usize,
    /// The TLS client for `tls://` upstreams; nothing: one that trusts the authorities of the host.
    pub tls: Option<Arc<rustls::ClientConfig>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            cache_octets: CACHE_MIB << 20,
            query_log: None,
            rate_limit: None,
            resolv_conf: "/etc/resolv.conf".into(),
            connections: 2048,
            tls: None,
        }
    }
}

/// One state of all that is served, published as a whole.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) horizon: Horizon,
    pub(crate) groups: Groups,
}

/// What all cores share.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) clock: Clock,
    pub(crate) cache: Cache,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) counters: Vec<Counters>,
    pub(crate) tls: TlsClient,
    pub(crate) probes: Arc<LoopProbes>,
    /// One for all cores; nothing where any rate is allowed.
    limiter: Option<Limiter>,
    /// The addresses that are served.
    addresses: watch::Sender<Vec<SocketAddr>>,
    /// The way of sockets to each core.
    cores: Vec<mpsc::UnboundedSender<Move>>,
    /// Milliseconds at which each core last came round.
    beats: Vec<AtomicU64>,
    ready: AtomicBool,
    serving: watch::Sender<Option<Arc<Serving>>>,
}

impl Shared {
    /// The state that is served now; nothing before the first configuration.
    pub(crate) fn serving(&self) -> Option<Arc<Serving>> {
        self.serving.borrow().clone()
    }
}

/// A server that has not started yet, or its handles while it runs.
pub struct Server {
    shared: Arc<Shared>,
    changes: Vec<mpsc::UnboundedReceiver<Move>>,
}

/// Answers the probes of Kubernetes.
#[derive(Clone)]
pub struct Probes {
    shared: Arc<Shared>,
}

/// A core that has not come round for so long is stuck.
const STUCK_MILLIS: u64 = 10_000;

impl Probes {
    /// `/health`: every core comes round.
    pub fn is_healthy(&self) -> bool {
        let now = self.shared.clock.millis();
        self.shared
            .beats
            .iter()
            .all(|beat| now.saturating_sub(beat.load(Relaxed)) < STUCK_MILLIS)
    }

    /// `/ready`: the server answers, and is not about to end.
    pub fn is_ready(&self) -> bool {
        self.shared.ready.load(Relaxed)
    }
}

/// Why the server ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A thread could not be started.
    #[error("cannot start a thread for a core: {0}")]
    Thread(#[source] std::io::Error),
    /// A core ended by itself.
    #[error("the thread of core {0} ended unexpectedly")]
    Core(usize),
}

impl Server {
    /// Prepares a server for `cores` cores; take as many as the listeners were bound for.
    pub fn new(options: Options, cores: usize) -> Server {
        let cores = cores.max(1);
        let (senders, changes) = (0..cores).map(|_| mpsc::unbounded_channel()).unzip();
        let tls = TlsClient::default();
        if let Some(client) = &options.tls {
            let _ = tls.set(Arc::clone(client)); // it is empty
        }
        Server {
            changes,
            shared: Arc::new(Shared {
                cache: Cache::new(options.cache_octets),
                clock: Clock::start(),
                in_flight: Arc::default(),
                counters: (0..cores).map(|_| Counters::default()).collect(),
                tls,
                probes: Arc::default(),
                limiter: options.rate_limit.map(Limiter::new),
                addresses: watch::Sender::new(Vec::new()),
                cores: senders,
                beats: (0..cores).map(|_| AtomicU64::new(0)).collect(),
                ready: AtomicBool::new(false),
                serving: watch::Sender::new(None),
                options,
            }),
        }
    }

    /// The metrics, to be registered.
    pub fn metrics(&self) -> Metrics {
        Metrics::new(Arc::clone(&self.shared))
    }

    /// The metrics with a series for every label, from which the reference is written. Nothing runs.
    pub fn example_metrics(config: Arc<Config>) -> Metrics {
        let server = Server::new(Options::default(), 1);
        server
            .shared
            .counters
            .iter()
            .for_each(Counters::answer_everything);
        let groups = Groups::build(&config, &[], &mut HashMap::new());
        let horizon = Horizon::build(config, &Names::default(), None);
        let serving = Serving { horizon, groups };
        server.shared.serving.send_replace(Some(Arc::new(serving)));
        server.metrics()
    }

    /// The state for `/health` and `/ready`.
    pub fn probes(&self) -> Probes {
        Probes {
            shared: Arc::clone(&self.shared),
        }
    }

    /// The addresses that it will serve, to be changed while it runs.
    pub fn addresses(&self) -> Addresses {
        Addresses {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Serves until `shutdown` is ready, then ends what is in flight and returns.
    ///
    /// A change of either channel is served within a moment; no question is lost by it. When a channel
    /// closes, its last value stays.
    pub async fn run(
        self,
        listeners: Listeners,
        config: watch::Receiver<Arc<Config>>,
        names: watch::Receiver<Arc<Names>>,
        report: Arc<dyn Report>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), RunError> {
        let shared = self.shared;
        let (stop, stopped) = watch::channel(false);
        shared.move_to(listeners);
        let control = control::Control::new(Arc::clone(&shared), Arc::clone(&report));
        let control = tokio::spawn(control.run(config, names));
        let mut ended = worker::start(&shared, self.changes, &report, &stopped)?;
        let outcome = tokio::select! {
            () = shutdown => Ok(()),
            core = ended.recv() => Err(RunError::Core(core.unwrap_or(0))),
        };
        shared.ready.store(false, Relaxed);
        let _ = stop.send(true); // every receiver is gone: all have ended
        while ended.recv().await.is_some() {}
        control.abort();
        outcome
    }
}
