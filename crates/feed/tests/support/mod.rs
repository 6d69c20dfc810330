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
    /// A person, who may do everything.
    pub(crate) client: Client,
    /// A DHCP server with the rights of the shipped roles and no others.
    pub(crate) dhcp: Client,
    /// A DNS server with its own.
    pub(crate) dns: Client,
    /// A gateway with its own.
    pub(crate) proxy: Client,
}

impl Bed {
    /// A namespace of a cluster that has our kinds.
    pub(crate) async fn new(prefix: &str) -> Self {
        let cluster = Cluster::shared().await.unwrap();
        let definitions = serde_json::json!(oooi_api::definitions());
        cluster.define(&definitions).await.unwrap();
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
        let roles = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../deploy/kustomize/base/server-roles.yaml");
        let roles = std::fs::read_to_string(roles).unwrap();
        cluster.apply(&roles).await.unwrap();
        Bed {
            cluster,
            client: cluster.client().await.unwrap(),
            dhcp: server(cluster, &namespace, &["oooi-dhcp", "oooi-machines"]).await,
            dns: server(cluster, &namespace, &["oooi-dns", "oooi-machines"]).await,
            proxy: server(cluster, &namespace, &["oooi-proxy", "oooi-backends"]).await,
            namespace,
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

/// A client that may do what these shipped roles grant in the namespace, as the operator binds them.
async fn server(cluster: &Cluster, namespace: &Namespace<'_>, roles: &[&str]) -> Client {
    let account = roles.first().unwrap();
    let user = format!("system:serviceaccount:{}:{account}", namespace.name());
    for role in roles {
        let binding = serde_json::json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": format!("{account}.{role}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        });
        namespace.apply(&binding.to_string()).await.unwrap();
    }
    let document = kube::config::Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(document, &kube::config::KubeConfigOptions::default())
        .await
        .unwrap();
    config.auth_info.impersonate = Some(user);
    Client::try_from(config).unwrap()
}

/// Waits, and says how long it took.
pub(crate) async fn timed<T>(what: &str, work: impl Future<Output = T>) -> (T, Duration) {
    let began = Instant::now();
    let value = tokio::time::timeout(LONG, work)
        .await
        .unwrap_or_else(|_| panic!("{what} did not happen"));
    (value, began.elapsed())
}
