//! Many Infras at once on the test control plane: how long until each was looked after, how much memory that takes,
//! whether anything is written afterwards, and how long a manager that starts takes to look at all of them again.
//!
//! Two floors say what the control plane itself needs for that: a bare client writes as often, the least that can be
//! written; and it writes what the manager wrote for one Infra once more for each, without reading, watching or deciding
//! anything. `make bench-operator` runs it and reads the line of JSON that it prints.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "a measurement fails by panicking"
)]

mod measure;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use measure::{Count, Write, memory, processor_times};
use oooi_api::Infra;
use oooi_api::foreign::NetworkAttachmentDefinition;
use oooi_operator::context::{Images, Platform, Pods};
use oooi_operator::controllers::Controller;
use oooi_operator::egress_ipam::CloudAccess;
use oooi_operator::lease::Term;
use oooi_operator::manager::{self, Options};
use oooi_operator::metrics::Metrics;
use oooi_testkit::until;
use serde_json::json;
use tokio::sync::watch;

const NAMESPACE: &str = "many-infras";

/// Where what was written is written once more.
const REPLAYED: &str = "many-replays";

/// The Infra whose writes are kept. No other name begins like it.
const KEPT: &str = "tenant-0";

/// A manager that starts has looked at everything when it asked for nothing new for so long.
const SILENT: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let count: usize = arguments
        .next()
        .map_or(1000, |text| text.parse().expect("a number of Infras"));
    let controllers: Vec<Controller> = arguments.map(|text| text.parse().unwrap()).collect();
    let controllers = if controllers.is_empty() {
        Controller::ALL.to_vec()
    } else {
        controllers
    };
    let names: Vec<&str> = controllers.iter().map(|controller| controller.name()).collect();
    let servers = [
        Controller::DhcpServer,
        Controller::DnsServer,
        Controller::ProxyServer,
    ];
    let servers = servers.iter().filter(|one| controllers.contains(one)).count();
    let cluster = measure::cluster().await;
    let client = cluster.client().await.unwrap();
    make_infras(&client, NAMESPACE, count).await;

    let (calls, before) = (Count::keeping(KEPT), memory("VmRSS"));
    let (_leads, leading) = watch::channel(Term::Unlimited);
    let mut options = Options {
        client: calls.of(cluster.client().await.unwrap()),
        namespaces: vec![NAMESPACE.to_owned()],
        controllers,
        images: Images {
            oooi: "example.com/oooi:bench".into(),
            envoy: None,
        },
        platform: Platform::Kubernetes,
        pods: Pods::default(),
        load_balancer_wait: Duration::ZERO,
        egress_network: None,
        cloud: CloudAccess::new(None).unwrap(),
        metrics: Metrics::default(),
        leading,
    };
    let (began, idle) = (Instant::now(), processor_times());
    let first = options.clone();
    let manager = tokio::spawn(async move { manager::run(&first).await });
    let infras = Api::<Infra>::namespaced(client.clone(), NAMESPACE);
    let deployments = Api::<Deployment>::namespaced(client.clone(), NAMESPACE);
    until(
        "every Infra to be looked after",
        Duration::from_secs(1800),
        async || {
            let list = infras
                .list(&Default::default())
                .await
                .map_err(|error| error.to_string())?;
            let made = deployments
                .list_metadata(&Default::default())
                .await
                .map_err(|error| error.to_string())?;
            let looked_after = list.items.iter().filter(|infra| is_looked_after(infra)).count();
            // An Infra is looked after a little before its servers are.
            let served = made.items.len().checked_div(servers).unwrap_or(count);
            let done = looked_after.min(served);
            // A look at all of them is no small thing itself.
            tokio::time::sleep(Duration::from_millis(5 * count as u64).max(Duration::from_secs(1))).await;
            if done == count {
                Ok(())
            } else {
                Err(format!("{done} of {count}"))
            }
        },
    )
    .await
    .unwrap();
    let took = began.elapsed();
    let (wrote, called) = (calls.writes(), calls.calls());
    let busy = processor_times();
    // Quiet for ten seconds: then it is steady.
    let mut last = (calls.writes(), Instant::now());
    until(
        "nothing to be written any more",
        Duration::from_secs(1800),
        async || {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let now = calls.writes();
            if now != last.0 {
                last = (now, Instant::now());
            }
            if last.1.elapsed() > Duration::from_secs(10) {
                Ok(())
            } else {
                Err(format!("{now} writes"))
            }
        },
    )
    .await
    .unwrap();
    let (settled, quiet) = (last.1 - began, calls.writes());
    tokio::time::sleep(Duration::from_secs(20)).await;
    let later = calls.writes() - quiet;
    manager.abort();
    let most = memory("VmHWM");
    let again = Count::telling_apart();
    options.client = again.of(cluster.client().await.unwrap());
    let (looked_again, called_again) = look_again(options, &again).await;
    let spent = |process: &str| {
        let time = |times: &BTreeMap<String, f64>| times.get(process).copied().unwrap_or_default();
        time(&busy) - time(&idle)
    };
    let floor = write_bare(&client, wrote).await;
    let replay = write_again(&client, &calls.kept(), count).await;
    let found = json!({
        "looked after s": took.as_secs_f64(),
        "floor s": floor.as_secs_f64(),
        "replay s": replay.as_secs_f64(),
        "again s": looked_again.as_secs_f64(),
        "calls again": called_again as f64 / count as f64,
        "writes again": again.writes(),
        "calls": called as f64 / count as f64,
        "writes": wrote as f64 / count as f64,
        "last write s": settled.as_secs_f64(),
        "writes after": later,
        "MiB": most,
        "MiB before": before,
        "manager cpu s": spent("many_infras"),
        "apiserver cpu s": spent("kube-apiserver"),
        "etcd cpu s": spent("etcd"),
        // The kernel keeps fifteen characters of a name.
        "controllers cpu s": spent("kube-controller"),
    });
    println!("{found}");
    eprintln!("calls by kind, of {}", names.join(", "));
    for (what, count) in calls.by_kind().into_iter().take(30) {
        eprintln!("  {count:>8} {what}");
    }
    for namespace in [NAMESPACE, REPLAYED] {
        cluster
            .kubectl(&["delete", "namespace", namespace, "--wait=false"])
            .await
            .unwrap();
    }
}

/// How long a manager that starts asks for what it had not asked for yet, and how often it calls until then. It is not
/// silent afterwards: the control plane goes on making pods for minutes, and every change is looked at.
async fn look_again(options: Options, calls: &Count) -> (Duration, usize) {
    let began = Instant::now();
    let manager = tokio::spawn(async move { manager::run(&options).await });
    let (mut paths, mut last) = (0, (began, 0));
    until(
        "the new manager to have asked for everything",
        Duration::from_secs(1800),
        async || {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let now = calls.paths();
            if now != paths {
                (paths, last) = (now, (Instant::now(), calls.calls()));
            }
            match now > 0 && last.0.elapsed() > SILENT {
                true => Ok(()),
                false => Err(format!("{now} paths")),
            }
        },
    )
    .await
    .unwrap();
    manager.abort();
    (last.0 - began, last.1)
}

/// Writes what was written for one Infra for as many others, one after the other, eight of them at once.
async fn write_again(client: &Client, writes: &[Write], count: usize) -> Duration {
    make_infras(client, REPLAYED, count).await;
    let began = Instant::now();
    stream::iter(0..count)
        .for_each_concurrent(8, async |number| {
            let name = format!("tenant-{number}");
            for write in writes {
                let request = write.elsewhere(&[(NAMESPACE, REPLAYED), (KEPT, &name)]);
                let what = request.uri().to_string();
                let answer = client.send(request).await.unwrap();
                assert!(answer.status().is_success(), "{what}: {}", answer.status());
            }
        })
        .await;
    began.elapsed()
}

fn is_looked_after(infra: &Infra) -> bool {
    infra
        .status
        .as_ref()
        .is_some_and(|status| status.observed_generation == infra.metadata.generation)
}

/// Applies as many small objects, as many at once as the manager has servers in hand.
async fn write_bare(client: &Client, count: usize) -> Duration {
    let objects = Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE);
    let params = PatchParams::apply("bench").force();
    let began = Instant::now();
    stream::iter(0..count)
        .for_each_concurrent(8, async |number| {
            let name = format!("bare-{number}");
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}});
            objects.patch(&name, &params, &Patch::Apply(object)).await.unwrap();
        })
        .await;
    began.elapsed()
}

/// A namespace of Infras, each with a VLAN of its own.
async fn make_infras(client: &Client, namespace: &str, count: usize) {
    let made: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
    Api::<Namespace>::all(client.clone())
        .create(&PostParams::default(), &made)
        .await
        .unwrap();
    let networks = Api::<NetworkAttachmentDefinition>::namespaced(client.clone(), namespace);
    let infras = Api::<Infra>::namespaced(client.clone(), namespace);
    stream::iter(0..count)
        .for_each_concurrent(8, async |number| {
            let name = format!("tenant-{number}");
            let config = json!({"cniVersion": "0.3.1", "type": "bridge", "bridge": name}).to_string();
            let network = NetworkAttachmentDefinition::new(
                &name,
                serde_json::from_value(json!({"config": config})).unwrap(),
            );
            networks.create(&PostParams::default(), &network).await.unwrap();
            let spec = json!({
                "networkConfig": {
                    "cidr": "192.168.100.0/24", "gateway": "192.168.100.1", "networkAttachmentDefinition": name,
                },
                "infraComponents": {
                    "dhcp": {},
                    "dns": {"baseDomain": "example.com", "clusterName": name},
                    "proxy": {"engine": "Native", "controlPlaneNamespace": namespace},
                },
            });
            let infra = Infra::new(&name, serde_json::from_value(spec).unwrap());
            infras.create(&PostParams::default(), &infra).await.unwrap();
        })
        .await;
}
