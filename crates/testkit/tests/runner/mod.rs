//! Looking at a test runner from outside: what it started, and what is left of it.
#![allow(clippy::unwrap_used, reason = "these are parts of tests")]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::Child,
    time::Duration,
};

use oooi_testkit::until;

/// The command lines of all living processes that name this state directory.
pub(crate) fn processes_of(state: &Path) -> Vec<String> {
    let name = state.to_str().unwrap();
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(name))
        .collect()
}

/// Waits until no process names this state directory: the kernel ends them, which takes a moment.
pub(crate) async fn wait_for_no_process(state: &Path) {
    until("all processes to end", Duration::from_secs(10), async || {
        let left = processes_of(state);
        if left.is_empty() {
            Ok(())
        } else {
            Err(left.join("\n"))
        }
    })
    .await
    .unwrap();
}

/// The state directory that a runner's command prints as its first line.
pub(crate) fn first_line(runner: &mut Child) -> PathBuf {
    let mut line = String::new();
    BufReader::new(runner.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(
        !line.trim().is_empty(),
        "the runner ended before its testbed was up"
    );
    PathBuf::from(line.trim())
}
