//! `oooi dhcp`: one DHCP server.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use oooi_api::DhcpServer;
use oooi_dhcp::config::Config;
use oooi_dhcp::metrics::Metrics;
use oooi_dhcp::server::Feeds;
use oooi_dhcp::socket::Socket;
use oooi_dhcp::store::journal::Journal;
use oooi_dhcp::{control, server};
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use crate::input::Files;
use crate::observe::{self, Bind, LogReport};
use crate::{Outcome, block_on, until_signal};

/// Run one DHCP server from its own resource
///
/// The file is a DHCPServer. A change of it applies at once; one that is wrong is refused, and the last good one
/// stays. Leases are durable before they are acknowledged.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    files: Files,
    /// The interface on the VLAN
    #[arg(long, value_name = "IF")]
    interface: String,
    /// Where leases are kept
    #[arg(long, value_name = "DIR", default_value = "/var/lib/oooi")]
    state_dir: PathBuf,
    #[command(flatten)]
    bind: Bind,
}

/// Runs until a signal ends it.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    // A lease is synchronised in the thread that decides: one thread for all of it.
    block_on(serve(args))
}

async fn serve(args: &Args) -> anyhow::Result<Outcome> {
    let socket = Socket::open(&args.interface)?;
    let local = socket
        .addresses()
        .with_context(|| format!("the addresses of {} cannot be read", args.interface))?;
    let config = oooi_feed::follow(
        args.files.inputs(),
        move |documents| read(documents, &local),
        |_| {},
    )?;
    let store = Journal::open(&args.state_dir)?;
    let commands = control::listen(&args.state_dir)
        .with_context(|| format!("no commands can be taken in {}", args.state_dir.display()))?;
    // Machines are only known where there is a cluster; the sender is kept so that none are waited for.
    let (_machines, machines) = watch::channel(Arc::default());
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let feeds = Feeds {
        config,
        machines,
        commands,
    };
    let serving = server::run(socket, feeds, store, Arc::new(LogReport), metrics, until_signal());
    let registry = Arc::new(registry);
    let pages = args.bind.pages(move || observe::encode(&registry), || true);
    observe::beside(vec![pages], serving).await?;
    Ok(Outcome::Done)
}

fn read(
    documents: &[oooi_manifest::Document],
    local: &[Ipv4Addr],
) -> Result<Config, Vec<oooi_manifest::Mistake>> {
    let document = oooi_manifest::only(documents, "DHCPServer")?;
    let resource: DhcpServer = document.decode().map_err(|mistake| vec![mistake])?;
    Config::from_spec(&resource.spec, local).map_err(|found| {
        found
            .iter()
            .map(|m| document.mistake(&format!("spec.{}", m.path), &m.message))
            .collect()
    })
}
