//! Virtual machines: KubeVirt's `VirtualMachineInstance`s, watched, become the index that the DHCP server looks up.
//!
//! A machine's hardware addresses are those of its specification, filled at admission and stable through a live
//! migration; for an interface without one the status says it, which may lag the machine's first packets. The
//! machine's name is its node's name.
//!
//! Where KubeVirt is not installed the index stays empty, and fills when it comes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use oooi_api::foreign::VirtualMachineInstance;
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
        let mut known: BTreeMap<(String, String), Interfaces> = BTreeMap::new();
        loop {
            let seen = tokio::select! {
                () = sender.closed() => return,
                seen = watching.next() => seen,
            };
            match seen {
                Seen::All(all) => {
                    known = all
                        .iter()
                        .map(|machine| (key(machine), interfaces(machine)))
                        .collect();
                }
                Seen::Put(machine) => {
                    let interfaces = interfaces(&machine);
                    // Machines change all the time, in ways that do not matter here.
                    if known.get(&key(&machine)) == Some(&interfaces) {
                        continue;
                    }
                    known.insert(key(&machine), interfaces);
                }
                Seen::Gone(machine) => {
                    known.remove(&key(&machine));
                }
                Seen::Lost => continue,
            }
            let index = known
                .iter()
                .flat_map(|((_, name), interfaces)| machines(name, interfaces));
            let next = Arc::new(Machines::complete(index));
            sender.send_if_modified(|current| {
                let news = *current != next;
                *current = next.clone();
                news
            });
        }
    });
    receiver
}

/// The hardware addresses of one machine.
type Interfaces = Vec<Mac>;

fn key(machine: &VirtualMachineInstance) -> (String, String) {
    (machine.namespace().unwrap_or_default(), machine.name_any())
}

fn machines(name: &str, interfaces: &Interfaces) -> impl Iterator<Item = (Mac, Machine)> {
    let machine = Machine {
        name: name.into(),
        address: None,
    };
    interfaces.iter().map(move |mac| (*mac, machine.clone()))
}

/// Each interface's address by the specification, else by the status. One that only the guest knows is none of ours.
fn interfaces(machine: &VirtualMachineInstance) -> Interfaces {
    let read = |text: &Option<String>| text.as_deref().and_then(|text| text.parse::<Mac>().ok());
    let observed: HashMap<&str, Mac> = machine
        .status
        .iter()
        .flat_map(|status| &status.interfaces)
        .filter_map(|interface| Some((interface.name.as_deref()?, read(&interface.mac)?)))
        .collect();
    let asked = machine
        .spec
        .domain
        .iter()
        .flat_map(|domain| &domain.devices)
        .flat_map(|devices| &devices.interfaces);
    asked
        .filter_map(|interface| {
            let seen = || observed.get(interface.name.as_deref()?).copied();
            read(&interface.mac_address).or_else(seen)
        })
        .collect()
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
        let macs: Vec<String> = interfaces(&machine).iter().map(ToString::to_string).collect();
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
}
