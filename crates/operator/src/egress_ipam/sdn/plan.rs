//! Which node is to carry which addresses and networks. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::Ipv4Net;
use kube::ResourceExt;
use oooi_api::foreign::{HostSubnet, NetNamespace};
use oooi_cloud::{Machine, Pools};
use oooi_egress::{Groups, Layout, Record, Unplaced, Wanted, place, read};

use super::super::backend::Scene;
use super::super::decide::Carry;

/// The annotation of an EgressIPAM that says which load balancers of Azure its addresses join.
pub(super) const LOAD_BALANCER: &str = "egressip-ipam-operator.redhat-cop.io/azure-egress-load-balancer";

/// What is to be done.
#[derive(Default)]
pub(super) struct Plan {
    /// By node.
    pub(super) hosts: BTreeMap<String, Host>,
    /// Addresses without a good node, and whose they are.
    pub(super) unplaced: BTreeMap<Ipv4Addr, (String, Unplaced)>,
    /// Whose each address is that we place.
    pub(super) owners: BTreeMap<Ipv4Addr, String>,
}

/// What is on a node, and what is to be.
pub(super) struct Host {
    /// Its `HostSubnet`.
    pub(super) object: Arc<HostSubnet>,
    /// What is there, whoever put it there.
    pub(super) present: Record,
    /// What we put there: as it is recorded, and what we recognise.
    pub(super) ours: Record,
    /// What we want there.
    pub(super) wanted: Record,
    /// Its machine, where a cloud must be asked for each address.
    pub(super) machine: Option<Machine>,
    /// Addresses that stay behind no load balancer.
    pub(super) alone: BTreeSet<Ipv4Addr>,
}

impl Host {
    /// What its machine has and should not have any more.
    pub(super) fn machine_losses(&self) -> BTreeSet<Ipv4Addr> {
        let on = self.machine.iter().flat_map(|machine| &machine.secondary);
        on.copied()
            .filter(|one| self.ours.addresses.contains(one) && !self.wanted.addresses.contains(one))
            .collect()
    }

    /// What its machine lacks of these.
    pub(super) fn machine_gains(&self, wanted: &BTreeSet<Ipv4Addr>) -> BTreeMap<Ipv4Addr, Pools> {
        let Some(machine) = &self.machine else {
            return BTreeMap::new();
        };
        let pools = |address: &Ipv4Addr| match self.alone.contains(address) {
            true => Pools::None,
            false => Pools::AsPrimary,
        };
        wanted
            .difference(&machine.secondary)
            .map(|address| (*address, pools(address)))
            .collect()
    }

    /// What is there without what we want away.
    pub(super) fn after_losses(&self) -> Record {
        let lost = |has: bool, wants: bool| has && !wants;
        let addresses = self.present.addresses.iter().copied();
        let networks = self.present.networks.iter().copied();
        Record {
            addresses: addresses
                .filter(|one| {
                    !lost(
                        self.ours.addresses.contains(one),
                        self.wanted.addresses.contains(one),
                    )
                })
                .collect(),
            networks: networks
                .filter(|one| {
                    !lost(
                        self.ours.networks.contains(one),
                        self.wanted.networks.contains(one),
                    )
                })
                .collect(),
        }
    }
}

impl Plan {
    pub(super) fn of(
        scene: &Scene<'_>,
        subnets: &[Arc<HostSubnet>],
        net_namespaces: &BTreeMap<String, Arc<NetNamespace>>,
        machines: Option<&BTreeMap<String, Machine>>,
    ) -> Self {
        let wanted = Addresses::of(scene, subnets, net_namespaces, machines);
        let mut current = BTreeMap::new();
        for subnet in subnets {
            for address in addresses(&subnet.spec.egress_ips) {
                current.entry(address).or_insert_with(|| subnet.name_any());
            }
        }
        for (node, machine) in machines.into_iter().flatten() {
            for address in &machine.secondary {
                current.entry(*address).or_insert_with(|| node.clone());
            }
        }
        let owners: BTreeMap<Ipv4Addr, String> = wanted
            .all
            .iter()
            .map(|one| (one.address, one.namespace.clone()))
            .collect();
        let room = room(scene, machines, &owners);
        let placement = place(&wanted.groups, &room, &wanted.all, &current);
        let hosts = subnets.iter().map(|subnet| {
            let name = subnet.name_any();
            let machine = machines.and_then(|machines| machines.get(&name)).cloned();
            let mut host = host(scene, subnet, &placement.on, &wanted, machine);
            host.alone = alone(scene, &host.wanted.addresses, &owners);
            (name, host)
        });
        Plan {
            hosts: hosts.collect(),
            unplaced: placement
                .unplaced
                .into_iter()
                .filter_map(|(address, why)| Some((address, (owners.get(&address)?.clone(), why))))
                .collect(),
            owners,
        }
    }
}

/// How many of our addresses each machine can have, where that is known: what others put there counts.
fn room(
    scene: &Scene<'_>,
    machines: Option<&BTreeMap<String, Machine>>,
    owners: &BTreeMap<Ipv4Addr, String>,
) -> BTreeMap<String, u32> {
    let placed = |node: &str| {
        let mut nodes = scene.nodes.iter().map(|node| &node.facts);
        nodes
            .find(|one| one.name == node)
            .map(|one| &one.placed.addresses)
    };
    let room = machines.into_iter().flatten().filter_map(|(node, machine)| {
        let ours = placed(node);
        let of_others = machine.secondary.iter().copied().filter(|address| {
            !owners.contains_key(address) && !ours.is_some_and(|ours| ours.contains(address))
        });
        let of_others = u32::try_from(of_others.count()).unwrap_or(u32::MAX);
        Some((node.clone(), machine.capacity?.saturating_sub(of_others)))
    });
    room.collect()
}

/// Those of the addresses whose EgressIPAM wants them behind no load balancer.
fn alone(
    scene: &Scene<'_>,
    addresses: &BTreeSet<Ipv4Addr>,
    owners: &BTreeMap<Ipv4Addr, String>,
) -> BTreeSet<Ipv4Addr> {
    let wants_none: BTreeSet<String> = scene
        .ipams
        .iter()
        .filter(|ipam| {
            ipam.annotations()
                .get(LOAD_BALANCER)
                .is_some_and(|text| text == "none")
        })
        .map(|ipam| ipam.name_any())
        .collect();
    let is_alone = |address: &Ipv4Addr| {
        let claim = owners
            .get(address)
            .and_then(|namespace| scene.decision.claims.get(namespace));
        claim.is_some_and(|claim| wants_none.contains(&claim.ipam))
    };
    addresses.iter().copied().filter(is_alone).collect()
}

/// Addresses that we place ourselves, and the nodes that can carry them.
struct Addresses {
    all: Vec<Wanted>,
    groups: Groups,
    /// Whether a cloud must be asked for each of them.
    cloud: bool,
}

impl Addresses {
    fn of(
        scene: &Scene<'_>,
        subnets: &[Arc<HostSubnet>],
        net_namespaces: &BTreeMap<String, Arc<NetNamespace>>,
        machines: Option<&BTreeMap<String, Machine>>,
    ) -> Self {
        let has_machine = |node: &str| machines.is_none_or(|machines| machines.contains_key(node));
        let known: BTreeSet<String> = subnets.iter().map(|subnet| subnet.name_any()).collect();
        let mut groups: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        let mut result = Addresses {
            all: Vec::new(),
            groups: Vec::new(),
            cloud: machines.is_some(),
        };
        for (namespace, claim) in &scene.decision.claims {
            let Some(layout) = scene
                .decision
                .layout(&claim.ipam)
                .filter(|layout| places_itself(layout, machines.is_some()))
            else {
                continue;
            };
            let addresses = match scene.decision.carry(namespace) {
                Carry::Want(_, addresses) => addresses.to_vec(),
                // What is in force for it goes on being carried.
                Carry::Keep => net_namespaces
                    .get(namespace)
                    .map(|one| addresses(&one.spec.egress_ips).collect())
                    .unwrap_or_default(),
                Carry::Drop => Vec::new(),
            };
            for address in addresses {
                let Some(network) = layout
                    .networks
                    .iter()
                    .find(|network| network.cidr.contains(&address))
                else {
                    continue;
                };
                let key = (layout.name.as_str(), network.label_value.as_str());
                let group = *groups.entry(key).or_insert_with(|| {
                    let carriers = scene.nodes.iter().map(|node| &node.facts).filter(|node| {
                        node.healthy
                            && known.contains(&node.name)
                            && has_machine(&node.name)
                            && node.value_for(layout) == Some(key.1)
                    });
                    result
                        .groups
                        .push(carriers.map(|node| node.name.clone()).collect());
                    result.groups.len() - 1
                });
                result.all.push(Wanted {
                    address,
                    namespace: namespace.clone(),
                    group,
                });
            }
        }
        result
    }
}

/// With one network the SDN places addresses, with several it cannot; nor does it know of a cloud.
fn places_itself(layout: &Layout, cloud: bool) -> bool {
    cloud || layout.networks.len() > 1
}

fn host(
    scene: &Scene<'_>,
    subnet: &Arc<HostSubnet>,
    on: &BTreeMap<Ipv4Addr, String>,
    wanted: &Addresses,
    machine: Option<Machine>,
) -> Host {
    let name = subnet.name_any();
    let node = scene
        .nodes
        .iter()
        .map(|node| &node.facts)
        .find(|node| node.name == name);
    let present = Record {
        addresses: addresses(&subnet.spec.egress_ips).collect(),
        networks: subnet
            .spec
            .egress_cidrs
            .iter()
            .filter_map(|text| text.parse().ok())
            .collect(),
    };
    let handed: BTreeSet<Ipv4Net> = scene
        .decision
        .layouts
        .iter()
        .filter(|layout| !places_itself(layout, wanted.cloud))
        .flat_map(|layout| &layout.networks)
        .map(|network| network.cidr)
        .collect();
    let serves = |layout: &&Layout| {
        !places_itself(layout, wanted.cloud) && node.is_some_and(|node| node.serves(layout))
    };
    let networks = scene.decision.layouts.iter().filter(serves);
    let wants = Record {
        addresses: on
            .iter()
            .filter(|(_, node)| **node == name)
            .map(|(address, _)| *address)
            .collect(),
        networks: networks
            .flat_map(|layout| &layout.networks)
            .map(|network| network.cidr)
            .collect(),
    };
    // An address that a namespace names, on a node of the network that it is of, was put there for that namespace:
    // an operator before this one kept no record.
    let recognised = Record {
        addresses: wanted
            .all
            .iter()
            .map(|one| one.address)
            .filter(|one| {
                let on_machine = machine
                    .as_ref()
                    .is_some_and(|machine| machine.secondary.contains(one));
                present.addresses.contains(one) || on_machine
            })
            .collect(),
        networks: present.networks.intersection(&handed).copied().collect(),
    };
    let mut ours = node
        .map(|node| node.placed.with(&recognised))
        .unwrap_or(recognised);
    let frozen = scene
        .ipams
        .iter()
        .any(|ipam| scene.decision.is_frozen(&ipam.name_any()));
    if frozen {
        // What may belong to an EgressIPAM for which nothing is done stays.
        let known = networks_in_hand(scene);
        ours.addresses
            .retain(|address| known.iter().any(|network| network.contains(address)));
        ours.networks.retain(|network| known.contains(network));
    }
    Host {
        object: subnet.clone(),
        present,
        ours,
        wanted: wants,
        machine,
        alone: BTreeSet::new(),
    }
}

/// The networks of EgressIPAMs that are carried out or undone.
fn networks_in_hand(scene: &Scene<'_>) -> Vec<Ipv4Net> {
    let hands_off = |name: &String| scene.decision.is_frozen(name);
    let ipams = scene.ipams.iter().filter(|ipam| !hands_off(&ipam.name_any()));
    let layouts = ipams.filter_map(|ipam| read(ipam).ok());
    layouts
        .flat_map(|layout| layout.networks)
        .map(|network| network.cidr)
        .collect()
}

fn addresses(texts: &[String]) -> impl Iterator<Item = Ipv4Addr> + '_ {
    texts.iter().filter_map(|text| text.parse().ok())
}
