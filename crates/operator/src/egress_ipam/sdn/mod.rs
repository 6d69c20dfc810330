//! OpenShift SDN: `NetNamespace`s say which addresses a namespace leaves with, `HostSubnet`s which node carries them.
//!
//! An EgressIPAM with one network hands that network to its nodes (`egressCIDRs`), and the SDN places the addresses.
//! With several networks every address is put on a node here (`egressIPs`), and moved when its node fails. What we put
//! on a node is recorded on the node before it is put there; nothing else is ever taken away.
//!
//! On AWS and Azure each address must be on the machine's interface too, so every address is put on a node here, and
//! the cloud is asked for it between the record and the `HostSubnet`. While the cloud cannot be seen no node is
//! changed.

mod hosts;
mod interfaces;
mod machines;
mod net_namespaces;
mod plan;
mod platform;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use kube::runtime::reflector::Store;
use kube::{Api, ResourceExt};
use oooi_api::foreign::{HostSubnet, NetNamespace};
use oooi_egress::Used;
use tokio::sync::Notify;

use super::Options;
use super::backend::{Backend, Carried, Scene, SeenNode};
use super::faults::Faults;
use super::follow::follow;
use crate::apply::Writer;
use machines::Machines;
use plan::Plan;
pub use platform::CREDENTIALS;

/// OpenShift SDN.
pub(super) struct Sdn {
    hosts: Store<HostSubnet>,
    net_namespaces: Store<NetNamespace>,
    /// Machines in a cloud that must be asked for each address.
    machines: Option<Machines>,
}

impl Backend for Sdn {
    async fn follow(options: &Options, wake: &Arc<Notify>) -> (Self, BoxFuture<'static, ()>) {
        let client = &options.client;
        let (hosts, first) = follow(Api::all(client.clone()), wake, |_| ());
        let (net_namespaces, second) = follow(Api::all(client.clone()), wake, |_| ());
        let (machines, third) = platform::machines(options, wake).await;
        let sdn = Sdn {
            hosts,
            net_namespaces,
            machines,
        };
        (sdn, future::join3(first, second, third).map(drop).boxed())
    }

    async fn ready(&self) {
        let _ = tokio::join!(
            self.hosts.wait_until_ready(),
            self.net_namespaces.wait_until_ready()
        );
        if let Some(machines) = &self.machines {
            machines.ready().await;
        }
    }

    async fn look(&self, nodes: &mut [SeenNode], anew: bool) {
        if let Some(machines) = &self.machines {
            machines.look(nodes, anew).await;
        }
    }

    fn is_blind(&self) -> Option<String> {
        let failure = self.machines.as_ref()?.failure()?;
        Some(failure.to_string())
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
        if let Some(machines) = &self.machines {
            machines.used(used);
        }
    }

    async fn carry_out(&self, writer: &Writer, scene: &Scene<'_>, faults: &mut Faults) -> Carried {
        let known: BTreeMap<String, Arc<NetNamespace>> = self
            .net_namespaces
            .state()
            .into_iter()
            .map(|one| (one.name_any(), one))
            .collect();
        // A namespace that leaves loses its addresses before nodes do, and whether the cloud can be seen or not; one that
        // comes gets them after.
        net_namespaces::release(writer, scene.decision, &known, faults).await;
        let machines = self.machines.as_ref();
        if let Some(failure) = machines.and_then(Machines::failure) {
            return report::blind(scene, &failure, faults);
        }
        let by_node = machines.map(|machines| machines.by_node(scene.nodes));
        let plan = Plan::of(scene, &self.hosts.state(), &known, by_node.as_ref());
        let troubles = hosts::carry_out(writer, scene, &plan, machines, faults).await;
        net_namespaces::assign(writer, scene.decision, &known, faults).await;
        report::carried(scene, &plan, machines, &troubles, faults)
    }
}
