//! All commands, as their own help says.

use std::fmt::Write;

use clap::{Command, Id};

/// Columns of the help on a page.
const WIDTH: usize = 100;

const HEAD: &str = "\
# Commands

<!-- Written by `make reference`. -->

What `--help` of each command says. Every command also takes the options of `oooi` itself, which are shown once.
";

/// The page.
pub(super) fn page(command: Command) -> String {
    let mut page = HEAD.to_owned();
    let mut command = command.term_width(WIDTH);
    command.build();
    let common: Vec<Id> = command
        .get_arguments()
        .map(|argument| argument.get_id().clone())
        .collect();
    section(&mut command, &[], &mut page);
    for below in command.get_subcommands_mut() {
        section_with_those_below(below, &common, &mut page);
    }
    page
}

fn section_with_those_below(command: &mut Command, common: &[Id], page: &mut String) {
    if command.is_hide_set() {
        return;
    }
    section(command, common, page);
    for below in command.get_subcommands_mut() {
        section_with_those_below(below, common, page);
    }
}

/// A command, without the options that all of them have.
fn section(command: &mut Command, common: &[Id], page: &mut String) {
    *command = command.clone().mut_args(|argument| {
        let is_common = common.contains(argument.get_id());
        // What a variable holds here and now is nobody's business.
        argument.hide_env_values(true).hide(is_common)
    });
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let help = command.render_long_help().to_string();
    // Writing to a string cannot fail.
    let _ = write!(page, "\n## {name}\n\n```text\n");
    for line in help.trim_end().lines() {
        let _ = writeln!(page, "{}", line.trim_end());
    }
    page.push_str("```\n");
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_command_that_is_shown_has_a_section_and_those_below_it_too() {
        let page = page(crate::Cli::command());
        for name in ["oooi", "oooi manager", "oooi lab", "oooi leases release"] {
            assert!(page.contains(&format!("\n## {name}\n")), "{name}");
        }
        assert!(!page.contains("oooi reference"), "a hidden command is not shown");
        assert_eq!(
            page.matches("--log-format").count(),
            1,
            "what all have is shown once"
        );
    }
}
