//! Virtual machines: KubeVirt's `VirtualMachineInstance`s, watched, become the index that the DHCP server looks up.
//!
//! A machine's hardware addresses are those of its specification, filled at admission and stable through a live
//! migration; for an interface without one the status says it, which may lag the machine's first packets. What was
//! once a hardware address of a machine stays one until the machine is gone: a status that lacks it for a moment must not
//! free the lease of a machine that runs. The machine's name is its node's name.
//!
//! Where KubeVirt is not installed the index stays empty, and fills when it comes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;

use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use oooi_api::foreign::{ObservedInterface, VirtualMachineInstance};
use oooi_dhcp::mac::Mac;
use oooi_dhcp::machines::{Machine, Machines};
use tokio::sync::watch;

use crate::watching::{Seen, Watching};

/// Follows the machines of a namespace, or of all. The task ends when nobody holds the receiver any more.
pub fn follow(client: Client, namespace: Option<&str>) -> watch::Receiver<Arc<Machines>> {
    let api: Api<VirtualMachineInstance> = match namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    let mut watching = Watching::new(api, watcher::Config::default(), "VirtualMachineInstances");
    let (sender, receiver) = watch::channel(Arc::<Machines>::default());
    tokio::spawn(async move {
        let mut known = Known::default();
        loop {
            let seen = tokio::select! {
                () = sender.closed() => return,
                seen = watching.next() => seen,
            };
            match seen {
                Seen::All(all) => known.replace(&all),
                // Machines change all the time, in ways that do not matter here.
                Seen::Put(machine) if !known.put(&machine) => continue,
                Seen::Put(_) => {}
                Seen::Gone(machine) => {
                    known.0.remove(&Key::of(&machine));
                }
                Seen::Lost => continue,
            }
            let next = Arc::new(known.index());
            sender.send_if_modified(|current| {
                let news = *current != next;
                *current = next.clone();
                news
            });
        }
    });
    receiver
}

/// The index of machines that were read from files.
pub fn index(all: &[VirtualMachineInstance]) -> Machines {
    Machines::complete(
        all.iter()
            .flat_map(|machine| machines(&machine.name_any(), &interfaces(machine)).collect::<Vec<_>>()),
    )
}

/// The interfaces of one machine: the hardware address, and the address that is seen there.
type Interfaces = Vec<(Mac, Option<Ipv4Addr>)>;

/// One life of a machine: a new one of the same name has another uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    namespace: String,
    name: String,
    uid: String,
}

impl Key {
    fn of(machine: &VirtualMachineInstance) -> Self {
        Key {
            namespace: machine.namespace().unwrap_or_default(),
            name: machine.name_any(),
            uid: machine.uid().unwrap_or_default(),
        }
    }
}

/// All machines, with all that is known of their interfaces.
#[derive(Debug, Default)]
struct Known(BTreeMap<Key, Interfaces>);

impl Known {
    /// All machines that there are.
    fn replace(&mut self, all: &[VirtualMachineInstance]) {
        let present: BTreeSet<Key> = all.iter().map(Key::of).collect();
        self.0.retain(|key, _| present.contains(key));
        for machine in all {
            self.put(machine);
        }
    }

    /// A machine is new or changed. Whether that matters.
    fn put(&mut self, machine: &VirtualMachineInstance) -> bool {
        let mut now = interfaces(machine);
        let known = self.0.entry(Key::of(machine)).or_default();
        let missing = |(mac, _): &&(Mac, Option<Ipv4Addr>)| now.iter().all(|(other, _)| other != mac);
        let kept: Interfaces = known.iter().filter(missing).copied().collect();
        now.extend(kept);
        let news = *known != now;
        *known = now;
        news
    }

    fn index(&self) -> Machines {
        let all = self.0.iter();
        Machines::complete(all.flat_map(|(key, interfaces)| machines(&key.name, interfaces)))
    }
}

fn machines(name: &str, interfaces: &Interfaces) -> impl Iterator<Item = (Mac, Machine)> {
    let name: Arc<str> = name.into();
    interfaces.iter().map(move |(mac, address)| {
        let machine = Machine {
            name: name.clone(),
            address: *address,
        };
        (*mac, machine)
    })
}

/// Each interface's hardware address by the specification, else by the status. One that only the guest knows is none
/// of ours. An address counts on a network of Multus alone: on the pod network it is the pod's.
fn interfaces(machine: &VirtualMachineInstance) -> Interfaces {
    let mac = |text: &Option<String>| text.as_deref().and_then(|text| text.parse::<Mac>().ok());
    let observed: HashMap<&str, &ObservedInterface> = machine
        .status
        .iter()
        .flat_map(|status| &status.interfaces)
        .filter_map(|interface| Some((interface.name.as_deref()?, interface)))
        .collect();
    let is_multus = |name: &str| {
        let mut networks = machine.spec.networks.iter();
        networks.any(|network| network.name.as_deref() == Some(name) && network.multus.is_some())
    };
    let asked = machine
        .spec
        .domain
        .iter()
        .flat_map(|domain| &domain.devices)
        .flat_map(|devices| &devices.interfaces);
    asked
        .filter_map(|interface| {
            let name = interface.name.as_deref();
            let seen = name.and_then(|name| observed.get(name));
            let mac = mac(&interface.mac_address).or_else(|| mac(&seen?.mac))?;
            let address = seen
                .filter(|_| name.is_some_and(is_multus))
                .and_then(|seen| address(seen));
            Some((mac, address))
        })
        .collect()
}

/// The first IPv4 address of an interface. Some versions write a prefix length behind it.
fn address(seen: &ObservedInterface) -> Option<Ipv4Addr> {
    let mut all = seen.ip_address.iter().chain(&seen.ip_addresses);
    all.find_map(|text| text.split('/').next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(json: serde_json::Value) -> VirtualMachineInstance {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn the_specification_comes_before_the_status() {
        let machine = machine(serde_json::json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "w"},
            "spec": {"domain": {"devices": {"interfaces": [
                {"name": "a", "macAddress": "02:00:00:00:00:01"}, {"name": "b"}, {"name": "c"}, {"name": "d", "macAddress": "?"},
            ]}}},
            "status": {"interfaces": [
                {"name": "a", "mac": "02:00:00:00:00:0a"}, {"name": "b", "mac": "02:00:00:00:00:02"},
                {"mac": "02:00:00:00:00:0c"}, {"name": "d", "mac": "02:00:00:00:00:04"},
            ]},
        }));
        let macs: Vec<String> = interfaces(&machine)
            .iter()
            .map(|(mac, _)| mac.to_string())
            .collect();
        assert_eq!(
            macs,
            ["02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:04"]
        );
    }

    #[test]
    fn a_machine_without_interfaces_is_known_by_none() {
        let machine = machine(serde_json::json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "w"},
        }));
        assert!(interfaces(&machine).is_empty());
    }

    #[test]
    fn an_address_is_taken_from_the_vlan_and_not_from_the_pod_network() {
        let machine = machine(serde_json::json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "w"},
            "spec": {
                "domain": {"devices": {"interfaces": [
                    {"name": "pod", "macAddress": "02:00:00:00:00:01"},
                    {"name": "vlan", "macAddress": "02:00:00:00:00:02"},
                    {"name": "new", "macAddress": "02:00:00:00:00:03"},
                ]}},
                "networks": [
                    {"name": "pod", "pod": {}}, {"name": "vlan", "multus": {"networkName": "vlan100"}},
                    {"name": "new", "multus": {"networkName": "vlan200"}},
                ],
            },
            "status": {"interfaces": [
                {"name": "pod", "ipAddress": "10.244.0.7"},
                {"name": "vlan", "ipAddress": "fe80::1", "ipAddresses": ["fe80::1", "192.168.100.7/24"]},
            ]},
        }));
        let addresses: Vec<Option<Ipv4Addr>> =
            interfaces(&machine).iter().map(|(_, address)| *address).collect();
        assert_eq!(addresses, [None, Some(Ipv4Addr::new(192, 168, 100, 7)), None]);
    }

    /// A machine whose only interface has a hardware address by the status alone.
    fn observed(uid: &str, mac: Option<&str>) -> VirtualMachineInstance {
        machine(serde_json::json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": "w", "namespace": "n", "uid": uid},
            "spec": {"domain": {"devices": {"interfaces": [{"name": "a"}]}}},
            "status": {"interfaces": [{"name": "a", "mac": mac}]},
        }))
    }

    #[test]
    fn a_machine_keeps_its_hardware_address_until_it_is_gone() {
        let (first, second) = ("02:00:00:00:00:01", "02:00:00:00:00:02");
        let macs = |known: &Known| -> BTreeSet<String> {
            known.index().iter().map(|(mac, _)| mac.to_string()).collect()
        };
        let mut known = Known::default();
        assert!(known.put(&observed("1", Some(first))));
        assert!(!known.put(&observed("1", None)), "no news");
        assert_eq!(macs(&known), [first.to_owned()].into());
        known.replace(&[observed("1", None)]);
        assert_eq!(macs(&known), [first.to_owned()].into());
        assert!(known.put(&observed("1", Some(second))));
        assert_eq!(macs(&known), [first.to_owned(), second.to_owned()].into());
        known.replace(&[observed("2", Some(second))]);
        assert_eq!(
            macs(&known),
            [second.to_owned()].into(),
            "another of the same name"
        );
    }
}
