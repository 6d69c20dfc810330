//! One screen about an Infra: where it is, who serves it, what nodes have, and how it is. Pure.

use std::collections::BTreeMap;
use std::fmt::Write;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use oooi_api::Infra;
use oooi_api::dhcp_lease::DhcpLeaseState;
use oooi_api::report::ServerReport;
use oooi_plan::Components;
use oooi_plan::network::Vlan;
use serde::Serialize;

use crate::inventory::{Inventory, is_ready};

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
            conditions: inventory.conditions().into_iter().map(aspect).collect(),
        }
    }

    /// Whether anything is not as it should be.
    pub fn needs_attention(&self) -> bool {
        self.servers.iter().any(|server| !server.ready)
            || self.backends.iter().any(|backend| backend.ready == 0)
            || self.conditions.iter().any(|condition| condition.status != "True")
    }

    /// For people.
    pub fn screen(&self) -> String {
        let Status {
            namespace,
            name,
            network,
            ..
        } = self;
        let mut text = String::new();
        let ready = self
            .conditions
            .iter()
            .find(|aspect| aspect.kind == "Ready" && aspect.of.starts_with("Infra "))
            .map_or("not reported yet: is `oooi manager` running?", |aspect| {
                &aspect.status
            });
        // Writing to a string does not fail.
        let _ = writeln!(text, "Infra {namespace}/{name}, ready: {ready}");
        let vlan = network.vlan.as_deref().unwrap_or("not found");
        let Network {
            cidr,
            gateway,
            attachment,
            ..
        } = network;
        let _ = writeln!(
            text,
            "{cidr} by {gateway}; NetworkAttachmentDefinition {attachment}: {vlan}"
        );
        let server_rows = self.servers.iter().map(|server| {
            let counts: Vec<String> = server
                .counts
                .iter()
                .map(|(name, count)| format!("{name} {count}"))
                .collect();
            let said = server.message.clone().unwrap_or_else(|| counts.join(", "));
            let ready = if server.ready { "ready" } else { "NOT READY" };
            let pod = server.pod.as_deref().unwrap_or("no pod");
            [server.component.as_str(), &server.address, pod, ready, &said].map(str::to_owned)
        });
        text.push_str(&table(
            ["SERVER", "ADDRESS", "POD", "STATE", "SAYS"],
            server_rows.collect(),
        ));
        let lease_rows = self.leases.iter().map(|lease| {
            let hostname = lease.hostname.as_deref().unwrap_or("-");
            [
                lease.address.as_str(),
                &lease.mac,
                hostname,
                lease.state,
                &lease.expires,
            ]
            .map(str::to_owned)
        });
        text.push_str(&table(
            ["LEASE", "MAC", "HOSTNAME", "STATE", "EXPIRES"],
            lease_rows.collect(),
        ));
        let name_rows = self
            .names
            .iter()
            .map(|name| [name.hostname.clone(), name.addresses.join(", ")]);
        text.push_str(&table(["NAME", "ADDRESSES"], name_rows.collect()));
        let backend_rows = self.backends.iter().map(|backend| {
            let Backend {
                hostname,
                port,
                service,
                ready,
                endpoints,
            } = backend;
            let health = format!("{ready} of {endpoints}");
            let health = if *ready == 0 {
                format!("{health}, NONE READY")
            } else {
                health
            };
            [format!("{hostname}:{port}"), service.clone(), health]
        });
        text.push_str(&table(
            ["BACKEND", "SERVICE", "ENDPOINTS READY"],
            backend_rows.collect(),
        ));
        let bad: Vec<&Aspect> = self
            .conditions
            .iter()
            .filter(|aspect| aspect.status != "True")
            .collect();
        if bad.is_empty() && !self.conditions.is_empty() {
            let _ = writeln!(text, "\nall {} conditions are True", self.conditions.len());
        }
        let condition_rows = bad.iter().map(|aspect| {
            let Aspect {
                of,
                kind,
                status,
                reason,
                message,
            } = aspect;
            [of, kind, status, reason, message].map(Clone::clone)
        });
        text.push_str(&table(
            ["CONDITION OF", "TYPE", "STATUS", "REASON", "MESSAGE"],
            condition_rows.collect(),
        ));
        text
    }
}

/// All Infras of a namespace, a line each.
pub fn overview(infras: &[Infra]) -> String {
    let rows = infras.iter().map(|infra| {
        let conditions = infra
            .status
            .as_ref()
            .map(|status| &status.conditions[..])
            .unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
        let said = ready.map_or("not reported yet", |condition| &condition.message);
        let ready = ready.map_or("Unknown", |condition| &condition.status);
        [
            infra.name_any(),
            infra.spec.network_config.cidr.clone(),
            ready.to_owned(),
            said.to_owned(),
        ]
    });
    table(["INFRA", "NETWORK", "READY", "SAYS"], rows.collect())
        .trim_start()
        .to_owned()
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

fn aspect((of, condition): (String, &Condition)) -> Aspect {
    Aspect {
        of,
        kind: condition.type_.clone(),
        status: condition.status.clone(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
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

/// Columns as wide as they must be, after an empty line. Without rows there is no table.
fn table<const N: usize>(head: [&str; N], rows: Vec<[String; N]>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].len()]).max().unwrap_or_default()
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::from("\n");
    for row in std::iter::once(head.map(str::to_owned)).chain(rows) {
        let cells: Vec<String> = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}
