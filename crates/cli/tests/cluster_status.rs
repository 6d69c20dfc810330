//! `oooi status`, `oooi doctor --cluster` and `oooi plan --diff` on a real API server. Needs the testbed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use oooi_testkit::{Cluster, Namespace};
use serde_json::{Value, json};

struct Bed {
    cluster: &'static Cluster,
    namespace: Namespace<'static>,
    directory: tempfile::TempDir,
}

impl Bed {
    async fn new(name: &str) -> Bed {
        let cluster = Cluster::shared().await.unwrap();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": oooi_api::definitions()});
        cluster.apply(&list.to_string()).await.unwrap();
        let folder = cluster.parts().crds().to_str().unwrap().to_owned();
        cluster
            .kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &folder])
            .await
            .unwrap();
        cluster
            .kubectl(&[
                "wait",
                "--for=condition=Established",
                "--timeout=30s",
                "crd",
                "--all",
            ])
            .await
            .unwrap();
        Bed {
            cluster,
            namespace: cluster.namespace(name).await.unwrap(),
            directory: tempfile::tempdir().unwrap(),
        }
    }

    async fn apply(&self, manifest: &Value) {
        self.namespace.apply(&manifest.to_string()).await.unwrap();
    }

    fn file(&self, manifest: &Value) -> String {
        let path = self.directory.path().join("infra.yaml");
        std::fs::write(&path, manifest.to_string()).unwrap();
        path.display().to_string()
    }

    fn oooi(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_oooi"))
            .args(arguments)
            .args(["-n", self.namespace.name()])
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }
}

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn infra(name: &str) -> Value {
    json!({
        "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "Infra", "metadata": {"name": name},
        "spec": {
            "networkConfig": {
                "cidr": "192.168.100.0/24", "gateway": "192.168.100.1", "networkAttachmentDefinition": "vlan100",
            },
            "infraComponents": {
                "dhcp": {}, "dns": {"baseDomain": "example.com", "clusterName": name}, "proxy": {"engine": "Native"},
            },
        },
    })
}

#[tokio::test]
async fn an_infra_is_shown_with_what_it_lacks_and_the_doctor_names_the_cause() {
    let bed = Bed::new("status").await;
    let ended = bed.oooi(&["status", "x"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        text(&ended.stderr).contains("there is no Infra x in namespace"),
        "{}",
        text(&ended.stderr)
    );

    bed.apply(&infra("x")).await;
    let shown = bed.oooi(&["status"]);
    assert_eq!(shown.status.code(), Some(3), "{}", text(&shown.stderr));
    let screen = text(&shown.stdout);
    assert!(
        screen.contains("dns     192.168.100.3  no pod  NOT READY"),
        "{screen}"
    );
    assert!(screen.contains("api.x.example.com:6443"), "{screen}");

    let document: Value = serde_json::from_slice(&bed.oooi(&["status", "x", "-o", "json"]).stdout).unwrap();
    assert_eq!(
        (&document["schemaVersion"], &document["name"]),
        (&json!(1), &json!("x"))
    );

    let cause = || {
        let said = bed.oooi(&["doctor", "--cluster", "x", "-o", "json"]);
        assert_eq!(said.status.code(), Some(1), "{}", text(&said.stderr));
        let document: Value = serde_json::from_slice(&said.stdout).unwrap();
        document["cause"]["id"].as_str().unwrap().to_owned()
    };
    assert_eq!(cause(), "network-attachment-missing");
    bed.apply(&json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": "vlan100"},
        "spec": {"config": json!({"cniVersion": "0.3.1", "type": "bridge", "bridge": "br1", "vlan": 100}).to_string()},
    }))
    .await;
    assert_eq!(cause(), "server-missing");

    bed.apply(&infra("y")).await;
    let shown = text(&bed.oooi(&["status"]).stdout);
    assert!(
        shown.starts_with("INFRA") && shown.lines().count() == 3,
        "{shown}"
    );
}

#[tokio::test]
async fn a_watched_infra_is_shown_again_as_soon_as_something_changed() {
    let bed = Bed::new("watch").await;
    bed.apply(&infra("x")).await;
    let child = Command::new(env!("CARGO_BIN_EXE_oooi"))
        .args(["status", "x", "-w", "-n", bed.namespace.name()])
        .env("KUBECONFIG", bed.cluster.kubeconfig())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut watch = Process(child);
    let (lines, heard) = std::sync::mpsc::channel();
    let output = BufReader::new(watch.0.stdout.take().unwrap());
    std::thread::spawn(move || {
        output
            .lines()
            .map_while(Result::ok)
            .try_for_each(|line| lines.send(line))
    });
    let says = |wanted: &str| {
        let began = Instant::now();
        let mut seen = Vec::new();
        while let Ok(line) = heard.recv_timeout(Duration::from_secs(20)) {
            if line.contains(wanted) {
                return began.elapsed();
            }
            seen.push(line);
        }
        panic!("it never said {wanted}: {}", seen.join("\n"));
    };
    says("NetworkAttachmentDefinition vlan100: not found");
    says("kubernetes.x.example.com:443");
    bed.apply(&json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": "vlan100"},
        "spec": {"config": json!({"cniVersion": "0.3.1", "type": "bridge", "bridge": "br1", "vlan": 100}).to_string()},
    }))
    .await;
    let took = says("NetworkAttachmentDefinition vlan100: bridge on br1, VLAN 100");
    println!("shown {took:?} after it was there");
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(i32::try_from(watch.0.id()).unwrap()).unwrap(),
        rustix::process::Signal::INT,
    )
    .unwrap();
    assert_eq!(watch.0.wait().unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_plan_says_what_it_would_change_and_changes_nothing() {
    let bed = Bed::new("diff").await;
    let file = bed.file(&infra("x"));
    let shown = bed.oooi(&["plan", "--diff", "-f", &file]);
    assert_eq!(shown.status.code(), Some(3), "{}", text(&shown.stderr));
    assert!(
        text(&shown.stdout).contains("DNSServer x-dns would be created:"),
        "{}",
        text(&shown.stdout)
    );
    assert_eq!(
        bed.oooi(&["status", "x"]).status.code(),
        Some(1),
        "it was not written"
    );

    bed.apply(&infra("x")).await;
    let mut changed = infra("x");
    changed["spec"]["networkConfig"]["mtu"] = json!(1400);
    let shown = bed.oooi(&["plan", "--diff", "-f", &bed.file(&changed)]);
    let difference = text(&shown.stdout);
    assert!(
        difference.contains("Infra x would change:") && difference.contains("+   mtu: 1400"),
        "{difference}"
    );
}
