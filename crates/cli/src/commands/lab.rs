//! `oooi lab`: the whole story on a laptop.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::ValueEnum;
use oooi_doctor::style::{Colour, Style};
use oooi_feed::{Inputs, Unreadable};
use oooi_manifest::Source;
use oooi_standalone::lab::{self, Outcome as LabOutcome, Step, Story, Tell};
use oooi_standalone::up;
use serde_json::json;

use crate::{Outcome, terminal, words};

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
    /// The manifest of an Infra of your own to run, instead of the lab's; the lab stands in for its control plane
    #[arg(long, value_name = "FILE")]
    infra: Option<PathBuf>,
    /// The data plane of the gateway
    #[arg(long, value_enum, default_value_t = Engine::Native)]
    engine: Engine,
    /// The Envoy to start; by default the one on the PATH
    #[arg(long, value_name = "PATH")]
    envoy: Option<PathBuf>,
    /// Leave everything running at the end, say how to enter the namespaces, and wait for Ctrl-C
    #[arg(long)]
    keep: bool,
    /// Print a report for programs instead of the story
    #[arg(long, value_enum)]
    report: Option<Report>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Engine {
    /// The built-in data plane
    Native,
    /// Envoy, started and configured over xDS
    Envoy,
}

#[derive(Clone, Copy, ValueEnum)]
enum Report {
    /// One JSON document
    Json,
}

/// Runs the lab.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let manifest = manifest(args)?;
    let engine = match args.engine {
        Engine::Native => up::Engine::Native,
        Engine::Envoy => up::Engine::Envoy(oooi_xds::supervisor::find(args.envoy.as_deref())?),
    };
    if !rustix::process::geteuid().is_root() {
        oooi_net::become_root_of_own_namespace().context(
            "the lab needs network namespaces: run it as root, or allow unprivileged user namespaces \
             (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces)",
        )?;
    }
    let tell: Box<dyn Tell> = match args.report {
        Some(Report::Json) => Box::new(Quiet),
        None => Box::new(Screen(terminal::style())),
    };
    let linger: Option<lab::Linger> = if args.keep { Some(Box::new(linger)) } else { None };
    let outcome = lab::run(
        lab::Options {
            manifest,
            engine,
            nodes: args.nodes,
            linger,
        },
        Story::new(tell),
    );
    let outcome = outcome.map_err(|error| match error {
        lab::Error::Manifest(mistakes) => Unreadable::Wrong(mistakes).into(),
        other => anyhow::Error::from(other),
    })?;
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

/// The manifest that was named, else the lab's own.
fn manifest(args: &Args) -> anyhow::Result<Arc<Source>> {
    let Some(file) = &args.infra else {
        return Ok(Source::new("lab.yaml", lab::MANIFEST));
    };
    let mut texts = Inputs::new(vec![file.clone()]).texts()?;
    match (texts.pop(), texts.is_empty()) {
        (Some(only), true) => Ok(only),
        _ => anyhow::bail!(
            "--infra takes one file with one Infra; {} holds several files",
            file.display()
        ),
    }
}

/// Says how to look around, and waits for somebody to have seen enough.
fn linger(namespaces: &[(String, std::path::PathBuf)]) {
    // In a user namespace of its own, whoever enters must enter that one as well.
    let user = format!(
        "--user=/proc/{}/ns/user --preserve-credentials ",
        std::process::id()
    );
    let user = if std::fs::read_to_string("/proc/self/setgroups").is_ok_and(|text| text.trim() == "deny") {
        &*user
    } else {
        ""
    };
    eprintln!("\neverything still runs; look around, then press Ctrl-C:");
    for (name, path) in namespaces {
        eprintln!("  {name:<10}  nsenter {user}--net={}", path.display());
    }
    let waited = crate::block_on(async {
        crate::until_signal().await;
        anyhow::Ok(())
    });
    if let Err(error) = waited {
        eprintln!("oooi: cannot wait for a signal: {}", words::of(&error));
    }
}

/// Tells nothing until the end.
struct Quiet;

impl Tell for Quiet {
    fn step(&mut self, _: &Step) {}
}

/// A line a step, as it happens.
struct Screen(Style);

impl Tell for Screen {
    fn step(&mut self, step: &Step) {
        println!("{}", line(step, self.0));
        // Somebody may be watching a pipe.
        let _ = std::io::stdout().flush();
    }
}

fn line(step: &Step, style: Style) -> String {
    let Step {
        actor,
        name,
        held,
        detail,
        milliseconds,
    } = step;
    let (mark, colour) = if *held {
        ("ok  ", Colour::Good)
    } else {
        ("FAIL", Colour::Bad)
    };
    let before = format!("{milliseconds:>6.1} ms  {actor:<6}  ");
    let mark = style.paint(colour, mark);
    let column = 5 + before.chars().count();
    let whole = format!("{mark} {before}{name:<48}  {detail}");
    // What fits stands in its column; what does not follows its step, on lines of its own.
    match style.width {
        Some(width) if column + name.chars().count().max(48) + 2 + detail.chars().count() > width => {
            let words = style.fold(&format!("{name}: {detail}"), column);
            format!("{mark} {before}{words}")
        }
        _ => whole.trim_end().to_owned(),
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
        "seconds": (outcome.took.as_secs_f64() * 1000.0).round() / 1000.0,
        "steps": outcome.steps,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn outcome() -> LabOutcome {
        let step = |actor: &str, name: &str, held, detail: &str, milliseconds| Step {
            actor: actor.into(),
            name: name.into(),
            held,
            detail: detail.into(),
            milliseconds,
        };
        LabOutcome {
            steps: vec![
                step(
                    "lab",
                    "a VLAN and a management network",
                    true,
                    "192.168.100.0/24",
                    12.3,
                ),
                step(
                    "node-1",
                    "gets an address by DHCP",
                    true,
                    "192.168.100.100",
                    204.7,
                ),
                step(
                    "node-1",
                    "opens TLS to api.lab.example.com:6443",
                    false,
                    "192.168.100.4:6443: connection reset: has the gateway a route for that name?",
                    1000.04,
                ),
                step("node-2", "resolves", true, "", 0.2),
            ],
            took: Duration::from_millis(2345),
        }
    }

    fn told(style: Style) -> String {
        let mut outcome = outcome();
        let lines: Vec<String> = outcome.steps.iter().map(|step| line(step, style)).collect();
        let failed = summary(&outcome);
        outcome.steps.retain(|step| step.held);
        format!("{}\n\n{failed}\n{}\n", lines.join("\n"), summary(&outcome))
    }

    #[test]
    fn a_step_is_a_line_and_the_end_a_summary() {
        insta::assert_snapshot!(told(Style::default()));
        insta::assert_snapshot!(
            "a_story_on_a_terminal",
            told(Style {
                colours: true,
                width: Some(80)
            })
        );
    }

    #[test]
    fn the_report_for_programs_has_every_step() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&document(&outcome())).unwrap());
    }
}
