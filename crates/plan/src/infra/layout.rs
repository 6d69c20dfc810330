//! Who has which address on the VLAN.
//!
//! What a person wrote comes first, then what was chosen before, then the lowest free addresses: the first replica of
//! each server, then the further ones. The range of the nodes is the widest stretch that is left below the top of the
//! network. Reserved, excluded and published addresses and those of neighbours are never chosen.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use oooi_ipam::{Pool, Range, Set, assign, hosts};

use super::Subject;
use super::fields::{self, Network};
use super::overlap;
use super::reservations;
use super::servers::{Role, Server, servers};
use crate::mistake::Notes;

/// So many of the highest addresses stay out of a chosen range, for replicas that are added later. Where that is
/// more than half of what is left, half of it stays out.
const HEADROOM: u64 = 8;

const DHCP: &str = "spec.infraComponents.dhcp";

/// Who has which address. The first of each list is the first replica's.
pub(super) struct Layout {
    pub(super) cidr: Ipv4Net,
    pub(super) gateway: Ipv4Addr,
    pub(super) dhcp: Vec<Ipv4Addr>,
    pub(super) dns: Vec<Ipv4Addr>,
    pub(super) proxy: Vec<Ipv4Addr>,
    /// What nodes get, where a DHCP server runs.
    pub(super) range: Option<Range>,
    /// Addresses that the gateway answers for besides its own.
    pub(super) published: Vec<Ipv4Addr>,
}

/// Lays the addresses out, as far as the network can be read.
pub(super) fn layout(subject: &Subject<'_>, network: &Network, notes: &mut Notes) -> Option<Layout> {
    let servers = servers(subject, network.cidr, notes);
    let published = published(subject, notes);
    let written = written_range(subject, network.cidr, notes);
    let (cidr, gateway) = (network.cidr?, network.gateway?);

    let given = given(&servers, gateway, &published, notes);
    if let Some(range) = written {
        for (address, (path, title)) in &given {
            if range.contains(*address) {
                notes.mistake(
                    path,
                    format!("{address}, the {title}'s, lies inside the DHCP range {range}: move the range or the server"),
                );
            }
        }
    }
    let dhcp_runs = servers.iter().any(|server| server.role == Role::Dhcp);
    let fixed: Set = given.keys().copied().collect();
    let kept = subject
        .known
        .range()
        .filter(|_| dhcp_runs && !range_is_written(subject))
        .filter(|range| keeps(*range, cidr, &fixed, notes));

    let mut pool = Pool::new(hosts(cidr));
    fixed.ranges().for_each(|range| pool.reserve(range));
    reservations::off_limits(subject)
        .ranges()
        .for_each(|range| pool.reserve(range));
    written.or(kept).into_iter().for_each(|range| pool.reserve(range));
    let chosen = choose(subject, &servers, &mut pool, cidr, written.or(kept), notes);

    let of = |role: Role| -> Vec<Ipv4Addr> {
        let server = servers.iter().find(|server| server.role == role);
        let given = server
            .map(|server| &*server.given)
            .unwrap_or_default()
            .iter()
            .enumerate();
        given
            .filter_map(|(replica, given)| given.or_else(|| chosen.get(&(replica, role)).copied()))
            .collect()
    };
    let mut layout = Layout {
        cidr,
        gateway,
        dhcp: of(Role::Dhcp),
        dns: of(Role::Dns),
        proxy: of(Role::Proxy),
        range: written.or(kept),
        published,
    };
    if dhcp_runs && layout.range.is_none() && !range_is_written(subject) {
        layout.range = choose_range(subject, &layout, notes);
    }
    layout.published.retain(|address| !layout.proxy.contains(address));
    overlap::check(subject, &layout, notes);
    Some(layout)
}

/// Every address that a person gave, with its field and its owner. Two owners of one address are a mistake.
fn given(
    servers: &[Server],
    gateway: Ipv4Addr,
    published: &[Ipv4Addr],
    notes: &mut Notes,
) -> BTreeMap<Ipv4Addr, (String, &'static str)> {
    let mut owners = BTreeMap::from([(
        gateway,
        ("spec.networkConfig.gateway".to_owned(), "VLAN's gateway"),
    )]);
    let written = servers.iter().flat_map(|server| {
        let addresses = server.given.iter().enumerate();
        addresses.filter_map(|(replica, given)| {
            Some((server.role.address_path(replica), server.role.title(), (*given)?))
        })
    });
    for (path, title, address) in written {
        match owners.get(&address) {
            Some((other, owner)) => notes.mistake(
                path,
                format!(
                    "{address} is the {owner}'s already ({other}): give each server an address of its own"
                ),
            ),
            None => {
                owners.insert(address, (path, title));
            }
        }
    }
    let held = servers
        .iter()
        .filter(|server| server.role == Role::Proxy)
        .flat_map(|server| server.kept.iter().copied());
    let held: Vec<Ipv4Addr> = held.collect();
    for (at, address) in published.iter().enumerate() {
        let path = format!("spec.infraComponents.proxy.publishedIPs[{at}]");
        match owners.get(address) {
            Some((_, "gateway")) => {} // the gateway answers there anyway
            None if held.contains(address) => {}
            Some((other, owner)) => notes.mistake(
                path,
                format!("{address} is the {owner}'s ({other}): the gateway cannot answer for it"),
            ),
            None => {
                owners.insert(*address, (path, "published address"));
            }
        }
    }
    owners
}

/// Addresses that the gateway answers for: those that a person wrote, else those of the HostedCluster.
fn published(subject: &Subject<'_>, notes: &mut Notes) -> Vec<Ipv4Addr> {
    const AT: &str = "spec.infraComponents.proxy.publishedIPs";
    let Some(proxy) = subject.parts.proxy.as_ref().filter(|proxy| proxy.enabled) else {
        return Vec::new();
    };
    let derived = match &subject.known.control_plane {
        Some(plane) => plane.published_ips.clone(),
        None => running(subject),
    };
    let list = if proxy.published_ips.is_empty() {
        derived
    } else {
        fields::addresses(notes, AT, &proxy.published_ips)
    };
    for (at, address) in list.iter().enumerate() {
        if address.is_unspecified()
            || address.is_loopback()
            || address.is_multicast()
            || address.is_broadcast()
        {
            notes.mistake(
                format!("{AT}[{at}]"),
                format!("{address} is no address that nodes can dial: write the published address of the API server"),
            );
        }
    }
    list
}

/// The addresses that the gateway answers for already.
fn running(subject: &Subject<'_>) -> Vec<Ipv4Addr> {
    let known = subject.unheard_of().and_then(|known| known.proxy.as_ref());
    let texts = known.iter().flat_map(|proxy| &proxy.published_ips);
    texts.filter_map(|text| fields::bare_address(text)).collect()
}

fn range_is_written(subject: &Subject<'_>) -> bool {
    let dhcp = subject.parts.dhcp.as_ref();
    dhcp.is_some_and(|dhcp| dhcp.range_start.is_some() || dhcp.range_end.is_some())
}

fn written_range(subject: &Subject<'_>, cidr: Option<Ipv4Net>, notes: &mut Notes) -> Option<Range> {
    let dhcp = subject.parts.dhcp.as_ref().filter(|dhcp| dhcp.enabled)?;
    match (&dhcp.range_start, &dhcp.range_end) {
        (Some(start), Some(end)) => fields::range(notes, DHCP, cidr, (start, end)),
        (None, None) => None,
        (start, _) => {
            let missing = if start.is_some() { "rangeEnd" } else { "rangeStart" };
            notes.mistake(
                DHCP,
                format!("{missing} is missing: give both ends of the range, or neither to have it chosen"),
            );
            None
        }
    }
}

/// Whether a range that was chosen before still fits.
fn keeps(range: Range, cidr: Ipv4Net, fixed: &Set, notes: &mut Notes) -> bool {
    let why = if !hosts(cidr).covers(range) {
        format!("the network is now {cidr}")
    } else if let Some(address) = fixed.overlap(range) {
        format!("{address} was given to a server")
    } else {
        return true;
    };
    notes.warning(
        "RangeMoved",
        DHCP,
        format!(
            "the range {range}, chosen before, does not fit any more since {why}: another one is chosen, and nodes \
             outside it get new addresses"
        ),
    );
    false
}

/// Chooses an address for every replica that was given none.
fn choose(
    subject: &Subject<'_>,
    servers: &[Server],
    pool: &mut Pool,
    cidr: Ipv4Net,
    range: Option<Range>,
    notes: &mut Notes,
) -> BTreeMap<(usize, Role), Ipv4Addr> {
    // By replica first: how many replicas there are does not change the address of a server's first one.
    let mut wanted = Vec::new();
    let mut kept = BTreeMap::new();
    for server in servers {
        for (replica, _) in server
            .given
            .iter()
            .enumerate()
            .filter(|(_, given)| given.is_none())
        {
            wanted.push((replica, server.role));
            kept.extend(
                server
                    .kept
                    .get(replica)
                    .map(|address| ((replica, server.role), *address)),
            );
        }
    }
    wanted.sort_unstable();
    // A neighbour's addresses are never chosen anew; what is held already is not given up for it, but compared later.
    let mut others = overlap::occupied(&subject.known.neighbours);
    kept.values().for_each(|address| others.remove(*address));
    others.ranges().for_each(|range| pool.reserve(range));

    let assigned = assign(pool, &wanted, &kept);
    for ((replica, role), reason) in &assigned.lost {
        notes.warning(
            "AddressMoved",
            role.address_path(*replica),
            format!(
                "the address of the {} that was chosen before cannot be kept: {reason}",
                role.title()
            ),
        );
    }
    for (replica, role) in &assigned.without {
        let remedy = match range {
            Some(range) => format!("narrow the DHCP range ({range}), or use a larger network"),
            None => "use a larger network".to_owned(),
        };
        notes.mistake(
            role.address_path(*replica),
            format!(
                "no free address is left in {cidr} for the {}: {remedy}",
                role.title()
            ),
        );
    }
    assigned.addresses
}

/// Chooses the range: the widest stretch that nobody uses, less the headroom at the top of the network.
fn choose_range(subject: &Subject<'_>, layout: &Layout, notes: &mut Notes) -> Option<Range> {
    let mut free = Set::from_iter([hosts(layout.cidr)]);
    let servers = [&layout.dhcp, &layout.dns, &layout.proxy, &layout.published];
    let taken = servers.into_iter().flatten().chain([&layout.gateway]);
    taken.for_each(|address| free.remove(*address));
    overlap::occupied(&subject.known.neighbours)
        .ranges()
        .for_each(|range| free.remove(range));

    let headroom = HEADROOM.min(free.len() / 2);
    let top = free
        .nth(free.len() - headroom)
        .and_then(|first| Range::new(first, hosts(layout.cidr).last()).ok());
    if let Some(top) = top {
        free.remove(top);
    }
    let range = free.widest();
    if range.is_none() {
        let names: Vec<String> = subject
            .known
            .neighbours
            .iter()
            .map(|n| format!("{}/{}", n.namespace, n.name))
            .collect();
        let beside = if names.is_empty() {
            String::new()
        } else {
            format!(" beside {}", names.join(" and "))
        };
        notes.mistake(
            DHCP,
            format!(
                "no addresses are left in {}{beside} for nodes: use a larger network, or give rangeStart and rangeEnd",
                layout.cidr
            ),
        );
    }
    range
}
