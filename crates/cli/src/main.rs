//! `oooi`: everything that a hosted cluster needs on its isolated VLAN, in one binary.
//!
//! Each command is a file under `commands/`; this file parses the command line, sets up logging and turns the
//! outcome into an exit code.

mod cluster;
mod commands;
mod diff;
mod input;
mod logging;
mod observe;
mod own;
mod terminal;
mod words;

use std::net::IpAddr;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use oooi_feed::Unreadable;
use tokio::signal::unix::{SignalKind, signal};

/// What a script can tell from the way a command ended; wrong usage is told by clap, with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It did what it was asked to.
    Done,
    /// It ran, and what it tried did not hold.
    Failed,
    /// The command line or a manifest is wrong.
    Invalid,
    /// It works, but something needs attention.
    Attention,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        ExitCode::from(match outcome {
            Outcome::Done => 0,
            Outcome::Failed => 1,
            Outcome::Invalid => 2,
            Outcome::Attention => 3,
        })
    }
}

/// musl's own lets threads wait for each other, and glibc's leaves holes between short-lived and kept blocks: with this one
/// a cache of ten thousand names takes a third of the memory. It would ask the kernel for huge pages: each of its few small
/// areas would then take two mebibytes (docs/performance.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    Manager(commands::manager::Args),
    Up(commands::up::Args),
    Dhcp(commands::dhcp::Args),
    Dns(commands::dns::Args),
    Proxy(commands::proxy::Args),
    Route(commands::route::Args),
    Leases(commands::leases::Args),
    Lab(commands::lab::Args),
    Doctor(commands::doctor::Args),
    Status(commands::status::Args),
    Check(commands::check::Args),
    Plan(commands::plan::Args),
    Crds(commands::crds::Args),
    Completions(commands::completions::Args),
    Man(commands::man::Args),
    Reference(commands::reference::Args),
}

fn main() -> ExitCode {
    let cli = read_command_line();
    let tells_a_story = matches!(
        cli.command,
        Command::Lab(_) | Command::Doctor(_) | Command::Status(_)
    );
    logging::start(&cli.logging, if tells_a_story { "warn" } else { "info" });
    // Two providers of cryptography in one process would panic at the first handshake: there is one, named here.
    // It fails only if one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let outcome = match cli.command {
        Command::Manager(args) => apart(|| commands::manager::run(&args)),
        Command::Up(args) => apart(|| commands::up::run(&args)),
        Command::Dhcp(args) => apart(|| commands::dhcp::run(&args)),
        Command::Dns(args) => apart(|| commands::dns::run(&args)),
        Command::Proxy(args) => apart(|| commands::proxy::run(&args)),
        Command::Route(args) => apart(|| commands::route::run(&args)),
        Command::Leases(args) => apart(|| commands::leases::run(&args)),
        Command::Doctor(args) => apart(|| commands::doctor::run(&args)),
        Command::Status(args) => apart(|| commands::status::run(&args)),
        Command::Lab(args) => apart(|| commands::lab::run(&args)),
        Command::Check(args) => apart(|| commands::check::run(&args)),
        Command::Plan(args) => apart(|| commands::plan::run(&args)),
        Command::Crds(args) => apart(|| commands::crds::run(&args)),
        Command::Man(args) => apart(|| commands::man::run(&args, Cli::command())),
        Command::Reference(args) => apart(|| commands::reference::run(&args, Cli::command())),
        Command::Completions(args) => apart(|| commands::completions::run(&args, &mut Cli::command())),
    };
    match outcome {
        Ok(outcome) => outcome.into(),
        Err(error) => failed(&error),
    }
}

/// Runs a command in a frame of its own. All of them together would take the stack of the largest, 730 KiB, and a server would
/// keep it: large frames are touched page by page.
#[inline(never)]
fn apart(command: impl FnOnce() -> anyhow::Result<Outcome>) -> anyhow::Result<Outcome> {
    command()
}

/// On a thread of its own: to build and read all commands takes half a mebibyte of stack, which a server would keep for as
/// long as it runs.
fn read_command_line() -> Cli {
    let reader = std::thread::spawn(Cli::parse);
    reader
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Says what failed. A manifest that is wrong is shown with all its mistakes.
fn failed(error: &anyhow::Error) -> ExitCode {
    match error.downcast_ref() {
        Some(Unreadable::Wrong(mistakes)) => {
            for mistake in mistakes {
                eprintln!("{}\n", mistake.with_snippet());
            }
            Outcome::Invalid.into()
        }
        Some(unreadable) => {
            eprintln!("oooi: {unreadable}");
            Outcome::Invalid.into()
        }
        None => {
            eprintln!("oooi: {}", words::of(error));
            Outcome::Failed.into()
        }
    }
}

/// Runs a command's work on this thread. Servers that want more threads start them.
pub(crate) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work)
}

/// Those of the addresses that nobody asked for by --listen: the resource's own, on the VLAN.
pub(crate) fn addresses_on_vlan(all: &[IpAddr], asked: &[IpAddr]) -> Vec<IpAddr> {
    let own = all.iter().filter(|address| !asked.contains(address));
    own.copied().collect()
}

/// Ends when somebody asks the process to end.
pub(crate) async fn until_signal() {
    let wait = |kind| async move {
        match signal(kind) {
            Ok(mut signal) => drop(signal.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = wait(SignalKind::interrupt()) => {}
        () = wait(SignalKind::terminate()) => {}
    }
}
