//! One screen about an EgressIPAM: how full its networks are, which namespaces lack addresses, and how it is. Pure.

use kube::ResourceExt;
use oooi_api::EgressIpam;
use oooi_api::egress_ipam::{CidrAssignment, CidrUsage, EgressIpamStatus, FailingNamespace};
use serde::Serialize;

use crate::status::{Aspect, colour_of, readiness};
use crate::style::{Colour, Style};
use crate::table::{Cell, table};

/// An EgressIPAM at a glance.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EgressStatus {
    /// The version of this document.
    pub schema_version: u32,
    /// Its name.
    pub name: String,
    /// The label of nodes that tells which network they carry addresses of.
    pub topology_label: String,
    /// Namespaces that ask for addresses, once they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<i32>,
    /// Its networks, in order.
    pub networks: Vec<EgressNetwork>,
    /// Namespaces without all their addresses, the first hundred.
    pub failing_namespaces: Vec<FailingNamespace>,
    /// Every condition of it.
    pub conditions: Vec<Aspect>,
}

/// A network of an EgressIPAM.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EgressNetwork {
    /// Its addresses.
    #[serde(rename = "CIDR")]
    pub cidr: String,
    /// The value of the topology label of the nodes that carry them.
    pub label_value: String,
    /// How full it is, once that was counted.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// How full a network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Addresses that can be given.
    pub total: i64,
    /// Addresses that are given.
    pub used: i64,
    /// Addresses that are left.
    pub free: i64,
}

impl EgressStatus {
    /// What an EgressIPAM says of itself.
    pub fn of(ipam: &EgressIpam) -> Self {
        let EgressIpamStatus {
            conditions,
            namespaces,
            cidrs,
            failing_namespaces,
            observed_generation: _,
        } = ipam.status.clone().unwrap_or_default();
        let usage = |cidr: &str| {
            let CidrUsage {
                total, used, free, ..
            } = cidrs.iter().find(|one| one.cidr == cidr)?;
            let (total, used, free) = (*total, *used, *free);
            Some(Usage { total, used, free })
        };
        let network = |assignment: &CidrAssignment| EgressNetwork {
            cidr: assignment.cidr.clone(),
            label_value: assignment.label_value.clone(),
            usage: usage(&assignment.cidr),
        };
        let of = format!("EgressIPAM {}", ipam.name_any());
        let aspects = conditions
            .iter()
            .map(|condition| Aspect::of(of.clone(), condition));
        EgressStatus {
            schema_version: 1,
            name: ipam.name_any(),
            topology_label: ipam.spec.topology_label.clone(),
            namespaces,
            networks: ipam.spec.cidr_assignments.iter().map(network).collect(),
            failing_namespaces,
            conditions: aspects.collect(),
        }
    }

    /// Whether anything is not as it should be, or nobody looked yet.
    pub fn needs_attention(&self) -> bool {
        !self.failing_namespaces.is_empty()
            || self.conditions.is_empty()
            || self.conditions.iter().any(|condition| condition.status != "True")
    }

    /// For people.
    pub fn screen(&self, style: Style) -> String {
        let ready = self.conditions.iter().find(|aspect| aspect.kind == "Ready");
        let title = style.paint(Colour::Heading, &format!("EgressIPAM {}", self.name));
        let asking = match self.namespaces {
            Some(1) => "1 namespace asks".to_owned(),
            Some(count) => format!("{count} namespaces ask"),
            None => "nobody counted yet who asks".to_owned(),
        };
        let about = format!(
            "{asking} for addresses; nodes carry them by the label {}",
            self.topology_label
        );
        let mut text = format!(
            "{title}, ready: {}\n{}\n",
            readiness(ready, style),
            style.fold(&about, 0)
        );
        let parts = [
            table(
                style,
                ["NETWORK", "NODES", "TOTAL", "USED", "FREE"],
                self.networks.iter().map(network).collect(),
            ),
            table(
                style,
                ["NAMESPACE", "REASON", "MESSAGE"],
                self.failing_namespaces.iter().map(failing).collect(),
            ),
            self.conditions(style),
        ];
        for part in parts.iter().filter(|part| !part.is_empty()) {
            text.push('\n');
            text.push_str(part);
        }
        text
    }

    /// Those that are not True; a line if all are.
    fn conditions(&self, style: Style) -> String {
        let bad = self.conditions.iter().filter(|aspect| aspect.status != "True");
        let rows: Vec<[Cell; 4]> = bad.map(condition).collect();
        if rows.is_empty() && !self.conditions.is_empty() {
            return format!("all {} conditions are True\n", self.conditions.len());
        }
        table(style, ["CONDITION", "STATUS", "REASON", "MESSAGE"], rows)
    }
}

fn condition(aspect: &Aspect) -> [Cell; 4] {
    let Aspect {
        of: _,
        kind,
        status,
        reason,
        message,
    } = aspect;
    [
        kind.as_str().into(),
        Cell::coloured(colour_of(status), status.as_str()),
        reason.as_str().into(),
        message.as_str().into(),
    ]
}

fn network(network: &EgressNetwork) -> [Cell; 5] {
    let EgressNetwork {
        cidr,
        label_value,
        usage,
    } = network;
    let count = |of: fn(&Usage) -> i64| {
        usage
            .as_ref()
            .map_or_else(|| "-".to_owned(), |one| of(one).to_string())
    };
    let is_full = usage.is_some_and(|usage| usage.free == 0);
    let colour = if is_full { Colour::Warning } else { Colour::Good };
    [
        cidr.as_str().into(),
        label_value.as_str().into(),
        count(|usage| usage.total).into(),
        count(|usage| usage.used).into(),
        Cell::coloured(colour, count(|usage| usage.free)),
    ]
}

fn failing(namespace: &FailingNamespace) -> [Cell; 3] {
    let FailingNamespace {
        name,
        reason,
        message,
    } = namespace;
    [
        name.as_str().into(),
        Cell::coloured(Colour::Bad, reason.as_str()),
        message.as_str().into(),
    ]
}

/// EgressIPAMs, a line each.
pub fn overview(ipams: &[EgressIpam], style: Style) -> String {
    let row = |ipam: &EgressIpam| {
        let status = EgressStatus::of(ipam);
        let ready = status.conditions.iter().find(|aspect| aspect.kind == "Ready");
        let said = ready.map_or("not reported yet", |aspect| &aspect.message);
        let ready = ready.map_or("Unknown", |aspect| &aspect.status);
        let free: Option<i64> = status
            .networks
            .iter()
            .map(|network| Some(network.usage?.free))
            .min()
            .flatten();
        let count = |number: Option<i64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        [
            ipam.name_any().into(),
            count(status.namespaces.map(i64::from)).into(),
            count(free).into(),
            Cell::coloured(colour_of(ready), ready),
            said.into(),
        ]
    };
    table(
        style,
        ["EGRESSIPAM", "NAMESPACES", "ROOM FOR", "READY", "SAYS"],
        ipams.iter().map(row).collect(),
    )
}
