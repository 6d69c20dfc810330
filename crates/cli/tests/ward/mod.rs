//! A site of the lab with one node on it, and a doctor who looks at it from there.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ipnet::Ipv4Net;
use oooi_api::Infra;
use oooi_manifest::Source;
use oooi_net::{Namespace, Network};
use oooi_standalone::lab::control_plane::{Backend, serve};
use oooi_standalone::lab::{Blueprint, MANIFEST, Site, StandIn};
use oooi_standalone::up::{Engine, Running};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream, UdpSocket};

const BINARY: &str = env!("CARGO_BIN_EXE_oooi");

pub(crate) struct Ward {
    pub(crate) site: Site,
    pub(crate) node: Namespace,
    directory: tempfile::TempDir,
}

/// What the doctor said, and how it ended.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) document: Value,
}

/// A process that ends with the test.
pub(crate) struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Said {
    pub(crate) fn state(&self) -> &str {
        self.document["state"].as_str().unwrap()
    }

    /// What is on top.
    pub(crate) fn cause(&self) -> &str {
        self.document["cause"]["id"].as_str().unwrap_or("nothing")
    }

    /// Everything that was found.
    pub(crate) fn ids(&self) -> Vec<String> {
        fn collect(check: &Value, ids: &mut Vec<String>) {
            for finding in check["findings"].as_array().into_iter().flatten() {
                ids.push(finding["id"].as_str().unwrap().to_owned());
            }
            for check in check["checks"].as_array().into_iter().flatten() {
                collect(check, ids);
            }
        }
        let mut ids = Vec::new();
        collect(&self.document, &mut ids);
        ids
    }

    pub(crate) fn found(&self, id: &str) -> bool {
        self.ids().iter().any(|found| found == id)
    }

    pub(crate) fn text(&self) -> String {
        self.document.to_string()
    }
}

impl Ward {
    pub(crate) fn new() -> Self {
        // One provider of cryptography a process; another test may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let blueprint = Blueprint::read(&Source::new("lab.yaml", MANIFEST)).unwrap();
        let site = Site::build(blueprint).unwrap();
        let node = site.add_node("node").unwrap();
        Ward {
            site,
            node,
            directory: tempfile::tempdir().unwrap(),
        }
    }

    /// Starts the servers.
    pub(crate) fn start(&self) -> Running {
        self.site.start_servers(&Engine::Native).unwrap()
    }

    /// Starts the servers with DNS at another address than the doctor expects.
    pub(crate) fn start_with_dns_elsewhere(&self) -> Running {
        self.change(|infra| {
            let parts = infra.spec.infra_components.as_mut().unwrap();
            parts.dns.as_mut().unwrap().server_ip = Some("192.168.100.33".into());
        });
        self.start()
    }

    pub(crate) fn manifest(&self) -> String {
        MANIFEST.to_owned()
    }

    /// Changes what the servers run, and not what the doctor reads.
    pub(crate) fn change(&self, edit: impl FnOnce(&mut Infra)) {
        self.site.change(edit, None).unwrap();
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// The doctor with the lab's manifest.
    pub(crate) fn doctor(&self, arguments: &[&str]) -> Said {
        let file = self.file("infra.yaml", MANIFEST);
        self.run(&[&["--infra", &file], arguments].concat())
    }

    /// The doctor with another manifest.
    pub(crate) fn doctor_of(&self, manifest: &str) -> Said {
        let file = self.file("other.yaml", manifest);
        self.run(&["--infra", &file])
    }

    pub(crate) fn doctor_without_infra(&self) -> Said {
        self.run(&[])
    }

    fn run(&self, arguments: &[&str]) -> Said {
        let mut command = Command::new(BINARY);
        command.args(["doctor", "-o", "json"]).args(arguments);
        let ended = self.node.run(async move || command.output().unwrap()).unwrap();
        let shown = String::from_utf8_lossy(&ended.stderr);
        Said {
            code: ended.status.code().unwrap(),
            document: serde_json::from_slice(&ended.stdout)
                .unwrap_or_else(|error| panic!("{error}: {shown}")),
        }
    }

    /// What is on the node's interface.
    pub(crate) fn addresses(&self) -> Vec<Ipv4Net> {
        self.node
            .run(async || Network::open().unwrap().addresses("eth0").await.unwrap())
            .unwrap()
    }

    /// The states of the leases that the DHCP server wrote down.
    pub(crate) fn leases(&self) -> Vec<String> {
        let directory = self.site.state().display().to_string();
        let shown = Command::new(BINARY)
            .args(["leases", "-o", "json", "--state-dir", &directory])
            .output()
            .unwrap();
        let document: Value = serde_json::from_slice(&shown.stdout).unwrap();
        let leases = document["leases"].as_array().unwrap();
        leases
            .iter()
            .map(|lease| lease["state"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Takes an address from the servers.
    pub(crate) fn take_address(&self, address: Ipv4Addr) {
        let take = async move || {
            Network::open()
                .unwrap()
                .remove_address("net1", address)
                .await
                .unwrap();
        };
        self.site.topology.infra.run(take).unwrap();
    }

    /// Gives the servers' machine an address that none of them uses.
    pub(crate) fn put_address(&self, address: &str) {
        put(&self.site.topology.infra, "net1", address);
    }

    pub(crate) fn put_node_address(&self, address: &str) {
        put(&self.node, "eth0", address);
    }

    /// A machine on the VLAN that has an address and nothing that listens.
    pub(crate) fn stranger(&self, address: &str) -> Namespace {
        let stranger = self.site.add_node("stranger").unwrap();
        put(&stranger, "eth0", address);
        stranger
    }

    /// A DHCP server that is not the site's.
    pub(crate) fn rogue(&self) -> Process {
        let manifest = "\
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: DHCPServer
metadata: {name: rogue}
spec:
  networkConfig: {cidr: 192.168.100.0/24, gateway: 192.168.100.1, serverIP: 192.168.100.9}
  leaseConfig: {rangeStart: 192.168.100.210, rangeEnd: 192.168.100.220}
";
        let (file, state) = (self.file("rogue.yaml", manifest), self.file("rogue-state", ""));
        std::fs::remove_file(&state).unwrap();
        std::fs::create_dir(&state).unwrap();
        let namespace = self.stranger("192.168.100.9/24");
        let mut command = Command::new(BINARY);
        command.args(["dhcp", "-f", &file, "--interface", "eth0", "--state-dir", &state]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let started = namespace.run(async move || {
            let child = command.spawn().unwrap();
            // Its pages are there when its sockets are.
            let deadline = Instant::now() + Duration::from_secs(30);
            while TcpStream::connect("127.0.0.1:9090").await.is_err() {
                assert!(Instant::now() < deadline, "the rogue does not start");
                tokio::task::yield_now().await;
            }
            child
        });
        Process(started.unwrap())
    }

    /// A server at 192.168.100.2 that offers the lab's first address and refuses to give it.
    pub(crate) fn offer_only(&self) {
        let components = self.site.desired.borrow().components.clone();
        let config = oooi_dhcp::config::Config::from_spec(components.dhcp.as_ref().unwrap(), &[]).unwrap();
        let mut options: Vec<u8> = vec![54, 4, 192, 168, 100, 2, 51, 4, 0, 0, 14, 16];
        for (code, value) in config.options().iter() {
            options.extend([code, u8::try_from(value.len()).unwrap()]);
            options.extend(value);
        }
        self.put_address("192.168.100.2/24");
        let (ready, bound) = std::sync::mpsc::channel();
        let serve = async move || {
            let socket = UdpSocket::bind("0.0.0.0:67").await.unwrap();
            socket.set_broadcast(true).unwrap();
            socket.bind_device(Some(b"net1")).unwrap();
            ready.send(()).unwrap();
            let mut buffer = [0; 1500];
            while let Ok((length, _)) = socket.recv_from(&mut buffer).await {
                let asked = &buffer[..length];
                // Option 53 comes first in what the doctor sends.
                let kind = if asked[242] == 1 { 2 } else { 6 };
                let mut reply = asked[..240].to_vec();
                reply[0] = 2;
                reply[16..20].copy_from_slice(&[192, 168, 100, 100]);
                reply.extend([53, 1, kind]);
                reply.extend(&options);
                reply.push(255);
                socket.send_to(&reply, "255.255.255.255:68").await.unwrap();
            }
        };
        self.site.topology.infra.spawn(serve).unwrap();
        bound.recv().unwrap();
    }

    /// A DNS server at 192.168.100.3 that answers everything with one code, by UDP alone.
    pub(crate) fn answer_dns(&self, code: u8) {
        self.put_address("192.168.100.3/24");
        let (ready, bound) = std::sync::mpsc::channel();
        let serve = async move || {
            let socket = UdpSocket::bind("192.168.100.3:53").await.unwrap();
            ready.send(()).unwrap();
            let mut buffer = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                buffer[2] |= 0x80;
                buffer[3] = code;
                let _ = socket.send_to(&buffer[..length], from).await;
            }
        };
        self.site.topology.infra.spawn(serve).unwrap();
        bound.recv().unwrap();
    }

    /// Starts the control plane with one service as `start` has it.
    pub(crate) fn start_all_but(&self, service: &str, start: impl Fn(&StandIn)) {
        for stand_in in &self.site.control_plane {
            if stand_in.service == service {
                start(stand_in);
            } else {
                self.site.start_stand_in(stand_in, &stand_in.service).unwrap();
            }
        }
    }

    /// Starts a service that is broken in one way.
    pub(crate) fn broken(&self, stand_in: &StandIn, break_it: impl Fn(&mut Backend)) {
        for port in &stand_in.ports {
            let mut backend = Backend::new(&stand_in.service, (stand_in.address, *port), &stand_in.names);
            break_it(&mut backend);
            serve(&self.site.topology.management, &self.site.authority, &backend).unwrap();
        }
    }

    /// Starts a service that says something else than TLS, or nothing at all.
    pub(crate) fn plain(&self, stand_in: &StandIn, says: &'static [u8]) {
        let address = (stand_in.address, *stand_in.ports.first().unwrap());
        let (ready, bound) = std::sync::mpsc::channel();
        let serve = async move || {
            let listener = TcpListener::bind(address).await.unwrap();
            ready.send(()).unwrap();
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(says).await;
                open.push(stream);
            }
        };
        self.site.topology.management.spawn(serve).unwrap();
        bound.recv().unwrap();
    }
}

fn put(namespace: &Namespace, interface: &'static str, address: &str) {
    let address: Ipv4Net = address.parse().unwrap();
    let put = async move || {
        Network::open()
            .unwrap()
            .add_address(interface, address)
            .await
            .unwrap();
    };
    namespace.run(put).unwrap();
}
