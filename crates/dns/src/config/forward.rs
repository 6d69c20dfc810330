//! Where questions that the server does not answer itself are sent.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use oooi_api::dns_server::ForwardZone;
pub use oooi_api::dns_server::UpstreamPolicy;

use super::Mistakes;
use crate::wire::name::Name;

/// A zone and its upstreams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Every name in and below it; the root is the default.
    pub zone: Name,
    /// At least one.
    pub upstreams: Vec<Upstream>,
    /// In which order they are asked.
    pub policy: UpstreamPolicy,
}

/// One resolver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Upstream {
    /// Those of the host (`/etc/resolv.conf`), read again when they change.
    System,
    /// DNS over UDP, and over TCP where an answer is too long for it.
    Plain(SocketAddr),
    /// DNS over TLS (RFC 7858).
    Tls {
        /// Where it is.
        address: SocketAddr,
        /// The name that its certificate must carry; without one, its address.
        name: Option<String>,
    },
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Upstream::System => f.write_str("system"),
            Upstream::Plain(address) => write!(f, "{address}"),
            Upstream::Tls { address, name: None } => write!(f, "tls://{address}"),
            Upstream::Tls {
                address,
                name: Some(name),
            } => write!(f, "tls://{address}#{name}"),
        }
    }
}

impl Upstream {
    /// Reads `system`, `10.0.0.53`, `10.0.0.53:5353`, `dns://…`, `tls://10.0.0.53:853#dns.example.com`.
    pub fn parse(text: &str) -> Option<Upstream> {
        if text == "system" {
            return Some(Upstream::System);
        }
        if let Some(rest) = text.strip_prefix("tls://") {
            let (address, name) = match rest.split_once('#') {
                Some((address, name)) => (address, Some(name)),
                None => (rest, None),
            };
            let name = match name {
                Some(name) => Some(
                    Name::parse(name)
                        .ok()
                        .filter(|name| !name.is_wildcard())?
                        .to_string(),
                ),
                None => None,
            };
            return Some(Upstream::Tls {
                address: parse_address(address, 853)?,
                name,
            });
        }
        let rest = text.strip_prefix("dns://").unwrap_or(text);
        parse_address(rest, 53).map(Upstream::Plain)
    }
}

fn parse_address(text: &str, default_port: u16) -> Option<SocketAddr> {
    let read = match text.parse::<IpAddr>() {
        Ok(address) => SocketAddr::new(address, default_port),
        Err(_) => text.parse().ok()?,
    };
    (read.port() != 0 && !read.ip().is_unspecified()).then_some(read)
}

/// The default list as the root's, then each zone.
pub(super) fn read(
    check: &mut Mistakes,
    default: &[String],
    default_policy: Option<UpstreamPolicy>,
    zones: &[ForwardZone],
) -> Vec<Forward> {
    let mut forwards: Vec<Forward> = Vec::new();
    let upstreams = read_list(check, "spec.upstreamDNS", default);
    if !upstreams.is_empty() {
        forwards.push(Forward {
            zone: Name::root(),
            upstreams,
            policy: default_policy.unwrap_or_default(),
        });
    }
    for (index, written) in zones.iter().enumerate() {
        let path = format!("spec.forwardZones[{index}]");
        let ForwardZone {
            zone,
            upstreams,
            policy,
        } = written;
        if upstreams.is_empty() {
            check.add(
                format!("{path}.upstreams"),
                "is empty; name at least one resolver, or leave the zone out",
            );
        }
        let upstreams = read_list(check, &format!("{path}.upstreams"), upstreams);
        let Some(zone) = check.name(&format!("{path}.zone"), zone) else {
            continue;
        };
        if zone.is_wildcard() {
            check.add(
                format!("{path}.zone"),
                "must be without `*`: a zone takes every name below it",
            );
        }
        if forwards.iter().any(|known| known.zone == zone) {
            check.add(
                format!("{path}.zone"),
                format!("repeats the zone {zone}; put all its resolvers in one list"),
            );
        }
        forwards.push(Forward {
            zone,
            upstreams,
            policy: policy.unwrap_or_default(),
        });
    }
    forwards
}

fn read_list(check: &mut Mistakes, path: &str, texts: &[String]) -> Vec<Upstream> {
    let mut list = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        match Upstream::parse(text) {
            Some(upstream) if list.contains(&upstream) => {} // twice is once
            Some(upstream) => list.push(upstream),
            None => check.add(
                format!("{path}[{index}]"),
                format!("is {text:?}; write 10.0.0.53, 10.0.0.53:5353, tls://10.0.0.53#name or system"),
            ),
        }
    }
    list
}
