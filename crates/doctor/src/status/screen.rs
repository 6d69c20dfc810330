//! The screen itself.

use std::fmt::Write;

use kube::ResourceExt;
use oooi_api::Infra;

use super::{Aspect, Backend, Lease, Name, Network, Server, Status};
use crate::style::{Colour, Style};
use crate::table::{Cell, table};

impl Status {
    /// For people.
    pub fn screen(&self, style: Style) -> String {
        let mut text = self.heading(style);
        let tables = [
            table(
                style,
                ["SERVER", "ADDRESS", "POD", "STATE", "SAYS"],
                self.servers.iter().map(server).collect(),
            ),
            table(
                style,
                ["LEASE", "MAC", "HOSTNAME", "STATE", "EXPIRES"],
                self.leases.iter().map(lease).collect(),
            ),
            table(
                style,
                ["NAME", "ADDRESSES"],
                self.names.iter().map(name).collect(),
            ),
            table(
                style,
                ["BACKEND", "SERVICE", "ENDPOINTS READY"],
                self.backends.iter().map(backend).collect(),
            ),
            conditions(&self.conditions, style),
        ];
        for part in tables.iter().filter(|part| !part.is_empty()) {
            text.push('\n');
            text.push_str(part);
        }
        text
    }

    fn heading(&self, style: Style) -> String {
        let Status {
            namespace,
            name,
            network,
            ..
        } = self;
        let Network {
            cidr,
            gateway,
            attachment,
            vlan,
        } = network;
        let mut conditions = self.conditions.iter();
        let ready = conditions.find(|aspect| aspect.kind == "Ready" && aspect.of.starts_with("Infra "));
        let ready = readiness(ready, style);
        let title = style.paint(Colour::Heading, &format!("Infra {namespace}/{name}"));
        let vlan = vlan.as_deref().unwrap_or("not found");
        let network = format!("{cidr} by {gateway}; NetworkAttachmentDefinition {attachment}: {vlan}");
        format!("{title}, ready: {ready}\n{}\n", style.fold(&network, 0))
    }
}

/// Whether something is ready, by its condition.
pub(crate) fn readiness(ready: Option<&Aspect>, style: Style) -> String {
    match ready {
        Some(aspect) => style.paint(colour_of(&aspect.status), &aspect.status),
        None => "not reported yet: is `oooi manager` running?".to_owned(),
    }
}

/// Those that are not True; a line if all are.
fn conditions(all: &[Aspect], style: Style) -> String {
    let bad: Vec<&Aspect> = all.iter().filter(|aspect| aspect.status != "True").collect();
    if bad.is_empty() && !all.is_empty() {
        return format!("all {} conditions are True\n", all.len());
    }
    let row = |aspect: &&Aspect| {
        let Aspect {
            of,
            kind,
            status,
            reason,
            message,
        } = aspect;
        let status = Cell::coloured(colour_of(status), status.as_str());
        [
            of.as_str().into(),
            kind.as_str().into(),
            status,
            reason.as_str().into(),
            message.as_str().into(),
        ]
    };
    let head = ["CONDITION OF", "TYPE", "STATUS", "REASON", "MESSAGE"];
    table(style, head, bad.iter().map(row).collect())
}

pub(crate) fn colour_of(status: &str) -> Colour {
    match status {
        "True" => Colour::Good,
        "False" => Colour::Bad,
        _ => Colour::Warning,
    }
}

fn server(server: &Server) -> [Cell; 5] {
    let Server {
        component,
        address,
        pod,
        ready,
        message,
        counts,
    } = server;
    let counts: Vec<String> = counts
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    let said = message.clone().unwrap_or_else(|| counts.join(", "));
    let state = if *ready {
        Cell::coloured(Colour::Good, "ready")
    } else {
        Cell::coloured(Colour::Bad, "NOT READY")
    };
    let pod = pod.as_deref().unwrap_or("no pod");
    [
        component.as_str().into(),
        address.as_str().into(),
        pod.into(),
        state,
        said.into(),
    ]
}

fn lease(lease: &Lease) -> [Cell; 5] {
    let Lease {
        address,
        mac,
        hostname,
        state,
        expires,
    } = lease;
    let colour = match *state {
        "bound" => Colour::Good,
        "quarantined" => Colour::Bad,
        _ => Colour::Faint,
    };
    let hostname = hostname.as_deref().unwrap_or("-");
    [
        address.as_str().into(),
        mac.as_str().into(),
        hostname.into(),
        Cell::coloured(colour, *state),
        expires.as_str().into(),
    ]
}

fn name(name: &Name) -> [Cell; 2] {
    [name.hostname.as_str().into(), name.addresses.join(", ").into()]
}

fn backend(backend: &Backend) -> [Cell; 3] {
    let Backend {
        hostname,
        port,
        service,
        ready,
        endpoints,
    } = backend;
    let mut health = format!("{ready} of {endpoints}");
    let colour = if *ready == 0 {
        // Writing to a string does not fail.
        let _ = write!(health, ", NONE READY");
        Colour::Bad
    } else {
        Colour::Good
    };
    [
        format!("{hostname}:{port}").into(),
        service.as_str().into(),
        Cell::coloured(colour, health),
    ]
}

/// All Infras of a namespace, a line each.
pub fn overview(infras: &[Infra], style: Style) -> String {
    let row = |infra: &Infra| {
        let status = infra.status.as_ref();
        let conditions = status.map(|status| &status.conditions[..]).unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
        let said = ready.map_or("not reported yet", |condition| &condition.message);
        let ready = ready.map_or("Unknown", |condition| &condition.status);
        let network = infra.spec.network_config.cidr.as_str();
        [
            infra.name_any().into(),
            network.into(),
            Cell::coloured(colour_of(ready), ready),
            said.into(),
        ]
    };
    table(
        style,
        ["INFRA", "NETWORK", "READY", "SAYS"],
        infras.iter().map(row).collect(),
    )
}
