//! What the native engine refuses, and how it starts and ends.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod battery;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use battery::world::World;
use battery::{backends, in_time, own_address};
use oooi_api::report::Recorded;
use oooi_proxy::limit::Limits;
use oooi_proxy::metrics::{Metrics, Reason};
use oooi_proxy::server::{Admin, Error, Options, Server};
use oooi_proxy::snapshot::Snapshot;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

struct Gateway {
    ip: IpAddr,
    metrics: Metrics,
    report: Arc<Recorded>,
    admin: Admin,
    snapshots: watch::Sender<Arc<Snapshot>>,
    shutdown: oneshot::Sender<()>,
    task: JoinHandle<Result<(), Error>>,
}

impl Gateway {
    /// A gateway with the limits of `change`, serving `world`.
    async fn start(world: &mut World, change: impl FnOnce(&mut Limits)) -> Self {
        let ip = own_address();
        let mut options = Options::new(vec![ip]);
        options.threads = 2;
        change(&mut options.limits);
        let (metrics, report) = (Metrics::default(), Arc::new(Recorded::default()));
        let server = Server::new(options, metrics.clone(), report.clone());
        let admin = server.admin();
        let (snapshots, receiver) = watch::channel(world.snapshot());
        let (shutdown, asked) = oneshot::channel::<()>();
        let task = tokio::spawn(server.run(receiver, async { _ = asked.await }));
        until("the start", || metrics.updates() > 0).await;
        Self {
            ip,
            metrics,
            report,
            admin,
            snapshots,
            shutdown,
            task,
        }
    }

    fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip, port)
    }

    /// A connection that has reached its backend.
    async fn connect(&self, port: u16) -> TcpStream {
        let mut stream = TcpStream::connect(self.at(port)).await.unwrap();
        assert_eq!(echo(&mut stream, b'x').await, Some(b'x'));
        stream
    }

    fn reasons(&self) -> Vec<&'static str> {
        self.report.events().iter().map(|event| event.reason).collect()
    }
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    in_time(what, async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn echo(stream: &mut TcpStream, byte: u8) -> Option<u8> {
    stream.write_u8(byte).await.ok()?;
    in_time("an echo", stream.read_u8()).await.ok()
}

fn plain(backend: &backends::Backend) -> World {
    let mut world = World::default();
    world.publish("plain", "*", 8080, &[backend.address]);
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hello_that_takes_too_long_is_cut_off() {
    let backend = backends::echo().await;
    let mut world = World::default();
    world.publish("api", "api.demo.test", 8443, &[backend.address]);
    let gateway = Gateway::start(&mut world, |limits| {
        limits.hello_time = Duration::from_millis(300);
    })
    .await;
    let mut slow = TcpStream::connect(gateway.at(8443)).await.unwrap();
    slow.write_all(&[0x16, 3, 1]).await.unwrap();
    let start = Instant::now();
    assert!(in_time("the end", slow.read_u8()).await.is_err());
    assert!(
        start.elapsed() >= Duration::from_millis(250),
        "{:?}",
        start.elapsed()
    );
    until("the count", || gateway.metrics.resets(Reason::HelloTimeout) == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_too_many_connections_is_reset_until_it_ends_one() {
    let backend = backends::echo().await;
    let gateway = Gateway::start(&mut plain(&backend), |limits| limits.connections_per_client = 2).await;
    let first = gateway.connect(8080).await;
    let _second = gateway.connect(8080).await;
    // The reset may come before the connection is seen to be made.
    if let Ok(mut third) = TcpStream::connect(gateway.at(8080)).await {
        assert_eq!(echo(&mut third, b'x').await, None);
    }
    until("the count", || gateway.metrics.resets(Reason::ClientLimit) == 1).await;
    drop(first);
    until("the first to be gone", || gateway.metrics.active("plain") == 1).await;
    gateway.connect(8080).await;
}

/// Whether a connection to this address has a timer beside that of unacknowledged data: it is kept alive.
fn is_kept_alive(backend: SocketAddr) -> bool {
    let remote = format!("0100007F:{:04X}", backend.port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let mut rows = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.any(|row| row[2] == remote && row[3] == "01" && row[5].starts_with("02:"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_that_falls_silent_is_asked_whether_it_is_still_there() {
    let backend = backends::echo().await;
    let mut world = plain(&backend);
    world.idle_timeout = Some("20s"); // so that silence is looked for every second
    let gateway = Gateway::start(&mut world, |_| ()).await;
    let _stream = gateway.connect(8080).await;
    until("the kernel to ask", || is_kept_alive(backend.address)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_the_limit_new_connections_wait_and_are_served_when_one_ends() {
    let backend = backends::echo().await;
    let gateway = Gateway::start(&mut plain(&backend), |limits| limits.connections = 2).await;
    let first = gateway.connect(8080).await;
    let mut second = gateway.connect(8080).await;
    let mut waiting = TcpStream::connect(gateway.at(8080)).await.unwrap();
    waiting.write_u8(b'w').await.unwrap();
    let served = tokio::time::timeout(Duration::from_millis(300), waiting.read_u8()).await;
    assert!(served.is_err(), "served beyond the limit: {served:?}");
    assert_eq!(echo(&mut second, b'y').await, Some(b'y'), "the others go on");
    drop(first);
    assert_eq!(in_time("its turn", waiting.read_u8()).await.unwrap(), b'w');
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_connections_are_slowed_to_the_accept_rate() {
    let backend = backends::echo().await;
    let gateway = Gateway::start(&mut plain(&backend), |limits| limits.accepts_per_second = 20).await;
    let start = Instant::now();
    for _ in 0..12 {
        gateway.connect(8080).await;
    }
    // Two at once, the other ten 50 ms apart.
    assert!(
        start.elapsed() > Duration::from_millis(400),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_lets_connections_end_and_takes_no_new_ones() {
    let backend = backends::echo().await;
    let gateway = Gateway::start(&mut plain(&backend), |_| {}).await;
    let at = gateway.at(8080);
    let mut open = gateway.connect(8080).await;
    drop(gateway.shutdown);
    in_time("the port to close", async {
        while TcpStream::connect(at).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(echo(&mut open, b'z').await, Some(b'z'));
    assert!(!gateway.task.is_finished());
    drop(open);
    in_time("the end", gateway.task).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_does_not_end_is_ended_at_the_deadline() {
    let backend = backends::echo().await;
    let gateway = Gateway::start(&mut plain(&backend), |limits| {
        limits.drain_time = Duration::from_millis(200);
    })
    .await;
    let mut open = gateway.connect(8080).await;
    drop(gateway.shutdown);
    in_time("the end", gateway.task).await.unwrap().unwrap();
    assert_eq!(echo(&mut open, b'z').await, None);
    assert_eq!(gateway.metrics.active("plain"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_is_taken_is_reported_and_tried_again_while_others_work() {
    let backend = backends::echo().await;
    let mut world = plain(&backend);
    let gateway = Gateway::start(&mut world, |_| {}).await;
    let rival = TcpListener::bind(gateway.at(8081)).unwrap();
    world.publish("second", "*", 8081, &[backend.address]);
    gateway.snapshots.send_replace(world.snapshot());
    until("the report", || gateway.reasons().contains(&"CannotListen")).await;
    until("the state", || {
        gateway.report.latest().is_some_and(|state| !state.accepted)
    })
    .await;
    let message = gateway.report.latest().unwrap().message.unwrap();
    assert!(message.contains(&gateway.at(8081).to_string()), "{message}");
    gateway.connect(8080).await;
    drop(rival);
    until("the port", || gateway.reasons().contains(&"Listening")).await;
    gateway.connect(8081).await;
    until("the state", || {
        gateway.report.latest().is_some_and(|state| state.accepted)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_view_shows_routes_endpoints_and_their_health() {
    let backend = backends::echo().await;
    let dead = "127.0.0.1:1".parse().unwrap();
    let mut world = World::default();
    world
        .publish("plain", "*", 8080, &[backend.address, dead])
        .publish("api", "api.demo.test", 8443, &[]);
    let gateway = Gateway::start(&mut world, |_| {}).await;
    for _ in 0..6 {
        gateway.connect(8080).await;
    }
    let view = serde_json::to_value(gateway.admin.view()).unwrap();
    assert_eq!(view["schemaVersion"], 1);
    assert_eq!(
        view["listeners"][1]["routes"]["byName"]["exact"]["api.demo.test"],
        "api"
    );
    assert_eq!(view["listeners"][0]["routes"]["whole"], "plain");
    let endpoints = view["backends"][1]["endpoints"].as_array().unwrap();
    let ejected = |address: SocketAddr| {
        let found = endpoints
            .iter()
            .find(|endpoint| endpoint["address"] == address.to_string());
        found.unwrap()["ejected"].as_bool().unwrap()
    };
    assert!(ejected(dead) && !ejected(backend.address), "{view:#}");
    assert_eq!(view["problems"][0]["backend"], "api");
}

#[tokio::test]
async fn without_an_address_it_does_not_start() {
    let server = Server::new(
        Options::new(Vec::new()),
        Metrics::default(),
        Arc::new(Recorded::default()),
    );
    let (_keep, receiver) = watch::channel(Arc::default());
    let error = server.run(receiver, std::future::pending()).await.unwrap_err();
    assert!(error.to_string().contains("serverIP"), "{error}");
}
