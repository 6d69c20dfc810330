//! `testbed`: a real Kubernetes for a test run, or for a person.
//!
//! `testbed run -- COMMAND` starts a testbed, names it to the command by `OOOI_TESTBED`, and ends it
//! with the command, whose exit status it passes on. `testbed up` leaves one running, `testbed status`
//! lists what runs, `testbed down` ends what `up` left.

use std::{
    fs::File,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use oooi_testkit::{Cluster, Live, Node, SHARED, live, spawn, sweep, until};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::signal::unix::{SignalKind, signal};

/// A real Kubernetes for a test run, or for a person.
#[derive(Parser)]
#[command(name = "testbed")]
struct Cli {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Starts a testbed, runs a command with it, ends it (for a shell of your own use `up`)
    Run {
        #[command(flatten)]
        size: Size,
        /// The command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Starts a testbed and leaves it running
    Up {
        #[command(flatten)]
        size: Size,
    },
    /// Ends the testbeds that `up` left running
    Down,
    /// Lists the testbeds that run
    Status,
    /// Holds a testbed until it is told to end; `up` starts it
    #[command(hide = true)]
    Hold {
        #[command(flatten)]
        size: Size,
    },
}

#[derive(Args, Clone, Copy)]
struct Size {
    /// Also a node with a VLAN (needs root)
    #[arg(long)]
    node: bool,
}

/// A testbed of either size, owned by this process.
enum Testbed {
    Cluster(Cluster),
    Node(Node),
}

impl Testbed {
    async fn start(size: Size) -> Result<Self, oooi_testkit::Error> {
        Ok(if size.node {
            Self::Node(Node::start().await?)
        } else {
            Self::Cluster(Cluster::start().await?)
        })
    }

    fn state(&self) -> &Path {
        match self {
            Self::Cluster(cluster) => cluster.state(),
            Self::Node(node) => node.state(),
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Action::Run { size, command } => run(size, &command).await,
        Action::Up { size } => up(size).await,
        Action::Down => down().await,
        Action::Status => status(),
        Action::Hold { size } => hold(size).await,
    };
    result.unwrap_or_else(|error| {
        eprintln!("testbed: {error:#}");
        ExitCode::FAILURE
    })
}

/// Runs a command with a testbed. A signal to end is passed on to the command's process group.
async fn run(size: Size, command: &[String]) -> Result<ExitCode> {
    let mut ending = Ending::new()?;
    let testbed = tokio::select! {
        started = Testbed::start(size) => started?,
        () = ending.wanted() => return Ok(ExitCode::FAILURE),
    };
    let [program, arguments @ ..] = command else {
        bail!("no command")
    };
    let mut command = Command::new(program);
    command.args(arguments).env(SHARED, testbed.state());
    let mut child = spawn(command).with_context(|| format!("cannot run {program}"))?;
    let group = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .context("a process without an id")?;
    let mut ended = tokio::task::spawn_blocking(move || child.wait());
    let status = tokio::select! {
        status = &mut ended => status??,
        () = ending.wanted() => {
            kill_process_group(group, Signal::TERM).context("cannot end the command")?;
            ended.await??
        }
    };
    // As a shell says it: 128 and the number of the signal.
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Starts a process that holds a testbed and outlives this one; waits until the testbed is up.
async fn up(size: Size) -> Result<ExitCode> {
    if let Some(held) = held()?.first() {
        println!("already up:");
        show(held);
        return Ok(ExitCode::SUCCESS);
    }
    let log = std::env::temp_dir().join(format!("testbed-up-{}.log", std::process::id()));
    let output = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("hold").args(size.node.then_some("--node"));
    command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .process_group(0);
    let mut holder = command.spawn().context("cannot start the holder")?;
    let owner = holder.id();
    let started = until("the testbed", Duration::from_secs(300), async || {
        if let Ok(Some(status)) = holder.try_wait() {
            return Ok(Err(status));
        }
        let found = live().map_err(|error| error.to_string())?;
        let found = found
            .into_iter()
            .find(|live| live.owner == owner && live.kubeconfig().is_some());
        found.map(Ok).ok_or_else(|| "not up yet".to_owned())
    });
    let started = started.await;
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    std::fs::remove_file(&log).with_context(|| format!("cannot remove {}", log.display()))?;
    match started? {
        Ok(live) => {
            show(&live);
            Ok(ExitCode::SUCCESS)
        }
        Err(status) => bail!("the testbed did not start ({status})\n{said}"),
    }
}

/// Marks a testbed that `up` left; `down` ends no other.
const HELD: &str = "held";

fn held() -> Result<Vec<Live>> {
    Ok(live()?
        .into_iter()
        .filter(|live| live.path.join(HELD).exists())
        .collect())
}

/// Holds a testbed until a signal says to end it.
async fn hold(size: Size) -> Result<ExitCode> {
    let mut ending = Ending::new()?;
    tokio::select! {
        testbed = Testbed::start(size) => {
            let testbed = testbed?;
            std::fs::write(testbed.state().join(HELD), "")?;
            ending.wanted().await;
        }
        () = ending.wanted() => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Ends what `up` left, and removes what a killed testbed left.
async fn down() -> Result<ExitCode> {
    sweep()?;
    let held = held()?;
    if held.is_empty() {
        println!("no testbed is up");
    }
    for live in held {
        let owner = i32::try_from(live.owner)
            .ok()
            .and_then(Pid::from_raw)
            .context("a broken state directory")?;
        kill_process(owner, Signal::TERM).with_context(|| format!("cannot end process {}", live.owner))?;
        until("the testbed to end", Duration::from_secs(60), async || {
            if live.path.exists() {
                Err(live.path.display().to_string())
            } else {
                Ok(())
            }
        })
        .await?;
        println!("{} is down", live.name);
    }
    Ok(ExitCode::SUCCESS)
}

fn status() -> Result<ExitCode> {
    let found = live()?;
    if found.is_empty() {
        println!("no testbed runs; start one with `make testbed-up`");
    }
    found.iter().for_each(show);
    Ok(ExitCode::SUCCESS)
}

fn show(live: &Live) {
    let Some(kubeconfig) = live.kubeconfig() else {
        println!("{} (process {}) is starting", live.name, live.owner);
        return;
    };
    println!("{} (process {}) is up", live.name, live.owner);
    println!("  export KUBECONFIG={}", kubeconfig.display());
    println!("  export {SHARED}={}", live.path.display());
    if let Some(kubectl) = kubectl() {
        println!("  kubectl: {}", kubectl.display());
        let mut command = Command::new(kubectl);
        command
            .args(["--request-timeout=5s", "get", "nodes"])
            .env("KUBECONFIG", kubeconfig)
            .env("KUBECACHEDIR", live.path.join("kubectl"));
        let answer = command
            .output()
            .map(|output| [output.stdout, output.stderr].concat())
            .unwrap_or_default();
        for line in String::from_utf8_lossy(&answer).lines() {
            println!("  {line}");
        }
    }
}

fn kubectl() -> Option<PathBuf> {
    Some(oooi_testkit::Parts::find().ok()?.program("kubectl"))
}

/// The signals by which a person or a supervisor ends a program. Caught, so that destructors run.
struct Ending {
    signals: [tokio::signal::unix::Signal; 3],
}

impl Ending {
    fn new() -> Result<Self> {
        let [a, b, c] = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ]
        .map(signal);
        Ok(Self {
            signals: [a?, b?, c?],
        })
    }

    async fn wanted(&mut self) {
        let [a, b, c] = &mut self.signals;
        tokio::select! { _ = a.recv() => {}, _ = b.recv() => {}, _ = c.recv() => {} }
    }
}
