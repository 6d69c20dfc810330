//! Virtual machines: KubeVirt's `VirtualMachineInstance`s, watched, become the index that the DHCP server looks up.
//!
//! A machine's hardware addresses are those of its specification, filled at admission and stable through a live
//! migration; for an interface without one the status says it, which may lag the machine's first packets; until then
//! the pod that launches it does, since a bridge gives the guest the address of the pod's interface. What was once a
//! hardware address of a machine stays one until the machine is gone: a status that lacks it for a moment must not free
//! the lease of a machine that runs. The machine's name is its node's name.
//!
//! Where KubeVirt is not installed the index stays empty, and fills when it comes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use oooi_api::foreign::{ObservedInterface, VirtualMachineInstance};
use oooi_dhcp::mac::Mac;
use oooi_dhcp::machines::{Machine, Machines};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::watching::{Seen, Watching};

/// The pods in which machines run.
const LAUNCHERS: &str = "kubevirt.io=virt-launcher";

/// So long machines that are listed wait for their pods: who may not look at those does without.
const POD_WAIT: Duration = Duration::from_secs(10);

/// Where Multus writes what a pod was attached to.
const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

/// Follows the machines of a namespace, or of all. The task ends when nobody holds the receiver any more.
pub fn follow(client: Client, namespace: Option<&str>) -> watch::Receiver<Arc<Machines>> {
    let (machines, pods): (Api<VirtualMachineInstance>, Api<PartialObjectMeta<Pod>>) = match namespace {
        Some(namespace) => (
            Api::namespaced(client.clone(), namespace),
            Api::namespaced(client, namespace),
        ),
        None => (Api::all(client.clone()), Api::all(client)),
    };
    let mut machines = Watching::new(machines, watcher::Config::default(), "VirtualMachineInstances");
    // Pods come whole, and a page of them is in memory at once.
    let launchers = watcher::Config::default().labels(LAUNCHERS).page_size(50);
    let mut launchers = Watching::new(pods, launchers, "the pods of VirtualMachineInstances");
    let (sender, receiver) = watch::channel(Arc::<Machines>::default());
    tokio::spawn(async move {
        let mut known = Known::default();
        let (mut listed, mut launchers_looked_at) = (None, false);
        loop {
            let since = listed.filter(|_| !launchers_looked_at);
            let waited = async move {
                match since {
                    Some(at) => sleep_until(at + POD_WAIT).await,
                    None => std::future::pending().await,
                }
            };
            let news = tokio::select! {
                () = sender.closed() => return,
                seen = machines.next() => {
                    if matches!(seen, Seen::All(_)) {
                        listed.get_or_insert_with(Instant::now);
                    }
                    known.machine(seen)
                }
                seen = launchers.next() => {
                    let first = matches!(seen, Seen::All(_)) && !std::mem::replace(&mut launchers_looked_at, true);
                    known.launcher(seen) || first
                }
                () = waited => {
                    launchers_looked_at = true;
                    true
                }
            };
            // A machine that only its pod tells of must not be missing from an index that is called whole.
            if !news || listed.is_none() || !launchers_looked_at {
                continue;
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

/// What is known of one life of a machine.
#[derive(Debug, Default)]
struct Life {
    interfaces: Interfaces,
    /// The attachments whose hardware address neither the specification nor the status says.
    unsaid: Vec<Attachment>,
}

/// An attachment of a machine: to which NetworkAttachmentDefinition as `namespace/name`, and the how manieth to it.
type Attachment = (String, usize);

/// All machines, with all that is known of their interfaces.
#[derive(Debug, Default)]
struct Known {
    machines: BTreeMap<Key, Life>,
    /// By the uid of the machine: the attachments of its pod.
    launchers: HashMap<String, HashMap<Attachment, Mac>>,
}

impl Known {
    /// Takes note of machines. Whether that matters: they change all the time, in ways that do not.
    fn machine(&mut self, seen: Seen<VirtualMachineInstance>) -> bool {
        match seen {
            Seen::All(all) => {
                self.replace(&all);
                true
            }
            Seen::Put(machine) => self.put(&machine),
            Seen::Gone(machine) => self.machines.remove(&Key::of(&machine)).is_some(),
            Seen::Lost => false,
        }
    }

    /// Takes note of the pods that launch machines. Whether that matters.
    fn launcher(&mut self, seen: Seen<PartialObjectMeta<Pod>>) -> bool {
        let pods = match seen {
            Seen::All(all) => {
                self.launchers.clear();
                all
            }
            Seen::Put(pod) => vec![pod],
            Seen::Gone(pod) => {
                if let Some(machine) = launches(&pod) {
                    self.launchers.remove(machine);
                }
                return false; // what was a hardware address of a machine stays one
            }
            Seen::Lost => return false,
        };
        for pod in &pods {
            if let Some(machine) = launches(pod) {
                self.launchers.insert(machine.to_owned(), attachments(pod));
            }
        }
        let machines = self.machines.iter_mut();
        machines.fold(false, |news, (key, life)| {
            adopt(life, self.launchers.get(&key.uid)) || news
        })
    }

    /// All machines that there are.
    fn replace(&mut self, all: &[VirtualMachineInstance]) {
        let present: BTreeSet<Key> = all.iter().map(Key::of).collect();
        self.machines.retain(|key, _| present.contains(key));
        for machine in all {
            self.put(machine);
        }
    }

    /// A machine is new or changed. Whether that matters.
    fn put(&mut self, machine: &VirtualMachineInstance) -> bool {
        let key = Key::of(machine);
        let launcher = self.launchers.get(&key.uid);
        let life = self.machines.entry(key).or_default();
        let mut now = interfaces(machine);
        let missing = |(mac, _): &&(Mac, Option<Ipv4Addr>)| now.iter().all(|(other, _)| other != mac);
        let kept: Interfaces = life.interfaces.iter().filter(missing).copied().collect();
        now.extend(kept);
        let news = life.interfaces != now;
        life.interfaces = now;
        life.unsaid = unsaid(machine);
        adopt(life, launcher) || news
    }

    fn index(&self) -> Machines {
        let all = self.machines.iter();
        Machines::complete(all.flat_map(|(key, life)| machines(&key.name, &life.interfaces)))
    }
}

/// Takes from a machine's pod what nothing else says. Whether that is news.
fn adopt(life: &mut Life, launcher: Option<&HashMap<Attachment, Mac>>) -> bool {
    let told = life
        .unsaid
        .iter()
        .filter_map(|attachment| launcher?.get(attachment));
    let told: Vec<Mac> = told.copied().collect();
    let before = life.interfaces.len();
    for mac in told {
        if life.interfaces.iter().all(|(known, _)| *known != mac) {
            life.interfaces.push((mac, None));
        }
    }
    life.interfaces.len() > before
}

/// The uid of the machine that a pod launches.
fn launches(pod: &PartialObjectMeta<Pod>) -> Option<&str> {
    let mut owners = pod.owner_references().iter();
    let machine = owners.find(|owner| owner.kind == "VirtualMachineInstance")?;
    Some(&machine.uid)
}

/// One entry of what Multus writes.
#[derive(Deserialize)]
struct Attached {
    #[serde(default)]
    name: String,
    #[serde(default)]
    mac: String,
}

/// The hardware addresses that a pod has on its networks.
fn attachments(pod: &PartialObjectMeta<Pod>) -> HashMap<Attachment, Mac> {
    let text = pod.annotations().get(NETWORK_STATUS).map_or("[]", String::as_str);
    let all: Vec<Attached> = serde_json::from_str(text).unwrap_or_default();
    numbered(all.into_iter().map(|one| (one.name, one.mac)))
        .filter_map(|(attachment, mac)| Some((attachment, mac.parse().ok()?)))
        .collect()
}

/// Names with the how manieth of its name each is. Multus attaches in the order of the machine's networks.
fn numbered<T>(all: impl Iterator<Item = (String, T)>) -> impl Iterator<Item = (Attachment, T)> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    all.map(move |(name, what)| {
        let count = counts.entry(name.clone()).or_default();
        *count += 1;
        ((name, *count), what)
    })
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
    let multus: BTreeSet<&str> = attached(machine).map(|(_, interface)| interface).collect();
    said(machine)
        .filter_map(|(name, mac, seen)| {
            let seen = seen.filter(|_| name.is_some_and(|name| multus.contains(name)));
            Some((mac?, seen.and_then(address)))
        })
        .collect()
}

/// The attachments whose hardware address neither the specification nor the status says.
fn unsaid(machine: &VirtualMachineInstance) -> Vec<Attachment> {
    let silent: BTreeSet<&str> = said(machine)
        .filter(|(_, mac, _)| mac.is_none())
        .filter_map(|(name, ..)| name)
        .collect();
    let unsaid = attached(machine).filter(|(_, interface)| silent.contains(interface));
    unsaid.map(|(attachment, _)| attachment).collect()
}

/// What a machine says of each of its interfaces: the name, the hardware address, and what is seen of it.
fn said(
    machine: &VirtualMachineInstance,
) -> impl Iterator<Item = (Option<&str>, Option<Mac>, Option<&ObservedInterface>)> {
    let mac = |text: &Option<String>| text.as_deref().and_then(|text| text.parse::<Mac>().ok());
    let observed: HashMap<&str, &ObservedInterface> = machine
        .status
        .iter()
        .flat_map(|status| &status.interfaces)
        .filter_map(|interface| Some((interface.name.as_deref()?, interface)))
        .collect();
    let asked = machine
        .spec
        .domain
        .iter()
        .flat_map(|domain| &domain.devices)
        .flat_map(|devices| &devices.interfaces);
    asked.map(move |interface| {
        let name = interface.name.as_deref();
        let seen = name.and_then(|name| observed.get(name)).copied();
        (
            name,
            mac(&interface.mac_address).or_else(|| mac(&seen?.mac)),
            seen,
        )
    })
}

/// The attachments of a machine to networks of Multus, each with the name of its interface.
fn attached(machine: &VirtualMachineInstance) -> impl Iterator<Item = (Attachment, &str)> {
    let namespace = machine.namespace().unwrap_or_default();
    let networks = machine.spec.networks.iter().filter_map(move |network| {
        let definition = network
            .multus
            .as_ref()?
            .network_name
            .as_deref()
            .unwrap_or_default();
        let definition = match definition.contains('/') {
            true => definition.to_owned(),
            false => format!("{namespace}/{definition}"),
        };
        Some((definition, network.name.as_deref()?))
    });
    numbered(networks)
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

    /// A machine with two interfaces on one network, of which nothing but the status may say the hardware addresses.
    fn twofold(macs: [Option<&str>; 2]) -> VirtualMachineInstance {
        machine(serde_json::json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": "w", "namespace": "n", "uid": "1"},
            "spec": {
                "domain": {"devices": {"interfaces": [{"name": "pod"}, {"name": "a"}, {"name": "b"}]}},
                "networks": [
                    {"name": "pod", "pod": {}}, {"name": "a", "multus": {"networkName": "vlan"}},
                    {"name": "b", "multus": {"networkName": "n/vlan"}},
                ],
            },
            "status": {"interfaces": [{"name": "a", "mac": macs[0]}, {"name": "b", "mac": macs[1]}]},
        }))
    }

    fn launcher(machine: &str, status: &str) -> PartialObjectMeta<Pod> {
        serde_json::from_value(serde_json::json!({
            "metadata": {
                "name": "virt-launcher-w", "namespace": "n", "annotations": {NETWORK_STATUS: status},
                "ownerReferences": [
                    {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "w", "uid": machine},
                ],
            },
        }))
        .unwrap()
    }

    const ATTACHED: &str = r#"[
        {"name": "default-net", "interface": "eth0", "mac": "02:00:00:00:00:aa", "default": true},
        {"name": "n/vlan", "interface": "pod1", "mac": "02:00:00:00:00:0a"},
        {"name": "n/vlan", "interface": "pod2", "mac": "02:00:00:00:00:0b"}
    ]"#;

    #[test]
    fn what_neither_specification_nor_status_says_the_pod_does() {
        let macs =
            |known: &Known| -> BTreeSet<u8> { known.index().iter().map(|(mac, _)| mac.0[5]).collect() };
        for machine_first in [true, false] {
            let mut known = Known::default();
            if machine_first {
                known.machine(Seen::All(vec![twofold([None, None])]));
                assert_eq!(macs(&known), [].into());
                assert!(known.launcher(Seen::Put(launcher("1", ATTACHED))));
            } else {
                assert!(
                    !known.launcher(Seen::All(vec![launcher("1", ATTACHED)])),
                    "of no machine"
                );
                assert!(known.machine(Seen::Put(twofold([None, None]))));
            }
            assert_eq!(macs(&known), [0xa, 0xb].into(), "none of the pod network");
            assert!(!known.launcher(Seen::Put(launcher("1", ATTACHED))), "no news");
            assert!(!known.launcher(Seen::Gone(launcher("1", ATTACHED))));
            known.machine(Seen::All(vec![twofold([None, None])]));
            assert_eq!(macs(&known), [0xa, 0xb].into(), "until the machine is gone");
            assert!(known.machine(Seen::Gone(twofold([None, None]))));
            assert_eq!(macs(&known), [].into());
        }
    }

    #[test]
    fn the_status_comes_before_the_pod() {
        let mut known = Known::default();
        known.machine(Seen::All(vec![twofold([Some("02:00:00:00:00:01"), None])]));
        assert!(known.launcher(Seen::All(vec![launcher("1", ATTACHED), launcher("2", ATTACHED)])));
        let macs: BTreeSet<u8> = known.index().iter().map(|(mac, _)| mac.0[5]).collect();
        assert_eq!(
            macs,
            [0x1, 0xb].into(),
            "the second of the same network, and no other's"
        );
    }

    #[test]
    fn a_pod_that_says_nothing_readable_says_nothing() {
        for status in [
            "",
            "[",
            "{}",
            "[{}]",
            r#"[{"name": "n/vlan", "mac": "?"}]"#,
            r#"[{"name": 7}]"#,
        ] {
            let mut known = Known::default();
            known.machine(Seen::All(vec![twofold([None, None])]));
            assert!(!known.launcher(Seen::Put(launcher("1", status))), "{status}");
        }
    }
}
