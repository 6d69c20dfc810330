//! What the cluster says about the surroundings of an Infra. Reads only.

use std::sync::Arc;

use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Client, ResourceExt};
use oooi_api::foreign::NetworkAttachmentDefinition;
use oooi_api::infra::InfraSpec;
use oooi_api::{DhcpServer, DnsServer, Infra, ProxyServer};
use oooi_plan::Known;
use oooi_plan::infra::Neighbour;
use oooi_plan::network::Vlan;

use super::build::component_name;
use super::components::Components;
use super::network::{Attached, NetworkProblem, attach};
use super::vlans::Vlans;
use crate::apply::Object;
use crate::identity::{self, Role};

/// What was seen.
pub(super) struct Observed {
    /// The network, or why it is of no use.
    pub(super) network: Result<Attached, NetworkProblem>,
    /// The components as they are.
    pub(super) components: Current,
    /// Other Infras on the same VLAN.
    pub(super) neighbours: Vec<Neighbour>,
}

/// What there is under the names of an Infra's components, whoever made it.
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
    pub(super) fn known(&self, infra: &Infra) -> Known {
        fn own<'a, K: Object>(found: &'a Option<K>, infra: &Infra) -> Option<&'a K> {
            found.as_ref().filter(|component| belongs(*component, infra))
        }
        Known {
            dhcp: own(&self.dhcp, infra).map(|server| server.spec.clone()),
            dns: own(&self.dns, infra).map(|server| server.spec.clone()),
            proxy: own(&self.proxy, infra).map(|server| server.spec.clone()),
            ..Known::default()
        }
    }
}

/// What watches keep at hand.
#[derive(Clone)]
pub struct Stores {
    /// The Infras that are looked after.
    pub infras: Store<Infra>,
    /// All Infras, also those that another manager looks after.
    pub everywhere: Store<Infra>,
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
pub(super) async fn observe(
    client: &Client,
    stores: &Stores,
    components: &Components,
    infra: &Infra,
) -> Result<Observed, kube::Error> {
    let network = match definition_of(&stores.networks, infra) {
        Some(definition) => attach(infra, &definition),
        None => Err(NetworkProblem::missing(&infra.spec)),
    };
    let mut neighbours = Vec::new();
    if let Ok(attached) = &network {
        for other in neighbours_of(stores, infra, &attached.vlan) {
            let known = current(client, components, &other).await?.known(&other);
            neighbours.push(Neighbour::new(&other, &known, came_first(&other, infra)));
        }
    }
    Ok(Observed {
        network,
        components: current(client, components, infra).await?,
        neighbours,
    })
}

async fn current(client: &Client, components: &Components, infra: &Infra) -> Result<Current, kube::Error> {
    let namespace = infra.namespace().unwrap_or_default();
    let name = |role| component_name(infra, role);
    Ok(Current {
        dhcp: components.dhcp.get(client, &namespace, &name(Role::Dhcp)).await?,
        dns: components.dns.get(client, &namespace, &name(Role::Dns)).await?,
        proxy: components
            .proxy
            .get(client, &namespace, &name(Role::Proxy))
            .await?,
    })
}

/// Whether a component belongs to this Infra, also one that an earlier operator made: its address must not move. One
/// that somebody else made tells nothing about it.
pub(super) fn belongs<K: Object>(component: &K, infra: &Infra) -> bool {
    let uid = infra.uid();
    let uid = uid.as_deref();
    identity::is_ours(component.meta(), uid) || identity::is_inherited(component.meta(), uid)
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

/// The other Infras whose definition is on the same VLAN. Those that are looked after come from the store that woke us for
/// them: another one may not know them yet.
fn neighbours_of(stores: &Stores, infra: &Infra, vlan: &Vlan) -> Vec<Arc<Infra>> {
    let is_there = |other: &Infra| stores.vlan(other).is_some_and(|own| *own == *vlan);
    let known = |other: &Arc<Infra>| stores.infras.get(&ObjectRef::from_obj(&**other)).is_some();
    let of_others = stores.everywhere.state().into_iter();
    stores
        .infras
        .state()
        .into_iter()
        .chain(of_others.filter(|other| !known(other)))
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
