//! Many namespaces with egress addresses at once, on OpenShift SDN without a cloud: how long until each has its
//! addresses on nodes, what a lost node moves, and whether anything is written afterwards. `make bench-egress` runs it and
//! reads the line of JSON that it prints.

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
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use measure::{Count, memory};
use oooi_api::EgressIpam;
use oooi_api::foreign::{HostSubnet, NetNamespace};
use oooi_operator::egress_ipam::{self, CloudAccess, Network, Options};
use oooi_operator::lease::Term;
use oooi_operator::metrics::Metrics;
use oooi_operator::presence::Presence;
use oooi_testkit::until;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;

const ASKS: &str = "egressip-ipam-operator.redhat-cop.io/egressipam";
const NETWORKS: usize = 3;
const LIMIT: Duration = Duration::from_secs(600);

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|text| text.parse().expect("a number"));
    let namespaces: usize = arguments.next().unwrap_or(500);
    let nodes: usize = arguments.next().unwrap_or(100);
    let cluster = measure::cluster().await;
    let client = cluster.client().await.unwrap();
    make_namespaces(&client, namespaces).await;
    make_nodes(&client, nodes).await;

    let calls = Count::default();
    let counted = calls.of(cluster.client().await.unwrap());
    let (presence, follow) = Presence::of(counted.clone());
    let (_leads, leading) = watch::channel(Term::Unlimited);
    let options = Options {
        client: counted,
        presence,
        leading,
        network: Some(Network::OpenShiftSdn),
        cloud: CloudAccess::new(None).unwrap(),
        metrics: Metrics::default(),
    };
    let began = Instant::now();
    let controller = tokio::spawn(async move {
        tokio::join!(follow, egress_ipam::run(&options));
    });
    let wanted = namespaces * NETWORKS;
    let before = settled(&client, wanted, |_| true).await;
    let took = began.elapsed();
    let (wrote, called) = (calls.writes(), calls.calls());

    // A node is lost.
    let lost = before.values().next().unwrap().clone();
    let had = before.values().filter(|node| **node == lost).count();
    let began = Instant::now();
    ready(&client, &lost, false).await;
    let after = settled(&client, wanted, |places| {
        places.values().all(|node| *node != lost)
    })
    .await;
    let failover = began.elapsed();
    let moved = after
        .iter()
        .filter(|(address, node)| before[*address] != **node)
        .count();
    assert_eq!(moved, had, "only what was on the lost node moves");
    // What is left to be written is written by then; after that, nothing is.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let quiet = calls.writes();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let later = calls.writes() - quiet;
    controller.abort();

    let found = json!({
        "on nodes s": took.as_secs_f64(),
        "calls": called,
        "writes": wrote,
        "moved": moved,
        "addresses": wanted,
        "failover s": failover.as_secs_f64(),
        "writes after": later,
        "MiB": memory("VmHWM"),
    });
    println!("{found}");
    eprintln!("calls by kind");
    for (what, count) in calls.by_kind().into_iter().take(15) {
        eprintln!("  {count:>8} {what}");
    }
    assert_eq!(later, 0, "nothing changed, and something was written");
}

/// Waits until every address is on a node and given to its namespace, each once.
async fn settled(
    client: &Client,
    wanted: usize,
    holds: impl Fn(&BTreeMap<String, String>) -> bool,
) -> BTreeMap<String, String> {
    let hosts = Api::<HostSubnet>::all(client.clone());
    let owners = Api::<NetNamespace>::all(client.clone());
    until("every address to be on a node", LIMIT, async || {
        let mut places = BTreeMap::new();
        for host in hosts
            .list(&ListParams::default())
            .await
            .map_err(|e| e.to_string())?
        {
            for address in &host.spec.egress_ips {
                let before = places.insert(address.clone(), host.name_any());
                assert_eq!(before, None, "{address} is on two nodes");
            }
        }
        let owners = owners
            .list(&ListParams::default())
            .await
            .map_err(|e| e.to_string())?;
        let given: usize = owners.iter().map(|one| one.spec.egress_ips.len()).sum();
        if places.len() == wanted && given == wanted && holds(&places) {
            Ok(places)
        } else {
            Err(format!("{} placed, {given} given, of {wanted}", places.len()))
        }
    })
    .await
    .unwrap()
}

async fn make_namespaces(client: &Client, count: usize) {
    let assignments: Vec<Value> = (0..NETWORKS)
        .map(|zone| json!({"CIDR": format!("10.{zone}.0.0/20"), "labelValue": zone.to_string()}))
        .collect();
    let ipam = json!({
        "apiVersion": "redhatcop.redhat.io/v1alpha1", "kind": "EgressIPAM", "metadata": {"name": "bench"},
        "spec": {"topologyLabel": "zone", "cidrAssignments": assignments},
    });
    make::<EgressIpam>(client, ipam).await;
    stream::iter(0..count)
        .for_each_concurrent(8, async |number| {
            let name = format!("bench-{number}");
            let annotations = json!({ASKS: "bench"});
            let namespace = json!({"metadata": {"name": name, "annotations": annotations}});
            make::<Namespace>(client, namespace).await;
            let net = json!({
                "apiVersion": "network.openshift.io/v1", "kind": "NetNamespace", "metadata": {"name": name},
                "netname": name, "netid": number + 1,
            });
            make::<NetNamespace>(client, net).await;
        })
        .await;
}

async fn make_nodes(client: &Client, count: usize) {
    stream::iter(0..count)
        .for_each_concurrent(8, async |number| {
            let (name, zone) = (format!("bench-{number}"), (number % NETWORKS).to_string());
            let node = json!({"metadata": {"name": name, "labels": {"zone": zone}}});
            make::<Node>(client, node).await;
            let host = json!({
                "apiVersion": "network.openshift.io/v1", "kind": "HostSubnet", "metadata": {"name": name},
                "host": name, "hostIP": format!("192.168.{}.{}", number / 200, number % 200 + 1),
                "subnet": format!("10.128.{number}.0/24"),
            });
            make::<HostSubnet>(client, host).await;
            ready(client, &name, true).await;
        })
        .await;
}

async fn make<K>(client: &Client, object: Value)
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize,
{
    let object: K = serde_json::from_value(object).unwrap();
    let api = Api::<K>::all(client.clone());
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// Says whether a node is ready, as its kubelet would.
async fn ready(client: &Client, node: &str, ready: bool) {
    let status = if ready { "True" } else { "False" };
    let now = jiff::Timestamp::now().to_string();
    let conditions = json!([{
        "type": "Ready", "status": status, "reason": "Bench", "lastHeartbeatTime": now, "lastTransitionTime": now,
    }]);
    let patch = Patch::Strategic(json!({"status": {"conditions": conditions}}));
    let api = Api::<Node>::all(client.clone());
    api.patch_status(node, &PatchParams::default(), &patch)
        .await
        .unwrap();
}
