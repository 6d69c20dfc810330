//! Runs an Envoy beside the control plane, and starts it again when it ends.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oooi_api::proxy_server::LogLevel;
use oooi_api::report::{Event, Report};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::admin::Admin;
use crate::bootstrap::{Bootstrap, arguments};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// An Envoy that ran this long was well: the next pause is short again.
const WELL: Duration = Duration::from_secs(60);
/// The time to end on request before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// Why there is no Envoy to run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is nowhere on the PATH.
    #[error("no `envoy` on the PATH: install Envoy, pass its path by --envoy, or use --engine native")]
    NotFound,
    /// The path that was given is no file.
    #[error("{0} is not a file: pass the path of an Envoy binary by --envoy")]
    NoFile(PathBuf),
}

/// Finds the binary: the given path, else `envoy` on the PATH.
pub fn find(given: Option<&Path>) -> Result<PathBuf, Error> {
    match given {
        Some(path) if path.is_file() => Ok(path.to_owned()),
        Some(path) => Err(Error::NoFile(path.to_owned())),
        None => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let found = std::env::split_paths(&path)
                .map(|folder| folder.join("envoy"))
                .find(|file| file.is_file());
            found.ok_or(Error::NotFound)
        }
    }
}

/// An Envoy to be run.
#[derive(Debug, Clone)]
pub struct Supervisor {
    /// The binary.
    pub binary: PathBuf,
    /// Who it is and where its configuration comes from.
    pub bootstrap: Bootstrap,
    /// Worker threads; Envoy's own choice is one a core.
    pub threads: Option<usize>,
    /// How long Envoy keeps connections whose listener or filter chain is gone; usually
    /// [`DRAIN_TIME`](crate::bootstrap::DRAIN_TIME).
    pub drain_time: Duration,
}

impl Supervisor {
    /// Keeps it running until `shutdown` is ready. A change of `log_level` applies at once.
    pub async fn run(
        &self,
        log_level: watch::Receiver<LogLevel>,
        report: Arc<dyn Report>,
        shutdown: impl Future<Output = ()>,
    ) {
        tokio::pin!(shutdown);
        let mut pause = FIRST_PAUSE;
        loop {
            let start = Instant::now();
            let mut levels = log_level.clone();
            let level = *levels.borrow_and_update();
            let ended = match self.command(level).spawn() {
                Ok(mut child) => tokio::select! {
                    () = &mut shutdown => return stop(child).await,
                    () = self.follow_level(levels) => return stop(child).await,
                    status = child.wait() => describe(status),
                },
                Err(error) => format!("{} could not be started: {error}", self.binary.display()),
            };
            if start.elapsed() > WELL {
                pause = FIRST_PAUSE;
            }
            let message = format!("{ended}; it is started again in {pause:?}");
            report.event(Event::warning("EnvoyEnded", message));
            tokio::select! {
                () = &mut shutdown => return,
                () = sleep(pause) => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn command(&self, level: LogLevel) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .arg("--config-yaml")
            .arg(self.bootstrap.document().to_string())
            .args(arguments(level, self.drain_time))
            // Standard output belongs to whoever started this program; what Envoy has to say is a log.
            .stdout(std::io::stderr());
        if let Some(threads) = self.threads {
            command.arg("--concurrency").arg(threads.to_string());
        }
        command.kill_on_drop(true);
        // However this process ends, its Envoy ends with it.
        // SAFETY: between fork and exec the closure makes one system call and touches no memory of the parent.
        #[allow(
            unsafe_code,
            reason = "there is no safe way to ask for a signal at the parent's death"
        )]
        unsafe {
            command.pre_exec(|| {
                let signal = rustix::process::Signal::KILL;
                Ok(rustix::process::set_parent_process_death_signal(Some(signal))?)
            });
        }
        command
    }

    /// Tells Envoy each new level, again and again while it does not listen yet. Never ends while levels may come.
    async fn follow_level(&self, mut levels: watch::Receiver<LogLevel>) {
        while levels.changed().await.is_ok() {
            let mut told = false;
            loop {
                let level = *levels.borrow_and_update();
                let Err(error) = Admin(self.bootstrap.admin).set_log_level(level).await else {
                    break;
                };
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(%error, "the log level of Envoy stays as it was until it takes another");
                }
                sleep(FIRST_PAUSE).await;
            }
        }
        std::future::pending::<()>().await;
    }
}

async fn stop(mut child: Child) {
    let pid = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    if timeout(GRACE, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

fn describe(status: std::io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => format!("Envoy ended ({status})"),
        Err(error) => format!("Envoy was lost: {error}"),
    }
}
