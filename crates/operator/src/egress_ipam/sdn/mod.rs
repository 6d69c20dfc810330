//! OpenShift SDN: `NetNamespace`s say which addresses a namespace leaves with, `HostSubnet`s which node carries them.
//!
//! An EgressIPAM with one network hands that network to its nodes (`egressCIDRs`), and the SDN places the addresses.
//! With several networks every address is put on a node here (`egressIPs`), and moved when its node fails. What we put
//! on a node is recorded on the node before it is put there; nothing else is ever taken away.
//!
//! On AWS and Azure the SDN needs each address on the machine's interface too, and nobody here asks those clouds for
//! it: there nothing is changed, and that is said.

mod hosts;
mod net_namespaces;
mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use kube::runtime::reflector::Store;
use kube::{Api, ResourceExt};
use oooi_api::foreign::{CloudPlatform, HostSubnet, Infrastructure, NetNamespace};
use oooi_egress::{Unplaced, Used};
use tokio::sync::Notify;

use super::Options;
use super::backend::{Backend, CLOUD, Carried, NODES, Scene, SeenNode, loads};
use super::detect::until_answered;
use super::faults::Faults;
use super::follow::follow;
use crate::apply::Writer;
use crate::condition::Finding;
use plan::Plan;

/// OpenShift SDN.
pub(super) struct Sdn {
    hosts: Store<HostSubnet>,
    net_namespaces: Store<NetNamespace>,
    /// A cloud that would have to be asked for each address.
    cloud: Option<&'static str>,
}

impl Backend for Sdn {
    async fn follow(options: &Options, wake: &Arc<Notify>) -> (Self, BoxFuture<'static, ()>) {
        let client = &options.client;
        let (hosts, first) = follow(Api::all(client.clone()), wake, |_| ());
        let (net_namespaces, second) = follow(Api::all(client.clone()), wake, |_| ());
        let sdn = Sdn {
            hosts,
            net_namespaces,
            cloud: until_answered("what the cluster runs on", || cloud(options)).await,
        };
        (sdn, future::join(first, second).map(drop).boxed())
    }

    async fn ready(&self) {
        let _ = tokio::join!(
            self.hosts.wait_until_ready(),
            self.net_namespaces.wait_until_ready()
        );
    }

    fn used(&self, asking: &BTreeSet<String>, nodes: &[SeenNode], used: &mut Used) {
        for one in self.net_namespaces.state() {
            let name = one.name_any();
            let addresses = one.spec.egress_ips.iter().filter_map(|text| text.parse().ok());
            if asking.contains(&name) || net_namespaces::is_ours(&one) {
                used.held.extend(addresses.map(|address| (address, name.clone())));
            } else {
                let user = format!("NetNamespace {name}");
                used.foreign
                    .extend(addresses.map(|address| (address, user.clone())));
            }
        }
        let placed: BTreeSet<_> = nodes
            .iter()
            .flat_map(|node| &node.facts.placed.addresses)
            .collect();
        for host in self.hosts.state() {
            let name = host.name_any();
            if let Some(own) = host.spec.host_ip.as_deref().and_then(|text| text.parse().ok()) {
                used.hosts.insert(own, name.clone());
            }
            for address in host.spec.egress_ips.iter().filter_map(|text| text.parse().ok()) {
                if !used.held.contains_key(&address) && !placed.contains(&address) {
                    used.foreign.insert(address, format!("HostSubnet {name}"));
                }
            }
        }
    }

    async fn carry_out(&self, writer: &Writer, scene: &Scene<'_>, faults: &mut Faults) -> Carried {
        if let Some(cloud) = self.cloud {
            return not_on(cloud, scene);
        }
        let known: BTreeMap<String, Arc<NetNamespace>> = self
            .net_namespaces
            .state()
            .into_iter()
            .map(|one| (one.name_any(), one))
            .collect();
        let plan = Plan::of(scene, &self.hosts.state(), &known);
        // A namespace that leaves loses its addresses before nodes do; one that comes gets them after.
        net_namespaces::release(writer, scene.decision, &known, faults).await;
        hosts::carry_out(writer, scene, &plan, faults).await;
        net_namespaces::assign(writer, scene.decision, &known, faults).await;
        report(scene, &plan)
    }
}

/// The cloud that the cluster runs on, if it must be asked for each address.
async fn cloud(options: &Options) -> Result<Option<&'static str>, kube::Error> {
    if !options.presence.has::<Infrastructure>() {
        return Ok(None);
    }
    let infrastructure = Api::<Infrastructure>::all(options.client.clone())
        .get_opt("cluster")
        .await?;
    let platform = infrastructure.and_then(|one| one.status?.platform_status?.type_);
    Ok(match platform {
        Some(CloudPlatform::AWS) => Some("AWS"),
        Some(CloudPlatform::Azure) => Some("Azure"),
        Some(CloudPlatform::Other(_)) | None => None,
    })
}

fn not_on(cloud: &str, scene: &Scene<'_>) -> Carried {
    let message = format!(
        "on OpenShift SDN an address must be on the machine's interface in {cloud}, and nobody here asks {cloud} for \
         it: addresses are written to the namespaces, and no node is changed"
    );
    let finding = Finding::fails(CLOUD, "CloudNotSupported", message);
    let layouts = scene.decision.layouts.iter();
    Carried {
        cloud: layouts
            .map(|layout| (layout.name.clone(), finding.clone()))
            .collect(),
        ..Carried::default()
    }
}

fn report(scene: &Scene<'_>, plan: &Plan) -> Carried {
    let mut carried = Carried::default();
    for layout in &scene.decision.layouts {
        let without = layout.networks.iter().filter(|network| {
            let carries = |node: &&SeenNode| {
                node.facts.healthy
                    && plan.hosts.contains_key(&node.facts.name)
                    && node.facts.value_for(layout) == Some(network.label_value.as_str())
            };
            !scene.nodes.iter().any(|node| carries(&node))
        });
        let without: Vec<String> = without
            .map(|network| {
                format!(
                    "{} ({}={})",
                    network.cidr, layout.topology_label, network.label_value
                )
            })
            .collect();
        let finding = if without.is_empty() {
            Finding::holds(NODES, "NodesFound", "every network has healthy nodes")
        } else {
            let message = format!(
                "no healthy node that the EgressIPAM selects carries {}",
                without.join(", ")
            );
            Finding::fails(NODES, "NoEligibleNode", message)
        };
        carried.nodes.insert(layout.name.clone(), finding);
        let cloud = Finding::holds(CLOUD, "NoCloud", "this platform needs no cloud to be asked");
        carried.cloud.insert(layout.name.clone(), cloud);
    }
    carried.loads = loads(scene, |node| {
        let on = plan
            .hosts
            .get(node)
            .map_or(0, |host| host.after_losses().with(&host.wanted).addresses.len());
        u32::try_from(on).unwrap_or(u32::MAX)
    });
    for (address, (namespace, why)) in &plan.unplaced {
        let message = match why {
            Unplaced::NoNode => format!("there is no healthy node for {address}"),
            Unplaced::Full => format!("every node for {address} is full"),
        };
        carried.waiting.insert(namespace.clone(), ("NotPlaced", message));
    }
    carried
}
