//! `oooi status`: one screen about an Infra, or about an EgressIPAM.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};

use anyhow::bail;
use clap::ValueEnum;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::{Client, ResourceExt};
use oooi_api::foreign::NetworkAttachmentDefinition;
use oooi_api::{DhcpLease, DhcpServer, DnsServer, EgressIpam, Infra, ProxyServer};
use oooi_doctor::egress::{self, EgressStatus};
use oooi_doctor::inventory::Inventory;
use oooi_doctor::status::{Status, overview};
use oooi_feed::changes::Changes;
use serde::Serialize;

use crate::cluster::{self, Place};
use crate::{Outcome, block_on, terminal, until_signal, words};

/// Show an Infra of a cluster: its VLAN, addresses, pods, leases, names, backends and conditions
///
/// Without a name, the only Infra of the namespace is shown, or a line for each of them. With `--egress` it is an
/// EgressIPAM: how full its networks are, which namespaces lack addresses, and its conditions.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The name of the Infra, or of the EgressIPAM
    name: Option<String>,
    /// Show an EgressIPAM instead; they are in no namespace
    #[arg(long, conflicts_with = "namespace")]
    egress: bool,
    #[command(flatten)]
    place: Place,
    /// Show it again whenever something changed, until Ctrl-C
    #[arg(short, long, conflicts_with = "output")]
    watch: bool,
    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Output::Screen)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    Screen,
    /// For programs
    Json,
    /// For programs
    Yaml,
}

impl Output {
    fn of(self, status: &impl Serialize, screen: impl FnOnce() -> String) -> anyhow::Result<String> {
        Ok(match self {
            Output::Screen => screen(),
            Output::Json => format!("{}\n", serde_json::to_string_pretty(status)?),
            Output::Yaml => serde_saphyr::to_string(status)?,
        })
    }
}

/// Shows it.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    block_on(async {
        let client = oooi_feed::cluster::connect().await?;
        if args.watch {
            tokio::select! {
                ended = watch(&client, args) => ended,
                () = until_signal() => Ok(Outcome::Done),
            }
        } else {
            let look = look_at_chosen(&client, args).await?;
            print!("{}", look.text);
            Ok(look.outcome)
        }
    })
}

/// What was seen at a moment.
struct Look {
    text: String,
    outcome: Outcome,
    /// What it was seen of.
    surroundings: Surroundings,
    /// When it will look different by itself.
    next: Option<jiff::Timestamp>,
}

async fn look_at_chosen(client: &Client, args: &Args) -> anyhow::Result<Look> {
    if args.egress {
        look_at_egress(client, args).await
    } else {
        look(client, args).await
    }
}

async fn look_at_egress(client: &Client, args: &Args) -> anyhow::Result<Look> {
    let seen = |text, outcome| Look {
        text,
        outcome,
        surroundings: Surroundings::default(),
        next: None,
    };
    let ipam = match &args.name {
        Some(name) => cluster::egress_ipam(client, name).await?,
        None => {
            let mut all = cluster::egress_ipams(client).await?;
            match (all.len(), args.output) {
                (0, _) => bail!("there is no EgressIPAM in the cluster"),
                (1, _) => all.remove(0),
                (_, Output::Screen) => {
                    return Ok(seen(egress::overview(&all, terminal::style()), Outcome::Done));
                }
                _ => {
                    let names: Vec<String> = all.iter().map(ResourceExt::name_any).collect();
                    bail!(
                        "there are several EgressIPAMs, name one of them: {}",
                        names.join(", ")
                    );
                }
            }
        }
    };
    let status = EgressStatus::of(&ipam);
    let outcome = if status.needs_attention() {
        Outcome::Attention
    } else {
        Outcome::Done
    };
    let text = args.output.of(&status, || status.screen(terminal::style()))?;
    Ok(seen(text, outcome))
}

async fn look(client: &Client, args: &Args) -> anyhow::Result<Look> {
    let namespace = args.place.namespace(client);
    let infra = match &args.name {
        Some(name) => cluster::infra(client, namespace, name).await?,
        None => {
            let mut all = cluster::infras(client, namespace).await?;
            match (all.len(), args.output) {
                (0, _) => bail!("there is no Infra in namespace {namespace}: -n names another one"),
                (1, _) => all.remove(0),
                (_, Output::Screen) => {
                    return Ok(Look {
                        text: overview(&all, terminal::style()),
                        outcome: Outcome::Done,
                        surroundings: Surroundings::default(),
                        next: None,
                    });
                }
                _ => {
                    let names: Vec<String> = all.iter().map(ResourceExt::name_any).collect();
                    bail!("there are several Infras, name one of them: {}", names.join(", "));
                }
            }
        }
    };
    let inventory = cluster::inventory(client, infra).await?;
    let components = cluster::components(&inventory)?;
    let now = jiff::Timestamp::now();
    let status = Status::of(&inventory, &components, now);
    let outcome = if status.needs_attention() {
        Outcome::Attention
    } else {
        Outcome::Done
    };
    let text = args.output.of(&status, || status.screen(terminal::style()))?;
    Ok(Look {
        text,
        outcome,
        surroundings: Surroundings::of(&inventory),
        next: status.next_expiry(now),
    })
}

/// Shows it again when it changed. A terminal is cleared in between; elsewhere an empty line is.
async fn watch(client: &Client, args: &Args) -> anyhow::Result<Outcome> {
    let namespace = args.place.namespace(client);
    let mut surroundings = Surroundings::default();
    let follow = |surroundings: &Surroundings| {
        if args.egress {
            let mut changes = Changes::default();
            changes.watch_global::<EgressIpam>(client);
            changes
        } else {
            surroundings.watch(client, namespace)
        }
    };
    // Watched before the first look: what changes in between is seen.
    let mut changes = follow(&surroundings);
    let mut last = String::new();
    loop {
        let (text, next) = match look_at_chosen(client, args).await {
            Ok(look) => {
                if look.surroundings != surroundings {
                    surroundings = look.surroundings;
                    changes = follow(&surroundings);
                }
                (look.text, look.next)
            }
            Err(error) if last.is_empty() => return Err(error),
            // An API server that is away for a moment is no reason to end.
            Err(error) => (format!("{}\n", words::of(&error)), None),
        };
        if text != last {
            let mut out = std::io::stdout();
            let between = match (out.is_terminal(), last.is_empty()) {
                (true, _) => "\x1b[H\x1b[2J",
                (false, true) => "",
                (false, false) => "\n",
            };
            write!(out, "{between}{text}")?;
            out.flush()?;
            last = text;
        }
        tokio::select! {
            () = changes.next() => {}
            () = until(next) => {}
        }
    }
}

/// Waits for a moment, if there is one to wait for.
async fn until(moment: Option<jiff::Timestamp>) {
    match moment {
        Some(moment) => {
            let left = moment.duration_since(jiff::Timestamp::now());
            tokio::time::sleep(left.try_into().unwrap_or_default()).await;
        }
        None => std::future::pending().await,
    }
}

/// The namespaces beside the Infra's own that its screen depends on.
#[derive(Debug, Default, PartialEq, Eq)]
struct Surroundings {
    /// Of the network.
    attachment: Option<String>,
    /// Of what the gateway forwards to.
    targets: BTreeSet<String>,
}

impl Surroundings {
    fn of(inventory: &Inventory) -> Self {
        let backends = inventory.proxy.iter().flat_map(|proxy| &proxy.spec.backends);
        Surroundings {
            attachment: inventory.attachment.as_ref().and_then(ResourceExt::namespace),
            targets: backends.map(|backend| backend.target_namespace.clone()).collect(),
        }
    }

    /// Follows all that the screen shows.
    fn watch(&self, client: &Client, namespace: &str) -> Changes {
        let mut changes = Changes::default();
        changes.watch::<Infra>(client, namespace);
        changes.watch::<DhcpServer>(client, namespace);
        changes.watch::<DnsServer>(client, namespace);
        changes.watch::<ProxyServer>(client, namespace);
        changes.watch::<DhcpLease>(client, namespace);
        changes.watch::<Pod>(client, namespace);
        let attachment = self.attachment.as_deref().unwrap_or(namespace);
        changes.watch::<NetworkAttachmentDefinition>(client, attachment);
        for target in &self.targets {
            changes.watch::<EndpointSlice>(client, target);
            changes.watch::<NetworkPolicy>(client, target);
        }
        changes
    }
}
