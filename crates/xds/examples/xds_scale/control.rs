//! The control plane on a thread of its own, so that its CPU time can be told from the load's.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use oooi_api::proxy_server::LogLevel;
use oooi_api::report::Recorded;
use oooi_proxy::snapshot::Snapshot;
use oooi_xds::admin::Admin;
use oooi_xds::ads::ControlPlane;
use oooi_xds::bootstrap::{Bootstrap, DRAIN_TIME, Endpoint};
use oooi_xds::metrics::Metrics;
use oooi_xds::resources::Kind;
use oooi_xds::server::{self, Listener};
use oooi_xds::supervisor::Supervisor;
use tokio::sync::watch;

use crate::{Failure, until};

/// The name by which Envoy is known.
pub(crate) const ENVOY: &str = "envoy";

pub(crate) struct Control {
    pub(crate) address: SocketAddr,
    plane: ControlPlane,
    metrics: Metrics,
    snapshots: watch::Sender<Arc<Snapshot>>,
    runtime: tokio::runtime::Handle,
    over: watch::Sender<bool>,
    thread_id: i32,
    thread: JoinHandle<Result<(), Failure>>,
}

impl Control {
    /// Serves nothing yet.
    pub(crate) fn start(addresses: Vec<IpAddr>) -> Result<Self, Failure> {
        let metrics = Metrics::default();
        let plane = ControlPlane::new(addresses, metrics.clone(), Arc::new(Recorded::default()));
        let (snapshots, receiver) = watch::channel(Arc::default());
        let over = watch::Sender::new(false);
        let (started, start) = mpsc::channel();
        let (served, mut ended) = (plane.clone(), over.subscribe());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let listener = Listener::bind(&Endpoint::Tcp(([127, 0, 0, 1], 0).into())).await?;
                let handle = tokio::runtime::Handle::current();
                let thread = rustix::thread::gettid().as_raw_nonzero().get();
                started.send((listener.endpoint()?, handle, thread))?;
                let following = served.clone();
                tokio::spawn(async move { following.follow(receiver).await });
                server::run(listener, &served, async {
                    _ = ended.wait_for(|over| *over).await;
                })
                .await?;
                // Envoy ends with the supervisor, which ends with this.
                Ok(())
            })
        });
        let (endpoint, runtime, thread_id) = start.recv()?;
        let Endpoint::Tcp(address) = endpoint else {
            return Err("the control plane is not on loopback".into());
        };
        Ok(Self {
            address,
            plane,
            metrics,
            snapshots,
            runtime,
            over,
            thread_id,
            thread,
        })
    }

    /// Starts an Envoy that is configured by it; where its admin interface is.
    pub(crate) fn envoy(&self, binary: PathBuf) -> Result<Admin, Failure> {
        let admin = std::net::TcpListener::bind("127.92.1.1:0")?.local_addr()?;
        let supervisor = Supervisor {
            binary,
            bootstrap: Bootstrap {
                node: ENVOY.to_owned(),
                xds: Endpoint::Tcp(self.address),
                admin,
                connections: 1000,
            },
            threads: Some(1),
            drain_time: DRAIN_TIME,
        };
        let levels = watch::Sender::new(LogLevel::Error).subscribe();
        let mut over = self.over.subscribe();
        self.runtime.spawn(async move {
            let report = Arc::new(Recorded::default());
            supervisor
                .run(levels, report, async {
                    _ = over.wait_for(|over| *over).await;
                })
                .await;
        });
        Ok(Admin(admin))
    }

    pub(crate) fn is_ready(&self, admin: Admin) -> bool {
        self.runtime.block_on(admin.is_ready())
    }

    pub(crate) fn send(&self, snapshot: Arc<Snapshot>) {
        self.snapshots.send_replace(snapshot);
    }

    pub(crate) fn is_settled(&self, node: &str) -> bool {
        self.plane.is_settled(node)
    }

    /// Sends the first snapshot; the time until the client has answered for every cluster, its endpoints and the listener.
    pub(crate) fn deliver(&self, snapshot: Arc<Snapshot>, node: &str) -> Result<Duration, Failure> {
        let all = self.sent() + 2 * snapshot.clusters.len() as u64 + 1;
        let start = Instant::now();
        self.send(snapshot);
        until("the client to have everything", || {
            self.sent() >= all && self.is_settled(node)
        })?;
        Ok(start.elapsed())
    }

    /// Resources sent so far.
    pub(crate) fn sent(&self) -> u64 {
        Kind::ALL
            .into_iter()
            .map(|kind| self.metrics.resources_sent(kind))
            .sum()
    }

    /// Time on a core of the control plane's thread, by the scheduler's count.
    pub(crate) fn cpu(&self) -> Result<Duration, Failure> {
        let text = std::fs::read_to_string(format!("/proc/self/task/{}/schedstat", self.thread_id))?;
        let nanos = text.split_whitespace().next().ok_or("an empty schedstat")?;
        Ok(Duration::from_nanos(nanos.parse()?))
    }

    /// Ends it, and its Envoy.
    pub(crate) fn end(self) -> Result<(), Failure> {
        self.over.send_replace(true);
        self.thread
            .join()
            .map_err(|_| "the control plane's thread broke")?
    }
}
