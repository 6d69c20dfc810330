//! What a server needs to run, read once from its specification. Pure.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::{ResourceRequirements, ServicePort};
use kube::api::ObjectMeta;
use oooi_plan::Mistake;

/// The longest name of a server: it is also the name of a Service and the value of a label.
const LONGEST_NAME: usize = 63;

/// What a server needs to run.
#[derive(Clone, Debug)]
pub struct Wants {
    /// The NetworkAttachmentDefinition that its pods are attached by.
    pub attachment: String,
    /// The namespace of that, if it is not the server's own.
    pub attachment_namespace: Option<String>,
    /// The VLAN's gateway, where its pods have to route by source themselves.
    pub route_via: Option<String>,
    /// Its addresses, one a replica.
    pub addresses: Vec<Ipv4Net>,
    /// Further addresses that every replica answers for.
    pub published: Vec<Ipv4Addr>,
    /// The image.
    pub image: String,
    /// Requests and limits.
    pub resources: Option<ResourceRequirements>,
    /// The arguments of its subcommand besides those that every server has.
    pub arguments: Vec<String>,
    /// What its Service offers besides metrics.
    pub ports: Vec<ServicePort>,
    /// How it says that it is not stuck.
    pub liveness: Probe,
    /// How it says that it is ready.
    pub readiness: Probe,
    /// Its data plane, where that is Envoy.
    pub envoy: Option<Envoy>,
    /// The volume of its leases.
    pub claim: Option<LeaseClaim>,
    /// Whether it answers clients that have no address yet, for which it needs NET_RAW.
    pub raw_sockets: bool,
}

/// An Envoy beside its control plane.
#[derive(Clone, Debug)]
pub struct Envoy {
    /// Its image.
    pub image: String,
    /// Requests and limits.
    pub resources: Option<ResourceRequirements>,
    /// Where it gets its configuration, on loopback.
    pub xds_port: i32,
}

/// A page that answers 200 when all is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Its path.
    pub path: &'static str,
    /// Its port on the pod's own address.
    pub port: i32,
}

impl Probe {
    /// The page beside metrics that every server has.
    pub const HEALTHZ: Probe = Probe {
        path: "/healthz",
        port: 9090,
    };
    /// The other one.
    pub const READYZ: Probe = Probe {
        path: "/readyz",
        port: 9090,
    };
}

/// The volume that keeps leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseClaim {
    /// Its size.
    pub size: String,
    /// Its StorageClass; the cluster's default if there is none.
    pub class: Option<String>,
}

/// The addresses of a server as its specification has them.
pub struct Addresses<'a> {
    /// That of the first replica, perhaps with a prefix length.
    pub first: &'a str,
    /// Those of the others.
    pub others: &'a [String],
    /// The network that they are in, if it is known.
    pub network: Option<&'a str>,
    /// How many replicas there are to be; as many as addresses if nobody said.
    pub replicas: Option<i32>,
}

/// The prefix length of an address whose network nobody named.
const USUAL_PREFIX: u8 = 24;

impl Addresses<'_> {
    /// One address with its prefix length a replica.
    pub fn read(&self, mistakes: &mut Vec<Mistake>) -> Vec<Ipv4Net> {
        let mut mistake = |path: &str, message: String| {
            mistakes.push(Mistake {
                path: format!("spec.{path}"),
                message,
            });
        };
        let (bare, written) = match self.first.split_once('/') {
            Some((bare, prefix)) => (bare, prefix.parse::<u8>().ok()),
            None => (self.first, None),
        };
        let network = self.network.and_then(|text| text.parse::<Ipv4Net>().ok());
        let prefix = written
            .or_else(|| network.map(|network| network.prefix_len()))
            .unwrap_or(USUAL_PREFIX);
        let mut addresses = Vec::new();
        let all = std::iter::once(("networkConfig.serverIP", bare)).chain(
            self.others
                .iter()
                .map(|other| ("networkConfig.additionalServerIPs", other.as_str())),
        );
        for (path, text) in all {
            let address = text.parse::<Ipv4Addr>().ok();
            match address.and_then(|address| Ipv4Net::new(address, prefix).ok()) {
                Some(address) => addresses.push(address),
                None => mistake(
                    path,
                    format!("`{text}` is no IPv4 address: write one such as 192.168.100.2"),
                ),
            }
        }
        let wanted = self
            .replicas
            .map_or(addresses.len(), |n| usize::try_from(n).unwrap_or(1).max(1));
        if wanted > addresses.len() {
            mistake(
                "networkConfig.additionalServerIPs",
                format!(
                    "{wanted} replicas need {wanted} addresses, and there are {}: add the missing ones, or lower replicas",
                    addresses.len()
                ),
            );
        }
        addresses.truncate(wanted);
        addresses
    }
}

/// The attachment that a specification names, which every server needs.
pub(crate) fn attachment(name: Option<&str>, mistakes: &mut Vec<Mistake>) -> String {
    match name.filter(|name| !name.is_empty()) {
        Some(name) => name.to_owned(),
        None => {
            mistakes.push(Mistake {
                path: "spec.networkConfig.networkAttachmentName".into(),
                message: "nothing leads to the VLAN: name its NetworkAttachmentDefinition".into(),
            });
            String::new()
        }
    }
}

/// Refuses a name that Services and labels cannot have.
pub(super) fn check_name(metadata: &ObjectMeta) -> Vec<Mistake> {
    let length = metadata.name.as_deref().unwrap_or_default().len();
    if length <= LONGEST_NAME {
        return Vec::new();
    }
    vec![Mistake {
        path: "metadata.name".into(),
        message: format!(
            "the name has {length} characters, and its Service may have {LONGEST_NAME}: create it under a shorter one"
        ),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        first: &str,
        others: &[&str],
        network: Option<&str>,
        replicas: Option<i32>,
    ) -> Result<Vec<String>, String> {
        let others: Vec<String> = others.iter().map(|&other| other.to_owned()).collect();
        let mut mistakes = Vec::new();
        let addresses = Addresses {
            first,
            others: &others,
            network,
            replicas,
        }
        .read(&mut mistakes);
        match mistakes.first() {
            None => Ok(addresses.iter().map(ToString::to_string).collect()),
            Some(mistake) => Err(mistake.to_string()),
        }
    }

    #[test]
    fn an_address_gets_the_prefix_length_of_its_network() {
        assert_eq!(
            read("10.20.0.2", &[], Some("10.20.0.0/20"), None),
            Ok(vec!["10.20.0.2/20".into()])
        );
        assert_eq!(
            read("10.20.0.4/20", &["10.20.0.5"], None, Some(2)),
            Ok(vec!["10.20.0.4/20".into(), "10.20.0.5/20".into()])
        );
        assert_eq!(read("10.0.0.4", &[], None, None), Ok(vec!["10.0.0.4/24".into()]));
    }

    #[test]
    fn replicas_without_addresses_and_words_instead_of_addresses_are_mistakes() {
        let missing = read("10.0.0.4", &[], None, Some(2)).unwrap_err();
        assert!(missing.contains("additionalServerIPs"), "{missing}");
        let word = read("gateway", &[], None, None).unwrap_err();
        assert!(word.contains("spec.networkConfig.serverIP: `gateway`"), "{word}");
        assert!(read("10.0.0.4/99", &[], None, None).is_err());
    }
}
