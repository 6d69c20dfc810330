//! A worker joins a hosted cluster through what the operator put on the VLAN. Needs root, the testbed and the image.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use oooi_e2e::{
    Api, Beyond, EVERYTHING, Hosted, PATIENCE, Resolvers, Result, Routed, Run, deploy, harm, hears_datagrams,
    is_whole, join, run_probe, takes_connections, traffic,
};
use oooi_testkit::{Node, Worker, until};
use serde_json::{Value, json};

/// A cluster from its control plane to its first worker, with one of the engines of the gateway.
async fn set_up(
    node: &'static Node,
    name: &'static str,
    vlan: &'static str,
    network: &str,
    engine: &str,
    api: Api,
) -> Result<(Hosted<'static>, Worker)> {
    node.volume(&format!("{name}-leases")).await?;
    let hosted = Hosted::start(node, name, vlan, api).await?;
    hosted.annotate(network, engine).await?;
    hosted.ready().await?;
    let machine = format!("{name}-workers-1");
    let mut worker = join(node, &hosted, &machine).await?;
    assert_eq!(worker.name(), machine, "a node is called as its machine");
    run_probe(&hosted, &worker).await?;
    is_whole(&hosted, &mut worker).await?;
    Ok((hosted, worker))
}

#[tokio::test]
async fn workers_join_two_clusters_that_see_nothing_of_each_other() {
    let node = Node::shared().await.unwrap();
    node.add_vlan("vlan101").unwrap();
    deploy(node).await.unwrap();
    // One by a name, the other as HyperShift's CLI does by default: workers dial an address and send no server name.
    let at = Api::Address([192, 168, 101, 4].into());
    let (alpha, beta) = tokio::join!(
        set_up(
            node,
            "alpha",
            node.vlan(),
            "192.168.100.0/24",
            "Native",
            Api::Name
        ),
        set_up(node, "beta", "vlan101", "192.168.101.0/24", "Envoy", at),
    );
    let (mut alpha, mut beta) = (alpha.unwrap(), beta.unwrap());
    let resolvers = Resolvers::create(node).await.unwrap();
    let of_others = resolvers.entries().await.unwrap();
    an_infra_that_collides_is_refused_at_once(node, &alpha.0).await;
    for ((hosted, worker), (other, worker_of_other)) in [(&alpha, &beta), (&beta, &alpha)] {
        a_tenant_sees_nothing_but_what_is_published(node, hosted, worker).await;
        no_name_of_another_cluster_is_known_or_served(hosted, worker, other).await;
        a_tenant_reaches_no_other_network(node, hosted, worker, other, worker_of_other).await;
        the_zone_is_published(node, &resolvers, hosted).await;
    }
    answers_leave_by_the_gateway_of_the_vlan(node, &alpha.0).await;
    let broken = what_the_main_faults_cost(node, &alpha.0, &alpha.1).await.unwrap();
    for (hosted, worker) in [&mut alpha, &mut beta] {
        is_whole(hosted, worker).await.unwrap();
    }
    for (hosted, worker) in [alpha, beta] {
        drop(worker);
        let published = resolvers.entry_of(&hosted).await.unwrap();
        assert!(published.is_some(), "{} is not published any more", hosted.zone());
        hosted.delete().await.unwrap();
        let left = resolvers.entry_of(&hosted).await.unwrap();
        assert_eq!(left, None, "the resolvers still forward to what is gone");
    }
    assert_eq!(resolvers.entries().await.unwrap(), of_others);
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
        let own = hosted.dialled(service);
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

/// Nothing of the management side answers, nor of another cluster: no Service, no pod and no node, neither as DHCP left
/// the routes, nor to a tenant that sends what is for elsewhere to one of the servers, as if that were a router.
async fn a_tenant_reaches_no_other_network(
    node: &Node,
    hosted: &Hosted<'_>,
    worker: &Worker,
    other: &Hosted<'_>,
    worker_of_other: &Worker,
) {
    let from = |tenant: &Worker, targets: &[String]| {
        let said = tenant.tenant().run("python3", &reach(targets));
        said.unwrap().trim().to_owned()
    };
    // What nobody could reach would prove nothing. A pod may have been replaced a moment ago.
    let mut targets = until("all of the management side to be alive", PATIENCE, async || {
        let targets = takes_connections(node).await.map_err(|error| error.to_string())?;
        let alive = node
            .run("python3", &reach(&targets))
            .map_err(|error| error.to_string())?;
        let alive: Vec<&str> = alive.split_whitespace().collect();
        match targets.iter().all(|target| alive.contains(&target.as_str())) {
            true => Ok(targets),
            false => Err(format!("of {targets:?} these: {alive:?}")),
        }
    })
    .await
    .unwrap();
    assert!(targets.len() >= 50, "{targets:?}");
    let mut on_the_other_vlan = Vec::new();
    for (server, port) in [("proxy", "6443"), ("proxy", "443"), ("dns", "53")] {
        let address = other.address_of(server).await.unwrap();
        on_the_other_vlan.push(format!("{address}:{port}"));
    }
    assert_eq!(
        from(worker_of_other, &on_the_other_vlan),
        on_the_other_vlan.join(" ")
    );
    targets.extend(on_the_other_vlan);

    let reached = from(worker, &targets);
    assert_eq!(reached, "", "a tenant reached what is none of its own");
    for server in ["dhcp", "dns", "proxy"] {
        let router = hosted.address_of(server).await.unwrap();
        let route = |action: &str| {
            for network in ["10.96.0.0/16", "10.244.0.0/16", "198.18.0.0/15", "192.168.0.0/16"] {
                let words = ["route", action, network, "via", &router, "dev", "eth0"];
                worker.tenant().run("ip", &words).unwrap();
            }
        };
        route("add");
        let through = from(worker, &targets);
        route("delete");
        assert_eq!(through, "", "a tenant reached it by {server}, {router}");
    }
}

/// The arguments of a program that prints those of the targets that accept a connection.
fn reach(targets: &[String]) -> Vec<&str> {
    ["-c", REACH]
        .into_iter()
        .chain(targets.iter().map(String::as_str))
        .collect()
}

/// The operator as the installation pages have it judges an Infra when it is written: one that collides with another is
/// refused, one beside it is not. Nothing is stored.
async fn an_infra_that_collides_is_refused_at_once(node: &Node, hosted: &Hosted<'_>) {
    let taken = hosted.address_of("dns").await.unwrap();
    let beside = format!("{}.254", taken.rsplit_once('.').unwrap().0);
    let write = async |address: &str| {
        let infra = json!({
            "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "Infra",
            "metadata": {"name": "second", "namespace": Hosted::NAMESPACE},
            "spec": {
                "networkConfig": {
                    "cidr": "192.168.100.0/24", "gateway": "192.168.100.1",
                    "networkAttachmentDefinition": format!("{}-machines", hosted.name()),
                },
                "infraComponents": {
                    "dns": {"serverIP": address, "baseDomain": "example.com", "clusterName": "second"},
                },
            },
        });
        let apply = ["apply", "--server-side", "--dry-run=server", "-f", "-"];
        node.kubectl_with_input(&apply, &infra.to_string()).await
    };
    // Where the webhook does not answer yet, nobody is refused.
    let refused = until("a second Infra to be refused", PATIENCE, async || {
        match write(&taken).await {
            Ok(written) => Err(format!("it is taken: {written}")),
            Err(error) => Ok(error.to_string()),
        }
    })
    .await
    .unwrap();
    let by_us = refused.contains("infra.hostedcluster.densityops.com") && refused.contains(hosted.name());
    assert!(by_us, "{refused}");
    write(&beside).await.unwrap();
}

/// Where the zone is published, the resolvers of the management cluster are led to a server of it. What its names lead to
/// there is known by the name of a Service, and this cluster has no resolver of Services: the zone itself is asked for.
async fn the_zone_is_published(node: &Node, resolvers: &Resolvers<'_>, hosted: &Hosted<'_>) {
    let (address, port) = resolvers.publish(hosted).await.unwrap();
    let (server, zone) = (format!("@{address}"), hosted.zone());
    let found = node
        .run("dig", &["+short", "-p", &port, &server, &zone, "SOA"])
        .unwrap();
    assert!(found.contains(&zone), "{zone}: `{found}`");
}

/// A client beyond the VLAN's gateway is answered: by what the operator derived, whose network routes by source, and, where
/// the network does not, by a server that was told the gateway. Without it that one is asked, and its answer is lost.
async fn answers_leave_by_the_gateway_of_the_vlan(node: &Node, hosted: &Hosted<'_>) {
    let beyond = Beyond::start(node, node.vlan()).await.unwrap();
    let name = hosted.published("oauth");
    let by_hand = format!("{name}:443:{}", hosted.address_of("proxy").await.unwrap());
    let url = format!("https://{name}/");
    let ask = [
        "--insecure",
        "--silent",
        "--max-time",
        "10",
        "--resolve",
        &by_hand,
        &url,
    ];
    let page = beyond.client().run("curl", &ask).unwrap();
    assert!(page.contains("oauth-openshift of"), "{page}");

    let routed = Routed::start(node, node.vlan()).await.unwrap();
    let answered = async |from| {
        let answer = until("an answer", PATIENCE, async || match routed.ask(from) {
            Ok(answer) if !answer.is_empty() => Ok(answer),
            other => Err(format!("{other:?}")),
        });
        assert_eq!(answer.await.unwrap(), "192.0.2.1");
    };
    answered(beyond.router()).await;
    let lost = routed.ask(beyond.client());
    assert!(lost.is_err(), "the answer left by itself: {lost:?}");

    routed.route_via(node, Beyond::GATEWAY).await.unwrap();
    answered(beyond.client()).await;
    answered(beyond.router()).await;
    let pods = routed.pods().await.unwrap();
    assert_eq!(pods.len(), 1, "{pods:?}");
    let pod = &pods[0];
    let (first, server) = (&pod["spec"]["initContainers"][0], &pod["spec"]["containers"][0]);
    let added = |container: &Value| container["securityContext"]["capabilities"]["add"].clone();
    assert_eq!((added(first), added(server)), (json!(["NET_ADMIN"]), Value::Null));
    let ended = &pod["status"]["initContainerStatuses"][0]["state"]["terminated"];
    assert_eq!(ended["exitCode"], 0, "{pod}");
    assert_eq!(pod["spec"]["securityContext"]["runAsNonRoot"], true);
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
with ThreadPoolExecutor(len(sys.argv)) as pool:
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
