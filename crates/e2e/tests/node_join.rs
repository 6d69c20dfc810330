//! A worker joins a hosted cluster through what the operator put on the VLAN. Needs root, the testbed and the image.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use oooi_e2e::{EVERYTHING, Hosted, PATIENCE, Result, Run, deploy, harm, hears_datagrams, join, traffic};
use oooi_testkit::{Node, Worker, until};
use serde_json::json;

/// A cluster from its control plane to its first worker, with one of the engines of the gateway.
async fn set_up(
    node: &'static Node,
    name: &'static str,
    vlan: &'static str,
    network: &str,
    engine: &str,
) -> Result<(Hosted<'static>, Worker)> {
    node.volume(&format!("{name}-leases")).await?;
    let hosted = Hosted::start(node, name, vlan).await?;
    hosted.annotate(network, engine).await?;
    hosted.ready().await?;
    let machine = format!("{name}-workers-1");
    let worker = join(node, &hosted, &machine).await?;
    assert_eq!(worker.name(), machine, "a node is called as its machine");
    Ok((hosted, worker))
}

#[tokio::test]
async fn workers_join_two_clusters_that_see_nothing_of_each_other() {
    let node = Node::shared().await.unwrap();
    node.add_vlan("vlan101").unwrap();
    deploy(node).await.unwrap();
    let (alpha, beta) = tokio::join!(
        set_up(node, "alpha", node.vlan(), "192.168.100.0/24", "Native"),
        set_up(node, "beta", "vlan101", "192.168.101.0/24", "Envoy"),
    );
    let (alpha, beta) = (alpha.unwrap(), beta.unwrap());
    for ((hosted, worker), (other, _)) in [(&alpha, &beta), (&beta, &alpha)] {
        the_api_server_reaches_a_pod_of_the_worker(hosted, worker).await;
        a_tenant_sees_nothing_but_what_is_published(node, hosted, worker).await;
        no_name_of_another_cluster_is_known_or_served(hosted, worker, other).await;
        a_tenant_reaches_no_other_network(node, hosted, worker, other).await;
    }
    let broken = what_the_main_faults_cost(node, &alpha.0, &alpha.1).await.unwrap();
    for (hosted, worker) in [alpha, beta] {
        drop(worker);
        hosted.delete().await.unwrap();
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The main ones of the faults of `make e2e`: what went beyond the allowed.
async fn what_the_main_faults_cost(node: &Node, hosted: &Hosted<'_>, worker: &Worker) -> Result<Vec<String>> {
    let leasing = hosted.tenant("leasing").await?;
    let mut run = Run::new(node, hosted, traffic(hosted, worker.tenant(), &leasing, &[])?);
    run.around_the_servers(Duration::from_secs(15)).await?;
    run.fault("the pods of all servers killed", EVERYTHING, harm::kill_all)
        .await?;
    Ok(run.end().1)
}

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

/// The gateway offers its ports, DNS its own, DHCP none over TCP: neither xDS nor an administration is among them.
async fn a_tenant_sees_nothing_but_what_is_published(node: &Node, hosted: &Hosted<'_>, worker: &Worker) {
    for (server, published, datagrams) in [
        ("dhcp", "", vec![67]),
        ("dns", "53", vec![53]),
        ("proxy", "443 6443", vec![]),
    ] {
        let address = hosted.address_of(server).await.unwrap();
        let open = worker.tenant().run("python3", &["-c", SCAN, &address]).unwrap();
        assert_eq!(open.trim(), published, "open TCP ports of {server}, {address}");
        // Nobody need answer a datagram, so these are looked up where they are heard.
        let heard = hears_datagrams(node, hosted, server).await.unwrap();
        assert_eq!(heard, datagrams, "open UDP ports of {server}, {address}");
    }
}

/// The resolver does not know the names of another cluster, and the gateway does not serve them.
async fn no_name_of_another_cluster_is_known_or_served(
    hosted: &Hosted<'_>,
    worker: &Worker,
    other: &Hosted<'_>,
) {
    let gateway = hosted.address_of("proxy").await.unwrap();
    let known = |name: &str| worker.tenant().run("getent", &["ahostsv4", name]);
    let served = |name: &str, port: &str| {
        let by_hand = format!("{name}:{port}:{gateway}");
        let url = format!("https://{name}:{port}/");
        let ask = [
            "--insecure",
            "--silent",
            "--max-time",
            "5",
            "--resolve",
            &by_hand,
            &url,
        ];
        worker.tenant().run("curl", &ask)
    };
    for (service, port) in [
        ("api", "6443"),
        ("oauth", "443"),
        ("ignition", "443"),
        ("konnectivity", "443"),
    ] {
        let own = hosted.published(service);
        known(&own).unwrap();
        let foreign = other.published(service);
        let answer = known(&foreign);
        assert!(
            answer.is_err(),
            "{foreign} is known to another tenant: {answer:?}"
        );
        let answer = served(&foreign, port);
        assert!(
            answer.is_err(),
            "{foreign} is served to another tenant: {answer:?}"
        );
        // Konnectivity speaks no HTTP/1.1 to whoever has no certificate.
        if service != "konnectivity" {
            served(&own, port).unwrap();
        }
    }
}

/// Nothing of the management side answers, nor of another cluster: neither as DHCP left the routes, nor to a tenant that
/// sends what is for elsewhere to one of the servers, as if that were a router.
async fn a_tenant_reaches_no_other_network(
    node: &Node,
    hosted: &Hosted<'_>,
    worker: &Worker,
    other: &Hosted<'_>,
) {
    let mut targets: Vec<String> = Vec::new();
    for cluster in [hosted, other] {
        let service = cluster.within(&[
            "get",
            "service",
            "kube-apiserver",
            "--output=jsonpath={.spec.clusterIP}:6443",
        ]);
        let backends = cluster.within(&[
            "get",
            "pods",
            "--selector=app in (kube-apiserver,ignition-server-proxy)",
            "--output=jsonpath={range .items[*]}{.status.podIP}:{.spec.containers[0].readinessProbe..port} {end}",
        ]);
        targets.push(service.await.unwrap());
        targets.extend(backends.await.unwrap().split_whitespace().map(str::to_owned));
    }
    // What every server has beside its work: metrics and probes, on the pod's own address.
    let servers = [
        "get",
        "pods",
        "--namespace",
        Hosted::NAMESPACE,
        "--selector=app.kubernetes.io/managed-by=oooi",
        "--output=jsonpath={range .items[*]}{.status.podIP}:9090 {end}",
    ];
    let servers = node.kubectl(&servers).await.unwrap();
    targets.extend(servers.split_whitespace().map(str::to_owned));
    let api_server = [
        "config",
        "view",
        "--output=jsonpath={.clusters[0].cluster.server}",
    ];
    let api_server = node.kubectl(&api_server).await.unwrap();
    targets.push(api_server.trim_start_matches("https://").to_owned());
    targets.push("10.96.0.1:443".to_owned());
    assert!(targets.len() >= 14, "{targets:?}");

    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    let alive = node
        .run("python3", &[&["-c", REACH], targets.as_slice()].concat())
        .unwrap();
    assert_eq!(
        alive.split_whitespace().collect::<Vec<_>>(),
        targets,
        "not all are alive"
    );
    let gateway_of_other = format!("{}:6443", other.address_of("proxy").await.unwrap());
    let targets = [&[gateway_of_other.as_str()], targets.as_slice()].concat();
    let reached = || {
        worker
            .tenant()
            .run("python3", &[&["-c", REACH], targets.as_slice()].concat())
            .unwrap()
    };
    assert_eq!(reached().trim(), "", "a tenant reached what is none of its own");
    for server in ["dhcp", "dns", "proxy"] {
        let router = hosted.address_of(server).await.unwrap();
        let route = |action: &str| {
            for network in ["10.96.0.0/16", "10.244.0.0/16", "198.18.0.0/15", "192.168.0.0/16"] {
                let words = ["route", action, network, "via", &router, "dev", "eth0"];
                worker.tenant().run("ip", &words).unwrap();
            }
        };
        route("add");
        let through = reached();
        route("delete");
        assert_eq!(through.trim(), "", "a tenant reached it by {server}, {router}");
    }
}

/// Prints those of its arguments, `ADDRESS:PORT` each, that accept a connection.
const REACH: &str = r#"
import socket, sys
from concurrent.futures import ThreadPoolExecutor
def reach(target):
    address, port = target.rsplit(":", 1)
    try:
        socket.create_connection((address, int(port)), 3).close()
        return True
    except OSError:
        return False
with ThreadPoolExecutor(32) as pool:
    print(*(target for target, reached in zip(sys.argv[1:], pool.map(reach, sys.argv[1:])) if reached))
"#;

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
