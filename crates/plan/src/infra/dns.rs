//! The DNS server of an Infra.

use std::time::Duration;

use oooi_api::dns_server::{DnsNetworkConfig, DnsServerSpec, DnsStaticEntry, ForwardZone};
use oooi_api::infra::DnsComponent;
use oooi_api::proxy_server::ProxyBackend;

use super::Subject;
use super::backends::own_names;
use super::control_plane::{self, Domain, pod_names};
use super::fields::{address, addresses, bounded, image, upstreams};
use super::layout::Layout;
use crate::mistake::Notes;
use crate::name;
use crate::object_name::object_name;

const AT: &str = "spec.infraComponents.dns";

/// The DNS server's specification, if it runs.
pub(super) fn plan(
    subject: &Subject<'_>,
    layout: Option<&Layout>,
    domain: Option<&Domain>,
    backends: &[ProxyBackend],
    notes: &mut Notes,
) -> Option<DnsServerSpec> {
    let DnsComponent {
        enabled: true,
        server_ip: _,             // layout
        additional_server_ips: _, // layout
        base_domain: _,           // domain
        cluster_name: _,          // domain
        static_entries,
        forward_zones,
        cache_ttl,
        publish_to_cluster_dns,
        replicas: _, // layout
        resources,
        image: written_image,
    } = subject.parts.dns.as_ref()?
    else {
        return None;
    };
    check_entries(static_entries, notes);
    check_zones(forward_zones, domain, notes);
    if let Some(ttl) = cache_ttl {
        bounded(notes, &format!("{AT}.cacheTTL"), ttl, Duration::ZERO, "30s");
    }
    let image = image(notes, &format!("{AT}.image"), written_image.as_ref());
    let (layout, domain) = (layout?, domain?);
    check_loops(subject, layout, notes);
    let upstream = subject.infra.spec.network_config.dns_servers.clone();
    if upstream.is_empty() {
        notes.warning(
            "NoUpstream",
            "spec.networkConfig.dnsServers",
            "names outside the hosted cluster are not resolved: list resolvers to forward to, or `system` for those of \
             the pod, unless the site has none",
        );
    }
    let (first, others) = layout.dns.split_first()?;
    let (gateway, gateways) = layout.proxy.split_first()?;
    let texts = |list: &[std::net::Ipv4Addr]| list.iter().map(ToString::to_string).collect::<Vec<String>>();
    let mut entries = Vec::new();
    if serves_names(subject, notes) {
        let own = gateway_names(subject, domain, backends, notes);
        let overridden = |name: &String| {
            static_entries
                .iter()
                .any(|entry| entry.hostname.eq_ignore_ascii_case(name))
        };
        entries.extend(
            own.into_iter()
                .filter(|name| !overridden(name))
                .map(|hostname| DnsStaticEntry {
                    hostname,
                    ip: gateway.to_string(),
                    additional_ips: texts(gateways),
                }),
        );
    }
    entries.extend(static_entries.iter().cloned());
    let (attachment, attachment_namespace) = subject.attachment();
    Some(DnsServerSpec {
        network_config: DnsNetworkConfig {
            server_ip: format!("{first}/{}", layout.cidr.prefix_len()),
            additional_server_ips: texts(others),
            proxy_ip: gateway.to_string(),
            additional_proxy_ips: texts(gateways),
            internal_proxy_ip: internal(subject, *publish_to_cluster_dns),
            secondary_network_cidr: Some(layout.cidr.to_string()),
            dns_port: 53,
            network_attachment_name: attachment,
            network_attachment_namespace: attachment_namespace,
            route_via: subject.known.route_via.map(|gateway| gateway.to_string()),
        },
        hosted_cluster_domain: domain.name.clone(),
        static_entries: entries,
        upstream_dns: upstream,
        upstream_policy: None,
        forward_zones: forward_zones.clone(),
        cache_ttl: cache_ttl.clone().unwrap_or_else(|| "30s".into()),
        reload_interval: "5s".into(),
        image,
        replicas: i32::try_from(layout.dns.len()).ok().filter(|count| *count > 1),
        resources: resources.clone(),
    })
}

/// Whether there is a gateway that names of the control plane can lead to.
fn serves_names(subject: &Subject<'_>, notes: &mut Notes) -> bool {
    let proxy = subject.parts.proxy.as_ref();
    let there = proxy.is_some_and(|proxy| proxy.enabled || proxy.server_ip.is_some());
    if !there {
        notes.warning(
            "NoGateway",
            "spec.infraComponents.proxy",
            "no gateway runs, so names of the control plane are not served: enable proxy, or set its serverIP to the \
             address of a gateway that runs elsewhere",
        );
    }
    there
}

/// The names that lead to the gateway, each once, in the order of the backends.
fn gateway_names(
    subject: &Subject<'_>,
    domain: &Domain,
    backends: &[ProxyBackend],
    notes: &mut Notes,
) -> Vec<String> {
    let mut hidden = pod_names(control_plane::cluster(subject));
    hidden.push(format!("kubernetes.{}", domain.name));
    let mut names: Vec<String> = Vec::new();
    for name in backends.iter().flat_map(own_names).map(str::to_ascii_lowercase) {
        if name != "*" && !hidden.contains(&name) && !names.contains(&name) {
            names.push(name);
        }
    }
    let wildcard = format!("*.{}", domain.apps);
    if !names.contains(&wildcard) {
        notes.warning(
            "AppsNotServed",
            "spec.infraComponents.proxy.apps",
            format!(
                "{wildcard} is not served: set apps.httpsPort (and httpPort) to the node ports of the cluster's router, \
                 or write a backend for it"
            ),
        );
    }
    names
}

/// What pods of the management cluster get instead of the gateway's address on the VLAN. Where their resolvers
/// forward to this server they need one, and the gateway's own Service is there.
fn internal(subject: &Subject<'_>, published: Option<bool>) -> Option<String> {
    let proxy = subject.parts.proxy.as_ref()?;
    let written = proxy
        .internal_proxy_service
        .clone()
        .filter(|service| !service.is_empty());
    written.or_else(|| {
        let service = object_name(subject.name, "proxy");
        (published == Some(true) && proxy.enabled).then(|| format!("{service}.{}.svc", subject.namespace))
    })
}

fn check_entries(entries: &[DnsStaticEntry], notes: &mut Notes) {
    for (at, entry) in entries.iter().enumerate() {
        let path = format!("{AT}.staticEntries[{at}]");
        notes.read(format!("{path}.hostname"), name::maybe_wildcard(&entry.hostname));
        notes.read(format!("{path}.ip"), address(&entry.ip));
        addresses(notes, &format!("{path}.additionalIPs"), &entry.additional_ips);
    }
}

fn check_zones(zones: &[ForwardZone], domain: Option<&Domain>, notes: &mut Notes) {
    let mut seen: Vec<String> = Vec::new();
    for (at, zone) in zones.iter().enumerate() {
        let path = format!("{AT}.forwardZones[{at}]");
        upstreams(notes, &format!("{path}.upstreams"), &zone.upstreams);
        if zone.upstreams.is_empty() {
            notes.mistake(
                format!("{path}.upstreams"),
                "the zone has no resolver: name at least one, or remove the zone",
            );
        }
        let path = format!("{path}.zone");
        let Some(name) = notes.read(&path, name::exact(&zone.zone)) else {
            continue;
        };
        if seen.contains(&name) {
            notes.mistake(
                &path,
                format!("{name} is there twice: put all its resolvers into one list"),
            );
        }
        if let Some(domain) = domain.filter(|domain| name::is_within(&name, &domain.name)) {
            notes.mistake(
                path,
                format!(
                    "{name} is part of {}, which the server answers itself: remove the zone",
                    domain.name
                ),
            );
        }
        seen.push(name);
    }
}

/// A server that forwards to itself answers nothing.
fn check_loops(subject: &Subject<'_>, layout: &Layout, notes: &mut Notes) {
    let network = &subject.infra.spec.network_config;
    let zones = subject
        .parts
        .dns
        .as_ref()
        .map(|dns| &*dns.forward_zones)
        .unwrap_or_default();
    let lists = std::iter::once(("spec.networkConfig.dnsServers".to_owned(), &network.dns_servers)).chain(
        zones
            .iter()
            .enumerate()
            .map(|(at, zone)| (format!("{AT}.forwardZones[{at}].upstreams"), &zone.upstreams)),
    );
    for (path, list) in lists {
        for (at, text) in list.iter().enumerate() {
            let mut unsaid = Notes::default(); // said where the list is read
            let plain = upstreams(&mut unsaid, "", std::slice::from_ref(text));
            if let Some(own) = plain.iter().find(|address| layout.dns.contains(address)) {
                notes.mistake(
                    format!("{path}[{at}]"),
                    format!("{own} is the DNS server itself: name the resolver that it forwards to"),
                );
            }
        }
    }
}
