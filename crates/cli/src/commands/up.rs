//! `oooi up`: an Infra without Kubernetes.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use oooi_plan::Known;
use oooi_standalone::addresses::Addresses;
use oooi_standalone::desired::Desired;
use oooi_standalone::up;
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::input::Files;
use crate::observe::{self, Bind};
use crate::{Outcome, block_on, until_signal};

/// Run the DHCP server, the DNS server and the gateway of an Infra in this process, without Kubernetes
///
/// The file is the Infra that the operator takes. Beside it may stand the Services and EndpointSlices of the control
/// plane, and the VirtualMachineInstances that are its nodes. A server that fails is started again while the others go
/// on; the exit code is 1 if one does not run at the end. A change of the file applies at once; one that is wrong is
/// refused, and the last good one stays.
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
    let mut addresses = Addresses::on(&args.interface);
    let wanted = desired.borrow().addresses.clone();
    if let Err(error) = addresses.have(&wanted).await {
        addresses.remove().await;
        return Err(error.into());
    }
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
        tokio::select! {
            () = until_signal() => {}
            () = follow(&mut addresses, desired) => {}
        }
        anyhow::Ok(())
    };
    let ended = observe::beside(vec![pages], waiting).await;
    info!("ending");
    let failed = failing.now();
    tokio::task::spawn_blocking(move || running.stop()).await?;
    addresses.remove().await;
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

/// Keeps the servers' addresses on the interface as the manifest changes, for ever. A server without its address is
/// one that fails.
async fn follow(addresses: &mut Addresses, mut desired: watch::Receiver<Arc<Desired>>) {
    while desired.changed().await.is_ok() {
        let wanted = desired.borrow_and_update().addresses.clone();
        if let Err(error) = addresses.have(&wanted).await {
            error!("{error}");
        }
    }
    std::future::pending::<()>().await;
}
