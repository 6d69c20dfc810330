//! `oooi doctor`: why does a node not boot?

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use oooi_doctor::expected::Expected;
use oooi_doctor::report::{Report, State};
use oooi_doctor::{diagnose, probe};
use oooi_feed::Inputs;
use oooi_plan::Known;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::cluster::{self, Place};
use crate::{Outcome, block_on, terminal};

/// Act as a booting node and say which step fails, why, and what to do
///
/// Looks from where it runs: link, DHCP, packet sizes, DNS, and TLS to each service of the control plane. Without an
/// Infra it knows what the lease says. An interface that has an address is used as it is, and no lease is taken; one
/// that has none gets a lease, which is given back at the end. With --cluster alone it looks at the cluster only; with
/// --interface as well, at both.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The interface on the VLAN; by default the only one that there is
    #[arg(long, value_name = "IF")]
    interface: Option<String>,
    /// The manifest of the Infra that should be there; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "cluster")]
    infra: Option<PathBuf>,
    /// The name of the Infra in a cluster
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    #[command(flatten)]
    place: Place,
    /// The certificate authority of the control plane as PEM: certificates are verified against it
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Output::Tree)]
    output: Output,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    /// For people
    Tree,
    /// For programs
    Json,
}

/// Looks, and shows what was found.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let report = block_on(look(args))?;
    match args.output {
        Output::Tree => print!("{}", report.text(terminal::style())),
        Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
    }
    Ok(match report.state {
        State::Ok | State::Skipped => Outcome::Done,
        State::Warning => Outcome::Attention,
        State::Failure => Outcome::Failed,
    })
}

async fn look(args: &Args) -> anyhow::Result<Report> {
    let mut checks = Vec::new();
    let mut expected = args.infra.as_deref().map(read).transpose()?;
    if let Some(name) = &args.cluster {
        let client = oooi_feed::cluster::connect().await?;
        let infra = cluster::infra(&client, args.place.namespace(&client), name).await?;
        let inventory = cluster::inventory(&client, infra).await?;
        let components = cluster::components(&inventory)?;
        checks.extend(diagnose::cluster::diagnose(&inventory, &components));
        expected = Some(Expected::of(&components));
    }
    if args.cluster.is_none() || args.interface.is_some() {
        let options = probe::Options {
            interface: args.interface.clone(),
            expected,
            authority: args.ca.as_deref().map(authority).transpose()?,
        };
        checks.extend(probe::run(options).await?);
    }
    Ok(Report::new(checks))
}

/// What the Infra of a file means.
fn read(file: &Path) -> anyhow::Result<Expected> {
    let documents = Inputs::new(vec![file.to_owned()]).documents()?;
    let document = oooi_manifest::only(&documents, "Infra").map_err(oooi_feed::Unreadable::Wrong)?;
    let wrong = |mistakes| oooi_feed::Unreadable::Wrong(mistakes);
    let infra = document.decode().map_err(|mistake| wrong(vec![mistake]))?;
    let components = oooi_plan::plan(&infra, &Known::default()).map_err(|mistakes| {
        wrong(
            mistakes
                .iter()
                .map(|m| document.mistake(&m.path, &m.message))
                .collect(),
        )
    })?;
    Ok(Expected::of(&components))
}

fn authority(file: &Path) -> anyhow::Result<RootCertStore> {
    let unusable = || format!("{} holds no certificate authority as PEM", file.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).with_context(unusable)? {
        roots
            .add(certificate.with_context(unusable)?)
            .with_context(unusable)?;
    }
    anyhow::ensure!(!roots.is_empty(), unusable());
    Ok(roots)
}
