//! The DHCP server of an Infra.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;
use oooi_api::dhcp_server::{
    DhcpLeaseConfig, DhcpNetworkConfig, DhcpOption, DhcpServerSpec, LeaseStorage, StaticRoute, UnknownClients,
};
use oooi_api::infra::{DhcpComponent, NetworkConfig};

use super::control_plane::Domain;
use super::fields::{self, Network, address, bounded, host, image};
use super::layout::Layout;
use super::servers::Role;
use super::{Neighbour, Subject, reservations};
use crate::mistake::Notes;

const AT: &str = "spec.infraComponents.dhcp";
const ROUTES: &str = "spec.networkConfig.routes";

/// The DHCP server's specification, if it runs.
pub(super) fn plan(
    subject: &Subject<'_>,
    network: &Network,
    layout: Option<&Layout>,
    domain: Option<&Domain>,
    notes: &mut Notes,
) -> Option<DhcpServerSpec> {
    let config = &subject.infra.spec.network_config;
    let mut routes = check_routes(config, network, notes);
    // Without `..`: a new field of the component must be thought of here.
    let DhcpComponent {
        enabled: true,
        server_ip: _,             // layout
        additional_server_ips: _, // layout
        range_start: _,           // layout
        range_end: _,             // layout
        lease_time,
        reservations,
        exclusions,
        options,
        unknown_clients,
        lease_storage,
        storage,
        replicas: _, // layout
        resources,
        image: written_image,
    } = subject.parts.dhcp.as_ref()?
    else {
        return None;
    };
    bounded(
        notes,
        &format!("{AT}.leaseTime"),
        lease_time,
        Duration::from_secs(10),
        "1h or 24h",
    );
    reservations::check(subject.parts.dhcp.as_ref()?, network, layout, notes);
    let image = image(notes, &format!("{AT}.image"), written_image.as_ref());
    let layout = layout?;
    if layout.dhcp.len() > 1 && *lease_storage != Some(LeaseStorage::Kubernetes) {
        notes.mistake(
            format!("{AT}.leaseStorage"),
            "several replicas share their leases through the API server: set leaseStorage to Kubernetes, or replicas \
             to 1",
        );
    }
    publish(&mut routes, layout, notes);
    let resolvers = resolvers(subject, layout, notes);
    check_options(options, config, !resolvers.is_empty(), domain, notes);
    let search: Vec<String> = if config.search_domains.is_empty() {
        domain.map(|domain| domain.name.clone()).into_iter().collect()
    } else {
        config.search_domains.clone()
    };
    let unknown_clients = unknown_clients.or_else(|| {
        // Each of several servers on a VLAN answers its own machines only.
        (!subject.known.neighbours.is_empty()).then_some(UnknownClients::Ignore)
    });
    let (first, others) = layout.dhcp.split_first()?;
    let range = layout.range?;
    let (attachment, attachment_namespace) = subject.attachment();
    Some(DhcpServerSpec {
        network_config: DhcpNetworkConfig {
            cidr: layout.cidr.to_string(),
            gateway: layout.gateway.to_string(),
            server_ip: first.to_string(),
            additional_server_ips: others.iter().map(ToString::to_string).collect(),
            dns_servers: resolvers,
            network_attachment_name: attachment,
            network_attachment_namespace: attachment_namespace,
            route_via: subject.known.route_via.map(|gateway| gateway.to_string()),
            known_servers: known_servers(subject),
            mtu: config.mtu,
            ntp_servers: config.ntp_servers.clone(),
            search_domains: search,
            routes,
        },
        lease_config: DhcpLeaseConfig {
            range_start: range.first().to_string(),
            range_end: range.last().to_string(),
            lease_time: lease_time.clone(),
            reservations: reservations.clone(),
            exclusions: exclusions.clone(),
            unknown_clients,
            storage: *lease_storage,
            conflict_probe: None,
            // Whoever takes over from another server sets it once; it is not the Infra's to move.
            migration_grace: subject
                .known
                .dhcp
                .as_ref()
                .and_then(|dhcp| dhcp.lease_config.migration_grace.clone()),
        },
        options: options.clone(),
        image,
        replicas: i32::try_from(layout.dhcp.len()).ok().filter(|count| *count > 1),
        resources: resources.clone(),
        storage: storage.clone(),
    })
}

/// What nodes ask for names: our own servers, or the site's where ours do not run.
fn resolvers(subject: &Subject<'_>, layout: &Layout, notes: &mut Notes) -> Vec<String> {
    let runs = subject.parts.dns.as_ref().is_some_and(|dns| dns.enabled);
    let own = layout.dns.iter().map(ToString::to_string);
    let upstreams = &subject.infra.spec.network_config.dns_servers;
    let list: Vec<String> = if runs {
        own.collect()
    } else {
        let mut unsaid = Notes::default(); // said where the list is read
        let plain = fields::upstreams(&mut unsaid, "", upstreams);
        plain.iter().map(ToString::to_string).collect()
    };
    if list.is_empty() {
        notes.warning(
            "NoResolver",
            "spec.networkConfig.dnsServers",
            "nodes get no DNS server: enable the DNS component, or list addresses of resolvers that nodes reach \
             (plain DNS on port 53)",
        );
    }
    list
}

/// Adds a route to each published address: it leads to the gateway, wherever the address really is.
fn publish(routes: &mut Vec<StaticRoute>, layout: &Layout, notes: &mut Notes) {
    let Some(gateway) = layout.proxy.first() else {
        return;
    };
    let mut away = layout
        .published
        .iter()
        .filter(|address| !layout.cidr.contains(*address))
        .peekable();
    if away.peek().is_some() && layout.proxy.len() > 1 {
        notes.warning(
            "PublishedThroughOneGateway",
            format!("{}.publishedIPs", Role::Proxy.path()),
            format!(
                "nodes have one route to a published address, so only the gateway at {gateway} serves them"
            ),
        );
    }
    for address in away {
        let destination = format!("{address}/32");
        if !routes.iter().any(|route| route.destination == destination) {
            routes.push(StaticRoute {
                destination,
                gateway: gateway.to_string(),
            });
        }
    }
    if routes.len() > 32 {
        notes.mistake(
            ROUTES,
            format!(
                "nodes would get {} routes, published addresses included: at most 32 fit",
                routes.len()
            ),
        );
    }
}

fn check_routes(config: &NetworkConfig, network: &Network, notes: &mut Notes) -> Vec<StaticRoute> {
    let mut seen: Vec<Ipv4Net> = Vec::new();
    for (at, route) in config.routes.iter().enumerate() {
        let (to, via) = (
            format!("{ROUTES}[{at}].destination"),
            format!("{ROUTES}[{at}].gateway"),
        );
        match route.destination.parse::<Ipv4Net>() {
            Err(_) => notes.mistake(
                to,
                format!(
                    "`{}` is not a network: write one such as 10.20.0.0/16",
                    route.destination
                ),
            ),
            Ok(net) if net.prefix_len() == 0 => {
                notes.mistake(to, "the default route is networkConfig.gateway: remove this one");
            }
            Ok(net) if seen.contains(&net.trunc()) => {
                notes.mistake(
                    to,
                    format!(
                        "there is a route to {} already: remove one of the two",
                        net.trunc()
                    ),
                );
            }
            Ok(net) => {
                if network.cidr.is_some_and(|cidr| cidr == net.trunc()) {
                    notes.mistake(
                        to,
                        format!("nodes are on {} themselves: remove the route", net.trunc()),
                    );
                }
                seen.push(net.trunc());
            }
        }
        if let Some(next_hop) = notes.read(&via, address(&route.gateway)) {
            host(notes, &via, network.cidr, next_hop);
        }
    }
    config.routes.clone()
}

/// Options by number that a field of the manifest, or the protocol itself, says already.
/// The DHCP servers of the other Infras on the VLAN, wherever those are.
fn known_servers(subject: &Subject<'_>) -> Vec<String> {
    let neighbours = subject.known.neighbours.iter();
    let servers: BTreeSet<Ipv4Addr> = neighbours.flat_map(Neighbour::dhcp_servers).collect();
    servers.iter().map(ToString::to_string).collect()
}

fn check_options(
    options: &[DhcpOption],
    config: &NetworkConfig,
    has_resolvers: bool,
    domain: Option<&Domain>,
    notes: &mut Notes,
) {
    let mut seen = Vec::new();
    for (at, option) in options.iter().enumerate() {
        let path = format!("{AT}.options[{at}].code");
        let code = option.code;
        if seen.contains(&code) {
            notes.mistake(
                &path,
                format!("option {code} is there twice: join the two values"),
            );
        }
        seen.push(code);
        let instead = match code {
            1 | 28 => "it follows from networkConfig.cidr",
            3 => "write networkConfig.gateway",
            6 if has_resolvers => "it is the address of the DNS server, or networkConfig.dnsServers",
            12 => "write a reservation's hostname",
            26 if config.mtu.is_some() => "networkConfig.mtu says it already",
            42 if !config.ntp_servers.is_empty() => "networkConfig.ntpServers says it already",
            51 | 58 | 59 => "write leaseTime",
            119 if !config.search_domains.is_empty() || domain.is_some() => {
                "write networkConfig.searchDomains"
            }
            // Whoever takes it ignores option 3: the default route has to be in it, and routes see to that.
            121 => "write networkConfig.routes",
            50 | 52..=57 | 61 | 80..=82 | 90 => "the protocol itself uses it",
            1..=254 => {
                if option.value.trim().is_empty() {
                    notes.mistake(
                        format!("{AT}.options[{at}].value"),
                        format!("option {code} has no value: write one, or remove the option"),
                    );
                }
                continue;
            }
            _ => "options are numbered from 1 to 254",
        };
        notes.mistake(path, format!("option {code} cannot be set here: {instead}"));
    }
}
