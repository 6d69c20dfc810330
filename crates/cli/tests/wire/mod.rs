//! A host with an interface on the VLAN, a client on the other end of it, and programs on both.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use oooi_net::{Namespace, Network};

pub(crate) const MANIFEST: &str = "\
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: up, namespace: clusters}
spec:
  networkConfig: {cidr: 192.168.100.0/24, gateway: 192.168.100.1, networkAttachmentDefinition: vlan100}
  infraComponents:
    dhcp: {serverIP: 192.168.100.2, rangeStart: 192.168.100.100, rangeEnd: 192.168.100.200}
    dns: {serverIP: 192.168.100.3, baseDomain: example.com, clusterName: up}
    proxy: {serverIP: 192.168.100.4, engine: Native}
---
apiVersion: v1
kind: Service
metadata: {name: kube-apiserver, namespace: clusters-up}
spec: {ports: [{name: client, port: 6443}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: a, namespace: clusters-up, labels: {kubernetes.io/service-name: kube-apiserver}}
addressType: IPv4
ports: [{name: client, port: 6443, protocol: TCP}]
endpoints: [{addresses: [10.99.0.1], conditions: {ready: true}}]
";

/// A host with an interface on the VLAN, and a client on the other end of it.
pub(crate) struct Wire {
    pub(crate) host: Namespace,
    pub(crate) client: Namespace,
    directory: tempfile::TempDir,
}

/// A process that ends with the test.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Wire {
    pub(crate) fn new() -> Self {
        let (host, client) = (Namespace::new("host").unwrap(), Namespace::new("client").unwrap());
        let peer = client.clone();
        host.run(async move || {
            let network = Network::open().unwrap();
            network.set_up("lo").await.unwrap();
            network
                .add_address("lo", "10.99.0.1/32".parse().unwrap())
                .await
                .unwrap();
            network.add_veth("vlan0", "eth0", &peer).await.unwrap();
            network.set_up("vlan0").await.unwrap();
        })
        .unwrap();
        client
            .run(async || {
                let network = Network::open().unwrap();
                network.set_up("lo").await.unwrap();
                network.set_up("eth0").await.unwrap();
            })
            .unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("infra.yaml"), MANIFEST).unwrap();
        Wire {
            host,
            client,
            directory,
        }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// Starts a program on the host.
    pub(crate) fn start(&self, program: &str, arguments: &[&str]) -> Process {
        let mut command = Command::new(program);
        command.args(arguments);
        self.spawn(command)
    }

    fn spawn(&self, mut command: Command) -> Process {
        command.stdout(Stdio::null());
        Process(self.host.run(async move || command.spawn().unwrap()).unwrap())
    }

    /// `oooi up` with the manifest and the state of this wire.
    pub(crate) fn up_command(&self, interface: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oooi"));
        command
            .args(["up", "--interface", interface])
            .args(["-f", &self.path("infra.yaml")])
            .args(["--state-dir", &self.path("state")]);
        command
    }

    pub(crate) fn up(&self) -> Process {
        self.spawn(self.up_command("vlan0"))
    }

    /// The same, with its log.
    pub(crate) fn up_logged(&self) -> Logged {
        self.logged(self.up_command("vlan0"))
    }

    /// A program on the host, with its log.
    pub(crate) fn logged(&self, mut command: Command) -> Logged {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = self.host.run(async move || command.spawn().unwrap()).unwrap();
        let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
        Logged {
            process: Process(child),
            lines,
        }
    }

    /// Gives the client an address.
    pub(crate) fn give_client(&self, address: &str) {
        let address = address.parse().unwrap();
        let put = async move || {
            Network::open()
                .unwrap()
                .add_address("eth0", address)
                .await
                .unwrap();
        };
        self.client.run(put).unwrap();
    }

    /// What the host has on the interface.
    pub(crate) fn host_addresses(&self) -> Vec<String> {
        let list = async || Network::open().unwrap().addresses("vlan0").await.unwrap();
        let found = self.host.run(list).unwrap();
        found.iter().map(ToString::to_string).collect()
    }

    /// Gives the client an address and waits until DNS answers it.
    pub(crate) fn dig_by_itself(&self) {
        self.give_client("192.168.100.99/24");
        self.dig("api.up.example.com", "192.168.100.4");
    }

    /// Runs a program at the client.
    pub(crate) fn client(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(program);
        command.args(arguments);
        self.client.run(async move || command.output().unwrap()).unwrap()
    }

    /// What the client's resolver answers, once it is `wanted`.
    pub(crate) fn dig(&self, name: &str, wanted: &str) {
        let arguments = ["@192.168.100.3", "+short", "+time=1", "+tries=1", name];
        until(|| {
            let shown = self.client("dig", &arguments);
            let shown = String::from_utf8_lossy(&shown.stdout).trim().to_owned();
            if shown == wanted {
                Ok(())
            } else {
                Err(format!("{name} is {shown:?}, not {wanted}"))
            }
        });
    }
}

/// Tries until it holds, for ten seconds.
pub(crate) fn until<T>(mut holds: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match holds() {
            Ok(value) => return value,
            Err(why) if Instant::now() > deadline => panic!("{why}"),
            Err(_) => std::thread::yield_now(),
        }
    }
}

/// A process whose log is read.
pub(crate) struct Logged {
    pub(crate) process: Process,
    lines: std::io::Lines<std::io::BufReader<std::process::ChildStderr>>,
}

impl Logged {
    /// Reads on until a line says it.
    pub(crate) fn says(&mut self, wanted: &str) {
        let mut seen = Vec::new();
        for line in self.lines.by_ref().map(Result::unwrap) {
            if line.contains(wanted) {
                return;
            }
            seen.push(line);
        }
        panic!("it never said {wanted}: {}", seen.join("\n"));
    }

    pub(crate) fn terminate(&mut self) -> Option<i32> {
        rustix::process::kill_process(pid(&self.process.0), rustix::process::Signal::TERM).unwrap();
        self.process.0.wait().unwrap().code()
    }
}

pub(crate) fn pid(child: &Child) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()
}

pub(crate) fn write_executable(path: &str, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(Path::new(path), std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Ends the process whose number is in a file: dhclient goes into the background.
pub(crate) struct StopByPid(pub(crate) String);

impl Drop for StopByPid {
    fn drop(&mut self) {
        let number = std::fs::read_to_string(&self.0)
            .ok()
            .and_then(|text| text.trim().parse().ok());
        if let Some(pid) = number.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}
