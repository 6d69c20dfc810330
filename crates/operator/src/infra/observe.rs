//! What the cluster says about the surroundings of an Infra. Reads only.

use std::sync::Arc;

use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, ResourceExt};
use oooi_api::foreign::NetworkAttachmentDefinition;
use oooi_api::infra::InfraSpec;
use oooi_api::{DhcpServer, DnsServer, Infra, ProxyServer};
use oooi_plan::infra::Neighbour;
use oooi_plan::network::Vlan;
use oooi_plan::{Known, object_name::object_name};

use super::network::{Attached, NetworkProblem, attach};
use super::vlans::Vlans;
use crate::apply::Object;
use crate::identity;

/// What was seen.
pub(super) struct Observed {
    /// The network, or why it is of no use.
    pub(super) network: Result<Attached, NetworkProblem>,
    /// The components as they are.
    pub(super) components: Current,
    /// Other Infras on the same VLAN.
    pub(super) neighbours: Vec<Neighbour>,
}

/// The components of an Infra as they are.
#[derive(Clone, Debug, Default)]
pub(super) struct Current {
    /// Its DHCP server.
    pub(super) dhcp: Option<DhcpServer>,
    /// Its DNS server.
    pub(super) dns: Option<DnsServer>,
    /// Its gateway.
    pub(super) proxy: Option<ProxyServer>,
}

impl Current {
    /// The part that a plan keeps: addresses that were chosen before.
    pub(super) fn known(&self) -> Known {
        Known {
            dhcp: self.dhcp.as_ref().map(|server| server.spec.clone()),
            dns: self.dns.as_ref().map(|server| server.spec.clone()),
            proxy: self.proxy.as_ref().map(|server| server.spec.clone()),
            ..Known::default()
        }
    }
}

/// What watches keep at hand.
#[derive(Clone)]
pub struct Stores {
    /// All Infras.
    pub infras: Store<Infra>,
    /// All networks.
    pub networks: Store<NetworkAttachmentDefinition>,
    /// Which VLAN each of them is.
    pub vlans: Vlans,
}

impl Stores {
    /// The VLAN of an Infra, if its network is there and can be read.
    pub(crate) fn vlan(&self, infra: &Infra) -> Option<Arc<Vlan>> {
        let definition = definition_of(&self.networks, infra)?;
        self.vlans.of(&definition, self.networks.len())
    }
}

/// Looks at everything that an Infra depends on.
///
/// Components are read from the API server and not from a cache: a cache may lag behind what was just written, and
/// an address that was chosen a moment ago must not be chosen again.
pub(super) async fn observe(
    client: &Client,
    stores: &Stores,
    infra: &Infra,
) -> Result<Observed, kube::Error> {
    let network = match definition_of(&stores.networks, infra) {
        Some(definition) => attach(infra, &definition),
        None => Err(NetworkProblem::missing(&infra.spec)),
    };
    let mut neighbours = Vec::new();
    if let Ok(attached) = &network {
        for other in neighbours_of(stores, infra, &attached.vlan) {
            let components = current(client, &other).await?.known();
            neighbours.push(Neighbour::new(&other, &components, came_first(&other, infra)));
        }
    }
    Ok(Observed {
        network,
        components: current(client, infra).await?,
        neighbours,
    })
}

async fn current(client: &Client, infra: &Infra) -> Result<Current, kube::Error> {
    Ok(Current {
        dhcp: component(client, infra, "dhcp").await?,
        dns: component(client, infra, "dns").await?,
        proxy: component(client, infra, "proxy").await?,
    })
}

/// A component, if it belongs to this Infra, also one that an earlier operator made: its address must not move. One
/// that somebody else made tells nothing about it.
async fn component<K: Object>(
    client: &Client,
    infra: &Infra,
    suffix: &str,
) -> Result<Option<K>, kube::Error> {
    let api = Api::<K>::namespaced(client.clone(), &infra.namespace().unwrap_or_default());
    let found = api.get_opt(&object_name(&infra.name_any(), suffix)).await?;
    let uid = infra.uid();
    let uid = uid.as_deref();
    Ok(found
        .filter(|object| identity::is_ours(object.meta(), uid) || identity::is_inherited(object.meta(), uid)))
}

/// The definition that an Infra names: in the namespace that it names, else in its own, else in `default`.
pub fn definition_of(
    networks: &Store<NetworkAttachmentDefinition>,
    infra: &Infra,
) -> Option<Arc<NetworkAttachmentDefinition>> {
    let InfraSpec { network_config, .. } = &infra.spec;
    let find = |namespace: &str| {
        networks.get(&ObjectRef::new(&network_config.network_attachment_definition).within(namespace))
    };
    match &network_config.network_attachment_namespace {
        Some(namespace) => find(namespace),
        None => find(&infra.namespace().unwrap_or_default()).or_else(|| find("default")),
    }
}

/// The other Infras whose definition is on the same VLAN.
fn neighbours_of(stores: &Stores, infra: &Infra, vlan: &Vlan) -> Vec<Arc<Infra>> {
    let is_there = |other: &Infra| stores.vlan(other).is_some_and(|own| *own == *vlan);
    stores
        .infras
        .state()
        .into_iter()
        .filter(|other| other.uid() != infra.uid() && is_there(other))
        .collect()
}

/// Of two Infras on one VLAN the older one keeps what both want; of two of one second the first by name.
fn came_first(other: &Infra, infra: &Infra) -> bool {
    let rank = |infra: &Infra| {
        let created = infra.creation_timestamp().map(|time| time.0);
        (created, infra.namespace(), infra.name_any())
    };
    rank(other) < rank(infra)
}
