//! What the tests on a real API server share.

#![allow(dead_code, reason = "each test uses its part of it")]

pub(crate) mod relay;

use std::time::{Duration, Instant};

use kube::{Client, Config};
use oooi_testkit::{Cluster, Namespace};
use relay::Relay;

/// Longer than anything takes here.
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) struct Bed {
    pub(crate) cluster: &'static Cluster,
    pub(crate) namespace: Namespace<'static>,
    pub(crate) client: Client,
}

impl Bed {
    /// A namespace of a cluster that has our kinds.
    pub(crate) async fn new(prefix: &str) -> Self {
        let cluster = Cluster::shared().await.unwrap();
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": oooi_api::definitions()});
        cluster.apply(&list.to_string()).await.unwrap();
        let namespace = cluster.namespace(prefix).await.unwrap();
        // A definition is established a moment before its objects are served.
        for kind in ["dhcpservers", "dhcpleases", "proxyservers"] {
            oooi_testkit::until(kind, LONG, async || {
                namespace
                    .kubectl(&["get", kind])
                    .await
                    .map_err(|error| error.to_string())
            })
            .await
            .unwrap();
        }
        let client = cluster.client().await.unwrap();
        Bed {
            cluster,
            namespace,
            client,
        }
    }

    /// A client whose connections can be cut.
    pub(crate) async fn cuttable(&self) -> (Client, Relay) {
        let document = kube::config::Kubeconfig::read_from(self.cluster.kubeconfig()).unwrap();
        let mut config =
            Config::from_custom_kubeconfig(document, &kube::config::KubeConfigOptions::default())
                .await
                .unwrap();
        let port = config.cluster_url.port_u16().unwrap();
        let relay = Relay::to(port).await;
        config.cluster_url = format!("https://127.0.0.1:{}/", relay.port()).parse().unwrap();
        (Client::try_from(config).unwrap(), relay)
    }
}

/// Waits, and says how long it took.
pub(crate) async fn timed<T>(what: &str, work: impl Future<Output = T>) -> (T, Duration) {
    let began = Instant::now();
    let value = tokio::time::timeout(LONG, work)
        .await
        .unwrap_or_else(|_| panic!("{what} did not happen"));
    (value, began.elapsed())
}
