//! OVN-Kubernetes: one `EgressIP` a namespace, and labels on the nodes that may carry addresses.
//!
//! OVN-Kubernetes chooses the nodes, moves addresses off nodes that fail, and asks the cloud itself. So we label nodes,
//! write `EgressIP`s, and tell what its status says.

mod labels;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use futures_util::future::{self, BoxFuture};
use futures_util::{FutureExt, StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::runtime::reflector::Store;
use kube::{Api, Resource, ResourceExt};
use oooi_api::EgressIpam;
use oooi_api::foreign::{CloudPrivateIPConfig, EgressIP, EgressIPSpec};
use oooi_egress::{Layout, Node, Used, preflight, shared_subnets};
use oooi_plan::object_name::object_name;
use tokio::sync::Notify;

use super::Options;
use super::backend::{Backend, CLOUD, Carried, NODES, Scene, SeenNode, Waiting, loads};
use super::decide::{Carry, Decision};
use super::faults::Faults;
use super::follow::follow;
use crate::apply::{Error, Writer};
use crate::condition::Finding;
use crate::identity;

/// The label that every namespace has, with its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// How many objects are written at a time.
const AT_ONCE: usize = 8;

/// OVN-Kubernetes.
pub(super) struct Ovn {
    egress_ips: Store<EgressIP>,
    /// Only where there is a cloud.
    cloud: Option<Store<CloudPrivateIPConfig>>,
}

impl Backend for Ovn {
    async fn follow(options: &Options, wake: &Arc<Notify>) -> (Self, BoxFuture<'static, ()>) {
        let client = &options.client;
        let (egress_ips, following) = follow(Api::<EgressIP>::all(client.clone()), wake, |_| ());
        if !options.presence.has::<CloudPrivateIPConfig>() {
            return (
                Ovn {
                    egress_ips,
                    cloud: None,
                },
                following,
            );
        }
        let configs = Api::<CloudPrivateIPConfig>::all(client.clone());
        let (cloud, following_cloud) = follow(configs, wake, |_| ());
        let ovn = Ovn {
            egress_ips,
            cloud: Some(cloud),
        };
        (ovn, future::join(following, following_cloud).map(drop).boxed())
    }

    async fn ready(&self) {
        let _ = self.egress_ips.wait_until_ready().await;
        if let Some(cloud) = &self.cloud {
            let _ = cloud.wait_until_ready().await;
        }
    }

    fn used(&self, _: &BTreeSet<String>, _: &[SeenNode], used: &mut Used) {
        for egress_ip in self.egress_ips.state() {
            let addresses = egress_ip
                .spec
                .egress_ips
                .iter()
                .filter_map(|text| text.parse().ok());
            match namespace(&egress_ip) {
                Some(namespace) => used
                    .held
                    .extend(addresses.map(|address| (address, namespace.to_owned()))),
                None => {
                    let user = format!("EgressIP {}", egress_ip.name_any());
                    used.foreign
                        .extend(addresses.map(|address| (address, user.clone())));
                }
            }
        }
        for config in self.cloud.iter().flat_map(Store::state) {
            // Its name is the address. Those of our own EgressIPs are made for us.
            if let Ok(address) = config.name_any().parse::<Ipv4Addr>()
                && !used.held.contains_key(&address)
            {
                used.foreign
                    .insert(address, format!("CloudPrivateIPConfig {address}"));
            }
        }
    }

    /// Nodes are labelled before there are addresses for them, and set free after those are gone.
    async fn carry_out(&self, writer: &Writer, scene: &Scene<'_>, faults: &mut Faults) -> Carried {
        labels::add(writer, scene, faults).await;
        let known: BTreeMap<String, Arc<EgressIP>> = self
            .egress_ips
            .state()
            .into_iter()
            .map(|one| (one.name_any(), one))
            .collect();
        let wanted = wanted(scene);
        let writes = wanted.values().map(|(ipam, namespace, egress_ip)| {
            let known = known.get(&egress_ip.name_any()).map(|known| &**known);
            async move {
                (
                    *ipam,
                    Some(*namespace),
                    writer.apply_global(egress_ip, known).await,
                )
            }
        });
        let writes: Vec<_> = writes.collect();
        note(
            faults,
            stream::iter(writes).buffer_unordered(AT_ONCE).collect().await,
        );
        let stale = known
            .values()
            .filter(|egress_ip| is_stale(egress_ip, &wanted, scene.decision));
        let deletions = stale.map(|egress_ip| {
            let ipam = owner(egress_ip).unwrap_or_default();
            async move { (ipam, None, writer.delete_global(&**egress_ip).await) }
        });
        let deletions: Vec<_> = deletions.collect();
        note(
            faults,
            stream::iter(deletions).buffer_unordered(AT_ONCE).collect().await,
        );
        labels::remove(writer, scene, faults).await;
        report(scene, &wanted, &known)
    }
}

fn note(faults: &mut Faults, results: Vec<(&str, Option<&str>, Result<(), Error>)>) {
    for (ipam, namespace, result) in results {
        if let Err(error) = result {
            faults.note(ipam, namespace, &error);
        }
    }
}

/// The objects that should be there, by name, with their EgressIPAM and namespace.
type Wanted<'a> = BTreeMap<String, (&'a str, &'a str, EgressIP)>;

fn wanted<'a>(scene: &Scene<'a>) -> Wanted<'a> {
    let ipams: BTreeMap<String, &Arc<EgressIpam>> =
        scene.ipams.iter().map(|ipam| (ipam.name_any(), ipam)).collect();
    let mut wanted = BTreeMap::new();
    for namespace in scene.decision.claims.keys() {
        if let Carry::Want(name, addresses) = scene.decision.carry(namespace)
            && let Some(ipam) = ipams.get(name)
        {
            let egress_ip = build(ipam, namespace, addresses);
            wanted.insert(egress_ip.name_any(), (name, namespace.as_str(), egress_ip));
        }
    }
    wanted
}

/// The `EgressIP` of one namespace. It goes with its EgressIPAM.
fn build(ipam: &EgressIpam, namespace: &str, addresses: &[Ipv4Addr]) -> EgressIP {
    let name = ipam.name_any();
    let mut metadata = identity::metadata(ipam, object_name(&format!("oooi-{name}"), namespace), None);
    let labels = metadata.labels.get_or_insert_default();
    labels.insert("app.kubernetes.io/component".into(), "egress".into());
    // A label's value is shorter than a name may be.
    labels.insert("app.kubernetes.io/instance".into(), identity::label_value(&name));
    EgressIP {
        metadata,
        spec: EgressIPSpec {
            egress_ips: addresses.iter().map(ToString::to_string).collect(),
            namespace_selector: LabelSelector {
                match_labels: Some(BTreeMap::from([(
                    NAMESPACE_NAME.to_owned(),
                    namespace.to_owned(),
                )])),
                match_expressions: None,
            },
            pod_selector: None,
        },
        status: None,
    }
}

/// The namespace of an `EgressIP` of ours.
fn namespace(egress_ip: &EgressIP) -> Option<&str> {
    let owner = identity::controller(egress_ip.meta()).map(|owner| owner.uid.as_str());
    if !identity::is_ours(egress_ip.meta(), owner) {
        return None;
    }
    let labels = egress_ip.spec.namespace_selector.match_labels.as_ref()?;
    labels.get(NAMESPACE_NAME).map(String::as_str)
}

/// The EgressIPAM of an `EgressIP` of ours.
fn owner(egress_ip: &EgressIP) -> Option<&str> {
    identity::controller(egress_ip.meta()).map(|owner| owner.name.as_str())
}

/// Whether an `EgressIP` is ours and nobody wants it.
fn is_stale(egress_ip: &EgressIP, wanted: &Wanted<'_>, decision: &Decision) -> bool {
    let Some(namespace) = namespace(egress_ip) else {
        return false;
    };
    let name = egress_ip.name_any();
    let paused = owner(egress_ip).is_some_and(|ipam| decision.is_hands_off(ipam));
    if paused || wanted.contains_key(&name) {
        return false;
    }
    // Of a namespace whose addresses nobody can tell, what its own EgressIPAM made stays.
    let kept = decision.carry(namespace) == Carry::Keep
        && decision.claims.get(namespace).map(|claim| claim.ipam.as_str()) == owner(egress_ip);
    !kept
}

/// What OVN-Kubernetes has done, and what it will not be able to do.
fn report(scene: &Scene<'_>, wanted: &Wanted<'_>, known: &BTreeMap<String, Arc<EgressIP>>) -> Carried {
    let mut carried = Carried::default();
    for (name, (_, namespace, egress_ip)) in wanted {
        let status = known.get(name).and_then(|known| known.status.as_ref());
        let placed: BTreeSet<&str> = status
            .iter()
            .flat_map(|status| &status.items)
            .map(|item| item.egress_ip.as_str())
            .collect();
        let missing = egress_ip
            .spec
            .egress_ips
            .iter()
            .filter(|address| !placed.contains(address.as_str()));
        let missing: Vec<&str> = missing.map(String::as_str).collect();
        if !missing.is_empty() {
            let message = format!(
                "OVN-Kubernetes has put {} on no node yet: see EgressIP {name}",
                missing.join(", ")
            );
            let waiting = Waiting {
                reason: "NotPlaced",
                message,
                is_usual: true, // it always comes after us
            };
            carried.waiting.insert((*namespace).to_owned(), waiting);
        }
    }
    let items = known
        .values()
        .flat_map(|one| one.status.iter())
        .flat_map(|status| &status.items);
    let mut on: BTreeMap<&str, u32> = BTreeMap::new();
    items.for_each(|item| *on.entry(item.node.as_str()).or_default() += 1);
    carried.loads = loads(scene, |node| on.get(node).copied().unwrap_or(0));
    let nodes: Vec<Node> = scene.nodes.iter().map(|node| node.facts.clone()).collect();
    for layout in &scene.decision.layouts {
        carried
            .nodes
            .insert(layout.name.clone(), eligible(layout, &nodes, scene.decision));
        let cloud = Finding::holds(
            CLOUD,
            "LeftToCluster",
            "OVN-Kubernetes and its cloud controller ask the cloud",
        );
        carried.cloud.insert(layout.name.clone(), cloud);
        let warnings = shared_subnets(layout, &nodes)
            .iter()
            .map(ToString::to_string)
            .collect();
        carried.warnings.insert(layout.name.clone(), warnings);
    }
    carried
}

fn eligible(layout: &Layout, nodes: &[Node], decision: &Decision) -> Finding {
    let usage = decision.allocation.usage.get(&layout.name);
    let needed: Vec<u64> = usage
        .iter()
        .flat_map(|usage| usage.iter())
        .map(|usage| usage.used)
        .collect();
    let lacks = preflight(layout, nodes, &needed);
    match lacks.first() {
        None => Finding::holds(NODES, "NodesFound", "every network has healthy nodes"),
        Some(first) => {
            let all: Vec<String> = lacks.iter().map(ToString::to_string).collect();
            Finding::fails(NODES, first.reason(), all.join("; "))
        }
    }
}
