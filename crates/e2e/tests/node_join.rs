//! A worker joins a hosted cluster through what the operator put on the VLAN. Needs root, the testbed and the image.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use oooi_e2e::{Allowed, Hosted, PATIENCE, REPLACED, Result, Run, deploy, harm, join, traffic};
use oooi_testkit::{Node, Worker, until};
use serde_json::json;
use tokio::sync::Mutex;

/// The story of one cluster, with one of the engines of the gateway, from its first object to its last.
async fn story(name: &'static str, network: &str, engine: &str) {
    // One at a time: whoever shares a VLAN does not serve machines that it does not know.
    static VLAN: Mutex<()> = Mutex::const_new(());
    let _turn = VLAN.lock().await;
    let node = Node::shared().await.unwrap();
    node.volume(&format!("{name}-leases")).await.unwrap();
    let (deployed, hosted) = tokio::join!(deploy(node), Hosted::start(node, name));
    deployed.unwrap();
    let hosted = hosted.unwrap();
    hosted.annotate(network, engine).await.unwrap();
    hosted.ready().await.unwrap();

    let machine = format!("{name}-workers-1");
    let worker = join(node, &hosted, &machine).await.unwrap();
    assert_eq!(worker.name(), machine, "a node is called as its machine");
    the_api_server_reaches_a_pod_of_the_worker(&hosted, &worker).await;
    a_tenant_sees_nothing_but_what_is_published(node, &hosted, &worker).await;
    if engine == "Native" {
        let broken = what_the_main_faults_cost(node, &hosted, &worker).await.unwrap();
        assert!(broken.is_empty(), "{}", broken.join("\n"));
    }
    drop(worker);
    hosted.delete().await.unwrap();
}

/// The main ones of the faults of `make e2e`: what went beyond the allowed.
async fn what_the_main_faults_cost(node: &Node, hosted: &Hosted<'_>, worker: &Worker) -> Result<Vec<String>> {
    let leasing = node.tenant("leasing").await?;
    let mut run = Run::new(node, hosted, traffic(hosted, worker.tenant(), &leasing)?);
    run.around_the_servers().await?;
    run.fault("the pods of all servers killed", EVERYTHING, harm::kill_all)
        .await?;
    Ok(run.end().1)
}

/// What is away while each server's only pod is replaced.
const EVERYTHING: Allowed = &[
    ("connections", REPLACED),
    ("held", REPLACED),
    ("watch", REPLACED),
    ("bulk", REPLACED),
    ("names", REPLACED),
    ("leases", REPLACED),
];

/// `kubectl logs` and `exec` go from the hosted API server through konnectivity to the kubelet on the VLAN.
async fn the_api_server_reaches_a_pod_of_the_worker(hosted: &Hosted<'_>, worker: &Worker) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"},
        "spec": {
            "nodeName": worker.name(), "automountServiceAccountToken": false,
            "containers": [{
                "name": "main", "image": "testbed.invalid/busybox:test", "imagePullPolicy": "Never",
                "command": ["sh", "-c", "echo from the worker; exec sleep 3600"],
            }],
        },
    });
    // The account of the namespace is made by a controller.
    until("the pod to be taken", PATIENCE, async || {
        hosted
            .administer_with(&["apply", "-f", "-"], &pod.to_string())
            .await
            .map_err(|error| error.to_string())
    })
    .await
    .unwrap();
    let wait = ["wait", "--for=condition=Ready", "--timeout=120s", "pod/probe"];
    hosted.administer(&wait).await.unwrap();
    assert_eq!(
        hosted.administer(&["logs", "probe"]).await.unwrap(),
        "from the worker\n"
    );
    let said = hosted
        .administer(&["exec", "probe", "--", "echo", "inside"])
        .await;
    assert_eq!(said.unwrap(), "inside\n");
}

/// The gateway offers its ports, DNS its own, DHCP none; nothing of the management side answers.
async fn a_tenant_sees_nothing_but_what_is_published(node: &Node, hosted: &Hosted<'_>, worker: &Worker) {
    for (server, published) in [("dhcp", ""), ("dns", "53"), ("proxy", "443 6443")] {
        let address = hosted.address_of(server).await.unwrap();
        let open = worker.tenant().run("python3", &["-c", SCAN, &address]).unwrap();
        assert_eq!(open.trim(), published, "open ports of {server}, {address}");
    }
    let management = [
        hosted.within(&[
            "get",
            "service",
            "kube-apiserver",
            "--output=jsonpath={.spec.clusterIP}",
        ]),
        hosted.within(&[
            "get",
            "pods",
            "--selector=app=kube-apiserver",
            "--output=jsonpath={.items[0].status.podIP}",
        ]),
    ];
    for address in management {
        let address = address.await.unwrap();
        let tried = worker.tenant().run(
            "curl",
            &[
                "--insecure",
                "--max-time",
                "2",
                &format!("https://{address}:6443/"),
            ],
        );
        assert!(
            tried.is_err(),
            "a tenant reached {address} of the management side"
        );
        let here = node.run(
            "curl",
            &[
                "--insecure",
                "--silent",
                "--max-time",
                "5",
                &format!("https://{address}:6443/"),
            ],
        );
        assert!(here.is_ok(), "the address is alive: {here:?}");
    }
}

/// Prints the TCP ports of an address that accept a connection.
const SCAN: &str = r#"
import errno, select, socket, sys
address, pending, found = sys.argv[1], {}, []
ports = iter(range(1, 65536))
poll = select.poll()
def add():
    for port in ports:
        s = socket.socket(); s.setblocking(False)
        if s.connect_ex((address, port)) == errno.EINPROGRESS:
            pending[s.fileno()] = (s, port); poll.register(s, select.POLLOUT)
            return
        s.close()
for _ in range(500): add()
while pending:
    ready = poll.poll(3000)
    if not ready: sys.exit(f"no answer from {len(pending)} ports of {address}, such as {next(iter(pending.values()))[1]}")
    for fd, _ in ready:
        s, port = pending.pop(fd); poll.unregister(fd)
        if s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0: found.append(port)
        s.close(); add()
print(*sorted(found))
"#;

#[tokio::test]
async fn a_worker_joins_through_the_native_engine() {
    story("alpha", "192.168.100.0/24", "Native").await;
}

#[tokio::test]
async fn a_worker_joins_through_envoy() {
    story("beta", "192.168.101.0/24", "Envoy").await;
}
