//! `oooi man`: manual pages.

use std::path::PathBuf;

use anyhow::Context;

use crate::Outcome;

/// Print the manual page, or write one for every command
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to write the pages: oooi.1, oooi-up.1 and so on
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
}

/// Prints or writes them.
pub(crate) fn run(args: &Args, command: clap::Command) -> anyhow::Result<Outcome> {
    match &args.output_dir {
        None => clap_mangen::Man::new(command).render(&mut std::io::stdout())?,
        Some(directory) => {
            let unwritable = || format!("manual pages cannot be written to {}", directory.display());
            std::fs::create_dir_all(directory).with_context(unwritable)?;
            clap_mangen::generate_to(command, directory).with_context(unwritable)?;
        }
    }
    Ok(Outcome::Done)
}
