//! What every network does for egress addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1 as core;
use oooi_api::EgressIpam;
use oooi_egress::{Node, Used};
use tokio::sync::Notify;

use super::Options;
use super::decide::Decision;
use super::faults::Faults;
use crate::apply::Writer;
use crate::condition::Finding;

/// The condition that every network of an EgressIPAM has nodes.
pub(super) const NODES: &str = "NodesEligible";

/// The condition that the cloud has what it should.
pub(super) const CLOUD: &str = "CloudInSync";

/// A node, as it is and as it matters.
pub(super) struct SeenNode {
    pub(super) object: Arc<core::Node>,
    pub(super) facts: Node,
}

/// What a pass looks at.
pub(super) struct Scene<'a> {
    pub(super) ipams: &'a [Arc<EgressIpam>],
    pub(super) nodes: &'a [SeenNode],
    pub(super) decision: &'a Decision,
}

/// What a node carries and can carry, its own address included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    /// How many addresses it has.
    pub(super) allocated: u32,
    /// How many it can have; none if nobody says so.
    pub(super) capacity: Option<u32>,
}

/// What each node of each EgressIPAM carries. `on` gives the number of egress addresses of a node.
pub(super) fn loads(scene: &Scene<'_>, on: impl Fn(&str) -> u32) -> BTreeMap<(String, String), Load> {
    let mut loads = BTreeMap::new();
    for layout in &scene.decision.layouts {
        for node in scene
            .nodes
            .iter()
            .map(|node| &node.facts)
            .filter(|node| node.serves(layout))
        {
            let load = Load {
                allocated: on(&node.name) + 1,
                capacity: node.capacity.map(|capacity| capacity.saturating_add(1)),
            };
            loads.insert((layout.name.clone(), node.name.clone()), load);
        }
    }
    loads
}

/// What a namespace still waits for.
pub(super) struct Waiting {
    /// One CamelCase word for it.
    pub(super) reason: &'static str,
    /// A sentence.
    pub(super) message: String,
    /// Whether it comes by itself as a rule, and soon: nobody need hear of that.
    pub(super) is_usual: bool,
}

/// What the network says.
#[derive(Default)]
pub(super) struct Carried {
    /// By EgressIPAM: whether its networks have nodes.
    pub(super) nodes: BTreeMap<String, Finding>,
    /// By EgressIPAM: whether the cloud has what it should.
    pub(super) cloud: BTreeMap<String, Finding>,
    /// By namespace: what is still waited for.
    pub(super) waiting: BTreeMap<String, Waiting>,
    /// By EgressIPAM and node: what a node carries and can carry, its own address included.
    pub(super) loads: BTreeMap<(String, String), Load>,
    /// By EgressIPAM: what is odd.
    pub(super) warnings: BTreeMap<String, Vec<String>>,
    /// By node: what is wrong with it, as a reason and a sentence.
    pub(super) unwell: BTreeMap<String, (&'static str, String)>,
}

/// A network that carries egress addresses.
pub(super) trait Backend: Sized + Send + Sync {
    /// Follows the network's own objects for as long as the future runs.
    fn follow(
        options: &Options,
        wake: &Arc<Notify>,
    ) -> impl Future<Output = (Self, BoxFuture<'static, ()>)> + Send;

    /// Waits until they were listed once.
    fn ready(&self) -> impl Future<Output = ()> + Send;

    /// Looks at what cannot be watched, and tells nodes what they can carry. `anew` if what was seen before will not
    /// do, since somebody is to get a new address.
    fn look(&self, nodes: &mut [SeenNode], anew: bool) -> impl Future<Output = ()> + Send {
        let _ = (nodes, anew);
        async {}
    }

    /// Why nobody can get a new address now: what is in use is not known.
    fn is_blind(&self) -> Option<String> {
        None
    }

    /// Adds what is in force, and what others use. `asking` are the namespaces that ask for addresses.
    fn used(&self, asking: &BTreeSet<String>, nodes: &[SeenNode], used: &mut Used);

    /// Makes the network carry what was decided, and undoes what nobody wants any more.
    fn carry_out(
        &self,
        writer: &Writer,
        scene: &Scene<'_>,
        faults: &mut Faults,
    ) -> impl Future<Output = Carried> + Send;
}
