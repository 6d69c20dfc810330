//! A lease as a `DHCPLease` resource, and back.

use std::net::Ipv4Addr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use oooi_api::dhcp_lease::{DhcpLeaseSpec, DhcpLeaseState};
use oooi_api::{DhcpLease, DhcpServer};
use oooi_dhcp::client_id::ClientId;
use oooi_dhcp::lease::{Lease, State};
use oooi_dhcp::mac::Mac;
use oooi_dhcp::time::Timestamp;

use crate::watching::Watching;

/// The watch of all records of a server.
pub(crate) fn watching(client: Client, namespace: &str, server: &str) -> Watching<DhcpLease> {
    let of_server = watcher::Config::default().fields(&format!("spec.server={server}"));
    Watching::new(
        Api::namespaced(client, namespace),
        of_server,
        format!("DHCPLeases of {namespace}/{server}"),
    )
}

/// The name of an address's record. The API server keeps one object a name: that is the lock.
pub(crate) fn name(server: &str, address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("{server}-{a}-{b}-{c}-{d}")
}

/// The record of a lease. With the server's uid it goes when the server goes.
pub(crate) fn write(server: &str, uid: Option<&str>, lease: &Lease) -> DhcpLease {
    let moment = |at: Timestamp| jiff::Timestamp::from(at).to_string();
    let labels = [
        ("app.kubernetes.io/name", "oooi"),
        ("app.kubernetes.io/instance", server),
        ("app.kubernetes.io/component", "dhcp"),
        ("app.kubernetes.io/managed-by", "oooi"),
    ];
    let owner = uid.map(|uid| OwnerReference {
        api_version: DhcpServer::api_version(&()).into_owned(),
        kind: DhcpServer::kind(&()).into_owned(),
        name: server.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    });
    DhcpLease {
        metadata: ObjectMeta {
            name: Some(name(server, lease.address)),
            // A label's value has 63 characters at most; a longer name is only in the specification.
            labels: Some(
                labels
                    .into_iter()
                    .filter(|(_, value)| value.len() <= 63)
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .collect(),
            ),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: DhcpLeaseSpec {
            server: server.to_owned(),
            address: lease.address.to_string(),
            mac: Some(lease.mac.to_string()),
            client_id: Some(lease.id.iter().map(|byte| format!("{byte:02x}")).collect()),
            hostname: lease.host_name.as_deref().map(str::to_owned),
            machine: lease.machine,
            state: match lease.state {
                State::Released => DhcpLeaseState::Released,
                State::Declined => DhcpLeaseState::Quarantined,
                State::Bound | State::Offered | State::Probing => DhcpLeaseState::Bound,
            },
            granted: moment(lease.since),
            expires: moment(lease.expires),
        },
    }
}

/// The lease of a record. Nothing if a person wrote something there that is no lease: its name still locks.
pub(crate) fn read(record: &DhcpLease) -> Option<Lease> {
    let spec = &record.spec;
    let moment = |text: &str| text.parse::<jiff::Timestamp>().ok().map(Timestamp::from);
    let mac = match spec.mac.as_deref() {
        Some(mac) if !mac.is_empty() => mac.parse().ok()?,
        _ => Mac::default(),
    };
    let id: ClientId = match spec.client_id.as_deref() {
        Some(digits) => bytes(digits)?.into(),
        // As for a client that sent none: hardware type and address.
        None => [&[1], mac.0.as_slice()].concat().into(),
    };
    Some(Lease {
        address: spec.address.parse().ok()?,
        mac,
        id,
        host_name: spec.hostname.as_deref().map(Into::into),
        machine: spec.machine,
        state: match spec.state {
            DhcpLeaseState::Bound => State::Bound,
            DhcpLeaseState::Released => State::Released,
            DhcpLeaseState::Quarantined => State::Declined,
        },
        since: moment(&spec.granted)?,
        expires: moment(&spec.expires)?,
    })
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let pair = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    (0..digits.len()).step_by(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use oooi_dhcp::testing::battery::lease;

    #[test]
    fn a_lease_is_read_as_it_was_written() {
        for state in [State::Bound, State::Released, State::Declined] {
            let lease = Lease {
                since: Timestamp(1_700_000_000_123),
                ..lease(300, 7, state)
            };
            let record = write("tenant-dhcp", Some("uid"), &lease);
            assert_eq!(record.metadata.name.as_deref(), Some("tenant-dhcp-10-0-1-44"));
            assert_eq!(read(&record), Some(lease));
        }
    }

    #[test]
    fn a_record_that_a_person_spoilt_is_no_lease() {
        let good = write("s", None, &lease(1, 1, State::Bound));
        let spoilt = |change: fn(&mut DhcpLeaseSpec)| {
            let mut record = good.clone();
            change(&mut record.spec);
            record
        };
        for record in [
            spoilt(|spec| spec.address = "10.0.0".into()),
            spoilt(|spec| spec.expires = "tomorrow".into()),
            spoilt(|spec| spec.client_id = Some("abc".into())),
            spoilt(|spec| spec.client_id = Some("é1".into())),
            spoilt(|spec| spec.mac = Some("02:00".into())),
        ] {
            assert_eq!(read(&record), None, "{:?}", record.spec);
        }
    }

    #[test]
    fn an_address_that_a_person_holds_back_is_quarantined() {
        let mut record = write("s", None, &lease(1, 1, State::Declined));
        record.spec.mac = None;
        record.spec.client_id = None;
        assert_eq!(read(&record).map(|lease| lease.state), Some(State::Declined));
    }
}
