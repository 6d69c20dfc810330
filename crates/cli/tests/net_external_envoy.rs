//! `oooi proxy` with a real Envoy: one that somebody else starts, as in a pod, and one of its own. Needs root and Envoy.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use oooi_net::{Namespace, Network};

const MANIFEST: &str = "\
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: x, namespace: clusters}
spec:
  networkConfig: {serverIP: 10.99.0.2/24}
  backends:
    - {name: web, hostname: '*', port: 80, targetService: web, targetPort: 8000, targetNamespace: plane}
    - {name: api, hostname: api.demo.test, port: 443, targetService: web, targetPort: 8000, targetNamespace: plane}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: plane}
spec: {ports: [{port: 8000}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: a, namespace: plane, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8000, protocol: TCP}]
endpoints: [{addresses: [10.99.0.1], conditions: {ready: true}}]
";

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The network namespace of a pod.
struct Pod(Namespace);

impl Pod {
    fn new() -> Self {
        let pod = Namespace::new("pod").unwrap();
        pod.run(async || {
            let network = Network::open().unwrap();
            network.set_up("lo").await.unwrap();
            for address in ["10.99.0.1/32", "10.99.0.2/32"] {
                network.add_address("lo", address.parse().unwrap()).await.unwrap();
            }
            // As the pod's sysctl does: a process without any capability binds port 80.
            std::fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0").unwrap();
        })
        .unwrap();
        Pod(pod)
    }

    fn start(&self, program: &str, arguments: &[&str]) -> Process {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.spawn(command)
    }

    fn spawn(&self, mut command: Command) -> Process {
        Process(self.0.run(async move || command.spawn().unwrap()).unwrap())
    }

    /// Starts a program without any capability.
    fn start_bare(&self, program: &str, arguments: &[&str]) -> Process {
        let bare = ["--bounding-set=-all", "--inh-caps=-all", program];
        let all: Vec<&str> = bare.iter().chain(arguments).copied().collect();
        self.start("setpriv", &all)
    }

    /// The status of a page and its text.
    fn get(&self, url: &str) -> (String, String) {
        let mut command = Command::new("curl");
        command.args(["-s", "-m", "5", "-w", "\n%{http_code}", url]);
        let output = self.0.run(async move || command.output().unwrap()).unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, status) = text.rsplit_once('\n').unwrap();
        (status.to_owned(), body.to_owned())
    }

    /// Waits until a page has this status, and gives its text.
    fn until(&self, url: &str, status: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            match self.get(url) {
                (found, body) if found == status => return body,
                other => assert!(Instant::now() < deadline, "{url}: {other:?}, not {status}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn envoy() -> String {
    std::env::var("OOOI_ENVOY").unwrap_or_else(|_| {
        panic!("this test runs a real Envoy: name it by OOOI_ENVOY, such as \"$(testbed/build --where)/bin/envoy\"")
    })
}

/// Waits until a file has this text.
fn until_written(path: &Path, text: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let written = std::fs::read_to_string(path).unwrap();
        if written.contains(text) {
            return;
        }
        assert!(Instant::now() < deadline, "{text:?} is not in {written}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_envoy_of_its_own_is_the_one_that_was_named_or_is_on_the_path() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("gateway.yaml"), MANIFEST).unwrap();
    std::fs::create_dir(at("bin")).unwrap();
    std::os::unix::fs::symlink(envoy(), at("bin/envoy")).unwrap();
    for (number, named) in [Some(envoy()), None].into_iter().enumerate() {
        let pod = Pod::new();
        let _backend = pod.start("python3", &["-m", "http.server", "--bind", "10.99.0.1", "8000"]);
        let log = at(&format!("{number}.log"));
        let mut gateway = Command::new(env!("CARGO_BIN_EXE_oooi"));
        gateway
            .args([
                "proxy",
                "--engine=envoy",
                "--metrics-port=9191",
                "--proxy-log-level=debug",
                "-f",
            ])
            .arg(at("gateway.yaml"))
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap());
        match named {
            Some(envoy) => gateway.arg("--envoy").arg(envoy),
            None => gateway.env("PATH", at("bin")),
        };
        let _gateway = pod.spawn(gateway);
        pod.until("http://127.0.0.1:9191/readyz", "200");
        pod.until("http://10.99.0.2/", "200");
        // The resource says nothing of the level, and by default Envoy says nothing of this one.
        until_written(&log, "[debug]");

        let mut refused = Command::new("curl");
        refused.args(["-sk", "-m", "5", "--resolve", "unknown.demo.test:443:10.99.0.2"]);
        refused.arg("https://unknown.demo.test/");
        let status = pod.0.run(async move || refused.status().unwrap()).unwrap();
        assert!(!status.success());
        until_written(&log, "name=unknown.demo.test");
    }
}

#[test]
fn an_envoy_beside_the_process_gets_its_configuration_and_its_state_is_republished() {
    let envoy = envoy();
    let oooi = env!("CARGO_BIN_EXE_oooi");
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (manifest, bootstrap) = (path("gateway.yaml"), path("envoy.json"));
    std::fs::write(&manifest, MANIFEST).unwrap();

    // What the init container runs: it asks nobody, so that it works while the API server is away.
    let written = Command::new(oooi)
        .args(["proxy", "--namespace=clusters", "--proxy-name=x"])
        .arg(format!("--write-bootstrap={bootstrap}"))
        .output()
        .unwrap();
    assert!(
        written.status.success(),
        "{}",
        String::from_utf8_lossy(&written.stderr)
    );

    let pod = Pod::new();
    let _backend = pod.start("python3", &["-m", "http.server", "--bind", "10.99.0.1", "8000"]);
    let serve = ["proxy", "-f", &manifest, "--engine=envoy", "--external-envoy"];
    let _gateway = pod.start_bare(oooi, &serve);
    pod.until("http://127.0.0.1:9090/healthz", "200");
    pod.until("http://127.0.0.1:9090/readyz", "503");

    let arguments = ["--config-path", &bootstrap, "--disable-hot-restart"];
    let running = pod.start_bare(&envoy, &arguments);
    pod.until("http://127.0.0.1:9090/readyz", "200");
    pod.until("http://10.99.0.2/", "200");
    let metrics = pod.until("http://127.0.0.1:9090/metrics", "200");
    let has = |line: &str| metrics.lines().any(|have| have == line);
    let connections = "oooi_proxy_connections_total{backend=\"web\"} ";
    let served = |line: &str| line.strip_prefix(connections).is_some_and(|count| count != "0");
    assert!(metrics.lines().any(served), "{metrics}");
    assert!(has("oooi_proxy_endpoints{backend=\"web\"} 1"), "{metrics}");
    assert!(metrics.contains("oooi_xds_"), "{metrics}");
    assert_eq!(metrics.matches("# EOF").count(), 1);
    assert!(metrics.ends_with("# EOF\n"));

    drop(running);
    pod.until("http://127.0.0.1:9090/readyz", "503");
}
