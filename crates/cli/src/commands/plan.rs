//! `oooi plan`: what an Infra means.

use clap::ValueEnum;
use oooi_api::{DhcpServer, DnsServer, Infra, ProxyServer};
use oooi_plan::{Components, Known};
use serde::Serialize;

use crate::Outcome;
use crate::input::Files;

/// Show what would run for an Infra: the servers, their addresses, the names and where they lead
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    files: Files,
    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Output::Tree)]
    output: Output,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    /// For people
    Tree,
    /// The resources that the operator would write
    Yaml,
}

/// Shows the plan.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let documents = args.files.inputs().documents()?;
    let document = oooi_manifest::only(&documents, "Infra").map_err(oooi_feed::Unreadable::Wrong)?;
    let infra: Infra = document
        .decode()
        .map_err(|mistake| oooi_feed::Unreadable::Wrong(vec![mistake]))?;
    let components = oooi_plan::plan(&infra, &Known::default()).map_err(|mistakes| {
        let placed = mistakes
            .iter()
            .map(|m| document.mistake(&m.path, &m.message))
            .collect();
        oooi_feed::Unreadable::Wrong(placed)
    })?;
    match args.output {
        Output::Tree => print!("{}", tree(&infra, &components)),
        Output::Yaml => print!("{}", resources(&infra, components)?),
    }
    Ok(Outcome::Done)
}

/// The components as the resources that they become.
fn resources(infra: &Infra, components: Components) -> anyhow::Result<String> {
    let name = infra.metadata.name.as_deref().unwrap_or_default();
    let Components {
        dhcp,
        dns,
        proxy,
        warnings: _,
    } = components;
    let namespace = &infra.metadata.namespace;
    let parts = [
        dhcp.map(|spec| yaml(DhcpServer::new(&format!("{name}-dhcp"), spec), namespace)),
        dns.map(|spec| yaml(DnsServer::new(&format!("{name}-dns"), spec), namespace)),
        proxy.map(|spec| yaml(ProxyServer::new(&format!("{name}-proxy"), spec), namespace)),
    ];
    parts.into_iter().flatten().collect()
}

fn yaml<K: kube::Resource + Serialize>(
    mut resource: K,
    namespace: &Option<String>,
) -> anyhow::Result<String> {
    resource.meta_mut().namespace.clone_from(namespace);
    Ok(format!("---\n{}", serde_saphyr::to_string(&resource)?))
}

fn tree(infra: &Infra, components: &Components) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    let network = &infra.spec.network_config;
    let name = infra.metadata.name.as_deref().unwrap_or_default();
    // Writing to a string does not fail.
    let mut line = |indent: usize, words: String| {
        let _ = writeln!(text, "{:indent$}{words}", "");
    };
    let addresses = components.addresses();
    line(
        0,
        format!("Infra {name}: {} by {}", network.cidr, network.gateway),
    );
    if let Some(dhcp) = &components.dhcp {
        let lease = &dhcp.lease_config;
        line(
            2,
            format!("DHCPServer {name}-dhcp on {}", addresses.dhcp.join(", ")),
        );
        line(
            4,
            format!(
                "leases {} to {} for {}",
                lease.range_start, lease.range_end, lease.lease_time
            ),
        );
        line(
            4,
            format!("resolvers {}", or_none(&dhcp.network_config.dns_servers)),
        );
    }
    if let Some(dns) = &components.dns {
        line(
            2,
            format!(
                "DNSServer {name}-dns on {}: {}",
                addresses.dns.join(", "),
                dns.hosted_cluster_domain
            ),
        );
        for entry in &dns.static_entries {
            let all: Vec<&str> = std::iter::once(&entry.ip)
                .chain(&entry.additional_ips)
                .map(String::as_str)
                .collect();
            line(4, format!("{} is {}", entry.hostname, all.join(", ")));
        }
        line(4, format!("everything else by {}", or_none(&dns.upstream_dns)));
    }
    if let Some(proxy) = &components.proxy {
        let engine = format!("{:?}", proxy.engine.unwrap_or_default());
        line(
            2,
            format!(
                "ProxyServer {name}-proxy on {}: {engine}",
                addresses.proxy.join(", ")
            ),
        );
        for backend in &proxy.backends {
            let port = match &backend.target_port {
                k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(port) => port.to_string(),
                k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::String(port) => port.clone(),
            };
            let target = format!("{}/{}:{port}", backend.target_namespace, backend.target_service);
            line(4, format!("{}:{} → {target}", backend.hostname, backend.port));
            for other in &backend.alternate_hostnames {
                line(6, format!("also {other}"));
            }
        }
    }
    for warning in &components.warnings {
        line(2, format!("warning: {warning}"));
    }
    text
}

fn or_none(list: &[String]) -> String {
    if list.is_empty() {
        "nobody".into()
    } else {
        list.join(", ")
    }
}
