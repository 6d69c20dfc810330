//! A cluster of its own that has nothing but Kubernetes and our definitions. Needs the testbed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod hypershift;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hypershift::{conditions, strategies};
use oooi_api::Infra;
use oooi_operator::context::{Images, Platform, Pods};
use oooi_operator::controllers::Controller;
use oooi_operator::egress_ipam::CloudAccess;
use oooi_operator::lease::Term;
use oooi_operator::manager::{self, Options};
use oooi_operator::metrics::Metrics;
use oooi_testkit::Cluster;
use serde_json::json;
use tokio::sync::watch;
use world::says;

#[tokio::test]
async fn without_hypershift_nobody_asks_for_it_and_once_it_is_installed_hosted_clusters_are_followed() {
    let cluster = Cluster::start().await.unwrap();
    cluster.define(&json!(oooi_api::definitions())).await.unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let (inner, count) = (cluster.client().await.unwrap(), asked.clone());
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let foreign = [
            "hypershift",
            "cni.cncf.io",
            "route.openshift",
            "config.openshift",
            "operator.openshift",
        ];
        if foreign.iter().any(|group| request.uri().path().contains(group)) {
            count.fetch_add(1, Ordering::SeqCst);
        }
        let inner = inner.clone();
        async move { inner.send(request).await }
    });
    let (_leads, leading) = watch::channel(Term::Unlimited);
    let options = Options {
        client: kube::Client::new(service, "default"),
        namespaces: Vec::new(),
        controllers: Controller::ALL.to_vec(),
        images: Images {
            oooi: "example.com/oooi:test".into(),
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
    let manager = tokio::spawn(async move { manager::run(&options).await });
    let by_hand = json!({
        "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "Infra",
        "metadata": {"name": "by-hand", "namespace": "default"},
        "spec": {"networkConfig": {
            "cidr": "10.9.0.0/24", "gateway": "10.9.0.1", "networkAttachmentDefinition": "vlan",
        }},
    });
    cluster.apply(&by_hand.to_string()).await.unwrap();
    let infras = kube::Api::<Infra>::namespaced(cluster.client().await.unwrap(), "default");
    let wait = async |name: &str, holds: fn(&Infra) -> bool| {
        oooi_testkit::until(name, world::LIMIT, async || match infras.get_opt(name).await {
            Ok(Some(infra)) if holds(&infra) => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await
        .unwrap();
    };
    wait("by-hand", |infra| {
        says(
            conditions(infra),
            "NetworkReady",
            "False",
            "NetworkAttachmentMissing",
        )
    })
    .await;
    assert_eq!(asked.load(Ordering::SeqCst), 0, "of kinds that are not there");

    cluster.define_neighbours().await.unwrap();
    let mut tenant = hypershift::cluster("tenant", &strategies("route"));
    tenant["metadata"]["namespace"] = json!("default");
    tenant["metadata"]["annotations"]["hostedcluster.densityops.com/network-attachment"] = json!("vlan");
    cluster.apply(&tenant.to_string()).await.unwrap();
    wait("tenant", |infra| {
        says(conditions(infra), "Derived", "True", "Complete")
    })
    .await;
    manager.abort();
}
