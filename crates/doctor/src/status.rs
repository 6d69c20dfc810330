//! One screen about an Infra: where it is, who serves it, what nodes have, and how it is. Pure.

mod screen;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use oooi_api::dhcp_lease::DhcpLeaseState;
use oooi_api::report::ServerReport;
use oooi_plan::Components;
use oooi_plan::network::Vlan;
use serde::Serialize;

use crate::inventory::{Inventory, is_ready};
pub use screen::overview;
pub(crate) use screen::{colour_of, readiness};

/// An Infra at a glance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The version of this document.
    pub schema_version: u32,
    /// The Infra's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its network.
    pub network: Network,
    /// Its servers, one an address.
    pub servers: Vec<Server>,
    /// Who has which address, where leases are kept in the cluster.
    pub leases: Vec<Lease>,
    /// The names of the control plane.
    pub names: Vec<Name>,
    /// What the gateway forwards to.
    pub backends: Vec<Backend>,
    /// Every condition of the Infra and of its servers.
    pub conditions: Vec<Aspect>,
}

/// The network of an Infra.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// Its addresses.
    pub cidr: String,
    /// Its router.
    pub gateway: String,
    /// The NetworkAttachmentDefinition.
    pub attachment: String,
    /// Which VLAN that is, if it can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<String>,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Server {
    /// `dhcp`, `dns` or `proxy`.
    pub component: String,
    /// Its address on the VLAN.
    pub address: String,
    /// Its pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Whether the pod is ready and runs what it should.
    pub ready: bool,
    /// Why not, if the server says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What it counts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, i64>,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// The address.
    pub address: String,
    /// Who has it.
    pub mac: String,
    /// What that machine calls itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// `bound`, `expired`, `released` or `quarantined`.
    pub state: &'static str,
    /// Until when.
    pub expires: String,
}

/// A name of the control plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Name {
    /// The name.
    pub hostname: String,
    /// What it resolves to on the VLAN.
    pub addresses: Vec<String>,
}

/// Something that the gateway forwards to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Backend {
    /// The name that nodes ask for.
    pub hostname: String,
    /// The port that they connect to.
    pub port: i32,
    /// The Service, with its namespace.
    pub service: String,
    /// How many of its endpoints are ready.
    pub ready: usize,
    /// How many there are.
    pub endpoints: usize,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Aspect {
    /// Whose it is: kind and name.
    pub of: String,
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in a word.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
}

impl Status {
    /// What an inventory shows at a moment.
    pub fn of(inventory: &Inventory, components: &Components, now: Timestamp) -> Self {
        let Inventory {
            infra,
            dhcp,
            dns,
            proxy,
            ..
        } = inventory;
        let config = &infra.spec.network_config;
        let vlan = inventory.attachment.as_ref().and_then(|attachment| {
            let network = oooi_plan::network::Network::read(attachment.spec.config.as_deref()).ok()?;
            let Vlan { plugin, link, id } = network.vlan;
            Some(match id {
                0 => format!("{plugin} on {link}, untagged"),
                id => format!("{plugin} on {link}, VLAN {id}"),
            })
        });
        let addresses = components.addresses();
        let reports = [
            (
                "dhcp",
                addresses.dhcp,
                dhcp.as_ref().and_then(|s| s.status.as_ref()).map(|s| &s.servers),
            ),
            (
                "dns",
                addresses.dns,
                dns.as_ref().and_then(|s| s.status.as_ref()).map(|s| &s.servers),
            ),
            (
                "proxy",
                addresses.proxy,
                proxy.as_ref().and_then(|s| s.status.as_ref()).map(|s| &s.servers),
            ),
        ];
        let servers = reports.iter().flat_map(|(component, addresses, said)| {
            let said = said.map(Vec::as_slice).unwrap_or_default();
            addresses
                .iter()
                .map(move |address| server(inventory, component, address, said))
        });
        let mut leases: Vec<Lease> = inventory
            .leases
            .iter()
            .map(|lease| lease_row(&lease.spec, now))
            .collect();
        leases.sort_by_key(|lease| lease.address.parse::<std::net::Ipv4Addr>().ok());
        let names = components
            .dns
            .iter()
            .flat_map(|dns| &dns.static_entries)
            .map(|entry| Name {
                hostname: entry.hostname.clone(),
                addresses: std::iter::once(&entry.ip)
                    .chain(&entry.additional_ips)
                    .cloned()
                    .collect(),
            });
        let backends = components
            .proxy
            .iter()
            .flat_map(|proxy| &proxy.backends)
            .map(|backend| {
                let (ready, endpoints) =
                    inventory.endpoints(&backend.target_namespace, &backend.target_service);
                Backend {
                    hostname: backend.hostname.clone(),
                    port: backend.port,
                    service: format!("{}/{}", backend.target_namespace, backend.target_service),
                    ready,
                    endpoints,
                }
            });
        Status {
            schema_version: 1,
            namespace: infra.namespace().unwrap_or_default(),
            name: infra.name_any(),
            network: Network {
                cidr: config.cidr.clone(),
                gateway: config.gateway.clone(),
                attachment: config.network_attachment_definition.clone(),
                vlan,
            },
            servers: servers.collect(),
            leases,
            names: names.collect(),
            backends: backends.collect(),
            conditions: inventory
                .conditions()
                .into_iter()
                .map(|(of, condition)| Aspect::of(of, condition))
                .collect(),
        }
    }

    /// Whether anything is not as it should be.
    pub fn needs_attention(&self) -> bool {
        self.servers.iter().any(|server| !server.ready)
            || self.backends.iter().any(|backend| backend.ready == 0)
            || self.conditions.iter().any(|condition| condition.status != "True")
    }

    /// When a lease will be over, so that it looks different from then on; nothing if none will.
    pub fn next_expiry(&self, now: Timestamp) -> Option<Timestamp> {
        let moments = self.leases.iter().filter_map(|lease| lease.expires.parse().ok());
        moments.filter(|moment| *moment > now).min()
    }
}

fn server(inventory: &Inventory, component: &str, address: &str, said: &[ServerReport]) -> Server {
    let pod = inventory.pod_at(component, address);
    let report = pod.and_then(|pod| said.iter().find(|report| report.pod == pod.name_any()));
    Server {
        component: component.into(),
        address: address.into(),
        pod: pod.map(ResourceExt::name_any),
        ready: pod.is_some_and(is_ready) && report.is_none_or(|report| report.accepted),
        message: report.and_then(|report| report.message.clone()),
        counts: report.map(|report| report.counts.clone()).unwrap_or_default(),
    }
}

impl Aspect {
    /// A condition of an object: its kind and name.
    pub(crate) fn of(of: String, condition: &Condition) -> Self {
        Aspect {
            of,
            kind: condition.type_.clone(),
            status: condition.status.clone(),
            reason: condition.reason.clone(),
            message: condition.message.clone(),
        }
    }
}

fn lease_row(lease: &oooi_api::dhcp_lease::DhcpLeaseSpec, now: Timestamp) -> Lease {
    let expires = lease.expires.parse::<Timestamp>();
    Lease {
        address: lease.address.clone(),
        mac: lease.mac.clone().unwrap_or_else(|| "-".into()),
        hostname: lease.hostname.clone(),
        state: match lease.state {
            DhcpLeaseState::Bound if expires.is_ok_and(|expires| expires <= now) => "expired",
            DhcpLeaseState::Bound => "bound",
            DhcpLeaseState::Released => "released",
            DhcpLeaseState::Quarantined => "quarantined",
        },
        expires: lease.expires.clone(),
    }
}
