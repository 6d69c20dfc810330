//! `oooi up` on a veth, with dhclient, dig, curl and openssl as its clients. Needs root.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use oooi_net::{Namespace, Network};

const MANIFEST: &str = "\
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
struct Wire {
    host: Namespace,
    client: Namespace,
    directory: tempfile::TempDir,
}

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Wire {
    fn new() -> Self {
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

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// Starts a program on the host.
    fn start(&self, program: &str, arguments: &[&str]) -> Process {
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::null());
        Process(self.host.run(async move || command.spawn().unwrap()).unwrap())
    }

    fn up(&self) -> Process {
        let (manifest, state) = (self.path("infra.yaml"), self.path("state"));
        let binary = env!("CARGO_BIN_EXE_oooi");
        self.start(
            binary,
            &[
                "up",
                "-f",
                &manifest,
                "--interface",
                "vlan0",
                "--state-dir",
                &state,
            ],
        )
    }

    /// The same, with its log.
    fn up_logged(&self) -> Logged {
        let (manifest, state) = (self.path("infra.yaml"), self.path("state"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_oooi"));
        command.args([
            "up",
            "-f",
            &manifest,
            "--interface",
            "vlan0",
            "--state-dir",
            &state,
        ]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = self.host.run(async move || command.spawn().unwrap()).unwrap();
        let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
        Logged {
            process: Process(child),
            lines,
        }
    }

    /// Gives the client an address and waits until DNS answers it.
    fn dig_by_itself(&self) {
        let address = "192.168.100.99/24".parse().unwrap();
        let put = async move || {
            Network::open()
                .unwrap()
                .add_address("eth0", address)
                .await
                .unwrap();
        };
        self.client.run(put).unwrap();
        self.dig("api.up.example.com", "192.168.100.4");
    }

    /// Runs a program at the client.
    fn client(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(program);
        command.args(arguments);
        self.client.run(async move || command.output().unwrap()).unwrap()
    }

    /// What the client's resolver answers, once it is `wanted`.
    fn dig(&self, name: &str, wanted: &str) {
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
fn until<T>(mut holds: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match holds() {
            Ok(value) => return value,
            Err(why) if Instant::now() > deadline => panic!("{why}"),
            Err(_) => std::thread::yield_now(),
        }
    }
}

#[test]
fn a_client_boots_through_it_and_edits_apply_live() {
    let wire = Wire::new();
    let (certificate, key) = (wire.path("cert.pem"), wire.path("key.pem"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            "/CN=api",
        ])
        .args([
            "-addext",
            "subjectAltName=DNS:api.up.example.com",
            "-keyout",
            &key,
            "-out",
            &certificate,
        ])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let _backend = wire.start(
        "openssl",
        &[
            "s_server",
            "-accept",
            "10.99.0.1:6443",
            "-cert",
            &certificate,
            "-key",
            &key,
            "-www",
            "-quiet",
        ],
    );
    let mut up = wire.up();

    // dhclient asks and tells its script, which sets the interface up; the host's own files are not touched.
    let script = wire.path("script");
    let body = "#!/bin/sh\n[ -n \"$new_ip_address\" ] && ip address replace $new_ip_address/24 dev $interface\nexit 0\n";
    write_executable(&script, body);
    let arguments = [
        "-1",
        "-v",
        "-sf",
        &script,
        "-lf",
        &wire.path("leases"),
        "-pf",
        &wire.path("pid"),
        "eth0",
    ];
    let asked = wire.client("dhclient", &arguments);
    let shown = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(shown.contains("bound to 192.168.100.100"), "{shown}");
    let _dhclient = StopByPid(wire.path("pid"));

    wire.dig("api.up.example.com", "192.168.100.4");
    let page = wire.client(
        "curl",
        &[
            "--silent",
            "--show-error",
            "--max-time",
            "10",
            "--cacert",
            &certificate,
            "--resolve",
            "api.up.example.com:6443:192.168.100.4",
            "https://api.up.example.com:6443/",
        ],
    );
    let body = String::from_utf8_lossy(&page.stdout).into_owned();
    assert!(
        body.contains("s_server"),
        "{body}{}",
        String::from_utf8_lossy(&page.stderr)
    );

    let entry = "clusterName: up, staticEntries: [{hostname: new.up.example.com, ip: 192.168.100.9}]";
    std::fs::write(
        wire.path("infra.yaml"),
        MANIFEST.replace("clusterName: up", entry),
    )
    .unwrap();
    wire.dig("new.up.example.com", "192.168.100.9");
    // A change that is wrong is refused, and what ran before goes on.
    std::fs::write(
        wire.path("infra.yaml"),
        MANIFEST.replace("192.168.100.3", "192.168.100.2"),
    )
    .unwrap();
    wire.dig("new.up.example.com", "192.168.100.9");

    rustix::process::kill_process(pid(&up.0), rustix::process::Signal::TERM).unwrap();
    assert!(up.0.wait().unwrap().success());
    let left = wire
        .host
        .run(async || Network::open().unwrap().addresses("vlan0").await.unwrap())
        .unwrap();
    assert_eq!(left, [], "its addresses stayed on the interface");
}

#[test]
fn an_interface_that_is_not_there_is_named_at_once() {
    let wire = Wire::new();
    let (manifest, state) = (wire.path("infra.yaml"), wire.path("state"));
    let ended = wire.client(
        env!("CARGO_BIN_EXE_oooi"),
        &[
            "up",
            "-f",
            &manifest,
            "--interface",
            "none0",
            "--state-dir",
            &state,
        ],
    );
    assert_eq!(ended.status.code(), Some(1));
    let shown = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(shown.contains("there is no interface none0 here"), "{shown}");
}

#[test]
fn a_port_that_is_taken_stops_one_server_alone_until_it_is_free() {
    let wire = Wire::new();
    let address = "192.168.100.3/24".parse().unwrap();
    let put = async move || {
        Network::open()
            .unwrap()
            .add_address("vlan0", address)
            .await
            .unwrap();
    };
    wire.host.run(put).unwrap();
    let taken = wire
        .host
        .run(async || std::net::UdpSocket::bind("192.168.100.3:53").unwrap())
        .unwrap();
    let mut up = wire.up_logged();
    up.says("cannot listen on UDP 192.168.100.3:53: another server has it");
    // The others go on: the gateway takes connections.
    let address = "192.168.100.99/24".parse().unwrap();
    let put = async move || {
        Network::open()
            .unwrap()
            .add_address("eth0", address)
            .await
            .unwrap();
    };
    wire.client.run(put).unwrap();
    until(|| {
        let reached = wire.client.run(async || {
            tokio::net::TcpStream::connect("192.168.100.4:443")
                .await
                .map(drop)
        });
        reached.unwrap().map_err(|error| error.to_string())
    });
    drop(taken);
    wire.dig("api.up.example.com", "192.168.100.4");
    assert_eq!(up.terminate(), Some(0), "it recovered");
}

#[test]
fn a_server_that_does_not_run_at_the_end_is_told_by_the_exit_code() {
    let wire = Wire::new();
    let mut up = wire.up_logged();
    wire.dig_by_itself();
    wire.host
        .run(async || Network::open().unwrap().remove("vlan0").await.unwrap())
        .unwrap();
    up.says("the server failed; the others go on");
    up.says("there is no interface vlan0");
    assert_eq!(up.terminate(), Some(1));
}

#[test]
fn without_the_right_to_add_addresses_it_says_how_to() {
    use std::os::unix::process::CommandExt;
    let wire = Wire::new();
    // Others may not be allowed into the directory of the build.
    let open = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir()
        .unwrap();
    let (binary, manifest) = (open.path().join("oooi"), open.path().join("infra.yaml"));
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_oooi"))
        .arg(&binary)
        .status();
    assert!(copied.unwrap().success());
    std::fs::write(&manifest, MANIFEST).unwrap();
    let mut command = Command::new(binary);
    command
        .args(["up", "--interface", "vlan0", "--state-dir", "/nonexistent", "-f"])
        .arg(manifest)
        .uid(65534)
        .gid(65534);
    let ended = wire.host.run(async move || command.output().unwrap()).unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let shown = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(
        shown.contains("ip address add 192.168.100.2/24 dev vlan0"),
        "{shown}"
    );
}

#[test]
fn a_virtual_machine_in_the_file_gives_its_node_a_name() {
    let wire = Wire::new();
    let mac = wire
        .client
        .run(async || Network::open().unwrap().state("eth0").await.unwrap().mac.unwrap())
        .unwrap();
    let mac: Vec<String> = mac.iter().map(|octet| format!("{octet:02x}")).collect();
    let machine = format!(
        "---\napiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {{name: pool-a-x7}}\n\
         spec: {{domain: {{devices: {{interfaces: [{{name: vlan, macAddress: \"{}\"}}]}}}}}}\n",
        mac.join(":")
    );
    std::fs::write(wire.path("infra.yaml"), format!("{MANIFEST}{machine}")).unwrap();
    let _up = wire.up();
    let script = wire.path("script");
    let seen = wire.path("seen");
    write_executable(
        &script,
        &format!("#!/bin/sh\necho \"$new_host_name\" >> {seen}\nexit 0\n"),
    );
    let (leases, pid) = (wire.path("leases"), wire.path("pid"));
    wire.client(
        "dhclient",
        &["-1", "-sf", &script, "-lf", &leases, "-pf", &pid, "eth0"],
    );
    let _dhclient = StopByPid(pid);
    let names = std::fs::read_to_string(&seen).unwrap();
    assert!(names.lines().any(|line| line == "pool-a-x7"), "{names}");
}

/// A process whose log is read.
struct Logged {
    process: Process,
    lines: std::io::Lines<std::io::BufReader<std::process::ChildStderr>>,
}

impl Logged {
    /// Reads on until a line says it.
    fn says(&mut self, wanted: &str) {
        let mut seen = Vec::new();
        for line in self.lines.by_ref().map(Result::unwrap) {
            if line.contains(wanted) {
                return;
            }
            seen.push(line);
        }
        panic!("it never said {wanted}: {}", seen.join("\n"));
    }

    fn terminate(&mut self) -> Option<i32> {
        rustix::process::kill_process(pid(&self.process.0), rustix::process::Signal::TERM).unwrap();
        self.process.0.wait().unwrap().code()
    }
}

fn pid(child: &Child) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()
}

fn write_executable(path: &str, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(Path::new(path), std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Ends the process whose number is in a file: dhclient goes into the background.
struct StopByPid(String);

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
