//! Reservations and exclusions: addresses that belong to somebody, and addresses that belong to nobody.

use std::collections::BTreeMap;

use oooi_api::dhcp_server::Reservation;
use oooi_api::infra::DhcpComponent;
use oooi_ipam::{Range, Set};

use super::Subject;
use super::fields::{Network, address, host};
use super::layout::Layout;
use crate::mistake::Notes;

const AT: &str = "spec.infraComponents.dhcp";

/// Addresses that are spoken for, as far as they can be read: never chosen for a server.
pub(super) fn off_limits(subject: &Subject<'_>) -> Set {
    let Some(dhcp) = &subject.parts.dhcp else {
        return Set::new();
    };
    let reserved = dhcp.reservations.iter().map(|reservation| &reservation.address);
    reserved
        .chain(&dhcp.exclusions)
        .filter_map(|text| text.parse::<Range>().ok())
        .collect()
}

/// Checks both lists against the network, the servers and each other.
pub(super) fn check(dhcp: &DhcpComponent, network: &Network, layout: Option<&Layout>, notes: &mut Notes) {
    let excluded = exclusions(dhcp, network, layout, notes);
    let mut by_address = BTreeMap::new();
    let mut by_client = BTreeMap::new();
    let mut by_name = BTreeMap::new();
    for (at, reservation) in dhcp.reservations.iter().enumerate() {
        let path = format!("{AT}.reservations[{at}]");
        let once = |seen: Option<usize>, field: &str, what: &str, notes: &mut Notes| {
            if let Some(first) = seen {
                notes.mistake(
                    format!("{path}.{field}"),
                    format!("{what} stands in reservations[{first}] already: remove one of the two"),
                );
            }
        };
        if let Some((field, client)) = client(reservation, &path, notes) {
            let what = format!("this client ({client})");
            once(by_client.insert(client, at), field, &what, notes);
        }
        if let Some(name) = &reservation.hostname {
            let known = by_name.insert(name.to_ascii_lowercase(), at);
            once(known, "hostname", &format!("the host name {name}"), notes);
        }
        let place = format!("{path}.address");
        let Some(address) = notes
            .read(&place, address(&reservation.address))
            .filter(|address| host(notes, &place, network.cidr, *address))
        else {
            continue;
        };
        once(
            by_address.insert(address, at),
            "address",
            &address.to_string(),
            notes,
        );
        if excluded.contains(address) {
            notes.mistake(
                &place,
                format!("{address} is excluded, so no node gets it: remove it from exclusions or from reservations"),
            );
        }
        let Some(layout) = layout else { continue };
        let servers = [&layout.dhcp, &layout.dns, &layout.proxy, &layout.published];
        if address == layout.gateway || servers.into_iter().flatten().any(|taken| *taken == address) {
            notes.mistake(
                place,
                format!("{address} is the address of the VLAN's gateway or of a server: reserve another one"),
            );
        }
    }
}

/// The client of a reservation, written in one way, and the field that names it.
fn client(reservation: &Reservation, path: &str, notes: &mut Notes) -> Option<(&'static str, String)> {
    let digits = |text: &str| text.to_ascii_lowercase().replace([':', '-'], "");
    let hex = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
    match (&reservation.mac, &reservation.client_id) {
        (Some(mac), None) => {
            let digits = digits(mac);
            if digits.len() == 12 && hex(&digits) {
                return Some(("mac", format!("mac {mac}").to_ascii_lowercase().replace('-', ":")));
            }
            notes.mistake(
                format!("{path}.mac"),
                format!("`{mac}` is not a hardware address: write one such as 02:00:00:00:00:01"),
            );
        }
        (None, Some(id)) => {
            let digits = digits(id);
            if digits.len().is_multiple_of(2) && (4..=510).contains(&digits.len()) && hex(&digits) {
                return Some(("clientId", format!("clientId {digits}")));
            }
            notes.mistake(
                format!("{path}.clientId"),
                format!("`{id}` is not a client identifier: write at least two bytes in hexadecimal digits, such as 01:02"),
            );
        }
        _ => notes.mistake(
            path,
            "a reservation names its client either by mac or by clientId: give one of them",
        ),
    }
    None
}

/// Reads the exclusions. One that has no effect, or that leaves nothing, is a mistake.
fn exclusions(dhcp: &DhcpComponent, network: &Network, layout: Option<&Layout>, notes: &mut Notes) -> Set {
    let mut excluded = Set::new();
    for (at, text) in dhcp.exclusions.iter().enumerate() {
        let path = format!("{AT}.exclusions[{at}]");
        let Some(range) = notes.read(&path, text.parse::<Range>()) else {
            continue;
        };
        let outside = |cidr: &ipnet::Ipv4Net| !cidr.contains(&range.first()) || !cidr.contains(&range.last());
        if let Some(cidr) = network.cidr.filter(outside) {
            notes.mistake(
                path,
                format!("{range} is not inside {cidr}: exclude addresses of the network only"),
            );
        }
        excluded.insert(range);
    }
    if let Some(range) = layout.and_then(|layout| layout.range) {
        let mut left = Set::from_iter([range]);
        excluded.ranges().for_each(|range| left.remove(range));
        if left.is_empty() {
            notes.mistake(
                format!("{AT}.exclusions"),
                format!("nothing is left of the DHCP range {range}: exclude less, or widen the range"),
            );
        }
    }
    excluded
}
