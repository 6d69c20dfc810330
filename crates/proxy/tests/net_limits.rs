//! What the native engine refuses, and how it starts and ends.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

mod battery;

use std::fmt::{Debug, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use battery::clients::is_reset;
use battery::world::World;
use battery::{backends, in_time, own_address};
use oooi_api::report::Recorded;
use oooi_proxy::limit::Limits;
use oooi_proxy::metrics::{Metrics, Reason};
use oooi_proxy::server::{Admin, Error, Options, Server};
use oooi_proxy::snapshot::Snapshot;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, SockRef, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

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
        Self::start_at(own_address(), world, change).await
    }

    async fn start_at(ip: IpAddr, world: &mut World, change: impl FnOnce(&mut Limits)) -> Self {
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
    until("it to be said", || {
        gateway.reasons() == ["ConnectionLimitReached"]
    })
    .await;
    drop(first);
    assert_eq!(in_time("its turn", waiting.read_u8()).await.unwrap(), b'w');
    assert_eq!(
        gateway.reasons().len(),
        1,
        "a place that is taken at once is no news"
    );
    drop((second, waiting));
    until("room", || gateway.metrics.active("plain") == 0).await;
    gateway.connect(8080).await;
    until("the end to be said", || {
        gateway.reasons().last() == Some(&"ConnectionsAvailable")
    })
    .await;
}

#[test]
fn as_many_descriptors_are_used_as_the_process_may_have() {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.expect("a hard limit");
    let half = Rlimit {
        current: Some(hard / 2),
        ..limit
    };
    setrlimit(Resource::Nofile, half).unwrap();
    let options = Options::new(Vec::new());
    assert_eq!(
        options.limits.connections,
        Limits::for_descriptors(hard).connections
    );
    assert_eq!(getrlimit(Resource::Nofile).current, Some(hard));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_breaks_off_is_noticed_whatever_its_connection_waits_for() {
    let backend = backends::silent().await;
    let gateway = Gateway::start(&mut plain(&backend), |_| ()).await;
    let ended = TcpStream::connect(gateway.at(8080)).await.unwrap();
    let blocked = TcpStream::connect(gateway.at(8080)).await.unwrap();
    until("both", || gateway.metrics.active("plain") == 2).await;
    // One has ended its own direction and waits for an answer; the other sends what nobody reads.
    SockRef::from(&ended).shutdown(Shutdown::Write).unwrap();
    let piece = vec![0; 1 << 20];
    let room = || tokio::time::timeout(Duration::from_millis(300), blocked.writable());
    while room().await.is_ok() {
        let _ = blocked.try_write(&piece);
    }
    for stream in [ended, blocked] {
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
    until("both to be gone", || gateway.metrics.active("plain") == 0).await;
    assert_eq!(gateway.metrics.resets(Reason::PeerReset), 2);
}

/// An address that nothing is heard from: its queue of new connections is full.
struct Deaf {
    address: SocketAddr,
    _listener: Socket,
    _waiting: Vec<Socket>,
}

impl Deaf {
    fn new() -> Self {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener
            .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
            .unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let knock = || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            let _ = socket.connect(&address);
            socket
        };
        Self {
            address: address.as_socket().unwrap(),
            _waiting: (0..4).map(|_| knock()).collect(),
            _listener: listener,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_does_not_answer_is_tried_again_until_the_budget_is_spent() {
    let deaf = Deaf::new();
    let mut world = World::default();
    let budget = serde_json::json!({"timeoutSeconds": 2});
    world.publish_with("plain", "*", 8080, &[deaf.address], budget);
    let gateway = Gateway::start(&mut world, |limits| {
        limits.attempt_time = Duration::from_millis(300);
    })
    .await;
    let start = Instant::now();
    let mut stream = TcpStream::connect(gateway.at(8080)).await.unwrap();
    assert!(in_time("the end", stream.read_u8()).await.is_err());
    let took = start.elapsed();
    assert!(
        took >= Duration::from_millis(1900),
        "the budget is 2 s, not {took:?}"
    );
    until("the count", || gateway.metrics.resets(Reason::ConnectFailed) == 1).await;
    let attempts = gateway.metrics.connect_failures("plain");
    assert!(
        (3..=7).contains(&attempts),
        "{attempts} attempts of 300 ms in 2 s"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_session_of_datagrams_ends_and_the_next_datagram_begins_another() {
    let backend = backends::udp("one").await;
    let mut world = World::default();
    let datagrams = serde_json::json!({"protocol": "UDP"});
    world.publish_with("udp", "udp.demo.test", 8053, &[backend.address], datagrams);
    let gateway = Gateway::start(&mut world, |limits| {
        limits.udp_idle = Duration::from_secs(1);
    })
    .await;
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.connect(gateway.at(8053)).await.unwrap();
    for _ in 0..2 {
        client.send(b"hello").await.unwrap();
        let mut answer = [0; 20];
        let count = in_time("an answer", client.recv(&mut answer)).await.unwrap();
        assert_eq!(&answer[..count], b"one:hello");
        assert_eq!(gateway.metrics.active("udp"), 1);
        until("the end of the session", || gateway.metrics.active("udp") == 0).await;
    }
}

/// What is logged of a refused connection: the name that it asked for, and why it was refused.
#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl Subscriber for &'static Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("oooi_proxy")
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = String::new();
        event.record(&mut |field: &Field, value: &dyn Debug| {
            let _ = write!(line, "{field}={value:?} ");
        });
        self.0.lock().unwrap().push(line);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_route_names_is_counted_and_logged_with_the_name_asked_for() {
    static LINES: LazyLock<Lines> = LazyLock::new(Lines::default);
    // Other tests of this process log there too: theirs have other ports and names.
    tracing::subscriber::set_global_default(&*LINES).unwrap();
    let backend = backends::echo().await;
    let mut world = World::default();
    world
        .publish("a", "a.demo.test", 8443, &[backend.address])
        .publish("b", "b.demo.test", 8443, &[backend.address]);
    let gateway = Gateway::start(&mut world, |_| ()).await;
    let asks_for_another = include_bytes!("hellos/openssl-tls13.bin"); // api.demo.example.com
    let nameless = include_bytes!("hellos/openssl-no-sni.bin");
    assert!(is_reset(gateway.at(8443), asks_for_another).await);
    until("the count", || gateway.metrics.resets(Reason::UnknownName) == 1).await;
    assert!(is_reset(gateway.at(8443), nameless).await);
    until("the count", || gateway.metrics.resets(Reason::NoName) == 1).await;
    let logged = |parts: [&str; 2]| {
        let lines = LINES.0.lock().unwrap();
        lines
            .iter()
            .any(|line| parts.iter().all(|part| line.contains(part)))
    };
    until("the log", || {
        logged(["name=\"api.demo.example.com\"", "reason=\"unknown_name\""])
    })
    .await;
    until("the log", || logged(["name=\"\"", "reason=\"no_name\""])).await;
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
    assert!(gateway.admin.is_ready());
    drop(gateway.shutdown);
    in_time("the port to close", async {
        while TcpStream::connect(at).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(echo(&mut open, b'z').await, Some(b'z'));
    assert!(!gateway.task.is_finished() && !gateway.admin.is_ready());
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
async fn it_is_ready_once_every_port_was_bound() {
    let backend = backends::echo().await;
    let ip = own_address();
    let rival = TcpListener::bind((ip, 8081)).unwrap();
    let mut world = plain(&backend);
    world.publish("second", "*", 8081, &[backend.address]);
    let gateway = Gateway::start_at(ip, &mut world, |_| ()).await;
    gateway.connect(8080).await;
    assert!(!gateway.admin.is_ready());
    drop(rival);
    until("the port", || gateway.admin.is_ready()).await;
    gateway.connect(8081).await;
    // A port that comes later and cannot be had takes nothing from the clients of the others.
    let _rival = TcpListener::bind((ip, 8082)).unwrap();
    world.publish("third", "*", 8082, &[backend.address]);
    gateway.snapshots.send_replace(world.snapshot());
    until("the report", || {
        gateway.report.latest().is_some_and(|state| !state.accepted)
    })
    .await;
    assert!(gateway.admin.is_ready());
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
