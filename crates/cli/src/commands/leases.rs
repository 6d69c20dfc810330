//! `oooi leases`: who has which address.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Subcommand, ValueEnum};
use oooi_dhcp::lease::Lease;
use oooi_dhcp::ledger;
use oooi_dhcp::time::Timestamp;
use oooi_doctor::style::{Colour, Style};
use oooi_doctor::table::{Cell, table};
use serde_json::{Value, json};

use crate::{Outcome, block_on, terminal};

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

const NO_LEASES: &str = "the leases cannot be used: --state-dir is where `oooi dhcp` or `oooi up` keeps them";

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
            let client = connect(namespace, server).await?;
            let now = Timestamp::wall();
            Ok(oooi_feed::leases::release(client, namespace, server, address, now).await?)
        })?,
        _ => ledger::release(&args.state_dir, address, Timestamp::wall()).context(NO_LEASES)?,
    };
    if !released {
        bail!("nobody has {address}: `oooi leases` shows who has what");
    }
    println!("{address} is free");
    Ok(Outcome::Done)
}

fn show(args: &Args) -> anyhow::Result<Outcome> {
    let leases = match (&args.namespace, &args.server) {
        (Some(namespace), Some(server)) => block_on(async {
            let client = connect(namespace, server).await?;
            Ok(oooi_feed::leases::list(client, namespace, server).await?)
        })?,
        _ => ledger::list(&args.state_dir).context(NO_LEASES)?,
    };
    let now = Timestamp::wall();
    let rows: Vec<Value> = leases.iter().map(|lease| row(lease, now)).collect();
    match args.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&document(rows))?),
        Output::Yaml => print!("{}", serde_saphyr::to_string(&document(rows))?),
        Output::Table if rows.is_empty() => println!("nobody has an address yet"),
        Output::Table => print!("{}", screen(&rows, terminal::style())),
    }
    Ok(Outcome::Done)
}

/// The way to the cluster in which the leases of a DHCPServer are kept.
async fn connect(namespace: &str, server: &str) -> anyhow::Result<kube::Client> {
    let client = oooi_feed::cluster::connect().await?;
    oooi_feed::leases::are_shared(client.clone(), namespace, server).await?;
    Ok(client)
}

fn document(rows: Vec<Value>) -> Value {
    json!({ "schemaVersion": 1, "leases": rows })
}

fn row(lease: &Lease, now: Timestamp) -> Value {
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

fn screen(rows: &[Value], style: Style) -> String {
    let row = |row: &Value| {
        ["address", "mac", "hostname", "state", "expires"].map(|column| {
            let text = row[column].as_str().unwrap_or("-");
            match text {
                "bound" => Cell::coloured(Colour::Good, text),
                "declined" => Cell::coloured(Colour::Bad, text),
                "expired" | "released" => Cell::coloured(Colour::Faint, text),
                _ => text.into(),
            }
        })
    };
    let head = ["ADDRESS", "MAC", "HOSTNAME", "STATE", "EXPIRES"];
    table(style, head, rows.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use oooi_dhcp::lease::State;
    use oooi_dhcp::mac::Mac;

    use super::*;

    fn rows() -> Vec<Value> {
        let now: jiff::Timestamp = "2026-11-16T02:00:00Z".parse().unwrap();
        let now = Timestamp::from(now);
        let lease = |last: u8, name: Option<&str>, state, hours: u64| Lease {
            address: Ipv4Addr::new(192, 168, 100, last),
            mac: Mac([2, 0, 0, 0, 0, last]),
            id: [1, 2, 0, 0, 0, 0, last].into(),
            host_name: name.map(Into::into),
            machine: false,
            state,
            since: Timestamp(now.0 - 3_600_000),
            expires: Timestamp(now.0 - 3_600_000).after(Duration::from_secs(hours * 3600)),
        };
        let leases = [
            lease(100, Some("worker-1"), State::Bound, 2),
            lease(101, None, State::Bound, 1),
            lease(102, Some("worker-with-a-long-name"), State::Released, 0),
            lease(9, None, State::Declined, 24),
        ];
        leases.iter().map(|lease| row(lease, now)).collect()
    }

    #[test]
    fn leases_are_a_table_for_people_and_a_document_for_programs() {
        insta::assert_snapshot!("table", screen(&rows(), Style::default()));
        let style = Style {
            colours: true,
            width: Some(88),
        };
        insta::assert_snapshot!("table_on_a_narrow_terminal", screen(&rows(), style));
        insta::assert_snapshot!(
            "document",
            serde_json::to_string_pretty(&document(rows())).unwrap()
        );
    }
}
