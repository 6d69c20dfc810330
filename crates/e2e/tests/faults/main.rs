//! What breaks, and what of the traffic is lost by it: the table of allowed losses is here. Needs root, the testbed
//! and the image. The table that was measured is printed, and written to the file that `RELIABILITY` names.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fmt::Write;
use std::time::{Duration, Instant};

use oooi_e2e::{Hosted, PATIENCE, Result, Seen, Traffic, deploy, join};
use oooi_testkit::{Node, Tenant, until};

/// How long traffic is watched after a fault, beyond its recovery.
const SETTLE: Duration = Duration::from_secs(3);

/// What stands above the table in the documentation.
const PAGE: &str = "\
# Reliability

What was lost when something broke, as `make e2e` measured it on one machine with a real kubelet, API server, Multus and
kube-router. A worker of a hosted cluster stands on the VLAN and does all of this at once, about ten times a second:

| traffic | what it does |
|---|---|
| connections | opens a TLS connection by name, asks, closes; tries every address of the name |
| held | asks again and again on one connection that it keeps |
| watch | holds a watch on the hosted API server |
| names | asks the resolvers that DHCP gave it |
| leases | renews its lease |

*Lost* counts failed attempts, *outage* is the longest time from a failure to the next success, *allowed* is what the
test accepts. A single replica is away while its pod is replaced. With two, a client that tries the next address loses
nothing but the connections of the pod that died; it opens those again at once.

";
const HEAD: &str = "| fault | traffic | lost | outage | allowed |\n|---|---|---|---|---|\n";

/// Drops every packet to the management API server. Those to the hosted one pass through the node.
const SILENCE: &str =
    "table ip fault { chain input { type filter hook input priority -300; tcp dport 6443 drop; }; }";

/// How many seconds a pod may take to be replaced, on a machine that builds at the same time.
const REPLACED: u64 = 60;

/// A fault and the longest outage that each kind of traffic may have. What is not named loses nothing.
struct Fault {
    what: &'static str,
    allowed: &'static [(&'static str, u64)],
}

/// One run of all faults against one cluster.
struct Run<'a> {
    node: &'a Node,
    hosted: &'a Hosted<'a>,
    traffic: Vec<Traffic>,
    table: String,
    broken: Vec<String>,
}

impl Run<'_> {
    /// Does something harmful, waits until all traffic is well again, and holds what was lost against the table.
    async fn fault(&mut self, fault: Fault, act: impl AsyncFnOnce(&Node, &Hosted<'_>) -> Result<()>) {
        let marks: Vec<u64> = self.traffic.iter().map(Traffic::mark).collect();
        let began = Instant::now();
        let acted = act(self.node, self.hosted).await;
        if let Err(error) = acted {
            panic!("{}: {error}", fault.what);
        }
        let since = |traffic: &[Traffic]| -> Vec<Seen> {
            traffic
                .iter()
                .zip(&marks)
                .map(|(one, mark)| one.since(*mark))
                .collect()
        };
        until("traffic to be well for a while", PATIENCE, async || {
            let before: Vec<u64> = self.traffic.iter().map(Traffic::mark).collect();
            tokio::time::sleep(SETTLE).await;
            let ill: Vec<String> = self
                .traffic
                .iter()
                .zip(before)
                .map(|(one, mark)| (one.name(), one.since(mark)))
                .filter(|(_, seen)| seen.failed > 0 || seen.attempts == 0)
                .map(|(name, seen)| format!("{name}: {}", seen.reason))
                .collect();
            if ill.is_empty() {
                Ok(())
            } else {
                Err(ill.join("; "))
            }
        })
        .await
        .unwrap_or_else(|error| panic!("{}: {error}", fault.what));
        for (one, seen) in self.traffic.iter().zip(since(&self.traffic)) {
            let allowed = fault.allowed.iter().find(|(name, _)| *name == one.name());
            let allowed = allowed.map_or(0, |(_, seconds)| *seconds);
            let Seen {
                attempts,
                failed,
                outage,
                ..
            } = &seen;
            let outage = outage.as_secs_f64();
            writeln!(
                self.table,
                "| {} | {} | {failed} of {attempts} | {outage:.1} s | {allowed} s |",
                fault.what,
                one.name()
            )
            .unwrap();
            if outage > allowed as f64 || (allowed == 0 && *failed > 0) {
                self.broken.push(format!(
                    "{}: {} lost {failed} of {attempts} in {outage:.1} s ({})",
                    fault.what,
                    one.name(),
                    seen.reason
                ));
            }
        }
        println!("{}: {:.1} s", fault.what, began.elapsed().as_secs_f64());
    }
}

/// Ends the pod of a server within a second, and waits until it is gone.
async fn kill_pod(node: &Node, namespace: &str, selector: &str) -> Result<()> {
    let arguments = [
        "delete",
        "pod",
        "--grace-period=1",
        "--namespace",
        namespace,
        "--selector",
        selector,
    ];
    node.kubectl(&arguments).await.map(drop)
}

/// The traffic of a worker: what a node and its users do all the time.
fn traffic(hosted: &Hosted<'_>, tenant: &Tenant, leasing: &Tenant) -> Result<Vec<Traffic>> {
    let ca = hosted.authority().certificate().to_string_lossy().into_owned();
    let user = hosted.authority().client("watcher", Some("system:masters"))?;
    let (certificate, key) = (user.certificate.to_string_lossy(), user.key.to_string_lossy());
    let (api, ignition, oauth) = (
        hosted.published("api"),
        hosted.published("ignition"),
        hosted.published("oauth"),
    );
    Ok(vec![
        Traffic::start(tenant, "connections", &[&ignition, "443", &ca])?,
        Traffic::start(tenant, "held", &[&oauth, "443", &ca])?,
        Traffic::start(tenant, "watch", &[&api, "6443", &ca, &certificate, &key])?,
        Traffic::start(tenant, "names", &[&api])?,
        Traffic::start(leasing, "leases", &[])?,
    ])
}

/// Asks for two replicas of each server, by fields of the Infra that nobody else owns.
async fn two_of_each(node: &Node, hosted: &Hosted<'_>) {
    let components = serde_json::json!({
        "dhcp": {"replicas": 2, "leaseStorage": "Kubernetes"}, "dns": {"replicas": 2}, "proxy": {"replicas": 2},
    });
    let patch = serde_json::json!({"spec": {"infraComponents": components}}).to_string();
    let infra = format!("infra/{}", hosted.name());
    let arguments = [
        "patch",
        &infra,
        "--namespace",
        Hosted::NAMESPACE,
        "--type=merge",
        "--patch",
        &patch,
    ];
    node.kubectl(&arguments).await.unwrap();
    until("two replicas of each server", PATIENCE, async || {
        let path = "--output=jsonpath={range .items[*]}{.metadata.name}={.status.readyReplicas} {end}";
        let ready = node
            .kubectl(&["get", "deployments", "--namespace", Hosted::NAMESPACE, path])
            .await
            .map_err(|error| error.to_string())?;
        let missing = |name: &str| {
            let (first, second) = (
                format!("{}-{name}=1 ", hosted.name()),
                format!("{}-{name}-r2=1 ", hosted.name()),
            );
            !(ready.contains(&first) && ready.contains(&second))
        };
        if ["dhcp", "dns", "proxy"].into_iter().any(missing) {
            Err(ready)
        } else {
            Ok(())
        }
    })
    .await
    .unwrap();
    hosted.ready().await.unwrap();
}

#[tokio::test]
async fn what_worked_goes_on_when_something_breaks() {
    let node = Node::shared().await.unwrap();
    node.volume("gamma-leases").await.unwrap();
    let (deployed, hosted) = tokio::join!(deploy(node), Hosted::start(node, "gamma"));
    deployed.unwrap();
    let hosted = hosted.unwrap();
    hosted.annotate("192.168.102.0/24", "Native").await.unwrap();
    hosted.ready().await.unwrap();
    let worker = join(node, &hosted, "gamma-workers-1").await.unwrap();
    let leasing = node.tenant("leasing").await.unwrap();
    let mut run = Run {
        node,
        hosted: &hosted,
        traffic: traffic(&hosted, worker.tenant(), &leasing).unwrap(),
        table: HEAD.to_owned(),
        broken: Vec::new(),
    };

    run.fault(
        Fault {
            what: "nothing",
            allowed: &[],
        },
        async |_, _| Ok(()),
    )
    .await;
    run.fault(
        Fault {
            what: "management API server silent for 15 s",
            allowed: &[],
        },
        async |node, _| {
            node.run("nft", &[SILENCE])?;
            tokio::time::sleep(Duration::from_secs(15)).await;
            node.run("nft", &["delete table ip fault"]).map(drop)
        },
    )
    .await;
    run.fault(
        Fault {
            what: "every manager killed",
            allowed: &[],
        },
        async |node, _| kill_pod(node, "oooi-system", "app.kubernetes.io/component=manager").await,
    )
    .await;
    run.fault(
        Fault {
            what: "a backend replaced",
            allowed: &[("connections", 5)],
        },
        async |_, hosted| {
            hosted
                .within(&["rollout", "restart", "deployment/ignition-server-proxy"])
                .await?;
            hosted
                .within(&[
                    "rollout",
                    "status",
                    "deployment/ignition-server-proxy",
                    "--timeout=60s",
                ])
                .await
                .map(drop)
        },
    )
    .await;
    let gateway: &[_] = &[("connections", REPLACED), ("held", REPLACED), ("watch", REPLACED)];
    run.fault(
        Fault {
            what: "gateway pod killed",
            allowed: gateway,
        },
        async |node, _| {
            kill_pod(
                node,
                Hosted::NAMESPACE,
                "app=proxy-server,app.kubernetes.io/instance=gamma-proxy",
            )
            .await
        },
    )
    .await;
    run.fault(
        Fault {
            what: "DNS pod killed",
            allowed: &[("names", REPLACED), ("connections", REPLACED)],
        },
        async |node, _| {
            kill_pod(
                node,
                Hosted::NAMESPACE,
                "app=dns-server,app.kubernetes.io/instance=gamma-dns",
            )
            .await
        },
    )
    .await;
    run.fault(
        Fault {
            what: "DHCP pod killed",
            allowed: &[("leases", REPLACED)],
        },
        async |node, _| {
            kill_pod(
                node,
                Hosted::NAMESPACE,
                "app=dhcp-server,app.kubernetes.io/instance=gamma-dhcp",
            )
            .await
        },
    )
    .await;

    two_of_each(node, &hosted).await;
    // Who boots now knows both of each.
    let mut booted = node.tenant("booted").await.unwrap();
    booted.boot().await.unwrap();
    let leasing = node.tenant("leasing-too").await.unwrap();
    run.traffic = traffic(&hosted, &booted, &leasing).unwrap();
    let again: &[_] = &[("held", 10), ("watch", 10)];
    for (server, what, allowed) in [
        ("proxy", "one of two gateway pods killed", again),
        ("dns", "one of two DNS pods killed", &[]),
        // A client renews with the server that it knows, and asks all of them later.
        ("dhcp", "one of two DHCP pods killed", &[("leases", REPLACED)]),
    ] {
        run.fault(Fault { what, allowed }, async |node, _| {
            let first = format!("app={server}-server,app.kubernetes.io/instance=gamma-{server},hostedcluster.densityops.com/replica=1");
            kill_pod(node, Hosted::NAMESPACE, &first).await?;
            // The next fault waits for the one that takes its place.
            let deployment = format!("deployment/gamma-{server}");
            let ready = ["rollout", "status", &deployment, "--namespace", Hosted::NAMESPACE, "--timeout=120s"];
            node.kubectl(&ready).await.map(drop)
        })
        .await;
    }

    println!("{}", run.table);
    drop(run.traffic);
    drop(worker);
    hosted.delete().await.unwrap();
    if let Ok(path) = std::env::var("RELIABILITY") {
        std::fs::write(path, format!("{PAGE}{}", run.table)).unwrap();
    }
    assert!(run.broken.is_empty(), "{}", run.broken.join("\n"));
}
