//! The lab, as root and as nobody. Needs root to become nobody.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A report of the lab, run as a user.
fn report(user: u32, arguments: &[&str]) -> serde_json::Value {
    // Others may not be allowed into the directory of the build.
    let directory = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o755))
        .tempdir()
        .unwrap();
    let binary = directory.path().join("oooi");
    // Copied by another process: a file that this one writes is busy while a thread of it starts a program.
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_oooi"))
        .arg(&binary)
        .status();
    assert!(copied.unwrap().success(), "the binary cannot be copied");
    let mut command = Command::new(binary);
    command
        .args(["lab", "--report", "json"])
        .args(arguments)
        .uid(user)
        .gid(user);
    let ended = command.output().unwrap();
    let shown = String::from_utf8_lossy(&ended.stderr);
    assert!(
        ended.status.success(),
        "user {user}: {shown}{}",
        String::from_utf8_lossy(&ended.stdout)
    );
    serde_json::from_slice(&ended.stdout).unwrap()
}

/// The interfaces and named namespaces of the host.
fn surroundings() -> BTreeSet<String> {
    let list = |directory: &str| {
        let entries = std::fs::read_dir(directory).into_iter().flatten();
        entries
            .map(|entry| entry.unwrap().path().display().to_string())
            .collect::<Vec<_>>()
    };
    list("/sys/class/net")
        .into_iter()
        .chain(list("/run/netns"))
        .collect()
}

#[test]
fn every_step_holds_and_nothing_is_left_behind() {
    let before = surroundings();
    let report = report(0, &["--nodes", "3"]);
    assert_eq!(report["held"], true);
    let steps = report["steps"].as_array().unwrap();
    for actor in ["node-1", "node-2", "node-3"] {
        assert!(
            steps.iter().any(|step| step["actor"] == actor),
            "{actor} did nothing"
        );
    }
    assert_eq!(surroundings(), before);
}

#[test]
fn it_needs_no_privileges() {
    const NOBODY: u32 = 65534;
    assert_eq!(report(NOBODY, &["--nodes", "1"])["held"], true);
}

#[test]
fn two_labs_at_once_do_not_meet() {
    let other = std::thread::spawn(|| report(0, &["--nodes", "2"]));
    assert_eq!(report(0, &["--nodes", "2"])["held"], true);
    assert_eq!(other.join().unwrap()["held"], true);
}
