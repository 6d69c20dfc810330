//! Names for the DNS server: who has which address, from leases and from virtual machines.
//!
//! A lease gives a name to its address while a client has it: the name of the machine with its hardware address,
//! else the one that the client gave itself. What a client says of itself is not to be trusted: it gets one label and
//! no more, and never the name of a machine. A machine without such a lease, because its DHCP server keeps leases in a
//! file of its own, is known by the address that KubeVirt sees.

use std::collections::{BTreeMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use oooi_dhcp::lease::Lease;
use oooi_dhcp::machines::Machines;
use oooi_dhcp::time::Timestamp;
use oooi_dns::names::Names;
use tokio::sync::watch;

use crate::leases::record;
use crate::watching::Seen;

/// Leases that expired without a word are looked for so often.
const SWEEP: Duration = Duration::from_secs(15);

/// Follows the names that the leases of a DHCP server give, with the machines that they belong to.
///
/// Only leases that are kept as resources are seen as such. The task ends when nobody holds the receiver any more.
pub fn follow(
    client: Client,
    namespace: &str,
    dhcp_server: &str,
    mut machines: watch::Receiver<Arc<Machines>>,
) -> watch::Receiver<Arc<Names>> {
    let mut watching = record::watching(client, namespace, dhcp_server);
    let (sender, receiver) = watch::channel(Arc::<Names>::default());
    tokio::spawn(async move {
        let mut leases: BTreeMap<Ipv4Addr, Lease> = BTreeMap::new();
        let mut sweep = tokio::time::interval(SWEEP);
        loop {
            tokio::select! {
                () = sender.closed() => return,
                Ok(()) = machines.changed() => {}
                _ = sweep.tick() => {}
                seen = watching.next() => match seen {
                    Seen::All(all) => leases = all.iter().filter_map(record::read).map(|lease| (lease.address, lease)).collect(),
                    Seen::Put(one) => leases.extend(record::read(&one).map(|lease| (lease.address, lease))),
                    Seen::Gone(one) => {
                        if let Some(lease) = record::read(&one) {
                            leases.remove(&lease.address);
                        }
                    }
                    Seen::Lost => continue,
                },
            }
            let next = Arc::new(of(
                leases.values(),
                &machines.borrow_and_update(),
                Timestamp::wall(),
            ));
            sender.send_if_modified(|current| {
                let news = *current != next;
                *current = next.clone();
                news
            });
        }
    });
    receiver
}

/// The names of addresses that clients have now.
pub fn of<'a>(leases: impl Iterator<Item = &'a Lease>, machines: &Machines, now: Timestamp) -> Names {
    let mut names = Names::default();
    let mut leased = HashSet::new();
    let of_machines: HashSet<String> = machines
        .iter()
        .map(|(_, machine)| machine.name.to_lowercase())
        .collect();
    for lease in leases.filter(|lease| lease.is_active(now)) {
        let name = match machines.get(lease.mac) {
            Some(machine) => Some(machine.name.to_lowercase()),
            None => claimed(lease).filter(|name| !of_machines.contains(name)),
        };
        if let Some(name) = name {
            names.add(name, lease.address.into());
        }
        leased.insert(lease.mac);
    }
    for (_, machine) in machines.iter().filter(|(mac, _)| !leased.contains(mac)) {
        if let Some(address) = machine.address {
            names.add(machine.name.to_lowercase(), address.into());
        }
    }
    names
}

/// The name that a client gives itself, without the domain that it believes to be in.
fn claimed(lease: &Lease) -> Option<String> {
    let label = lease.host_name.as_ref()?.split('.').next()?;
    (!label.is_empty()).then(|| label.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use oooi_dhcp::lease::State;
    use oooi_dhcp::mac::Mac;
    use oooi_dhcp::machines::Machine;
    use oooi_dhcp::testing::battery::lease;

    #[test]
    fn a_lease_is_named_by_its_machine_and_else_by_its_client_while_it_lasts() {
        let leases = [
            lease(1, 1, State::Bound),
            lease(2, 2, State::Bound),
            lease(3, 3, State::Declined),
        ];
        let machine = Machine {
            name: "pool-a-x7".into(),
            address: None,
        };
        let machines = Machines::complete([(leases[0].mac, machine)]);
        let now = leases[0].since.after(Duration::from_secs(1));
        let hosts = of(leases.iter(), &machines, now).hosts;
        assert_eq!(hosts.keys().collect::<Vec<_>>(), ["pool-a-x7", "worker-2"]);
        let later = now.after(Duration::from_secs(7200));
        assert!(of(leases.iter(), &machines, later).hosts.is_empty());
    }

    #[test]
    fn a_client_gets_the_first_label_of_its_name_and_never_that_of_a_machine() {
        let named = |last: u8, name: &str| Lease {
            host_name: Some(name.into()),
            ..lease(u16::from(last), last, State::Bound)
        };
        let leases = [
            named(1, "console-openshift-console.apps"),
            named(2, "Printer.hub.example.com"),
            named(3, "Pool-A"),
            named(4, "pool-b.hub.example.com."),
            named(5, ".apps"),
        ];
        let machine = |name: &str, last: u8| Machine {
            name: name.into(),
            address: Some(Ipv4Addr::new(10, 0, 0, last)),
        };
        let machines = Machines::complete([
            (Mac([2, 0, 0, 0, 0, 7]), machine("pool-a", 7)),
            (Mac([2, 0, 0, 0, 0, 8]), machine("pool-b", 8)),
        ]);
        let now = leases[0].since.after(Duration::from_secs(1));
        let address = |last: u8| vec![std::net::IpAddr::from([10, 0, 0, last])];
        assert_eq!(
            of(leases.iter(), &machines, now).hosts,
            BTreeMap::from([
                ("console-openshift-console".to_owned(), address(1)),
                ("printer".to_owned(), address(2)),
                ("pool-a".to_owned(), address(7)),
                ("pool-b".to_owned(), address(8)),
            ])
        );
    }

    #[test]
    fn a_machine_without_a_lease_is_named_by_what_kubevirt_sees() {
        let leased = lease(1, 1, State::Bound);
        let seen = |name: &str, last: u8| Machine {
            name: name.into(),
            address: Some(Ipv4Addr::new(10, 0, 0, last)),
        };
        let machines = Machines::complete([
            (leased.mac, seen("pool-a", 9)),
            (Mac([2, 0, 0, 0, 0, 7]), seen("pool-B", 7)),
        ]);
        let now = leased.since.after(Duration::from_secs(1));
        let hosts = of([&leased].into_iter(), &machines, now).hosts;
        let address = |last: u8| vec![std::net::IpAddr::from([10, 0, 0, last])];
        assert_eq!(
            hosts,
            BTreeMap::from([
                ("pool-a".to_owned(), address(1)),
                ("pool-b".to_owned(), address(7))
            ])
        );
    }
}
