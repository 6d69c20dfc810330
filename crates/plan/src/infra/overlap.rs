//! Neighbours: several Infras on one VLAN do not collide.

use oooi_ipam::{Range, Set};

use super::Subject;
use super::known::Neighbour;
use super::layout::Layout;
use super::servers::Role;
use crate::mistake::Notes;

/// Every address that some neighbour uses.
pub(super) fn occupied(neighbours: &[Neighbour]) -> Set {
    neighbours
        .iter()
        .flat_map(|neighbour| neighbour.occupied.iter().map(|occupied| occupied.range))
        .collect()
}

/// Compares all that this Infra uses with all that its neighbours use. What was there first wins.
pub(super) fn check(subject: &Subject<'_>, layout: &Layout, notes: &mut Notes) {
    let mut own: Vec<(String, &'static str, Range)> = Vec::new();
    for (role, addresses) in [
        (Role::Dhcp, &layout.dhcp),
        (Role::Dns, &layout.dns),
        (Role::Proxy, &layout.proxy),
    ] {
        let places = addresses.iter().enumerate();
        own.extend(places.map(|(at, address)| (role.address_path(at), role.title(), Range::from(*address))));
    }
    own.extend(layout.range.map(|range| {
        (
            "spec.infraComponents.dhcp.rangeStart".to_owned(),
            "DHCP range",
            range,
        )
    }));
    let published = layout
        .published
        .iter()
        .enumerate()
        .filter(|(_, address)| layout.cidr.contains(*address));
    own.extend(published.map(|(at, address)| {
        let path = format!("spec.infraComponents.proxy.publishedIPs[{at}]");
        (path, "published address", Range::from(*address))
    }));
    if let Some(dhcp) = subject.parts.dhcp.as_ref().filter(|dhcp| dhcp.enabled) {
        let places = dhcp.reservations.iter().enumerate();
        own.extend(places.filter_map(|(at, reservation)| {
            let path = format!("spec.infraComponents.dhcp.reservations[{at}].address");
            Some((path, "reservation", reservation.address.parse().ok()?))
        }));
    }
    for neighbour in &subject.known.neighbours {
        for (path, what, range) in &own {
            for occupied in &neighbour.occupied {
                let Some(both) = occupied.range.intersection(*range) else {
                    continue;
                };
                let Neighbour { namespace, name, .. } = neighbour;
                let by = occupied.by;
                let message = format!(
                    "{both} of the {what} is used on the same VLAN by {by} of Infra {namespace}/{name}: choose other \
                     addresses here or there"
                );
                if neighbour.first {
                    notes.mistake(path, message);
                } else {
                    notes.warning("AddressOverlap", path, message);
                }
            }
        }
    }
}
