//! Thousands of idle connections, and what happens when file descriptors run out.
//!
//! A connection needs four descriptors over three parties, so each party is a process of its own: this program
//! starts itself again as gateway and as backend. Output: one line a figure.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]

mod battery;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use battery::world::World;
use battery::{backends, in_time, own_address};
use oooi_api::report::{Event, Report, ServerReport};
use oooi_proxy::metrics::Metrics;
use oooi_proxy::server::{Options, Server};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// How long a role may take to say something.
const PATIENCE: Duration = Duration::from_secs(30);
/// Two descriptors each in the gateway, of the 20,000 that a process has here.
const IDLE: usize = 9_000;
/// The gateway of the second part has these, and many clients.
const FEW_DESCRIPTORS: u64 = 120;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    match arguments.get(1).map(String::as_str) {
        Some("role-backend") => runtime.block_on(backend()),
        Some("role-gateway") => runtime.block_on(gateway(&arguments[2], &arguments[3], &arguments[4])),
        _ => runtime.block_on(async {
            let backend = Role::start(&["role-backend"]);
            idle_connections_cost_next_to_nothing(&backend).await;
            exhausted_descriptors_stop_accepting_and_nothing_else(&backend).await;
            println!("net_idle: ok");
        }),
    }
}

/// This program in another role; ended when dropped.
struct Role {
    child: Child,
    said: Receiver<String>,
    /// What it said first: where it listens.
    address: SocketAddr,
}

impl Role {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (say, said) = mpsc::channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| say.send(line)));
        let first = said
            .recv_timeout(PATIENCE)
            .expect("the role says where it listens");
        Self {
            child,
            said,
            address: first.parse().unwrap(),
        }
    }

    /// What it says next.
    fn says(&self) -> String {
        self.said.recv_timeout(PATIENCE).expect("the role says something")
    }

    fn resident_kib(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// User and system time, in hundredths of a second.
    fn cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn allow_descriptors(count: Option<u64>) {
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: count.or(hard),
            maximum: hard,
        },
    )
    .unwrap();
}

async fn backend() {
    allow_descriptors(None);
    let backend = backends::echo().await;
    println!("{}", backend.address);
    std::future::pending::<()>().await;
}

/// Events go to standard output.
struct Printed;

impl Report for Printed {
    fn state(&self, _: ServerReport) {}
    fn event(&self, event: Event) {
        println!("{}", event.reason);
    }
}

/// Serves `backend` on `ip`, with this many descriptors (0: all that it may have).
async fn gateway(ip: &str, backend: &str, descriptors: &str) {
    allow_descriptors(None);
    let ip = ip.parse().unwrap();
    let mut options = Options::new(vec![ip]);
    options.threads = 2;
    allow_descriptors(Some(descriptors.parse().unwrap()).filter(|count| *count > 0));
    let mut world = World::default();
    world.publish("plain", "*", 8080, &[backend.parse().unwrap()]);
    let metrics = Metrics::default();
    let server = Server::new(options, metrics.clone(), Arc::new(Printed));
    let (_snapshots, receiver) = watch::channel(world.snapshot());
    let run = server.run(receiver, std::future::pending());
    let ready = async {
        while metrics.updates() == 0 {
            tokio::task::yield_now().await;
        }
        println!("{}", SocketAddr::new(ip, 8080));
        std::future::pending::<()>().await;
    };
    tokio::select! {
        result = run => result.unwrap(),
        () = ready => {}
    }
}

async fn open(at: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(at).await.unwrap();
    assert_eq!(echo(&mut stream).await, Some(b'x'));
    stream
}

async fn echo(stream: &mut TcpStream) -> Option<u8> {
    stream.write_u8(b'x').await.ok()?;
    in_time("an echo", stream.read_u8()).await.ok()
}

async fn idle_connections_cost_next_to_nothing(backend: &Role) {
    allow_descriptors(None);
    let gateway = Role::start(&[
        "role-gateway",
        &own_address().to_string(),
        &backend.address.to_string(),
        "0",
    ]);
    let empty = gateway.resident_kib();
    let mut open_ones = Vec::with_capacity(IDLE);
    for _ in 0..IDLE {
        open_ones.push(open(gateway.address).await);
    }
    let each = (gateway.resident_kib() - empty) as f64 / IDLE as f64;
    let before = gateway.cpu_ticks();
    tokio::time::sleep(Duration::from_secs(3)).await; // the figure is the CPU time of a while in which nothing happens
    let ticks = gateway.cpu_ticks() - before;
    println!("resident with no connection: {empty} KiB");
    println!("resident for each of {IDLE} idle connections: {each:.2} KiB");
    println!("CPU while idle: {} ms in 3 s", ticks * 10);
    assert!(each < 1.0, "an idle connection takes {each:.2} KiB");
    assert!(ticks <= 1, "idle connections take {ticks} ticks of CPU");
    for stream in open_ones.iter_mut().step_by(97) {
        assert_eq!(echo(stream).await, Some(b'x'), "an idle connection still works");
    }
}

async fn exhausted_descriptors_stop_accepting_and_nothing_else(backend: &Role) {
    let few = FEW_DESCRIPTORS.to_string();
    let gateway = Role::start(&[
        "role-gateway",
        &own_address().to_string(),
        &backend.address.to_string(),
        &few,
    ]);
    let mut served = vec![open(gateway.address).await];
    let mut waiting = Vec::new();
    for _ in 0..FEW_DESCRIPTORS {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        stream.write_u8(b'x').await.unwrap();
        match tokio::time::timeout(Duration::from_millis(200), stream.read_u8()).await {
            Ok(Ok(_)) => served.push(stream),
            Ok(Err(error)) => panic!("reset: {error}"),
            Err(_) => {
                waiting.push(stream);
                if waiting.len() == 5 {
                    break;
                }
            }
        }
    }
    println!(
        "served with {FEW_DESCRIPTORS} descriptors: {}, then waiting: {}",
        served.len(),
        waiting.len()
    );
    assert!(served.len() > 30 && !waiting.is_empty());
    assert_eq!(gateway.says(), "FileDescriptorsExhausted", "it says so");
    for stream in &mut served {
        assert_eq!(echo(stream).await, Some(b'x'), "established connections go on");
    }
    served.truncate(10);
    for stream in &mut waiting {
        let byte = in_time("the turn of one that waited", stream.read_u8()).await;
        assert_eq!(byte.unwrap(), b'x');
    }
    let said = gateway.says();
    assert_eq!(said, "FileDescriptorsAvailable", "and says when it is over");
}
