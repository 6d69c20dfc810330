//! `oooi`: everything that a hosted cluster needs on its isolated VLAN, in one binary.
//!
//! Each command is a file under `commands/`; this file parses the command line, sets up logging and turns the
//! outcome into an exit code.

mod commands;
mod input;
mod logging;
mod observe;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// What a script can tell from the way a command ended; wrong usage is told by clap, with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It did what it was asked to.
    Done,
    /// It ran, and what it tried did not hold.
    Failed,
    /// The command line or a manifest is wrong.
    Invalid,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        ExitCode::from(match outcome {
            Outcome::Done => 0,
            Outcome::Failed => 1,
            Outcome::Invalid => 2,
        })
    }
}

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("OOOI_COMMIT"), ")");

/// DHCP, split-horizon DNS and an SNI gateway for hosted control planes on isolated VLANs.
#[derive(Parser)]
#[command(name = "oooi", version = VERSION, disable_help_subcommand = true, after_help = "\
Exit codes: 0 done; 1 it failed; 2 wrong usage or an invalid manifest; 3 something needs attention.")]
struct Cli {
    #[command(flatten)]
    logging: logging::Options,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Up(commands::up::Args),
    Lab(commands::lab::Args),
    Check(commands::check::Args),
    Crds(commands::crds::Args),
    Completions(commands::completions::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let tells_a_story = matches!(cli.command, Command::Lab(_));
    logging::start(&cli.logging, if tells_a_story { "warn" } else { "info" });
    // Two providers of cryptography in one process would panic at the first handshake: there is one, named here.
    // It fails only if one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let outcome = match cli.command {
        Command::Up(args) => commands::up::run(&args),
        Command::Lab(args) => commands::lab::run(&args),
        Command::Check(args) => commands::check::run(&args),
        Command::Crds(args) => commands::crds::run(&args),
        Command::Completions(args) => commands::completions::run(&args, &mut Cli::command()),
    };
    match outcome {
        Ok(outcome) => outcome.into(),
        Err(error) => {
            // The whole chain on one line: what failed, and why.
            eprintln!("oooi: {error:#}");
            ExitCode::FAILURE
        }
    }
}
