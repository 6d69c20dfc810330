//! Single fields, read once.

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;
use oooi_api::duration;
use oooi_ipam::{Range, hosts};

use super::Subject;
use crate::mistake::Notes;
use crate::name;

/// The VLAN, as far as it can be read.
pub(super) struct Network {
    pub(super) cidr: Option<Ipv4Net>,
    pub(super) gateway: Option<Ipv4Addr>,
}

/// Reads the network, its gateway and everything about it that no component owns.
pub(super) fn network(subject: &Subject<'_>, notes: &mut Notes) -> Network {
    const AT: &str = "spec.networkConfig";
    let config = &subject.infra.spec.network_config;
    let cidr = notes.read(format!("{AT}.cidr"), self::cidr(&config.cidr));
    if let Some(cidr) = cidr.filter(|cidr| cidr.addr() != cidr.network()) {
        notes.warning(
            "HostBitsIgnored",
            format!("{AT}.cidr"),
            format!(
                "{} is an address in {}: the whole network is meant",
                config.cidr,
                cidr.trunc()
            ),
        );
    }
    let cidr = cidr.map(|cidr| cidr.trunc());
    let gateway = notes
        .read(format!("{AT}.gateway"), address(&config.gateway))
        .filter(|gateway| host(notes, &format!("{AT}.gateway"), cidr, *gateway));
    if config.network_attachment_definition.is_empty() {
        notes.mistake(
            format!("{AT}.networkAttachmentDefinition"),
            "the VLAN is missing: name its NetworkAttachmentDefinition",
        );
    } else if config.network_attachment_definition.contains('/') {
        notes.mistake(
            format!("{AT}.networkAttachmentDefinition"),
            "only the name belongs here: write the namespace into networkAttachmentNamespace",
        );
    }
    upstreams(notes, &format!("{AT}.dnsServers"), &config.dns_servers);
    addresses(notes, &format!("{AT}.ntpServers"), &config.ntp_servers);
    if config.mtu.is_some_and(|mtu| !(576..=65535).contains(&mtu)) {
        notes.mistake(
            format!("{AT}.mtu"),
            "an MTU of IPv4 is from 576 to 65535; 1500 is usual",
        );
    }
    for (at, domain) in config.search_domains.iter().enumerate() {
        notes.read(format!("{AT}.searchDomains[{at}]"), name::exact(domain));
    }
    Network { cidr, gateway }
}

fn cidr(text: &str) -> Result<Ipv4Net, String> {
    let network: Ipv4Net = text
        .parse()
        .map_err(|_| format!("`{text}` is not an IPv4 network: write one such as 192.168.100.0/24"))?;
    if (8..=30).contains(&network.prefix_len()) {
        Ok(network)
    } else {
        Err(format!(
            "a /{} cannot be served: choose a network from /8 to /30",
            network.prefix_len()
        ))
    }
}

/// An address.
pub(super) fn address(text: &str) -> Result<Ipv4Addr, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not an IPv4 address: write one such as 192.168.100.2"))
}

/// The address in a text that may have a prefix length, whatever that is.
pub(super) fn bare_address(text: &str) -> Option<Ipv4Addr> {
    text.split('/').next()?.parse().ok()
}

/// A server's address. A prefix length may follow; it must be that of the network.
pub(super) fn server_address(text: &str, cidr: Option<Ipv4Net>) -> Result<Ipv4Addr, String> {
    let Some((bare, prefix)) = text.split_once('/') else {
        return address(text);
    };
    let bare = address(bare)?;
    let prefix: u8 = prefix
        .parse()
        .ok()
        .filter(|prefix| *prefix <= 32)
        .ok_or_else(|| format!("`{text}` has no prefix length: write {bare}"))?;
    match cidr {
        Some(cidr) if cidr.prefix_len() != prefix => Err(format!(
            "/{prefix} is not the prefix length of {cidr}: write {bare}, or {bare}/{}",
            cidr.prefix_len()
        )),
        _ => Ok(bare),
    }
}

/// A list of addresses, each of which may stand there once.
pub(super) fn addresses(notes: &mut Notes, path: &str, texts: &[String]) -> Vec<Ipv4Addr> {
    let mut list = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        let path = format!("{path}[{at}]");
        match notes.read(&path, address(text)) {
            Some(address) if list.contains(&address) => {
                notes.mistake(path, format!("{address} stands there twice: remove one"));
            }
            Some(address) => list.push(address),
            None => {}
        }
    }
    list
}

/// Whether a host of the network can have the address; if not, that is a mistake.
pub(super) fn host(notes: &mut Notes, path: &str, cidr: Option<Ipv4Net>, address: Ipv4Addr) -> bool {
    let Some(cidr) = cidr else { return true };
    if hosts(cidr).contains(address) {
        return true;
    }
    notes.mistake(
        path,
        if cidr.contains(&address) {
            format!(
                "{address} is the network or the broadcast address of {cidr}: choose one of {}",
                hosts(cidr)
            )
        } else {
            format!("{address} is outside {cidr}: choose one of {}", hosts(cidr))
        },
    );
    false
}

/// A range from the two fields that hold its ends.
pub(super) fn range(
    notes: &mut Notes,
    path: &str,
    cidr: Option<Ipv4Net>,
    ends: (&str, &str),
) -> Option<Range> {
    let (start, end) = (format!("{path}.rangeStart"), format!("{path}.rangeEnd"));
    let first = notes
        .read(&start, address(ends.0))
        .filter(|first| host(notes, &start, cidr, *first));
    let last = notes
        .read(&end, address(ends.1))
        .filter(|last| host(notes, &end, cidr, *last));
    let range = Range::new(first?, last?);
    notes.read(end, range)
}

/// How many servers there are: as many as asked for, or as many as have addresses.
pub(super) fn replicas(notes: &mut Notes, path: &str, asked: Option<i32>, additional: usize) -> usize {
    let named = additional + 1;
    let Some(asked) = asked else { return named };
    match usize::try_from(asked) {
        Ok(count) if !(1..=5).contains(&count) => {
            notes.mistake(format!("{path}.replicas"), "there can be 1 to 5 replicas");
            named
        }
        Ok(count) if count < named => {
            notes.mistake(
                format!("{path}.additionalServerIPs"),
                format!(
                    "{additional} further addresses are given for {} further replicas: set replicas to {named}, or \
                     remove addresses",
                    count - 1
                ),
            );
            named
        }
        Ok(count) => count,
        Err(_) => {
            notes.mistake(format!("{path}.replicas"), "there can be 1 to 5 replicas");
            named
        }
    }
}

/// A duration between two bounds.
pub(super) fn bounded(notes: &mut Notes, path: &str, text: &str, least: Duration, example: &str) {
    const YEAR: Duration = Duration::from_secs(8760 * 3600);
    match duration::parse(text) {
        Ok(time) if time < least => {
            notes.mistake(
                path,
                format!(
                    "{text} is too short: write at least {}s, such as {example}",
                    least.as_secs()
                ),
            );
        }
        Ok(time) if time > YEAR => {
            notes.mistake(
                path,
                format!("{text} is too long: write at most 8760h, such as {example}"),
            );
        }
        Ok(_) => {}
        Err(error) => notes.mistake(path, error.to_string()),
    }
}

/// A list of resolvers: `system`, an address with an optional port, or `tls://` with an optional name. The addresses
/// that clients could ask themselves are given back.
pub(super) fn upstreams(notes: &mut Notes, path: &str, texts: &[String]) -> Vec<Ipv4Addr> {
    let mut plain = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        match upstream(text) {
            Some(address) => plain.extend(address),
            None => notes.mistake(
                format!("{path}[{at}]"),
                format!(
                    "`{text}` is not a resolver: write an address (10.0.0.53 or 10.0.0.53:5353), \
                     tls://ADDRESS[:PORT][#NAME], or system for the resolvers of the pod"
                ),
            ),
        }
    }
    plain
}

/// Whether a text names a resolver.
pub(crate) fn is_resolver(text: &str) -> bool {
    upstream(text).is_some()
}

/// The address of an upstream that is plain DNS on its usual port; the outer option says whether it is one at all.
#[allow(clippy::option_option)]
fn upstream(text: &str) -> Option<Option<Ipv4Addr>> {
    if text == "system" {
        return Some(None);
    }
    let (tls, rest) = match text.strip_prefix("tls://") {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix("dns://").unwrap_or(text)),
    };
    let (place, server_name) = match rest.split_once('#') {
        Some((place, server_name)) => (place, Some(server_name)),
        None => (rest, None),
    };
    if server_name.is_some_and(|server_name| !tls || name::exact(server_name).is_err()) {
        return None;
    }
    let (address, port) = match place.split_once(':') {
        Some((address, port)) => (address, Some(port.parse::<u16>().ok().filter(|port| *port > 0)?)),
        None => (place, None),
    };
    let address: Ipv4Addr = address
        .parse()
        .ok()
        .filter(|address: &Ipv4Addr| !address.is_unspecified())?;
    Some((!tls && port.unwrap_or(53) == 53).then_some(address))
}

/// The Go version's images, which stand in stored objects as defaults. They hold another program.
const STORED_DEFAULTS: [&str; 2] = ["quay.io/cldmnky/oooi:latest", "ghcr.io/cldmnky/hyperdhcp:latest"];

/// An image, unless it only stands there because an older definition had it as its default.
pub(super) fn image(notes: &mut Notes, path: &str, image: Option<&String>) -> Option<String> {
    let image = image.filter(|image| !image.is_empty())?;
    if STORED_DEFAULTS.contains(&image.as_str()) {
        notes.warning(
            "DefaultImageIgnored",
            path,
            format!("{image} is the default of an older version and counts as unset: remove the field"),
        );
        return None;
    }
    Some(image.clone())
}
