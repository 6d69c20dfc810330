//! `oooi plan`: what an Infra means.

use anyhow::Context;
use clap::ValueEnum;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use oooi_api::{DhcpServer, DnsServer, Infra, ProxyServer};
use oooi_plan::{Components, Known};
use serde::Serialize;

use crate::cluster::{self, Place};
use crate::input::Files;
use crate::{Outcome, block_on, diff};

/// Show what would run for an Infra: the servers, their addresses, the names and where they lead
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    files: Files,
    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Output::Tree)]
    output: Output,
    /// Show what would change in the cluster, instead: the Infra as the API server would take it, and its servers
    ///
    /// Nothing is written. The exit code is 0 if nothing would change, and 3 if something would.
    #[arg(long, conflicts_with = "output")]
    diff: bool,
    #[command(flatten)]
    place: Place,
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
    let placed = |mistakes: Vec<oooi_plan::Mistake>| {
        let placed = mistakes.iter().map(|m| document.mistake(&m.path, &m.message));
        oooi_feed::Unreadable::Wrong(placed.collect())
    };
    if args.diff {
        return block_on(async {
            let client = oooi_feed::cluster::connect().await?;
            let mut infra = infra;
            let namespace = match (&args.place.namespace, &infra.metadata.namespace) {
                (None, Some(own)) => own.clone(),
                _ => args.place.namespace(&client).to_owned(),
            };
            infra.metadata.namespace = Some(namespace);
            let change = difference(&client, &infra, placed).await?;
            print!("{}", change.as_deref().unwrap_or("nothing would change\n"));
            Ok(if change.is_some() {
                Outcome::Attention
            } else {
                Outcome::Done
            })
        });
    }
    let components = oooi_plan::plan(&infra, &Known::default()).map_err(placed)?;
    match args.output {
        Output::Tree => print!("{}", tree(&infra, &components)),
        Output::Yaml => print!("{}", resources(&infra, components)?),
    }
    Ok(Outcome::Done)
}

/// What an Infra would change in a cluster; nothing if it would not.
async fn difference(
    client: &Client,
    infra: &Infra,
    placed: impl FnOnce(Vec<oooi_plan::Mistake>) -> oooi_feed::Unreadable,
) -> anyhow::Result<Option<String>> {
    let (name, namespace) = (infra.name_any(), infra.namespace().unwrap_or_default());
    let api = Api::<Infra>::namespaced(client.clone(), &namespace);
    let current = api
        .get_opt(&name)
        .await
        .context("the cluster's Infra cannot be read")?;
    // The API server says what it would make of it, defaults and admission included, and writes nothing.
    let trial = PatchParams::apply("oooi-plan").dry_run().force();
    let taken = api
        .patch(&name, &trial, &Patch::Apply(infra))
        .await
        .context("the API server refuses the Infra")?;
    let surroundings = match &current {
        Some(current) => Some(cluster::inventory(client, current.clone()).await?),
        None => None,
    };
    let known = surroundings.as_ref().map(cluster::known).unwrap_or_default();
    let components = oooi_plan::plan(&taken, &known).map_err(placed)?;
    let (dhcp, dns, proxy) = match surroundings {
        Some(there) => (there.dhcp, there.dns, there.proxy),
        None => (None, None, None),
    };
    let parts = [
        changed("Infra", &name, current.map(|infra| infra.spec), Some(taken.spec))?,
        changed(
            "DHCPServer",
            &format!("{name}-dhcp"),
            dhcp.map(|server| server.spec),
            components.dhcp,
        )?,
        changed(
            "DNSServer",
            &format!("{name}-dns"),
            dns.map(|server| server.spec),
            components.dns,
        )?,
        changed(
            "ProxyServer",
            &format!("{name}-proxy"),
            proxy.map(|server| server.spec),
            components.proxy,
        )?,
    ];
    let text: String = parts.into_iter().flatten().collect();
    Ok((!text.is_empty()).then_some(text))
}

/// How a specification would change.
fn changed<T: Serialize>(
    kind: &str,
    name: &str,
    old: Option<T>,
    new: Option<T>,
) -> anyhow::Result<Option<String>> {
    let what = match (&old, &new) {
        (None, None) => return Ok(None),
        (None, Some(_)) => "would be created",
        (Some(_), None) => "would be removed",
        (Some(_), Some(_)) => "would change",
    };
    let text = |spec: &Option<T>| match spec {
        Some(spec) => serde_saphyr::to_string(spec),
        None => Ok(String::new()),
    };
    let difference = diff::lines(&text(&old)?, &text(&new)?);
    Ok(difference.map(|lines| format!("{kind} {name} {what}:\n{lines}\n")))
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
        for zone in &dns.forward_zones {
            line(4, format!("{} by {}", zone.zone, or_none(&zone.upstreams)));
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
