//! A VLAN in network namespaces, `oooi up` on it, and what stands behind it.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use oooi_doctor::client::dns::{self, Transport};
use oooi_e2e::Usage;
use oooi_net::{Namespace, Network};
use oooi_standalone::lab::control_plane::{Authority, Backend, serve};
use oooi_testkit::until;
use rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

pub(crate) const RESOLVER: Ipv4Addr = Ipv4Addr::new(192, 168, 100, 3);
pub(crate) const API: &str = "api.soak.example.com";
/// Where the two API servers are.
const BACKENDS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 99, 0, 1), Ipv4Addr::new(10, 99, 0, 2)];
/// Where every name outside the cluster is known.
const UPSTREAM: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 53);
const METRICS: &str = "127.0.0.1:9090";
/// How long anything may take to settle on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Everything, until it is dropped.
pub(crate) struct Site {
    vlan: Namespace,
    infra: Namespace,
    directory: tempfile::TempDir,
    pub(crate) tls: Arc<ClientConfig>,
    up: Option<Child>,
}

impl Site {
    /// The networks, the control plane and the files; nothing is served yet.
    pub(crate) fn build() -> Self {
        let (vlan, infra) = (Namespace::new("vlan").unwrap(), Namespace::new("infra").unwrap());
        let port = infra.clone();
        vlan.run(async move || {
            let network = Network::open().unwrap();
            network.add_bridge("vlan").await.unwrap();
            network.add_veth("infra", "net1", &port).await.unwrap();
            network.attach("infra", "vlan").await.unwrap();
        })
        .unwrap();
        infra
            .run(async || {
                let network = Network::open().unwrap();
                for interface in ["lo", "net1"] {
                    network.set_up(interface).await.unwrap();
                }
                for address in BACKENDS.into_iter().chain([UPSTREAM]) {
                    network.add_address("lo", address.into()).await.unwrap();
                }
            })
            .unwrap();
        let authority = Authority::new().unwrap();
        for address in BACKENDS {
            let backend = Backend::new("kube-apiserver", (address, 6443), &[API.to_owned()]);
            serve(&infra, &authority, &backend).unwrap();
        }
        infra.spawn(know_every_name).unwrap();
        let tls = ClientConfig::builder()
            .with_root_certificates(authority.roots().unwrap())
            .with_no_client_auth();
        Site {
            vlan,
            infra,
            directory: tempfile::tempdir().unwrap(),
            tls: Arc::new(tls),
            up: None,
        }
    }

    /// A machine on the VLAN with nothing but its interface.
    pub(crate) fn machine(&self, name: &str) -> Namespace {
        let machine = Namespace::new(name).unwrap();
        let (port, inside) = (name.to_owned(), machine.clone());
        self.vlan
            .run(async move || {
                let network = Network::open().unwrap();
                network.add_veth(&port, "eth0", &inside).await.unwrap();
                network.attach(&port, "vlan").await.unwrap();
            })
            .unwrap();
        machine
            .run(async || Network::open().unwrap().set_up("eth0").await.unwrap())
            .unwrap();
        machine
    }

    /// Replaces a file of the manifest as a whole.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.directory.path().join(name);
        let partial = path.with_extension("partial");
        std::fs::write(&partial, text).unwrap();
        std::fs::rename(partial, path).unwrap();
    }

    /// Starts `oooi up`, which the variable OOOI names.
    pub(crate) fn up(&mut self) {
        let binary = std::env::var_os("OOOI").expect("OOOI names the binary: run `make soak`");
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.infra.path().display()));
        command.arg(binary).args(["--log-level", "warn", "up"]);
        for file in ["infra.yaml", "control-plane.yaml"] {
            command.arg("-f").arg(self.directory.path().join(file));
        }
        command.args(["--interface", "net1", "--metrics-bind-address", METRICS]);
        command
            .arg("--state-dir")
            .arg(self.directory.path().join("state"))
            .stdin(Stdio::null());
        self.up = Some(oooi_testkit::spawn(command).unwrap());
    }

    /// Waits until a machine is answered with the gateway's address.
    pub(crate) async fn published(&self, machine: &Namespace, gateway: Ipv4Addr) {
        until("the name of the API server", PATIENCE, async || {
            let look = async || dns::resolve(RESOLVER, API, Transport::Udp).await;
            match machine.run(look).unwrap() {
                Ok(found) if found == [gateway] => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await
        .unwrap();
    }

    /// What the process has once it has come to rest: no connection, and nothing that changes for a second.
    pub(crate) async fn at_rest(&mut self) -> Usage {
        let process = self.up.as_mut().unwrap();
        let ended = process.try_wait().unwrap();
        assert!(ended.is_none(), "oooi up ended: {ended:?}");
        let id = process.id();
        until("the servers to come to rest", PATIENCE, async || {
            let look = || {
                let metrics = self.metrics();
                let open = sum(&metrics, "oooi_proxy_connections_active");
                (open, Usage::of(id, sum(&metrics, "oooi_up_tasks{")).unwrap())
            };
            let (_, before) = look();
            tokio::time::sleep(Duration::from_secs(1)).await;
            let (open, now) = look();
            let still = Usage { memory: 0, ..before } == Usage { memory: 0, ..now };
            if open == 0 && still {
                Ok(now)
            } else {
                Err(format!("{open} connections, {before:?}, then {now:?}"))
            }
        })
        .await
        .unwrap()
    }

    fn metrics(&self) -> String {
        let ask = async || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(METRICS).await?;
            let request = format!("GET /metrics HTTP/1.1\r\nhost: {METRICS}\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let mut text = String::new();
            stream.read_to_string(&mut text).await?;
            Ok(text)
        };
        self.infra.run(ask).unwrap().unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(mut up) = self.up.take() {
            let _ = up.kill();
            let _ = up.wait();
        }
    }
}

/// The sum of all series of a metric.
fn sum(metrics: &str, name: &str) -> u64 {
    let of_it = metrics.lines().filter(|line| line.starts_with(name));
    let values = of_it.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum::<f64>() as u64
}

/// A resolver that knows every name: it says the question back with one address.
async fn know_every_name() {
    let socket = UdpSocket::bind(SocketAddr::from((UPSTREAM, 53))).await.unwrap();
    let mut buffer = [0; 1500];
    while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
        // The question ends with its type and class; what follows (EDNS) is left out.
        let labels = buffer[12..length].iter().position(|byte| *byte == 0);
        let Some(end) = labels.map(|at| 12 + at + 5).filter(|end| *end <= length) else {
            continue;
        };
        let mut answer = buffer[..end].to_vec();
        answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 192, 0, 2, 1]);
        // Whoever asked may be gone.
        let _ = socket.send_to(&answer, from).await;
    }
}
