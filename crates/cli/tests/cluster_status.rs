//! `oooi status`, `oooi doctor --cluster` and `oooi plan --diff` on a real API server. Needs the testbed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use oooi_operator::egress_ipam::{self, CloudAccess, Network};
use oooi_operator::lease::Term;
use oooi_operator::metrics::Metrics;
use oooi_operator::presence::Presence;
use oooi_testkit::{Cluster, Namespace, until};
use serde_json::{Value, json};
use tokio::task::JoinSet;

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
        self.oooi_anywhere(&[arguments, &["-n", self.namespace.name()]].concat())
    }

    /// Of things that are in no namespace.
    fn oooi_anywhere(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_oooi"))
            .args(arguments)
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

/// The controller of EgressIPAMs, until the test ends.
async fn control_egress(bed: &Bed) -> JoinSet<()> {
    let client = bed.cluster.client().await.unwrap();
    let (presence, follow) = Presence::of(client.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(follow);
    tasks.spawn(async move {
        let (_leads, leading) = tokio::sync::watch::channel(Term::Unlimited);
        let options = egress_ipam::Options {
            client,
            leading,
            presence,
            network: Some(Network::OvnKubernetes),
            cloud: CloudAccess::new(None).unwrap(),
            metrics: Metrics::default(),
        };
        egress_ipam::run(&options).await;
    });
    tasks
}

/// Waits until an EgressIPAM is shown with all of these words, and gives the code with which that ended.
async fn shown_with(bed: &Bed, name: &str, words: &[&str]) -> Option<i32> {
    let what = format!("{name} to be shown with {words:?}");
    until(&what, Duration::from_secs(30), async || {
        let shown = bed.oooi_anywhere(&["status", name, "--egress"]);
        let screen = text(&shown.stdout);
        match words.iter().all(|word| screen.contains(word)) {
            true => Ok(shown.status.code()),
            false => Err(format!("{screen}{}", text(&shown.stderr))),
        }
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn an_egressipam_is_shown_with_its_networks_and_the_namespaces_that_lack_addresses() {
    let bed = Bed::new("egress").await;
    bed.cluster.define_neighbours().await.unwrap();
    let name = bed.namespace.name(); // in no namespace, and of this test alone
    let missing = bed.oooi_anywhere(&["status", name, "--egress"]);
    assert_eq!(missing.status.code(), Some(1));
    let said = text(&missing.stderr);
    assert!(said.contains(&format!("there is no EgressIPAM {name}")), "{said}");

    let ipam = json!({
        "apiVersion": "redhatcop.redhat.io/v1alpha1", "kind": "EgressIPAM", "metadata": {"name": name},
        "spec": {"topologyLabel": "zone", "cidrAssignments": [{"CIDR": "10.77.0.0/24", "labelValue": name}]},
    });
    bed.cluster.apply(&ipam.to_string()).await.unwrap();
    let code = shown_with(&bed, name, &["nobody counted yet who asks", "10.77.0.0/24"]).await;
    assert_eq!(code, Some(3), "nobody looked after it yet");

    let _controller = control_egress(&bed).await;
    let asks = "egressip-ipam-operator.redhat-cop.io/egressipam";
    let given = "egressip-ipam-operator.redhat-cop.io/egressips";
    let annotate = async |namespace: &str, value: String| {
        let arguments = ["annotate", "--overwrite", "namespace", namespace, value.as_str()];
        bed.cluster.kubectl(&arguments).await.unwrap();
    };
    let wrong = bed.cluster.namespace("egress-wrong").await.unwrap();
    annotate(name, format!("{asks}={name}")).await;
    annotate(wrong.name(), format!("{given}=10.77.0.5, 10.77.0.6")).await;
    annotate(wrong.name(), format!("{asks}={name}")).await;
    let words = [
        "2 namespaces ask",
        wrong.name(),
        "SpacesInList",
        "NoEligibleNode",
        "False",
    ];
    assert_eq!(shown_with(&bed, name, &words).await, Some(3));
    let document = bed
        .oooi_anywhere(&["status", name, "--egress", "-o", "json"])
        .stdout;
    let document: Value = serde_json::from_slice(&document).unwrap();
    assert_eq!(document["schemaVersion"], 1);
    let failing = document["failingNamespaces"].as_array().unwrap();
    let told = |one: &Value| one["name"] == wrong.name() && one["reason"] == "SpacesInList";
    assert!(failing.iter().any(told), "{failing:?}");
    let network = &document["networks"][0];
    assert_eq!(
        (&network["CIDR"], &network["used"]),
        (&json!("10.77.0.0/24"), &json!(1))
    );

    // The list is mended, and a node can carry both addresses; OVN-Kubernetes is not here to put them there.
    annotate(wrong.name(), format!("{given}=10.77.0.5")).await;
    let ready = json!({"type": "Ready", "status": "True", "reason": "Test", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"zone": name},
            "annotations": {"k8s.ovn.org/node-primary-ifaddr": json!({"ipv4": "10.77.0.250/24"}).to_string()}},
    });
    bed.cluster.apply(&node.to_string()).await.unwrap();
    let patch = json!({"status": {"conditions": [ready]}}).to_string();
    let arguments = [
        "patch",
        "node",
        name,
        "--subresource=status",
        "--type=merge",
        "-p",
        &patch,
    ];
    bed.cluster.kubectl(&arguments).await.unwrap();
    shown_with(&bed, name, &["NotPlaced", "10.77.0.5 on no node yet"]).await;
    for (namespace, address) in [(name, "10.77.0.1"), (wrong.name(), "10.77.0.5")] {
        let object = format!("oooi-{name}-{namespace}");
        let patch = json!({"status": {"items": [{"node": name, "egressIP": address}]}}).to_string();
        let arguments = ["patch", "egressip", &object, "--type=merge", "-p", &patch];
        bed.cluster.kubectl(&arguments).await.unwrap();
    }
    let code = shown_with(&bed, name, &["all 4 conditions are True"]).await;
    assert_eq!(code, Some(0), "nothing needs attention");
    // Nothing of it is left for whoever uses the cluster next.
    bed.cluster
        .kubectl(&["delete", "egressipam", name])
        .await
        .unwrap();
    bed.cluster.kubectl(&["delete", "node", name]).await.unwrap();
}
