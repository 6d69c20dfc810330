//! What the tests share: a running server on loopback, a client, and upstreams that behave as told.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(unreachable_pub, reason = "a module of test programs, not a library")]
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

pub mod process;
pub mod upstream;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RecordType};
use oooi_api::dns_server::{DnsNetworkConfig, DnsServerSpec, DnsStaticEntry};
use oooi_api::report::Recorded;
use oooi_dns::{Config, Listeners, Names, Options, Server};
use prometheus_client::registry::Registry;
use tokio::net::UdpSocket;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// A node on the VLAN, a stranger to it, and a pod. All of 127.0.0.0/8 is local.
pub const NODE: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 20);
pub const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 9, 20);
pub const POD: Ipv4Addr = Ipv4Addr::new(127, 0, 2, 20);

/// The server's addresses on the VLAN and on the pod network.
const VLAN: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 3);
const PODS: Ipv4Addr = Ipv4Addr::new(127, 0, 2, 3);

/// A specification with a few names; `change` makes it what the test needs.
pub fn spec(change: impl FnOnce(&mut DnsServerSpec)) -> DnsServerSpec {
    let entry = |hostname: &str, ip: &str| DnsStaticEntry {
        hostname: hostname.into(),
        ip: ip.into(),
        additional_ips: vec![],
    };
    let mut spec = DnsServerSpec {
        hosted_cluster_domain: "hub.example.com".into(),
        network_config: DnsNetworkConfig {
            server_ip: VLAN.to_string(),
            proxy_ip: "127.0.1.4".into(),
            internal_proxy_ip: Some("172.30.0.9".into()),
            dns_port: 53,
            ..DnsNetworkConfig::default()
        },
        static_entries: vec![
            entry("api.hub.example.com", "127.0.1.4"),
            entry("*.apps.hub.example.com", "127.0.1.4"),
            entry("nas.hub.example.com", "127.0.1.9"),
        ],
        cache_ttl: "30s".into(),
        ..DnsServerSpec::default()
    };
    change(&mut spec);
    spec
}

/// A server that runs until it is dropped.
pub struct Running {
    pub vlan: SocketAddr,
    pub pods: SocketAddr,
    pub config: watch::Sender<Arc<Config>>,
    pub names: watch::Sender<Arc<Names>>,
    pub report: Arc<Recorded>,
    pub addresses: oooi_dns::server::Addresses,
    pub probes: oooi_dns::Probes,
    registry: Registry,
    stop: Option<oneshot::Sender<()>>,
    run: JoinHandle<()>,
}

/// Starts a server with two cores.
pub async fn start(change: impl FnOnce(&mut DnsServerSpec)) -> Running {
    start_with(Options::default(), change).await
}

pub async fn start_with(options: Options, change: impl FnOnce(&mut DnsServerSpec)) -> Running {
    let config = Config::from_spec(&spec(change)).expect("a sound specification");
    let wanted = [VLAN, PODS].map(|address| SocketAddr::new(address.into(), 0));
    let listeners = Listeners::bind(&wanted, &[], 2).expect("loopback can be bound");
    let [vlan, pods] = [listeners.addresses()[0], listeners.addresses()[1]];
    let server = Server::new(options, listeners.cores());
    let (probes, addresses) = (server.probes(), server.addresses());
    let mut registry = Registry::default();
    server.metrics().register(&mut registry);
    let (config, config_rx) = watch::channel(Arc::new(config));
    let (names, names_rx) = watch::channel(Arc::new(Names::default()));
    let report = Arc::new(Recorded::default());
    let (stop, stopped) = oneshot::channel::<()>();
    let reported: Arc<Recorded> = Arc::clone(&report);
    let run = tokio::spawn(async move {
        let shutdown = async {
            let _ = stopped.await;
        };
        server
            .run(listeners, config_rx, names_rx, reported, shutdown)
            .await
            .expect("the server runs");
    });
    until("the server is ready", || probes.is_ready()).await;
    Running {
        vlan,
        pods,
        config,
        names,
        report,
        addresses,
        probes,
        registry,
        stop: Some(stop),
        run,
    }
}

impl Running {
    /// Ends the server and waits for its end.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        self.run.await.expect("the server ends in order");
    }

    /// Was there an event for this reason?
    pub fn has_event(&self, reason: &str) -> bool {
        self.report.events().iter().any(|event| event.reason == reason)
    }

    /// The value of a metric, all labels together; 0 where it is not there.
    pub fn metric(&self, name: &str) -> f64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).expect("metrics can be written");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .filter(|line| line.split(['{', ' ']).next() == Some(name))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    pub fn reconfigure(&self, change: impl FnOnce(&mut DnsServerSpec)) {
        let config = Config::from_spec(&spec(change)).expect("a sound specification");
        self.config.send_replace(Arc::new(config));
    }

    /// Asks as a node on the VLAN.
    pub async fn node(&self, name: &str, kind: RecordType) -> Message {
        ask(NODE, self.vlan, &question(name, kind)).await
    }

    /// Asks as a pod.
    pub async fn pod(&self, name: &str, kind: RecordType) -> Message {
        ask(POD, self.pods, &question(name, kind)).await
    }
}

/// A question with EDNS and a random id.
pub fn question(name: &str, kind: RecordType) -> Message {
    let mut id = [0; 2];
    getrandom::fill(&mut id).expect("randomness");
    let mut message = Message::new(u16::from_be_bytes(id), MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).expect("a name"), kind));
    let mut edns = Edns::new();
    edns.set_max_payload(1232);
    message.edns = Some(edns);
    message
}

/// Sends a question and waits for its answer, which must come from the address asked.
pub async fn ask(from: Ipv4Addr, to: SocketAddr, question: &Message) -> Message {
    try_ask(from, to, question)
        .await
        .unwrap_or_else(|| panic!("no answer to {:?}", question.queries))
}

/// The same, where no answer within the time is an outcome.
pub async fn try_ask(from: Ipv4Addr, to: SocketAddr, question: &Message) -> Option<Message> {
    let wire = question.to_vec().expect("a question can be written");
    let answer = exchange(from, to, &wire, Duration::from_secs(6)).await?;
    let answer = Message::from_vec(&answer).expect("an answer can be read");
    assert_eq!(answer.metadata.id, question.metadata.id);
    Some(answer)
}

/// Sends octets and waits for octets.
pub async fn exchange(from: Ipv4Addr, to: SocketAddr, wire: &[u8], patience: Duration) -> Option<Vec<u8>> {
    Client::at(from).await.exchange(to, wire, patience).await
}

/// A client that asks by one socket, and so is heard by one core.
pub struct Client(UdpSocket);

impl Client {
    pub async fn at(from: Ipv4Addr) -> Client {
        Client(UdpSocket::bind((from, 0)).await.expect("a client's socket"))
    }

    pub async fn ask(&self, to: SocketAddr, name: &str, kind: RecordType) -> Message {
        let wire = question(name, kind).to_vec().expect("a question can be written");
        let answer = self.exchange(to, &wire, Duration::from_secs(6)).await;
        let answer = answer.unwrap_or_else(|| panic!("no answer to {name} {kind}"));
        Message::from_vec(&answer).expect("an answer can be read")
    }

    pub async fn exchange(&self, to: SocketAddr, wire: &[u8], patience: Duration) -> Option<Vec<u8>> {
        self.0.send_to(wire, to).await.expect("a question can be sent");
        let mut buffer = vec![0; 65_535];
        let (length, sender) = tokio::time::timeout(patience, self.0.recv_from(&mut buffer))
            .await
            .ok()?
            .ok()?;
        assert_eq!(
            sender, to,
            "the answer came from another address than the one asked"
        );
        buffer.truncate(length);
        Some(buffer)
    }
}

/// The data of all answers, as text.
pub fn data(message: &Message) -> Vec<String> {
    message
        .answers
        .iter()
        .map(|record| record.data.to_string())
        .collect()
}

/// Waits until something is so; fails after ten seconds.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "waited ten seconds in vain: {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// An address of loopback that only this test program uses.
pub fn own_address(last: u8) -> IpAddr {
    let [low, high, ..] = std::process::id().to_le_bytes();
    IpAddr::V4(Ipv4Addr::new(127, 100 | high & 31, low, last))
}
