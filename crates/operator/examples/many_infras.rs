//! Many Infras at once on the test control plane: how long until each was looked after, how much memory that takes,
//! and whether anything is written afterwards. `make bench-operator` runs it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "a measurement fails by panicking"
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use http::{Method, Request};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PostParams;
use kube::client::Body;
use kube::{Api, Client};
use oooi_api::Infra;
use oooi_api::foreign::NetworkAttachmentDefinition;
use oooi_operator::context::{Images, Platform};
use oooi_operator::controllers::Controller;
use oooi_operator::egress_ipam::CloudAccess;
use oooi_operator::manager::{self, Options};
use oooi_operator::metrics::Metrics;
use oooi_testkit::{Cluster, until};
use serde_json::{Value, json};
use tokio::sync::watch;

const NAMESPACE: &str = "many-infras";

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
    let cluster = Cluster::shared().await.unwrap();
    prepare(cluster).await;
    let client = cluster.client().await.unwrap();
    make_infras(&client, count).await;

    let (inner, before) = (cluster.client().await.unwrap(), memory());
    let writes = Arc::new(AtomicUsize::new(0));
    let (_leads, leading) = watch::channel(true);
    let options = Options {
        client: counted(inner, writes.clone()),
        namespaces: vec![NAMESPACE.to_owned()],
        controllers,
        images: Images {
            oooi: "example.com/oooi:bench".into(),
            envoy: None,
        },
        platform: Platform::Kubernetes,
        load_balancer_wait: Duration::ZERO,
        egress_network: None,
        cloud: CloudAccess::new(None).unwrap(),
        metrics: Metrics::default(),
        leading,
    };
    let began = Instant::now();
    let manager = tokio::spawn(async move { manager::run(&options).await });
    let infras = Api::<Infra>::namespaced(client.clone(), NAMESPACE);
    until(
        "every Infra to be looked after",
        Duration::from_secs(1800),
        async || {
            let list = infras
                .list(&Default::default())
                .await
                .map_err(|error| error.to_string())?;
            let done = list.items.iter().filter(|infra| is_looked_after(infra)).count();
            tokio::time::sleep(Duration::from_secs(1)).await; // a look at all of them is no small thing itself
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
    let peak = memory();
    // Quiet for ten seconds: then it is steady.
    let mut last = (writes.load(Ordering::SeqCst), Instant::now());
    until(
        "nothing to be written any more",
        Duration::from_secs(1800),
        async || {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let now = writes.load(Ordering::SeqCst);
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
    let (settled, quiet) = (last.1 - began, writes.load(Ordering::SeqCst));
    tokio::time::sleep(Duration::from_secs(20)).await;
    let later = writes.load(Ordering::SeqCst) - quiet;
    println!("controllers            {}", names.join(", "));
    println!("Infras                 {count}");
    println!("all looked after       {:.1} s", took.as_secs_f64());
    println!("last write             {:.1} s", settled.as_secs_f64());
    println!("writes                 {quiet}");
    println!("writes in 20 s after   {later}");
    println!("memory, resident       {peak} MiB, {before} MiB before the manager began");
    manager.abort();
    cluster
        .kubectl(&["delete", "namespace", NAMESPACE, "--wait=false"])
        .await
        .unwrap();
}

fn is_looked_after(infra: &Infra) -> bool {
    infra
        .status
        .as_ref()
        .is_some_and(|status| status.observed_generation == infra.metadata.generation)
}

/// The resident memory of this process, in MiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() / 1024
}

/// A client that counts what it writes.
fn counted(inner: Client, writes: Arc<AtomicUsize>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, writes) = (inner.clone(), writes.clone());
        async move {
            if request.method() != Method::GET {
                writes.fetch_add(1, Ordering::SeqCst);
            }
            inner.send(request).await
        }
    });
    Client::new(service, "default")
}

async fn prepare(cluster: &Cluster) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": oooi_api::definitions()});
    cluster.apply(&list.to_string()).await.unwrap();
    let stand_ins = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbed/crds");
    for folder in [cluster.parts().crds(), stand_ins] {
        let folder = folder.to_str().unwrap();
        cluster
            .kubectl(&["apply", "--server-side", "--force-conflicts", "-f", folder])
            .await
            .unwrap();
    }
    let wait = [
        "wait",
        "--for=condition=Established",
        "--timeout=60s",
        "crd",
        "--all",
    ];
    cluster.kubectl(&wait).await.unwrap();
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kustomize/base");
    let arguments = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "-k",
        base.to_str().unwrap(),
    ];
    cluster.kubectl(&arguments).await.unwrap();
}

/// Each Infra has a VLAN of its own.
async fn make_infras(client: &Client, count: usize) {
    let read = |value: Value| serde_json::from_value::<Namespace>(value).unwrap();
    let namespace = read(json!({"metadata": {"name": NAMESPACE}}));
    let params = PostParams::default();
    Api::<Namespace>::all(client.clone())
        .create(&params, &namespace)
        .await
        .unwrap();
    let networks = Api::<NetworkAttachmentDefinition>::namespaced(client.clone(), NAMESPACE);
    let infras = Api::<Infra>::namespaced(client.clone(), NAMESPACE);
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
                    "proxy": {"engine": "Native", "controlPlaneNamespace": NAMESPACE},
                },
            });
            let infra = Infra::new(&name, serde_json::from_value(spec).unwrap());
            infras.create(&PostParams::default(), &infra).await.unwrap();
        })
        .await;
}
