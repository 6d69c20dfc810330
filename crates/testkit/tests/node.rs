//! The node, used as the tests of the servers use it. Needs root and the built testbed.
#![allow(clippy::unwrap_used, reason = "the helpers below are parts of tests")]

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use oooi_testkit::{Namespace, Node, SHARED, until};
use serde_json::json;

mod leftovers;
mod runner;

use leftovers::Traces;

const PATIENCE: Duration = Duration::from_secs(60);

/// A pod of the test image that runs a shell line, with these annotations.
fn pod(name: &str, line: &str, annotations: serde_json::Value) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}, "annotations": annotations},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main",
                "image": "testbed.invalid/busybox:test",
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", line],
            }],
        },
    })
    .to_string()
}

/// A shell line that answers every HTTP request with a word.
fn answering(word: &str) -> String {
    format!("mkdir -p /www; echo {word} > /www/index.html; exec httpd -f -p 8080 -h /www")
}

async fn ready(namespace: &Namespace<'_>, name: &str) {
    let pod = format!("pod/{name}");
    namespace
        .kubectl(&["wait", "--for=condition=Ready", "--timeout=60s", &pod])
        .await
        .unwrap();
}

/// A NetworkAttachmentDefinition of the VLAN in this namespace, whose pods name their own addresses.
async fn attach_vlan(node: &Node, namespace: &Namespace<'_>) {
    let config = json!({
        "cniVersion": "0.3.1", "type": "bridge", "bridge": node.vlan(),
        "capabilities": {"ips": true}, "ipam": {"type": "static"},
    });
    let definition = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "vlan"}, "spec": {"config": config.to_string()},
    });
    namespace.apply(&definition.to_string()).await.unwrap();
}

fn on_vlan(address: &str) -> serde_json::Value {
    let networks = json!([{"name": "vlan", "ips": [address], "interface": "net1"}]);
    json!({"k8s.v1.cni.cncf.io/networks": networks.to_string()})
}

#[tokio::test]
async fn a_pod_has_its_static_address_on_the_vlan_and_a_tenant_reaches_it() {
    let node = Node::shared().await.unwrap();
    let namespace = node.namespace("vlan").await.unwrap();
    attach_vlan(node, &namespace).await;
    namespace
        .apply(&pod("server", &answering("hello"), on_vlan("192.168.100.2/24")))
        .await
        .unwrap();
    ready(&namespace, "server").await;

    let status = "jsonpath={.metadata.annotations.k8s\\.v1\\.cni\\.cncf\\.io/network-status}";
    let status = namespace
        .kubectl(&["get", "pod", "server", "--output", status])
        .await
        .unwrap();
    assert!(status.contains("192.168.100.2"), "{status}");

    let tenant = node.tenant("worker").await.unwrap();
    let before = tenant
        .run("ping", &["-c1", "-W1", "192.168.100.2"])
        .unwrap_err()
        .to_string();
    assert!(
        before.contains("unreachable"),
        "a tenant has no address until it is given one: {before}"
    );
    tenant.address("192.168.100.50/24").unwrap();
    tenant.run("ping", &["-c1", "-W5", "192.168.100.2"]).unwrap();
}

#[tokio::test]
async fn a_tenant_has_nothing_but_its_own_interface() {
    let node = Node::shared().await.unwrap();
    let tenant = node.tenant("bare").await.unwrap();
    let links = tenant.run("ip", &["--brief", "link"]).unwrap();
    let names: Vec<&str> = links
        .lines()
        .filter_map(|line| line.split(['@', ' ']).next())
        .collect();
    assert_eq!(names, ["lo", "eth0"], "{links}");
    assert_eq!(tenant.run("ip", &["-4", "route"]).unwrap(), "");
    assert_eq!(tenant.run("hostname", &[]).unwrap().trim(), "bare");

    let host = std::fs::read_to_string("/etc/resolv.conf").unwrap();
    tenant
        .run("sh", &["-c", "echo nameserver 192.168.100.3 > /etc/resolv.conf"])
        .unwrap();
    assert_eq!(tenant.resolv_conf().unwrap(), "nameserver 192.168.100.3\n");
    assert_eq!(
        std::fs::read_to_string("/etc/resolv.conf").unwrap(),
        host,
        "the host's file was written"
    );
}

#[tokio::test]
async fn a_program_in_a_tenant_ends_when_its_child_is_killed() {
    let node = Node::shared().await.unwrap();
    let tenant = node.tenant("server").await.unwrap();
    let mut server = tenant.spawn("sleep", &["86399"]).unwrap();
    let runs = || node.run("pgrep", &["--full", "^sleep 86399$"]).is_ok();
    let look = async |wanted| {
        if runs() == wanted {
            Ok(())
        } else {
            Err("the other way")
        }
    };
    until("the program to run", PATIENCE, async || look(true).await)
        .await
        .unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    until("the program to end", PATIENCE, async || look(false).await)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_command_runs_in_a_pod() {
    let node = Node::shared().await.unwrap();
    let namespace = node.namespace("exec").await.unwrap();
    attach_vlan(node, &namespace).await;
    namespace
        .apply(&pod("shell", "exec sleep 3600", on_vlan("192.168.100.4/24")))
        .await
        .unwrap();
    ready(&namespace, "shell").await;
    let addresses = namespace
        .kubectl(&["exec", "shell", "--", "ip", "address", "show", "net1"])
        .await
        .unwrap();
    assert!(addresses.contains("192.168.100.4/24"), "{addresses}");
}

#[tokio::test]
async fn a_cluster_ip_reaches_its_pod() {
    let node = Node::shared().await.unwrap();
    let namespace = node.namespace("service").await.unwrap();
    namespace
        .apply(&pod("server", &answering("by-service"), json!({})))
        .await
        .unwrap();
    namespace
        .apply(&pod("client", "exec sleep 3600", json!({})))
        .await
        .unwrap();
    namespace
        .kubectl(&["expose", "pod", "server", "--port=80", "--target-port=8080"])
        .await
        .unwrap();
    ready(&namespace, "server").await;
    ready(&namespace, "client").await;
    let path = "jsonpath={.spec.clusterIP}";
    let address = namespace
        .kubectl(&["get", "service", "server", "--output", path])
        .await
        .unwrap();
    let answer = until("the ClusterIP", PATIENCE, async || {
        ask(&namespace, &format!("http://{address}")).await
    });
    assert_eq!(answer.await.unwrap(), "by-service\n");
}

#[tokio::test]
async fn a_pod_reaches_the_api_server_by_its_service() {
    let node = Node::shared().await.unwrap();
    let namespace = node.namespace("api").await.unwrap();
    namespace
        .apply(&pod("client", "exec sleep 3600", json!({})))
        .await
        .unwrap();
    ready(&namespace, "client").await;
    let answer = until("the API server's service", PATIENCE, async || {
        ask(&namespace, "https://10.96.0.1/readyz").await
    });
    assert_eq!(answer.await.unwrap(), "ok");
}

#[tokio::test]
async fn a_claim_binds_a_volume_that_a_pod_without_root_can_write() {
    let node = Node::shared().await.unwrap();
    let namespace = node.namespace("volume").await.unwrap();
    node.volume(namespace.name()).await.unwrap();
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "leases"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "25Mi"}}},
    });
    let mut writer: serde_json::Value =
        serde_json::from_str(&pod("writer", "id -u > /data/user && exec sleep 3600", json!({}))).unwrap();
    writer["spec"]["securityContext"] = json!({"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532});
    writer["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "leases"}}]);
    writer["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    writer["spec"]["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["test", "-s", "/data/user"]}, "periodSeconds": 1});
    namespace.apply(&format!("{claim}\n---\n{writer}")).await.unwrap();
    ready(&namespace, "writer").await;
    let user = namespace
        .kubectl(&["exec", "writer", "--", "cat", "/data/user"])
        .await
        .unwrap();
    assert_eq!(user, "65532\n");
}

/// What a program of an image says when it runs to its end in a pod that drops all capabilities but these.
async fn said(namespace: &Namespace<'_>, name: &str, image: &str, args: &[&str], add: &[&str]) -> String {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never",
            "containers": [{
                "name": "main",
                "image": image,
                "imagePullPolicy": "Never",
                "args": args,
                "securityContext": {
                    "runAsNonRoot": true,
                    "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"], "add": add},
                },
            }],
        },
    });
    namespace.apply(&pod.to_string()).await.unwrap();
    let ended = [
        "wait",
        "--for=jsonpath={.status.phase}=Succeeded",
        "--timeout=60s",
    ];
    namespace
        .kubectl(&[&ended[..], &[&format!("pod/{name}")]].concat())
        .await
        .unwrap();
    namespace.kubectl(&["logs", name]).await.unwrap()
}

#[tokio::test]
async fn the_image_of_this_checkout_runs_without_root_and_capabilities() {
    let node = Node::shared().await.unwrap();
    let namespace = node.namespace("image").await.unwrap();
    let image = node.import_own_image().unwrap();
    let version = said(&namespace, "own", image, &["--version"], &[]).await;
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
}

#[tokio::test]
async fn the_image_of_envoy_runs() {
    let node = Node::shared().await.unwrap();
    let namespace = node.namespace("envoy").await.unwrap();
    let version = said(
        &namespace,
        "envoy",
        "testbed.invalid/envoy:test",
        &["--version"],
        &[],
    )
    .await;
    assert!(version.contains("1.40.0"), "{version}");
}

/// The permitted and the effective capabilities of a program of the image `capability`.
async fn capabilities(namespace: &Namespace<'_>, name: &str, add: &[&str]) -> (u64, u64) {
    let args = ["grep", "Cap", "/proc/self/status"];
    let lines = said(namespace, name, "testbed.invalid/capability:test", &args, add).await;
    let read = |key: &str| {
        let line = lines.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    (read("CapPrm:"), read("CapEff:"))
}

#[tokio::test]
async fn an_image_keeps_a_capability_that_only_a_pod_with_it_can_raise() {
    const NET_RAW: u64 = 1 << 13;
    let node = Node::shared().await.unwrap();
    let namespace = node.namespace("capability").await.unwrap();
    let folder = std::env::temp_dir().join(format!("oooi-capability-{}", std::process::id()));
    let archive = folder.join("image.tar");
    let packed = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/image/oci.py"))
        .args([
            "--name",
            "testbed.invalid/capability:test",
            "--file",
            "/bin/busybox:/busybox",
        ])
        .args([
            "--capability",
            "/busybox=cap_net_raw=p",
            "--entrypoint",
            "/busybox",
            "--output",
        ])
        .arg(&archive)
        .status()
        .unwrap();
    assert!(packed.success());
    node.import_image(&archive).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();

    let with = capabilities(&namespace, "with", &["NET_RAW"]).await;
    assert_eq!(
        with,
        (NET_RAW, 0),
        "permitted, and not effective until the process raises it"
    );
    let without = capabilities(&namespace, "without", &[]).await;
    assert_eq!(
        without,
        (0, 0),
        "the binary runs in a pod that drops all, with nothing to raise"
    );
}

#[tokio::test]
async fn a_network_policy_is_enforced() {
    let node = Node::shared().await.unwrap();
    let namespace = node.namespace("policy").await.unwrap();
    namespace
        .apply(&pod("server", &answering("allowed"), json!({})))
        .await
        .unwrap();
    namespace
        .apply(&pod("client", "exec sleep 3600", json!({})))
        .await
        .unwrap();
    ready(&namespace, "server").await;
    ready(&namespace, "client").await;
    let path = "jsonpath={.status.podIP}";
    let address = namespace
        .kubectl(&["get", "pod", "server", "--output", path])
        .await
        .unwrap();
    let url = format!("http://{address}:8080");
    let open = until("an open network", PATIENCE, async || ask(&namespace, &url).await);
    assert_eq!(open.await.unwrap(), "allowed\n");

    let policy = |name: &str, ingress: serde_json::Value| {
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name},
            "spec": {"podSelector": {"matchLabels": {"app": "server"}}, "policyTypes": ["Ingress"], "ingress": ingress},
        })
        .to_string()
    };
    namespace.apply(&policy("deny", json!([]))).await.unwrap();
    until("the policy to refuse the client", PATIENCE, async || {
        match ask(&namespace, &url).await {
            Ok(answer) => Err(format!("it answered {answer}")),
            Err(_) => Ok(()),
        }
    })
    .await
    .unwrap();

    let client = json!([{"from": [{"podSelector": {"matchLabels": {"app": "client"}}}]}]);
    namespace.apply(&policy("allow", client)).await.unwrap();
    let allowed = until("the policy to allow the client", PATIENCE, async || {
        ask(&namespace, &url).await
    });
    assert_eq!(allowed.await.unwrap(), "allowed\n");
}

/// What a server says to the pod `client`.
async fn ask(namespace: &Namespace<'_>, url: &str) -> Result<String, String> {
    // The limit is a program of its own: `wget -T` of a static busybox ends by a fault.
    let command = [
        "exec", "client", "--", "timeout", "3", "wget", "-q", "-O", "-", url,
    ];
    namespace
        .kubectl(&command)
        .await
        .map_err(|error| error.to_string())
}

#[tokio::test]
async fn two_nodes_at_once_do_not_meet() {
    let (one, two) = tokio::join!(Node::start(), Node::start());
    let (one, two) = (one.unwrap(), two.unwrap());
    let [here, beside, elsewhere] = [
        one.tenant("here").await,
        one.tenant("beside").await,
        two.tenant("elsewhere").await,
    ]
    .map(Result::unwrap);
    here.address("192.168.100.50/24").unwrap();
    beside.address("192.168.100.51/24").unwrap();
    elsewhere.address("192.168.100.52/24").unwrap();
    here.run("ping", &["-c1", "-W5", "192.168.100.51"]).unwrap();
    let error = here
        .run("ping", &["-c1", "-W1", "192.168.100.52"])
        .unwrap_err()
        .to_string();
    assert!(error.contains("100% packet loss"), "{error}");
    for node in [&one, &two] {
        let nodes = node.kubectl(&["get", "nodes", "--output=name"]).await.unwrap();
        assert_eq!(nodes, "node/node\n", "each API server knows its own node alone");
    }
}

#[tokio::test]
async fn a_node_leaves_nothing_behind_twice_in_a_row() {
    for round in 1..=2 {
        let node = Node::start().await.unwrap();
        let namespace = node.namespace("leaving").await.unwrap();
        attach_vlan(&node, &namespace).await;
        namespace
            .apply(&pod("server", &answering("bye"), on_vlan("192.168.100.2/24")))
            .await
            .unwrap();
        ready(&namespace, "server").await;
        let tenant = node.tenant("leaving").await.unwrap();
        drop(namespace);
        let traces = Traces::of(node.state());
        drop(node);
        drop(tenant);
        assert_eq!(traces.left(), Vec::<String>::new(), "round {round}");
        assert!(
            !traces.state().exists(),
            "round {round}: {} stayed behind",
            traces.state().display()
        );
    }
}

#[tokio::test]
async fn a_runner_killed_by_minus_nine_leaves_nothing_that_the_next_one_does_not_remove() {
    let mut victim = Command::new(env!("CARGO_BIN_EXE_testbed"))
        .args([
            "run",
            "--node",
            "--",
            "sh",
            "-c",
            "echo $OOOI_TESTBED; exec sleep 600",
        ])
        .env_remove(SHARED)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let state = runner::first_line(&mut victim);
    let node = Node::attach(&state).unwrap();
    let namespace = node.namespace("killed").await.unwrap();
    namespace
        .apply(&pod("server", &answering("bye"), json!({})))
        .await
        .unwrap();
    ready(&namespace, "server").await;
    let traces = Traces::of(&state);
    std::mem::forget(namespace); // it could not be deleted: its cluster is about to be killed

    victim.kill().unwrap();
    victim.wait().unwrap();
    runner::wait_for_no_process(&state).await;
    // Control groups and the state directory are all that the kernel leaves.
    let of_groups = |trace: &String| trace.contains("cgroup");
    until("the kernel to remove the machine", PATIENCE, async || {
        let left: Vec<String> = traces
            .left()
            .into_iter()
            .filter(|trace| !of_groups(trace))
            .collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(left.join("\n"))
        }
    })
    .await
    .unwrap();

    let next = Node::start().await.unwrap();
    // The numbers of namespaces that are gone may be those of the new machine.
    let left: Vec<String> = traces.left().into_iter().filter(of_groups).collect();
    assert_eq!(left, Vec::<String>::new());
    assert!(!state.exists(), "{} stayed behind", state.display());
    drop(next);
}
