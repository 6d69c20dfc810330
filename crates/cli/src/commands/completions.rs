//! `oooi completions`: completions for shells.

use clap_complete::Shell;

use crate::Outcome;

/// Print the completions of a shell
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

/// Prints them.
pub(crate) fn run(args: &Args, command: &mut clap::Command) -> anyhow::Result<Outcome> {
    clap_complete::generate(args.shell, command, "oooi", &mut std::io::stdout());
    Ok(Outcome::Done)
}
