//! A cluster with nodes and namespaces, the egress controller with the rights of the shipped roles and no others, and
//! a stand-in for OVN-Kubernetes.
//!
//! EgressIPAMs and nodes are of the whole cluster, so tests take turns.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    reason = "a test fails by panicking, and each uses some of these"
)]

pub(crate) mod cut;
pub(crate) mod ec2;
mod fake_ovn;
pub(crate) mod sdn;

use std::fmt::Debug;
use std::time::Duration;

use http::{Method, Request};
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::core::v1::{Namespace, Node, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource, ResourceExt};
use oooi_api::EgressIpam;
use oooi_api::foreign::{CloudPrivateIPConfig, EgressIP, HostSubnet, Infrastructure, NetNamespace};
use oooi_operator::egress_ipam::{self, CloudAccess, Network, Options};
use oooi_operator::lease::Term;
use oooi_operator::metrics::Metrics;
use oooi_operator::presence::Presence;
use oooi_testkit::{Cluster, until};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, OnceCell, watch};
use tokio::task::JoinHandle;

pub(crate) const LIMIT: Duration = Duration::from_secs(60);
pub(crate) const ASKS: &str = "egressip-ipam-operator.redhat-cop.io/egressipam";
pub(crate) const GIVEN: &str = "egressip-ipam-operator.redhat-cop.io/egressips";

static TURN: Mutex<()> = Mutex::const_new(());
static PREPARED: OnceCell<()> = OnceCell::const_new();

pub(crate) trait Kind:
    Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + DeserializeOwned + Serialize
{
}
impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
{
}

/// A cluster of its own for one test.
pub(crate) struct Scene {
    pub(crate) cluster: &'static Cluster,
    pub(crate) client: Client,
    network: Option<Network>,
    /// How clouds are asked.
    pub(crate) cloud: CloudAccess,
    /// Cuts the controller off after so many writes.
    pub(crate) cut: Option<cut::Cut>,
    controller: Option<JoinHandle<()>>,
    ovn: Option<JoinHandle<()>>,
    leading: watch::Sender<Term>,
    _turn: MutexGuard<'static, ()>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.stop();
        if let Some(ovn) = &self.ovn {
            ovn.abort();
        }
    }
}

impl Scene {
    /// A cluster with OVN-Kubernetes, which is found out, and a controller.
    pub(crate) async fn ovn() -> Scene {
        let mut scene = Scene::empty(None).await;
        scene.ovn = Some(tokio::spawn(fake_ovn::run(scene.client.clone())));
        scene.start().await;
        scene
    }

    /// A cluster with nothing of an earlier test, and no controller yet.
    pub(crate) async fn empty(network: Option<Network>) -> Scene {
        let turn = TURN.lock().await;
        let cluster = Cluster::shared().await.unwrap();
        PREPARED.get_or_init(|| prepare(cluster)).await;
        let client = cluster.client().await.unwrap();
        let scene = Scene {
            cluster,
            client,
            network,
            cloud: CloudAccess::new(None).unwrap(),
            cut: None,
            controller: None,
            ovn: None,
            leading: watch::channel(Term::Unlimited).0,
            _turn: turn,
        };
        scene.clear::<EgressIpam>().await;
        scene.clear::<Infrastructure>().await;
        scene.clear::<EgressIP>().await;
        scene.clear::<CloudPrivateIPConfig>().await;
        scene.clear::<HostSubnet>().await;
        scene.clear::<NetNamespace>().await;
        scene.clear::<Node>().await;
        for namespace in scene
            .api::<Namespace>()
            .list(&ListParams::default())
            .await
            .unwrap()
        {
            if namespace.annotations().contains_key(ASKS) || namespace.annotations().contains_key(GIVEN) {
                scene.annotate(&namespace.name_any(), ASKS, None).await;
                scene.annotate(&namespace.name_any(), GIVEN, None).await;
            }
        }
        scene
    }

    /// Whether something stands in for OVN-Kubernetes.
    pub(crate) fn has_ovn(&self) -> bool {
        self.ovn.is_some()
    }

    async fn clear<K: Kind>(&self) {
        let api = self.api::<K>();
        for object in api.list(&ListParams::default()).await.unwrap() {
            let name = object.name_any();
            // Garbage collection may be faster.
            let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            let _ = api.patch(&name, &PatchParams::default(), &free).await;
            let _ = api.delete(&name, &DeleteParams::default()).await;
            self.wait_gone::<K>(&name).await;
        }
    }

    /// Starts the controller, as a new process would.
    pub(crate) async fn start(&mut self) {
        let client = self.controllers_client().await;
        let (presence, follow) = Presence::of(client.clone());
        let options = Options {
            client,
            presence,
            leading: self.leading.subscribe(),
            network: self.network,
            cloud: self.cloud.clone(),
            metrics: Metrics::default(),
        };
        self.controller = Some(tokio::spawn(async move {
            tokio::join!(follow, egress_ipam::run(&options));
        }));
    }

    /// Ends the controller wherever it is just then.
    pub(crate) fn stop(&mut self) {
        if let Some(controller) = self.controller.take() {
            controller.abort();
        }
    }

    /// Ends the controller and starts a new one.
    pub(crate) async fn controller_again(&mut self) {
        self.stop();
        self.start().await;
    }

    async fn controllers_client(&self) -> Client {
        let document = Kubeconfig::read_from(self.cluster.kubeconfig()).unwrap();
        let mut config = Config::from_custom_kubeconfig(document, &KubeConfigOptions::default())
            .await
            .unwrap();
        config.auth_info.impersonate = Some("system:serviceaccount:oooi-system:oooi-manager".into());
        let inner = Client::try_from(config).unwrap();
        let Some(cut) = self.cut.clone() else {
            return inner;
        };
        let service = tower::service_fn(move |request: Request<Body>| {
            let (inner, cut) = (inner.clone(), cut.clone());
            async move {
                if !cut.passes(request.method() != Method::GET) {
                    return Err(kube::Error::Service("cut off".into()));
                }
                cut.carry(async move { inner.send(request).await }).await
            }
        });
        Client::new(service, "default")
    }

    /// Says what the cluster runs on, as the installer would.
    pub(crate) async fn platform(&self, status: Value) {
        let kind = &status["type"];
        self.apply(json!({
            "apiVersion": "config.openshift.io/v1", "kind": "Infrastructure", "metadata": {"name": "cluster"},
            "spec": {"platformSpec": {"type": kind}},
        }))
        .await;
        let patch = Patch::Merge(json!({"status": {"platformStatus": status}}));
        self.api::<Infrastructure>()
            .patch_status("cluster", &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Writes the credentials of a cloud, or takes them away.
    pub(crate) async fn credentials(&self, data: Option<Value>) {
        let api = Api::<Secret>::namespaced(self.client.clone(), "oooi-system");
        let _ = api
            .delete(egress_ipam::CREDENTIALS, &DeleteParams::default())
            .await;
        if let Some(data) = data {
            let name = egress_ipam::CREDENTIALS;
            self.apply(json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "oooi-system"},
                "stringData": data,
            }))
            .await;
        }
    }

    pub(crate) fn api<K: Kind>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    pub(crate) async fn apply(&self, manifest: Value) {
        self.cluster.apply(&manifest.to_string()).await.unwrap();
    }

    /// An EgressIPAM with networks such as `10.0.0.0/24=a`, the zone of their nodes after the sign.
    pub(crate) async fn ipam(&self, name: &str, networks: &[&str]) {
        self.apply(ipam(name, networks)).await;
    }

    /// A healthy node of a zone at an address with its subnet, such as `10.0.0.250/24`.
    pub(crate) async fn node(&self, name: &str, zone: &str, address: &str) {
        let annotations = json!({"k8s.ovn.org/node-primary-ifaddr": json!({"ipv4": address}).to_string()});
        self.apply(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"zone": zone}, "annotations": annotations},
        }))
        .await;
        let own = address.split('/').next().unwrap();
        let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": own}]}});
        let params = PatchParams::default();
        self.api::<Node>()
            .patch_status(name, &params, &Patch::Merge(status))
            .await
            .unwrap();
        self.ready(name, true).await;
    }

    /// Says whether a node is ready, as its kubelet would.
    pub(crate) async fn ready(&self, node: &str, ready: bool) {
        let status = if ready { "True" } else { "False" };
        let now = jiff::Timestamp::now().to_string();
        let conditions = json!([{
            "type": "Ready", "status": status, "reason": "Test", "lastHeartbeatTime": now, "lastTransitionTime": now,
        }]);
        let patch = Patch::Strategic(json!({"status": {"conditions": conditions}}));
        self.api::<Node>()
            .patch_status(node, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// A namespace that asks an EgressIPAM, and names addresses if there are any.
    pub(crate) async fn namespace(&self, name: &str, ipam: &str, given: &str) {
        let mut annotations = json!({ASKS: ipam});
        if !given.is_empty() {
            annotations[GIVEN] = json!(given);
        }
        self.apply(json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "annotations": annotations},
        }))
        .await;
    }

    pub(crate) async fn annotate(&self, namespace: &str, key: &str, value: Option<&str>) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
        self.api::<Namespace>()
            .patch(namespace, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    pub(crate) async fn change<K: Kind>(&self, name: &str, fields: Value) {
        self.api::<K>()
            .patch(name, &PatchParams::default(), &Patch::Merge(fields))
            .await
            .unwrap();
    }

    pub(crate) async fn delete<K: Kind>(&self, name: &str) {
        self.api::<K>()
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }

    /// Waits until an object is as `holds` says.
    pub(crate) async fn wait<K: Kind>(&self, name: &str, what: &str, holds: impl Fn(&K) -> bool) -> K {
        let api = self.api::<K>();
        until(what, LIMIT, async || match api.get_opt(name).await {
            Ok(Some(object)) if holds(&object) => Ok(object),
            other => Err(format!("{other:?}")),
        })
        .await
        .unwrap()
    }

    pub(crate) async fn wait_gone<K: Kind>(&self, name: &str) {
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

    /// Waits until a namespace has these addresses written.
    pub(crate) async fn wait_given(&self, namespace: &str, given: &str) -> Namespace {
        let what = format!("{namespace} to have {given}");
        self.wait(namespace, &what, |one: &Namespace| {
            one.annotations().get(GIVEN).is_some_and(|text| text == given)
        })
        .await
    }

    /// Waits until an EgressIPAM says something of itself.
    pub(crate) async fn wait_says(&self, ipam: &str, kind: &str, status: &str, reason: &str) -> EgressIpam {
        let what = format!("{ipam} to say {kind}={status} {reason}");
        self.wait(ipam, &what, |one: &EgressIpam| {
            let conditions = one.status.iter().flat_map(|status| &status.conditions);
            let generation = one.metadata.generation;
            conditions.into_iter().any(|c| {
                c.type_ == kind
                    && c.status == status
                    && c.reason == reason
                    && c.observed_generation == generation
            })
        })
        .await
    }

    /// Waits for an event about an object.
    pub(crate) async fn wait_event(&self, about: &str, reason: &str, words: &str) {
        let events = Api::<k8s_openapi::api::events::v1::Event>::all(self.client.clone());
        let selector = ListParams::default().fields(&format!("reason={reason}"));
        until(&format!("the event {reason} about {about}"), LIMIT, async || {
            let list = events.list(&selector).await.map_err(|error| error.to_string())?;
            let found = list.items.iter().any(|event| {
                event
                    .regarding
                    .as_ref()
                    .is_some_and(|regarding| regarding.name.as_deref() == Some(about))
                    && event.note.as_ref().is_some_and(|note| note.contains(words))
            });
            if found {
                Ok(())
            } else {
                Err(format!("{:?}", list.items))
            }
        })
        .await
        .unwrap();
    }
}

/// An EgressIPAM with networks such as `10.0.0.0/24=a`, the zone of their nodes after the sign.
pub(crate) fn ipam(name: &str, networks: &[&str]) -> Value {
    let assignments = networks.iter().map(|text| {
        let (cidr, zone) = text.split_once('=').unwrap();
        json!({"CIDR": cidr, "labelValue": zone})
    });
    json!({
        "apiVersion": "redhatcop.redhat.io/v1alpha1", "kind": "EgressIPAM", "metadata": {"name": name},
        "spec": {"topologyLabel": "zone", "cidrAssignments": assignments.collect::<Vec<_>>()},
    })
}

/// All definitions, and the shipped roles.
async fn prepare(cluster: &Cluster) {
    cluster.define(&json!(oooi_api::definitions())).await.unwrap();
    cluster.define_neighbours().await.unwrap();
    cluster.install_manager().await.unwrap();
}
