//! The program `testbed` where it refuses. Needs neither root nor the built testbed.
#![allow(clippy::unwrap_used, reason = "the helper below is a part of tests")]

use std::process::{Command, Output};

fn testbed(arguments: &[&str], cache: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_testbed"))
        .args(arguments)
        .env("OOOI_CACHE", cache)
        .env_remove(oooi_testkit::SHARED)
        .output()
        .unwrap()
}

#[test]
fn without_the_built_parts_it_says_which_target_builds_them() {
    let cache = std::env::temp_dir().join(format!("oooi-empty-{}", std::process::id()));
    let output = testbed(&["run", "--", "true"], cache.to_str().unwrap());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("make testbed"), "{said}");
    assert!(!cache.exists(), "a refusal leaves nothing behind");
}

#[test]
fn a_command_is_required() {
    let output = testbed(&["run"], "/nonexistent");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn nothing_running_is_said_so() {
    let output = testbed(&["status"], "/nonexistent");
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("no testbed runs"));
    let output = testbed(&["down"], "/nonexistent");
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("no testbed is up"));
}
