//! `oooi up`: an Infra without Kubernetes.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use oooi_net::Network;
use oooi_plan::Known;
use oooi_standalone::desired::Desired;
use oooi_standalone::up;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::input::Files;
use crate::observe::{self, Bind};
use crate::{Outcome, block_on, until_signal};

/// Run the DHCP server, the DNS server and the gateway of an Infra in this process, without Kubernetes
///
/// The file is the Infra that the operator takes. Beside it may stand the Services and EndpointSlices of the control
/// plane, and the VirtualMachineInstances that are its nodes. A server that fails is started again while the others go
/// on; the exit code is 1 if one does not run at the end. A change of the file applies at once; one that is wrong is refused, and the last good one stays.
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
    block_on(serve(args))
}

async fn serve(args: &Args) -> anyhow::Result<Outcome> {
    // Addresses that were chosen stay chosen: each reading starts from what the last one planned.
    let known = Mutex::new(Known::default());
    let build = move |documents: &[oooi_manifest::Document]| {
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let desired = Desired::read(documents, &known)?;
        *known = Known::after(&desired.components);
        Ok(desired)
    };
    let desired = oooi_feed::follow(args.files.inputs(), build, |_| {})?;
    for warning in &desired.borrow().components.warnings {
        warn!(path = warning.path, "{}", warning.message);
    }
    let added = add_addresses(&desired, &args.interface).await?;
    let metrics = Arc::<up::Metrics>::default();
    let failing = up::Failing::default();
    let options = up::Options {
        interface: args.interface.clone(),
        state: args.state_dir.clone(),
        report: Arc::new(observe::LogReport),
        metrics: metrics.clone(),
        engine: up::Engine::Native,
        failing: failing.clone(),
    };
    let running = up::start(&desired, &options).context("the servers cannot be started")?;
    let probed = failing.clone();
    let pages = args
        .bind
        .pages(move || metrics.encode(), move || probed.now().is_empty());
    let waiting = async {
        until_signal().await;
        anyhow::Ok(())
    };
    let ended = observe::beside(vec![pages], waiting).await;
    info!("ending");
    let failed = failing.now();
    tokio::task::spawn_blocking(move || running.stop()).await?;
    remove_addresses(&args.interface, &added).await;
    ended?;
    if failed.is_empty() {
        return Ok(Outcome::Done);
    }
    let said: Vec<String> = failed
        .iter()
        .map(|(server, why)| format!("{server}: {why}"))
        .collect();
    bail!("not every server ran at the end: {}", said.join("; "))
}

/// Puts the servers' addresses on the interface, and says which ones. Without the right to do so they must be there.
async fn add_addresses(
    desired: &watch::Receiver<Arc<Desired>>,
    interface: &str,
) -> anyhow::Result<Vec<Ipv4Addr>> {
    let desired = desired.borrow().clone();
    let missing = up::missing_addresses(&desired, interface).await?;
    let network = Network::open()?;
    let mut added = Vec::new();
    for address in desired
        .addresses
        .iter()
        .filter(|net| missing.contains(&net.addr()))
    {
        match network.add_address(interface, *address).await {
            Ok(()) => added.push(address.addr()),
            Err(error) if error.is_there_already() => {}
            Err(error) if error.is_permission() => {
                let wanted: Vec<String> = missing
                    .iter()
                    .map(|a| format!("ip address add {a}/{} dev {interface}", address.prefix_len()))
                    .collect();
                bail!(
                    "the servers' addresses are not on {interface}, and adding them needs CAP_NET_ADMIN: {}",
                    wanted.join("; ")
                );
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(added)
}

async fn remove_addresses(interface: &str, added: &[Ipv4Addr]) {
    let Ok(network) = Network::open() else { return };
    for address in added {
        if let Err(error) = network.remove_address(interface, *address).await {
            warn!(%address, interface, %error, "the address stays on the interface");
        }
    }
}
