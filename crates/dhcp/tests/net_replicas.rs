//! Two servers with a shared store: each answers its own clients, and when one is gone the other answers all.
//! Needs root.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod netns;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use netns::{Lan, Namespace};
use oooi_api::report::Recorded;
use oooi_dhcp::config::Config;
use oooi_dhcp::mac::Mac;
use oooi_dhcp::machines::Machines;
use oooi_dhcp::message::MessageType;
use oooi_dhcp::metrics::Metrics;
use oooi_dhcp::server::{self, Feeds};
use oooi_dhcp::socket::Socket;
use oooi_dhcp::testing::fixture;
use oooi_dhcp::testing::packet::{Answer, Packet};
use oooi_dhcp::testing::shared::Shared;
use tokio::sync::{mpsc, oneshot, watch};

const CLIENTS: u8 = 20;

fn ip(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 100, last)
}

/// Runs a server until told to end.
fn run(interface: &str, shared: &Shared, ready: oneshot::Sender<()>, end: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let socket = Socket::open(interface).unwrap();
        let spec = fixture::spec(|spec| {
            spec.network_config.additional_server_ips = vec!["192.168.100.4".into()];
            spec.lease_config.range_end = "192.168.100.60".into();
        });
        let config = Config::from_spec(&spec, &socket.addresses().unwrap()).unwrap();
        let (_config, config) = watch::channel(Arc::new(config));
        let (_machines, machines) = watch::channel(Arc::new(Machines::default()));
        let (_commands, commands) = mpsc::channel(1);
        let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
        let report = Arc::new(Recorded::default());
        ready.send(()).unwrap();
        let shutdown = async { drop(end.await) };
        let feeds = Feeds {
            config,
            machines,
            commands,
        };
        server::run(socket, feeds, shared.store(), report.clone(), metrics, shutdown)
            .await
            .unwrap();
        assert!(report.latest().unwrap().counts["activeLeases"] > 0);
    });
}

/// A station that plays every client.
struct Station(UdpSocket);

impl Station {
    fn new(namespace: &Namespace) -> Self {
        Station(namespace.enter(|| {
            let socket = UdpSocket::bind("0.0.0.0:68").unwrap();
            socket2::SockRef::from(&socket)
                .bind_device(Some(b"eth0"))
                .unwrap();
            socket.set_broadcast(true).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            socket
        }))
    }

    /// Every answer within a while.
    fn ask(&self, packet: Packet) -> Vec<Answer> {
        self.0
            .send_to(&packet.broadcast().build(), "255.255.255.255:67")
            .unwrap();
        let mut answers = Vec::new();
        let mut bytes = [0; 1500];
        while let Ok(length) = self.0.recv(&mut bytes) {
            answers.push(Answer {
                bytes: bytes[..length].to_vec(),
            });
        }
        answers
    }

    /// The one answer that there must be.
    fn ask_one(&self, packet: Packet) -> Answer {
        let answers = self.ask(packet);
        assert_eq!(answers.len(), 1, "one server answers");
        answers.into_iter().next().unwrap()
    }
}

fn packet(kind: MessageType, n: u8) -> Packet {
    Packet::new(kind, Mac([2, 0, 0, 0, 0, n]))
}

fn server_of(answer: &Answer) -> Ipv4Addr {
    Ipv4Addr::from(<[u8; 4]>::try_from(answer.option(54).unwrap()).unwrap())
}

#[test]
fn when_one_of_two_servers_is_gone_the_other_answers_all_clients() {
    let mut lan = Lan::new("192.168.100.2/24");
    let (second, clients) = (lan.attach(), lan.attach());
    second.run("ip addr add 192.168.100.4/24 dev eth0");
    for last in 10..=60 {
        clients.run(&format!("ip addr add {}/24 dev eth0", ip(last)));
    }
    let shared = Shared::default();
    let (end_one, ended_one) = oneshot::channel();
    let (end_two, ended_two) = oneshot::channel();
    std::thread::scope(|scope| {
        let (ready, one_is_ready) = oneshot::channel();
        let (lan, second, shared) = (&lan, &second, &shared);
        let one = scope.spawn(move || lan.server.enter(|| run("br0", shared, ready, ended_one)));
        let (ready, two_is_ready) = oneshot::channel();
        let two = scope.spawn(move || second.enter(|| run("eth0", shared, ready, ended_two)));
        one_is_ready.blocking_recv().unwrap();
        two_is_ready.blocking_recv().unwrap();

        let station = Station::new(&clients);
        let mut leases = BTreeMap::new();
        let mut servers = BTreeMap::new();
        for n in 1..=CLIENTS {
            let offer = station.ask_one(packet(MessageType::Discover, n));
            let (server, address) = (server_of(&offer), offer.yiaddr());
            let ack = station.ask_one(packet(MessageType::Request, n).server(server).requested(address));
            assert_eq!((ack.kind(), ack.yiaddr()), (5, address));
            leases.insert(n, address);
            servers.insert(n, server);
        }
        let addresses: BTreeSet<Ipv4Addr> = leases.values().copied().collect();
        assert_eq!(
            addresses.len(),
            usize::from(CLIENTS),
            "every client has its own: {leases:?}"
        );
        assert_eq!(
            servers.values().collect::<BTreeSet<_>>().len(),
            2,
            "both servers took part: {servers:?}"
        );

        end_one.send(()).unwrap();
        one.join().unwrap();
        for (n, address) in leases.iter().filter(|(n, _)| servers[n] == ip(2)) {
            // A client that asks for an address is not ours at first; after a while nobody else answers.
            assert!(
                station.ask(packet(MessageType::Discover, *n)).is_empty(),
                "client {n}"
            );
            let offer = station.ask_one(packet(MessageType::Discover, *n).secs(4));
            assert_eq!(
                (offer.yiaddr(), server_of(&offer)),
                (*address, ip(4)),
                "client {n}"
            );
            // One that extends the lease that it has is answered at once.
            let ack = station.ask_one(packet(MessageType::Request, *n).ciaddr(*address));
            assert_eq!(
                (ack.kind(), ack.yiaddr(), server_of(&ack)),
                (5, *address, ip(4)),
                "client {n}"
            );
        }
        for n in 100..105 {
            let offer = station.ask_one(packet(MessageType::Discover, n).secs(4));
            assert!(
                !addresses.contains(&offer.yiaddr()),
                "{} is taken",
                offer.yiaddr()
            );
        }
        end_two.send(()).unwrap();
        two.join().unwrap();
    });
    assert_eq!(shared.leases().len(), usize::from(CLIENTS));
}
