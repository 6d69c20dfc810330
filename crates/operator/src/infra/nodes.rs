//! The nodes of hosted clusters: who has which address on a VLAN, from what watches keep at hand. Reads only.
//!
//! KubeVirt sees the addresses of machines whose guest says them; leases that are kept as resources are known besides.
//! Both change all the time in ways that do not matter here: only what could change an endpoint wakes anybody.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap};
use std::future;
use std::hash::{Hash, Hasher};
use std::net::Ipv4Addr;

use futures_util::StreamExt;
use futures_util::stream::{BoxStream, Stream};
use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use oooi_api::dhcp_lease::DhcpLeaseState;
use oooi_api::foreign::VirtualMachineInstance;
use oooi_api::{DhcpLease, Infra};
use oooi_plan::Known;
use oooi_plan::infra::{control_plane_namespace, machine_addresses};

use super::build::component_name;
use crate::control_planes::ControlPlanes;
use crate::first_look::{FirstLook, Unlisted};
use crate::gaps::Gaps;
use crate::identity::{self, Role};
use crate::manager::{Options, chosen};
use crate::presence::Presence;

/// What an Infra has beside its components: it has no component's label.
pub(crate) const BESIDE: &str = "app.kubernetes.io/managed-by=oooi,!app.kubernetes.io/component";

/// What watches keep at hand.
#[derive(Clone)]
pub(crate) struct Nodes {
    machines: Store<VirtualMachineInstance>,
    leases: Store<DhcpLease>,
    slices: Store<PartialObjectMeta<EndpointSlice>>,
    presence: Presence,
}

/// The changes that those watches see.
pub(crate) struct Changes {
    pub(crate) machines: BoxStream<'static, Result<VirtualMachineInstance, watcher::Error>>,
    pub(crate) leases: BoxStream<'static, Result<DhcpLease, watcher::Error>>,
    pub(crate) slices: BoxStream<'static, Result<PartialObjectMeta<EndpointSlice>, watcher::Error>>,
}

/// The nodes of one Infra at one moment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Their addresses.
    pub(super) addresses: BTreeSet<Ipv4Addr>,
    /// When the first of their leases ends, if nobody renews it.
    pub(super) until: Option<Timestamp>,
}

impl Nodes {
    /// Follows machines wherever they are, and leases beside Infras.
    pub(crate) fn follow(options: &Options, presence: &Presence, gaps: &Gaps) -> (Self, Changes) {
        let client = options.client.clone();
        let machines = presence.while_served::<VirtualMachineInstance, _>(move || {
            watcher(Api::all(client.clone()), watcher::Config::default())
        });
        let (machine_store, fill_machines) = reflector::store();
        let machines = machines
            .default_backoff()
            .modify(prune_machine)
            .reflect(fill_machines);
        let (lease_store, fill_leases) = reflector::store();
        let leases = options.watch::<DhcpLease>(watcher::Config::default());
        let leases = leases.modify(prune_lease).reflect(fill_leases);
        let (slice_store, fill_slices) = reflector::store();
        let slices = options.watch(watcher::Config::default().labels(BESIDE));
        let nodes = Nodes {
            machines: machine_store,
            leases: lease_store,
            slices: slice_store,
            presence: presence.clone(),
        };
        let changes = Changes {
            machines: gaps.touched(news(machines, machine_essence)).boxed(),
            leases: gaps.touched(news(leases, lease_essence)).boxed(),
            slices: gaps.touched(slices.reflect(fill_slices)).boxed(),
        };
        (nodes, changes)
    }

    /// Waits for the first look at everything: an endpoint that was not looked at yet must not be dropped.
    pub(crate) async fn are_known(&self, look: &FirstLook) -> Result<(), Unlisted> {
        look.listed(&self.leases).await?;
        look.listed(&self.slices).await?;
        if self.presence.has::<VirtualMachineInstance>() {
            look.listed(&self.machines).await?;
        }
        Ok(())
    }

    /// The nodes of an Infra whose machines are in this namespace.
    pub(super) fn of(&self, infra: &Infra, machine_namespace: &str, now: Timestamp) -> Seen {
        let in_namespace =
            |namespace: Option<&String>, wanted: &str| namespace.is_some_and(|own| own == wanted);
        let machines = self
            .machines
            .state_filter(|machine| in_namespace(machine.metadata.namespace.as_ref(), machine_namespace));
        let (own, server) = (
            infra.namespace().unwrap_or_default(),
            component_name(infra, Role::Dhcp),
        );
        let leases = self.leases.state_filter(|lease| {
            lease.spec.server == server && in_namespace(lease.metadata.namespace.as_ref(), &own)
        });
        seen(
            machines.iter().map(|one| &**one),
            leases.iter().map(|one| &**one),
            now,
        )
    }

    /// The names of the slices that an Infra has.
    pub(super) fn slices_of(&self, infra: &Infra) -> Vec<String> {
        let uid = infra.uid();
        let own = |slice: &PartialObjectMeta<EndpointSlice>| {
            identity::controller(slice.meta()).is_some_and(|owner| Some(&owner.uid) == uid.as_ref())
        };
        self.slices
            .state_filter(own)
            .iter()
            .map(|slice| slice.name_any())
            .collect()
    }
}

/// The nodes that machines and leases tell of. A lease counts if its client is a machine, and every one does where no
/// machine is known: then the machines run on another cluster.
fn seen<'a>(
    machines: impl Iterator<Item = &'a VirtualMachineInstance>,
    leases: impl Iterator<Item = &'a DhcpLease>,
    now: Timestamp,
) -> Seen {
    let mut seen = Seen::default();
    let mut elsewhere = true;
    for machine in machines {
        elsewhere = false;
        seen.addresses.extend(machine_addresses(machine));
    }
    for lease in leases.map(|lease| &lease.spec) {
        let (Ok(address), Ok(expires)) = (lease.address.parse(), lease.expires.parse::<Timestamp>()) else {
            continue; // a person wrote something that is no lease
        };
        if lease.state == DhcpLeaseState::Bound && (lease.machine || elsewhere) && expires > now {
            seen.addresses.insert(address);
            seen.until = Some(seen.until.map_or(expires, |until| until.min(expires)));
        }
    }
    seen
}

/// Whether an Infra names the node ports of its cluster's router.
pub(crate) fn wants_apps(infra: &Infra) -> bool {
    let parts = infra.spec.infra_components.as_ref();
    parts.is_some_and(|parts| parts.proxy.as_ref().is_some_and(|proxy| proxy.apps.is_some()))
}

/// The Infras whose nodes a machine may be.
pub(crate) fn of_machine(
    infras: &Store<Infra>,
    planes: &ControlPlanes,
    machine: &VirtualMachineInstance,
) -> Vec<ObjectRef<Infra>> {
    let namespace = machine.namespace().unwrap_or_default();
    chosen(infras, |infra| {
        let known = || Known {
            control_plane: planes.of(infra),
            ..Known::default()
        };
        wants_apps(infra) && control_plane_namespace(infra, &known()) == namespace
    })
}

/// The Infra whose DHCP server gave a lease.
pub(crate) fn of_lease(infras: &Store<Infra>, lease: &DhcpLease) -> Vec<ObjectRef<Infra>> {
    let namespace = lease.namespace();
    chosen(infras, |infra| {
        wants_apps(infra)
            && infra.namespace() == namespace
            && component_name(infra, Role::Dhcp) == lease.spec.server
    })
}

/// Passes on only changes of what matters of an object.
fn news<K>(
    stream: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static,
    essence: fn(&K) -> u64,
) -> impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Send + 'static,
{
    let mut known: HashMap<ObjectRef<K>, u64> = HashMap::new();
    // What a list that is being read was known of, before what is not in it is forgotten.
    let mut before: HashMap<ObjectRef<K>, u64> = HashMap::new();
    stream.filter(move |event| {
        future::ready(match event {
            Ok(Event::Init) => {
                before.extend(known.drain());
                true
            }
            Ok(Event::InitDone) => {
                before = HashMap::new();
                true
            }
            Ok(Event::Apply(object) | Event::InitApply(object)) => {
                let (key, now) = (ObjectRef::from_obj(object), essence(object));
                let was = before.remove(&key);
                known.insert(key, now).or(was) != Some(now)
            }
            Ok(Event::Delete(object)) => {
                known.remove(&ObjectRef::from_obj(object));
                true
            }
            Err(_) => true,
        })
    })
}

fn machine_essence(machine: &VirtualMachineInstance) -> u64 {
    let mut hasher = DefaultHasher::new();
    machine_addresses(machine).for_each(|address| address.hash(&mut hasher));
    hasher.finish()
}

fn lease_essence(lease: &DhcpLease) -> u64 {
    let spec = &lease.spec;
    let mut hasher = DefaultHasher::new();
    (
        &spec.address,
        &spec.server,
        spec.machine,
        spec.state == DhcpLeaseState::Bound,
    )
        .hash(&mut hasher);
    hasher.finish()
}

/// A machine with what is read of it, and nothing else: a large cluster has many.
fn prune_machine(machine: &mut VirtualMachineInstance) {
    machine.metadata.managed_fields = None;
    machine.metadata.annotations = None;
    machine.metadata.labels = None;
    machine.spec.domain = None;
}

/// A lease with what is read of it, and nothing else.
fn prune_lease(lease: &mut DhcpLease) {
    lease.metadata.annotations = None;
    lease.metadata.labels = None;
    lease.metadata.owner_references = None;
    lease.spec.mac = None;
    lease.spec.client_id = None;
    lease.spec.hostname = None;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn machine(address: &str) -> VirtualMachineInstance {
        serde_json::from_value(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "w"},
            "spec": {"networks": [{"name": "vlan", "multus": {"networkName": "vlan"}}]},
            "status": {"phase": "Running", "interfaces": [{"name": "vlan", "ipAddress": address}]},
        }))
        .unwrap()
    }

    fn lease(address: &str, machine: bool, state: &str, expires: &str) -> DhcpLease {
        serde_json::from_value(json!({
            "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "DHCPLease", "metadata": {"name": "l"},
            "spec": {
                "server": "x-dhcp", "address": address, "machine": machine, "state": state,
                "granted": "2026-01-01T00:00:00Z", "expires": expires,
            },
        }))
        .unwrap()
    }

    const NOW: &str = "2026-01-01T00:30:00Z";
    const SOON: &str = "2026-01-01T01:00:00Z";

    fn addresses(machines: &[VirtualMachineInstance], leases: &[DhcpLease]) -> Vec<String> {
        let seen = seen(machines.iter(), leases.iter(), NOW.parse().unwrap());
        seen.addresses.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_node_is_known_by_what_kubevirt_sees_and_by_its_lease() {
        let leases = [
            lease("10.0.0.8", true, "Bound", SOON),
            lease("10.0.0.9", false, "Bound", SOON),
            lease("10.0.0.10", true, "Released", SOON),
            lease("10.0.0.11", true, "Bound", "2026-01-01T00:10:00Z"),
            lease("10.0.0.12", true, "Bound", "tomorrow"),
        ];
        assert_eq!(
            addresses(&[machine("10.0.0.7")], &leases),
            ["10.0.0.7", "10.0.0.8"]
        );
    }

    #[test]
    fn where_no_machine_is_known_every_client_is_a_node() {
        let leases = [lease("10.0.0.9", false, "Bound", SOON)];
        assert_eq!(addresses(&[], &leases), ["10.0.0.9"]);
    }

    #[test]
    fn the_first_lease_that_ends_is_waited_for() {
        let later = "2026-01-01T02:00:00Z";
        let leases = [
            lease("10.0.0.8", true, "Bound", later),
            lease("10.0.0.9", true, "Bound", SOON),
        ];
        let seen = seen([].iter(), leases.iter(), NOW.parse().unwrap());
        assert_eq!(seen.until, Some(SOON.parse().unwrap()));
    }

    #[test]
    fn a_renewal_is_no_news_and_another_address_is() {
        let one = lease("10.0.0.8", true, "Bound", SOON);
        let renewed = lease("10.0.0.8", true, "Bound", "2026-01-01T02:00:00Z");
        assert_eq!(lease_essence(&one), lease_essence(&renewed));
        let freed = lease("10.0.0.8", true, "Released", SOON);
        assert_ne!(lease_essence(&one), lease_essence(&freed));
        assert_ne!(
            machine_essence(&machine("10.0.0.7")),
            machine_essence(&machine("10.0.0.8"))
        );
    }

    #[tokio::test]
    async fn a_machine_that_is_listed_again_is_no_news_and_one_that_was_gone_in_between_is() {
        let told = async |events: Vec<Event<VirtualMachineInstance>>| {
            let events = futures_util::stream::iter(events.into_iter().map(Ok));
            let told = news(events, machine_essence).touched_objects();
            told.count().await
        };
        let one = || machine("10.0.0.7");
        let listed = || vec![Event::Init, Event::InitApply(one()), Event::InitDone];
        assert_eq!(told([listed(), listed()].concat()).await, 1);
        let gone = vec![Event::Init, Event::InitDone, Event::Apply(one())];
        assert_eq!(told([listed(), gone].concat()).await, 2);
    }
}
