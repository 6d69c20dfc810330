//! A namespace of a real cluster with a manager for it, which has the rights of the shipped roles and no others, and a stand-in for the nodes that it does not have.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "shared by several test programs, which use parts of it")]

use std::fmt::Debug;
use std::time::Duration;

use http::{Request, Response};
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{ListParams, Patch, PatchParams};
use kube::client::Body;
use kube::{Api, Client, Resource, ResourceExt};
use oooi_operator::context::{Images, Platform, Pods};
use oooi_operator::controllers::Controller;
use oooi_operator::egress_ipam::CloudAccess;
use oooi_operator::lease::Term;
use oooi_operator::manager::{self, Options};
use oooi_operator::metrics::Metrics;
use oooi_testkit::rights::{self, Calls};
use oooi_testkit::{Cluster, Namespace, until};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{OnceCell, watch};
use tokio::task::JoinHandle;

pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A namespace with a manager.
pub(crate) struct World {
    pub(crate) cluster: &'static Cluster,
    pub(crate) namespace: Namespace<'static>,
    /// The namespace of a control plane.
    pub(crate) plane: Namespace<'static>,
    pub(crate) client: Client,
    platform: Platform,
    /// What the next manager gives all pods.
    pub(crate) pods: Pods,
    /// The image that the next manager gives them.
    pub(crate) image: String,
    leading: watch::Sender<Term>,
    manager: JoinHandle<()>,
    /// What the manager called.
    pub(crate) calls: Calls,
}

impl Drop for World {
    fn drop(&mut self) {
        self.manager.abort();
        let forbidden = self.calls.forbidden();
        if !std::thread::panicking() {
            assert!(forbidden.is_empty(), "the manager lacks rights: {forbidden:#?}");
        }
    }
}

impl World {
    /// A new namespace, all definitions, and a manager that looks after this namespace alone.
    pub(crate) async fn start(name: &str) -> World {
        Self::start_on(name, Platform::Kubernetes).await
    }

    /// The same on a cluster of this sort.
    pub(crate) async fn start_on(name: &str, platform: Platform) -> World {
        let mut world = World::bare(name).await;
        world.platform = platform;
        world.begin().await;
        world
    }

    /// The same without a manager.
    pub(crate) async fn bare(name: &str) -> World {
        static PREPARED: OnceCell<()> = OnceCell::const_new();
        let cluster = Cluster::shared().await.unwrap();
        PREPARED.get_or_init(|| prepare(cluster)).await;
        let namespace = cluster.namespace(name).await.unwrap();
        let plane = cluster.namespace(&format!("{name}-plane")).await.unwrap();
        World {
            cluster,
            namespace,
            plane,
            client: cluster.client().await.unwrap(),
            platform: Platform::Kubernetes,
            pods: Pods::default(),
            image: "example.com/oooi:test".into(),
            leading: watch::Sender::new(Term::Unlimited),
            manager: tokio::spawn(async {}),
            calls: Calls::default(),
        }
    }

    /// Has a manager with the rights of the shipped one.
    pub(crate) async fn begin(&mut self) {
        let client = rights::noted(self.cluster, "oooi-system", "oooi-manager", &self.calls)
            .await
            .unwrap();
        self.manage(client);
    }

    /// Ends the manager, and has another one with this client.
    pub(crate) fn manage(&mut self, client: Client) {
        let namespaces = vec![self.namespace.name().to_owned()];
        self.manage_namespaces(client, namespaces);
    }

    /// The same with one that looks after these namespaces.
    pub(crate) fn manage_namespaces(&mut self, client: Client, namespaces: Vec<String>) {
        let options = Options {
            client,
            namespaces,
            controllers: Controller::ALL.to_vec(),
            images: Images {
                oooi: self.image.clone(),
                envoy: Some("example.com/envoy:test".into()),
            },
            platform: self.platform,
            pods: self.pods.clone(),
            load_balancer_wait: Duration::ZERO,
            egress_network: None,
            cloud: CloudAccess::new(None).unwrap(),
            metrics: Metrics::default(),
            leading: self.leading.subscribe(),
        };
        self.manager.abort();
        self.manager = tokio::spawn(async move { manager::run(&options).await });
    }

    /// A client of the manager that the API server denies some requests, as before its role was widened.
    pub(crate) async fn denied(&self, denies: fn(&Request<Body>) -> bool) -> Client {
        let (inner, _) = rights::client_of(self.cluster, "oooi-system", "oooi-manager")
            .await
            .unwrap();
        let service = tower::service_fn(move |request: Request<Body>| {
            let inner = inner.clone();
            async move {
                if denies(&request) {
                    let refusal = json!({
                        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden",
                        "code": 403, "message": "not allowed by this test",
                    });
                    let body = Body::from(refusal.to_string().into_bytes());
                    return Ok(Response::builder().status(403).body(body).unwrap());
                }
                inner.send(request).await
            }
        });
        Client::new(service, "default")
    }

    /// Another process leads from now on.
    pub(crate) fn lose_leadership(&self) {
        self.leading.send_replace(Term::Over);
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), self.namespace.name())
    }

    /// An Infra with all components, whose control plane is in `plane`.
    pub(crate) fn infra(&self, name: &str) -> Value {
        json!({
            "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "Infra", "metadata": {"name": name},
            "spec": {
                "networkConfig": {
                    "cidr": "10.20.0.0/20", "gateway": "10.20.0.1", "networkAttachmentDefinition": "vlan",
                    "dnsServers": ["10.0.0.53"],
                },
                "infraComponents": {
                    "dhcp": {},
                    "dns": {"baseDomain": "example.com", "clusterName": name},
                    "proxy": {"engine": "Native", "controlPlaneNamespace": self.plane.name()},
                },
            },
        })
    }

    /// Applies a manifest as a person would.
    pub(crate) async fn apply(&self, mut manifest: Value) {
        manifest["metadata"]["namespace"] = json!(self.namespace.name());
        self.cluster.apply(&manifest.to_string()).await.unwrap();
    }

    /// A network of virtual machines: a bridge that gives no addresses.
    pub(crate) async fn network(&self, name: &str) {
        self.network_on(name, self.namespace.name()).await;
    }

    /// The same on this bridge.
    pub(crate) async fn network_on(&self, name: &str, bridge: &str) {
        let config = json!({"cniVersion": "0.3.1", "type": "bridge", "bridge": bridge});
        self.network_of(name, &config.to_string()).await;
    }

    /// The same with this configuration.
    pub(crate) async fn network_of(&self, name: &str, config: &str) {
        self.apply(json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": name},
            "spec": {"config": config},
        }))
        .await;
    }

    /// Waits until an object is as `holds` says.
    pub(crate) async fn wait<K>(&self, name: &str, what: &str, holds: impl Fn(&K) -> bool) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let api = self.api::<K>();
        until(what, LIMIT, async || match api.get_opt(name).await {
            Ok(Some(object)) if holds(&object) => Ok(object),
            other => Err(format!("{other:?}")),
        })
        .await
        .unwrap()
    }

    /// Waits until an object is gone.
    pub(crate) async fn wait_gone<K>(&self, name: &str)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let api = self.api::<K>();
        until(&format!("{name} to be gone"), LIMIT, async || {
            match api.get_opt(name).await {
                Ok(None) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await
        .unwrap();
    }

    /// Stands in for the node of a server's only pod: it has its address on the VLAN and is ready.
    pub(crate) async fn run_pod(&self, server: &str, address: &str) -> String {
        self.run_replica(server, 1, address).await
    }

    /// The same for one of several replicas.
    pub(crate) async fn run_replica(&self, server: &str, number: usize, address: &str) -> String {
        let pods = self.api::<Pod>();
        let selector =
            format!("app.kubernetes.io/instance={server},hostedcluster.densityops.com/replica={number}");
        let selector = ListParams::default().labels(&selector);
        let pod = until(&format!("a pod of {server}"), LIMIT, async || {
            let list = pods.list(&selector).await.map_err(|error| error.to_string())?;
            list.items
                .first()
                .map(ResourceExt::name_any)
                .ok_or("none".to_owned())
        })
        .await
        .unwrap();
        let networks = json!([{"name": "vlan", "interface": "net1", "ips": [address]}]).to_string();
        let annotated = json!({"metadata": {"annotations": {"k8s.v1.cni.cncf.io/network-status": networks}}});
        let merge = |patch: &Value| Patch::Merge(patch.clone());
        pods.patch(&pod, &PatchParams::default(), &merge(&annotated))
            .await
            .unwrap();
        // Whether a pod is ready for long enough is told by when it became ready.
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": Time(Timestamp::now())});
        let ready = json!({"status": {"phase": "Running", "conditions": [ready]}});
        pods.patch_status(&pod, &PatchParams::default(), &merge(&ready))
            .await
            .unwrap();
        pod
    }

    /// Says in the name of a pod which generation it serves, as its server would.
    pub(crate) async fn say<K>(&self, name: &str, pod: &str, accepted: bool)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let api = self.api::<K>();
        let object = api.get(name).await.unwrap();
        let report = json!({
            "apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": {"name": name},
            "status": {"servers": [{
                "pod": pod, "uid": object.uid(), "generation": object.meta().generation,
                "accepted": accepted, "message": if accepted { "fine" } else { "the file is wrong" },
            }]},
        });
        api.patch_status(name, &PatchParams::apply(pod), &Patch::Apply(report))
            .await
            .unwrap();
    }
}

/// Installs every definition, the roles of the manager, and a class for volumes.
async fn prepare(cluster: &Cluster) {
    cluster.define(&json!(oooi_api::definitions())).await.unwrap();
    cluster.define_neighbours().await.unwrap();
    cluster.install_manager().await.unwrap();
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": "by-hand", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
    });
    cluster.apply(&class.to_string()).await.unwrap();
}

/// The condition of this type: its truth and its reason.
pub(crate) fn said(conditions: &[Condition], kind: &str) -> Option<(String, String, String)> {
    let found = conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((found.status.clone(), found.reason.clone(), found.message.clone()))
}

/// Whether a condition has this truth and reason.
pub(crate) fn says(conditions: &[Condition], kind: &str, status: &str, reason: &str) -> bool {
    said(conditions, kind).is_some_and(|(truth, why, _)| truth == status && why == reason)
}
