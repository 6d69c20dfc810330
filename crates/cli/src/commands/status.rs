//! `oooi status`: one screen about an Infra.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::bail;
use clap::ValueEnum;
use kube::{Client, ResourceExt};
use oooi_doctor::status::{Status, overview};

use crate::cluster::{self, Place};
use crate::{Outcome, block_on, until_signal};

/// Show an Infra of a cluster: its VLAN, addresses, pods, leases, names, backends and conditions
///
/// Without a name, the only Infra of the namespace is shown, or a line for each of them.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The name of the Infra
    name: Option<String>,
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

/// How often a watched Infra is looked at.
const EVERY: Duration = Duration::from_secs(2);

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
            let (text, outcome) = look(&client, args).await?;
            print!("{text}");
            Ok(outcome)
        }
    })
}

async fn look(client: &Client, args: &Args) -> anyhow::Result<(String, Outcome)> {
    let namespace = args.place.namespace(client);
    let infra = match &args.name {
        Some(name) => cluster::infra(client, namespace, name).await?,
        None => {
            let mut all = cluster::infras(client, namespace).await?;
            match (all.len(), args.output) {
                (0, _) => bail!("there is no Infra in namespace {namespace}: -n names another one"),
                (1, _) => all.remove(0),
                (_, Output::Screen) => return Ok((overview(&all), Outcome::Done)),
                _ => {
                    let names: Vec<String> = all.iter().map(ResourceExt::name_any).collect();
                    bail!("there are several Infras, name one of them: {}", names.join(", "));
                }
            }
        }
    };
    let inventory = cluster::inventory(client, infra).await?;
    let components = cluster::components(&inventory)?;
    let status = Status::of(&inventory, &components, jiff::Timestamp::now());
    let outcome = if status.needs_attention() {
        Outcome::Attention
    } else {
        Outcome::Done
    };
    let text = match args.output {
        Output::Screen => status.screen(),
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&status)?),
        Output::Yaml => serde_saphyr::to_string(&status)?,
    };
    Ok((text, outcome))
}

/// Shows it again when it changed. A terminal is cleared in between; elsewhere an empty line is.
async fn watch(client: &Client, args: &Args) -> anyhow::Result<Outcome> {
    let mut last = String::new();
    let mut ticks = tokio::time::interval(EVERY);
    loop {
        ticks.tick().await;
        // An API server that is away for a moment is no reason to end.
        let text = match look(client, args).await {
            Ok((text, _)) => text,
            Err(error) if last.is_empty() => return Err(error),
            Err(error) => format!("{error:#}\n"),
        };
        if text == last {
            continue;
        }
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
}
