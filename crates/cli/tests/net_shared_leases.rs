//! `oooi dhcp` twice, with leases in Kubernetes: each answers its own clients, and when one is killed the other answers
//! all. Needs root, for a link of their own, and the testbed: without one that runs, a control plane is started.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use oooi_net::{Namespace, Network};
use oooi_testkit::Cluster;
use serde_json::{Value, json};

/// Longer than anything takes here.
const LONG: Duration = Duration::from_secs(20);
/// Nobody who means to answer takes so long.
const SILENCE: Duration = Duration::from_millis(500);
const SERVERS: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 168, 100, 2), Ipv4Addr::new(192, 168, 100, 4)];

const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST: u8 = 3;
const ACK: u8 = 5;

/// A server's process; it ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A station on a new link of the bridge in `lan`.
fn station(lan: &Namespace, name: &'static str, address: Option<Ipv4Addr>) -> Namespace {
    let station = Namespace::new(name).unwrap();
    let inside = station.clone();
    lan.run(async move || {
        let network = Network::open().unwrap();
        network.add_veth(name, "eth0", &inside).await.unwrap();
        network.attach(name, "br0").await.unwrap();
    })
    .unwrap();
    let up = async move || {
        let network = Network::open().unwrap();
        network.set_up("lo").await.unwrap();
        network.set_up("eth0").await.unwrap();
        if let Some(address) = address {
            let net = ipnet::Ipv4Net::new(address, 24).unwrap();
            network.add_address("eth0", net).await.unwrap();
        }
    };
    station.run(up).unwrap();
    station
}

/// Lets processes of a namespace reach the API server, which listens on the loopback of this one.
fn reach_api_server(namespace: &Namespace, port: u16) {
    let (sender, streams) = std::sync::mpsc::channel::<TcpStream>();
    let (ready, bound) = std::sync::mpsc::channel();
    let listen = async move || {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        ready.send(()).unwrap();
        while let Ok((stream, _)) = listener.accept().await {
            if sender.send(stream.into_std().unwrap()).is_err() {
                return;
            }
        }
    };
    namespace.spawn(listen).unwrap();
    bound.recv().unwrap();
    std::thread::spawn(move || {
        for inside in streams {
            inside.set_nonblocking(false).unwrap();
            let outside = TcpStream::connect(("127.0.0.1", port)).unwrap();
            for (mut from, mut to) in [
                (inside.try_clone().unwrap(), outside.try_clone().unwrap()),
                (outside, inside),
            ] {
                std::thread::spawn(move || {
                    // Either side may go away at any time.
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
}

/// Starts a server in a namespace and waits until it serves.
fn start(namespace: &Namespace, cluster: &Cluster, place: &str, pod: &str) -> Server {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oooi"));
    command
        .args([
            "dhcp",
            "--interface",
            "eth0",
            "--namespace",
            place,
            "--name",
            "tenant-dhcp",
        ])
        .args(["--pod-name", pod])
        .env("KUBECONFIG", cluster.kubeconfig())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = namespace.run(async move || command.spawn().unwrap()).unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let server = Server(child);
    let mut seen = Vec::new();
    while let Some(line) = lines.next() {
        if line.contains("serving DHCP") {
            // Read on, or its log would stop it once the pipe is full.
            std::thread::spawn(move || lines.for_each(drop));
            return server;
        }
        seen.push(line);
    }
    panic!("{pod} does not serve: {}", seen.join("\n"));
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    kind: u8,
    address: Ipv4Addr,
    server: Ipv4Addr,
}

/// A station that plays every client.
struct Clients(UdpSocket);

impl Clients {
    fn on(namespace: &Namespace) -> Self {
        let open = async || {
            let socket = tokio::net::UdpSocket::bind("0.0.0.0:68").await.unwrap();
            socket.bind_device(Some(b"eth0")).unwrap();
            socket.set_broadcast(true).unwrap();
            socket.into_std().unwrap()
        };
        let socket = namespace.run(open).unwrap();
        socket.set_nonblocking(false).unwrap();
        Clients(socket)
    }

    /// What is answered to a message until nobody says anything more: within `wait` at first.
    fn ask(
        &self,
        client: u8,
        kind: u8,
        secs: u8,
        chosen: Option<(Ipv4Addr, Ipv4Addr)>,
        wait: Duration,
    ) -> Vec<Answer> {
        let mut message = vec![0; 240];
        message[..4].copy_from_slice(&[1, 1, 6, 0]);
        message[7] = client;
        message[9] = secs;
        message[10] = 0x80;
        message[28..34].copy_from_slice(&[2, 0, 0, 0, 0, client]);
        message[236..].copy_from_slice(&[99, 130, 83, 99]);
        message.extend([53, 1, kind]);
        if let Some((address, server)) = chosen {
            message.extend([50, 4].into_iter().chain(address.octets()));
            message.extend([54, 4].into_iter().chain(server.octets()));
        }
        message.push(255);
        self.0.send_to(&message, "255.255.255.255:67").unwrap();
        let mut answers = Vec::new();
        let mut bytes = [0; 1500];
        self.0.set_read_timeout(Some(wait)).unwrap();
        while let Ok(length) = self.0.recv(&mut bytes) {
            let answer = read(&bytes[..length]);
            if bytes[7] == client {
                answers.push(answer);
            }
            self.0.set_read_timeout(Some(SILENCE / 5)).unwrap();
        }
        answers
    }

    /// The one answer that there must be.
    fn ask_one(&self, client: u8, kind: u8, secs: u8, chosen: Option<(Ipv4Addr, Ipv4Addr)>) -> Answer {
        let mut answers = self.ask(client, kind, secs, chosen, LONG);
        assert_eq!(answers.len(), 1, "client {client}: {answers:?}");
        answers.remove(0)
    }

    /// DISCOVER and REQUEST.
    fn boot(&self, client: u8, secs: u8) -> Answer {
        let offer = self.ask_one(client, DISCOVER, secs, None);
        assert_eq!(offer.kind, OFFER);
        let ack = self.ask_one(client, REQUEST, secs, Some((offer.address, offer.server)));
        assert_eq!((ack.kind, ack.address), (ACK, offer.address));
        ack
    }
}

fn read(bytes: &[u8]) -> Answer {
    let octets = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&bytes[at..at + 4]).unwrap());
    let (mut kind, mut server, mut at) = (0, Ipv4Addr::UNSPECIFIED, 240);
    while bytes[at] != 255 {
        match bytes[at] {
            53 => kind = bytes[at + 2],
            54 => server = octets(at + 2),
            _ => {}
        }
        at += 2 + usize::from(bytes[at + 1]);
    }
    Answer {
        kind,
        address: octets(16),
        server,
    }
}

#[tokio::test]
async fn when_one_of_two_servers_is_killed_the_other_answers_all_clients() {
    let cluster = Cluster::shared().await.unwrap();
    let definitions = json!({"apiVersion": "v1", "kind": "List", "items": oooi_api::definitions()});
    cluster.apply(&definitions.to_string()).await.unwrap();
    let place = cluster.namespace("dhcp").await.unwrap();
    let manifest = json!({
        "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "DHCPServer",
        "metadata": {"name": "tenant-dhcp"},
        "spec": {
            "replicas": 2,
            "networkConfig": {
                "cidr": "192.168.100.0/24", "gateway": "192.168.100.1",
                "serverIP": SERVERS[0], "additionalServerIPs": [SERVERS[1]],
            },
            "leaseConfig": {
                "rangeStart": "192.168.100.100", "rangeEnd": "192.168.100.120",
                "storage": "Kubernetes", "conflictProbe": false,
            },
        },
    });
    // A definition is established a moment before its objects are served.
    oooi_testkit::until("the DHCPServer", LONG, async || {
        place
            .apply(&manifest.to_string())
            .await
            .map_err(|error| error.to_string())
    })
    .await
    .unwrap();
    let kubeconfig: Value =
        serde_json::from_str(&std::fs::read_to_string(cluster.kubeconfig()).unwrap()).unwrap();
    let url = kubeconfig["clusters"][0]["cluster"]["server"].as_str().unwrap();
    let port = url
        .rsplit(':')
        .next()
        .unwrap()
        .trim_end_matches('/')
        .parse()
        .unwrap();

    let lan = Namespace::new("lan").unwrap();
    lan.run(async || Network::open().unwrap().add_bridge("br0").await.unwrap())
        .unwrap();
    let (one, two) = (
        station(&lan, "one", Some(SERVERS[0])),
        station(&lan, "two", Some(SERVERS[1])),
    );
    let mut servers = BTreeMap::new();
    for (namespace, address, pod) in [(&one, SERVERS[0], "one"), (&two, SERVERS[1], "two")] {
        reach_api_server(namespace, port);
        servers.insert(address, start(namespace, cluster, place.name(), pod));
    }
    let clients = Clients::on(&station(&lan, "clients", None));

    let leases: BTreeMap<u8, Answer> = (1..=8).map(|client| (client, clients.boot(client, 0))).collect();
    let answered: BTreeSet<Ipv4Addr> = leases.values().map(|ack| ack.server).collect();
    assert_eq!(answered, SERVERS.into(), "each has its share: {leases:?}");

    servers.remove(&SERVERS[0]).unwrap();
    let (orphans, others): (Vec<u8>, Vec<u8>) =
        (1..=8).partition(|client| leases[client].server == SERVERS[0]);
    for client in orphans {
        let silence = clients.ask(client, DISCOVER, 0, None, SILENCE);
        assert_eq!(silence, [], "client {client} has not waited yet");
        let ack = clients.boot(client, 4);
        assert_eq!(
            (ack.server, ack.address),
            (SERVERS[1], leases[&client].address),
            "client {client} keeps its address"
        );
    }
    for client in others {
        assert_eq!(clients.boot(client, 0), leases[&client]);
    }
    let newcomer = clients.boot(9, 4);
    assert_eq!(newcomer.server, SERVERS[1]);
    let given: BTreeSet<Ipv4Addr> = leases
        .values()
        .chain([&newcomer])
        .map(|ack| ack.address)
        .collect();
    assert_eq!(given.len(), 9, "no address twice");

    // What the API server has is what was acknowledged.
    let listed = place.kubectl(&["get", "dhcpleases", "-o", "json"]).await.unwrap();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let kept: BTreeSet<Ipv4Addr> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lease| lease["spec"]["address"].as_str().unwrap().parse().unwrap())
        .collect();
    assert_eq!(kept, given);
}
