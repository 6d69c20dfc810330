//! `oooi lab`: the whole story on a laptop.

use std::io::{IsTerminal, Write};

use anyhow::Context;
use clap::ValueEnum;
use oooi_standalone::lab::{self, Outcome as LabOutcome, Step, Story, Tell};
use serde_json::json;

use crate::Outcome;

/// Build an isolated VLAN in network namespaces and boot nodes through it
///
/// TLS servers stand in for a control plane on a network that the VLAN cannot reach. DHCP, DNS and the gateway run
/// between the two from one manifest, and every node boots through them by wire. Works as root and, where the
/// kernel allows user namespaces, as anybody. Nothing is left behind, however it ends.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many nodes boot
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=50))]
    nodes: u8,
    /// Print a report for programs instead of the story
    #[arg(long, value_enum)]
    report: Option<Report>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Report {
    /// One JSON document
    Json,
}

/// Runs the lab.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    if !rustix::process::geteuid().is_root() {
        oooi_net::become_root_of_own_namespace().context(
            "the lab needs network namespaces: run it as root, or allow unprivileged user namespaces \
             (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces)",
        )?;
    }
    let tell: Box<dyn Tell> = match args.report {
        Some(Report::Json) => Box::new(Quiet),
        None => Box::new(Screen { colours: colours() }),
    };
    let outcome = lab::run(&lab::Options { nodes: args.nodes }, Story::new(tell))?;
    match args.report {
        Some(Report::Json) => println!("{}", serde_json::to_string_pretty(&document(&outcome))?),
        None => println!("\n{}", summary(&outcome)),
    }
    Ok(if outcome.held() {
        Outcome::Done
    } else {
        Outcome::Failed
    })
}

fn colours() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Tells nothing until the end.
struct Quiet;

impl Tell for Quiet {
    fn step(&mut self, _: &Step) {}
}

/// A line a step, as it happens.
struct Screen {
    colours: bool,
}

impl Tell for Screen {
    fn step(&mut self, step: &Step) {
        let (mark, colour) = if step.held { ("ok", "32") } else { ("FAILED", "31") };
        let mark = if self.colours {
            format!("\x1b[{colour}m{mark}\x1b[0m")
        } else {
            mark.to_owned()
        };
        let Step {
            actor,
            name,
            detail,
            milliseconds,
            ..
        } = step;
        println!("{actor:<7} {name:<52} {mark} {milliseconds:>8.1} ms  {detail}");
        // Somebody may be watching a pipe.
        let _ = std::io::stdout().flush();
    }
}

fn summary(outcome: &LabOutcome) -> String {
    let total = outcome.steps.len();
    let held = outcome.steps.iter().filter(|step| step.held).count();
    let took = outcome.took.as_secs_f64();
    match outcome.steps.iter().find(|step| !step.held) {
        None => format!("all {total} steps held, in {took:.1} s"),
        Some(first) => {
            format!(
                "{held} of {total} steps held, in {took:.1} s; the first that did not: {}: {}",
                first.actor, first.name
            )
        }
    }
}

fn document(outcome: &LabOutcome) -> serde_json::Value {
    json!({
        "schemaVersion": 1,
        "held": outcome.held(),
        "seconds": outcome.took.as_secs_f64(),
        "steps": outcome.steps,
    })
}
