//! Nodes that come and go, users who connect and ask, and files that change: until they are told to rest.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ipnet::Ipv4Net;
use oooi_doctor::client::dhcp::Client;
use oooi_doctor::client::dns::{self, Transport, resolve};
use oooi_doctor::client::tls::{get, open};
use oooi_net::{Network, announce};
use rustls::ClientConfig;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::site::{API, RESOLVER, Site};

/// So many names are asked upstream, again and again: the cache is full of them at the first rest.
const UPSTREAM: usize = 2000;
/// How long a step may take on a busy machine.
const STEP: Duration = Duration::from_secs(10);

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// What was done, and what of it failed.
#[derive(Default)]
pub(crate) struct Tally {
    /// Nodes that began to boot: each has a number of its own.
    booting: AtomicUsize,
    pub(crate) nodes: AtomicUsize,
    pub(crate) questions: AtomicUsize,
    pub(crate) connections: AtomicUsize,
    pub(crate) changes: AtomicUsize,
    pub(crate) failures: Mutex<Vec<String>>,
}

impl Tally {
    fn note(&self, count: &AtomicUsize, outcome: Outcome) {
        count.fetch_add(1, Relaxed);
        if let Err(error) = outcome {
            self.failures.lock().unwrap().push(error.to_string());
        }
    }
}

/// What every part of the churn shares.
#[derive(Clone)]
pub(crate) struct Churn {
    pub(crate) resting: Arc<AtomicBool>,
    pub(crate) tally: Arc<Tally>,
    pub(crate) tls: Arc<ClientConfig>,
}

impl Churn {
    fn goes_on(&self) -> bool {
        !self.resting.load(Relaxed)
    }

    /// Nodes boot one after another on a machine, each under a hardware address of its own.
    pub(crate) async fn nodes(self) {
        while self.goes_on() {
            let number = self.tally.booting.fetch_add(1, Relaxed);
            let outcome = self.node(number).await;
            self.tally.note(&self.tally.nodes, outcome);
        }
    }

    /// An address, a name, the API server, a renewal; every other node goes without giving its address back.
    async fn node(&self, number: usize) -> Outcome {
        let mut client = Client::new("eth0", hardware_address(number))?;
        let lease = client.boot().await?;
        let network = Network::open()?;
        let address = Ipv4Net::new(lease.address, lease.prefix)?;
        network.add_address("eth0", address).await?;
        // The machine knows the servers from the node before, so it asks for none: whoever had the address is forgotten.
        tokio::spawn(announce(vec![lease.address.into()]));
        let lived = async {
            let gateway = self.ask(API, Transport::Udp).await?;
            self.connect(gateway).await?;
            let renewed = client.renew(&lease).await?;
            if renewed.address != lease.address {
                return Err(format!("{} became {}", lease.address, renewed.address).into());
            }
            if number.is_multiple_of(2) {
                client.release(&lease).await?;
            }
            Ok(())
        };
        let lived = timeout(STEP, lived).await;
        network.remove_address("eth0", lease.address).await?;
        lived?
    }

    async fn ask(&self, name: &str, transport: Transport) -> Outcome<Ipv4Addr> {
        let found = resolve(RESOLVER, name, transport).await?;
        Ok(*found.first().ok_or("no address")?)
    }

    async fn connect(&self, gateway: Ipv4Addr) -> Outcome {
        let mut stream = open(self.tls.clone(), SocketAddr::from((gateway, 6443)), API).await?;
        let answer = get(&mut stream, API, "/").await?;
        stream.shutdown().await?;
        if answer.status == 200 {
            Ok(())
        } else {
            Err(format!("status {}", answer.status).into())
        }
    }

    /// Questions of every kind: known, unknown, and from upstream.
    pub(crate) async fn questions(self) {
        while self.goes_on() {
            let number = self.tally.questions.load(Relaxed);
            let outcome = match number % 4 {
                0 => self.ask(API, Transport::Tcp).await.map(drop),
                1 => match resolve(RESOLVER, &format!("n{number}.soak.example.com"), Transport::Udp).await {
                    Err(dns::Error::Code { code: 3, .. }) => Ok(()),
                    other => Err(format!("a name that is not there: {other:?}").into()),
                },
                _ => self
                    .ask(&format!("n{}.example.net", number % UPSTREAM), Transport::Udp)
                    .await
                    .map(drop),
            };
            self.tally.note(&self.tally.questions, outcome);
        }
    }

    /// Connections of every kind: served, by a name that is not, with what is no TLS, and left half way.
    pub(crate) async fn connections(self, gateway: Ipv4Addr) {
        let address = SocketAddr::from((gateway, 6443));
        while self.goes_on() {
            let number = self.tally.connections.load(Relaxed);
            let tried = async {
                match number % 4 {
                    0 => match open(self.tls.clone(), address, "other.example.com").await {
                        Err(_) => Ok(()),
                        Ok(_) => Err("a name that is not published was served".into()),
                    },
                    1 => {
                        let mut stream = TcpStream::connect(address).await?;
                        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await?;
                        Ok(())
                    }
                    2 => {
                        // The beginning of a hello.
                        let mut stream = TcpStream::connect(address).await?;
                        stream.write_all(&[22, 3, 1, 2, 0, 1, 0]).await?;
                        Ok(())
                    }
                    _ => self.connect(gateway).await,
                }
            };
            let outcome = timeout(STEP, tried).await.unwrap_or_else(|late| Err(late.into()));
            self.tally.note(&self.tally.connections, outcome);
        }
    }

    /// One connection that is kept, whatever else changes.
    pub(crate) async fn held(self, gateway: Ipv4Addr) {
        let kept = async {
            let mut stream = open(self.tls.clone(), SocketAddr::from((gateway, 6443)), API).await?;
            while self.goes_on() {
                get(&mut stream, API, "/").await?;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Ok(stream.shutdown().await?)
        };
        let outcome = kept.await;
        self.tally.note(&self.tally.connections, outcome);
    }

    /// Endpoints and machines change four times a second, the Infra once, and now and then it is wrong.
    pub(crate) async fn files(&self, site: &Site, gateway: Ipv4Addr, until: tokio::time::Instant) {
        while tokio::time::Instant::now() < until {
            let number = self.tally.changes.fetch_add(1, Relaxed);
            site.write(
                "control-plane.yaml",
                &control_plane(number, self.tally.booting.load(Relaxed)),
            );
            match number % 40 {
                7 => site.write(
                    "infra.yaml",
                    &infra(number, gateway).replace("192.168.100.3", "192.168.100.2"),
                ),
                part if part % 4 == 0 => site.write("infra.yaml", &infra(number, gateway)),
                _ => {}
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        // The last one is right.
        site.write("infra.yaml", &infra(0, gateway));
    }
}

fn hardware_address(number: usize) -> [u8; 6] {
    let [.., high, low] = number.to_be_bytes();
    [0x02, 0, 0, 0x50, high, low]
}

/// The Infra in one of its forms.
pub(crate) fn infra(number: usize, gateway: Ipv4Addr) -> String {
    let number = number % 200;
    format!(
        "\
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {{name: soak, namespace: clusters}}
spec:
  networkConfig:
    cidr: 192.168.100.0/24
    gateway: 192.168.100.1
    networkAttachmentDefinition: vlan100
    dnsServers: [10.99.0.53]
  infraComponents:
    dhcp:
      serverIP: 192.168.100.2
      rangeStart: 192.168.100.20
      rangeEnd: 192.168.100.250
      leaseTime: 20s
      options: [{{code: 66, value: boot-{number}.example.com}}]
    dns:
      serverIP: 192.168.100.3
      baseDomain: example.com
      clusterName: soak
      staticEntries: [{{hostname: s{number}.soak.example.com, ip: 192.168.100.9}}]
    proxy: {{serverIP: {gateway}, engine: Native, idleTimeout: {}h}}
",
        1 + number % 24
    )
}

/// The control plane with one of its API servers or both, and the machines that booted last.
pub(crate) fn control_plane(number: usize, nodes: usize) -> String {
    let endpoint = |address: &str| format!("{{addresses: [{address}], conditions: {{ready: true}}}}");
    let endpoints = match number % 3 {
        0 => endpoint("10.99.0.1"),
        1 => endpoint("10.99.0.2"),
        _ => [endpoint("10.99.0.1"), endpoint("10.99.0.2")].join(", "),
    };
    let mut text = format!(
        "\
apiVersion: v1
kind: Service
metadata: {{name: kube-apiserver, namespace: clusters-soak}}
spec: {{ports: [{{name: client, port: 6443}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: a, namespace: clusters-soak, labels: {{kubernetes.io/service-name: kube-apiserver}}}}
addressType: IPv4
ports: [{{name: client, port: 6443, protocol: TCP}}]
endpoints: [{endpoints}]
"
    );
    for node in nodes.saturating_sub(10)..nodes + 10 {
        let mac = hardware_address(node)
            .map(|octet| format!("{octet:02x}"))
            .join(":");
        text += &format!(
            "\
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{name: node-{node}, namespace: clusters-soak}}
spec: {{domain: {{devices: {{interfaces: [{{name: iface1, macAddress: '{mac}'}}]}}}}}}
"
        );
    }
    text
}
