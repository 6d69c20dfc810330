//! `oooi reference`: the pages of the documentation that the code itself writes.
//!
//! One page a kind from its schema, one of all commands from the command line's own parser, one of all metrics from
//! the registries of the servers and the manager. `make reference` keeps them in `docs/reference`.

mod commands;
mod metrics;
mod resources;

use std::path::PathBuf;

use anyhow::Context;

use crate::Outcome;

/// Write the reference pages of the documentation
#[derive(clap::Args)]
#[command(hide = true)]
pub(crate) struct Args {
    /// Where to write them
    #[arg(long, value_name = "DIR")]
    output_dir: PathBuf,
}

/// A file and its text.
type Page = (String, String);

/// Writes them.
pub(crate) fn run(args: &Args, command: clap::Command) -> anyhow::Result<Outcome> {
    std::fs::create_dir_all(&args.output_dir)
        .with_context(|| format!("{} cannot be made", args.output_dir.display()))?;
    for (name, text) in pages(command)? {
        let path = args.output_dir.join(name);
        std::fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(Outcome::Done)
}

fn pages(command: clap::Command) -> anyhow::Result<Vec<Page>> {
    let mut pages: Vec<Page> = oooi_api::definitions().iter().map(resources::page).collect();
    pages.push(("commands.md".to_owned(), commands::page(command)));
    pages.push(("metrics.md".to_owned(), metrics::page()?));
    Ok(pages)
}

/// Text as one cell of a table.
fn cell(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // What stands in angle brackets would be taken for a tag.
    line.replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn there_is_a_page_of_every_kind_of_all_commands_and_of_all_metrics() {
        let pages = pages(crate::Cli::command()).unwrap();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "infra.md",
                "dhcpserver.md",
                "dnsserver.md",
                "proxyserver.md",
                "dhcplease.md",
                "egressipam.md",
                "commands.md",
                "metrics.md"
            ]
        );
    }

    #[test]
    fn a_cell_is_one_line_that_breaks_no_table() {
        assert_eq!(cell("a | b\n  <c>"), "a \\| b &lt;c>");
    }
}
