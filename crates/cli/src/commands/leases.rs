//! `oooi leases`: who has which address.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Subcommand, ValueEnum};
use oooi_dhcp::control;
use oooi_dhcp::lease::Lease;
use oooi_dhcp::store::journal::Journal;
use oooi_dhcp::time::Timestamp;
use serde_json::json;

use crate::{Outcome, block_on};

/// Show who has which address, or free one
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where the DHCP server keeps its leases
    #[arg(long, value_name = "DIR", default_value = "/var/lib/oooi", global = true)]
    state_dir: PathBuf,
    /// In a cluster: the namespace of the DHCPServer, if its leases are kept there
    #[arg(
        long,
        value_name = "NAMESPACE",
        requires = "server",
        conflicts_with = "state_dir",
        global = true
    )]
    namespace: Option<String>,
    /// In a cluster: the name of the DHCPServer
    #[arg(long, value_name = "NAME", requires = "namespace", global = true)]
    server: Option<String>,
    /// How to show them
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    /// For people
    Table,
    /// For programs
    Json,
    /// For programs
    Yaml,
}

#[derive(Subcommand)]
enum Action {
    /// Free an address; the running server is asked to do it, or its resource is changed
    Release {
        /// The address
        address: Ipv4Addr,
    },
}

/// Shows or frees.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    match &args.action {
        Some(Action::Release { address }) => release(args, *address),
        None => show(args),
    }
}

fn release(args: &Args, address: Ipv4Addr) -> anyhow::Result<Outcome> {
    let released = match (&args.namespace, &args.server) {
        (Some(namespace), Some(server)) => block_on(async {
            let client = oooi_feed::cluster::connect().await?;
            let now = Timestamp::wall();
            Ok(oooi_feed::leases::release(client, namespace, server, address, now).await?)
        })?,
        _ => control::release(&args.state_dir, address).with_context(|| {
            format!(
                "no server answers in {}: is `oooi dhcp` running with this --state-dir?",
                args.state_dir.display()
            )
        })?,
    };
    if !released {
        bail!("nobody has {address}: `oooi leases` shows who has what");
    }
    println!("{address} is free");
    Ok(Outcome::Done)
}

fn show(args: &Args) -> anyhow::Result<Outcome> {
    let mut leases = match (&args.namespace, &args.server) {
        (Some(namespace), Some(server)) => block_on(async {
            let client = oooi_feed::cluster::connect().await?;
            Ok(oooi_feed::leases::list(client, namespace, server).await?)
        })?,
        _ => Journal::read(&args.state_dir)?,
    };
    leases.sort_by_key(|lease| lease.address);
    let now = Timestamp::wall();
    let rows: Vec<serde_json::Value> = leases.iter().map(|lease| row(lease, now)).collect();
    let document = json!({ "schemaVersion": 1, "leases": rows });
    match args.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&document)?),
        Output::Yaml => print!("{}", serde_saphyr::to_string(&document)?),
        Output::Table => table(&rows),
    }
    Ok(Outcome::Done)
}

fn row(lease: &Lease, now: Timestamp) -> serde_json::Value {
    let state = if lease.is_live(now) || lease.state != oooi_dhcp::lease::State::Bound {
        lease.state.label()
    } else {
        "expired"
    };
    json!({
        "address": lease.address,
        "mac": lease.mac.to_string(),
        "hostname": lease.host_name.as_deref(),
        "state": state,
        "since": moment(lease.since),
        "expires": moment(lease.expires),
    })
}

/// A moment to the second.
fn moment(at: Timestamp) -> String {
    let at = jiff::Timestamp::from(at);
    at.round(jiff::Unit::Second).unwrap_or(at).to_string()
}

fn table(rows: &[serde_json::Value]) {
    let columns = ["address", "mac", "hostname", "state", "expires"];
    let cell = |row: &serde_json::Value, column: &str| row[column].as_str().unwrap_or("-").to_owned();
    let width = |column: &str| {
        rows.iter()
            .map(|row| cell(row, column).len())
            .chain([column.len()])
            .max()
            .unwrap_or_default()
    };
    let line = |cells: Vec<String>| cells.join("  ").trim_end().to_owned();
    println!(
        "{}",
        line(
            columns
                .iter()
                .map(|c| format!("{:<1$}", c.to_uppercase(), width(c)))
                .collect()
        )
    );
    for row in rows {
        println!(
            "{}",
            line(
                columns
                    .iter()
                    .map(|c| format!("{:<1$}", cell(row, c), width(c)))
                    .collect()
            )
        );
    }
}
