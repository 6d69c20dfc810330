//! The lab, as root and as nobody. Needs root to become nobody.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

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
fn what_a_killed_lab_leaves_the_next_one_removes() {
    let mut lab = Command::new(env!("CARGO_BIN_EXE_oooi"))
        .args(["lab", "--keep", "--nodes", "1"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It says how to enter its namespaces when all of it runs.
    let lines = BufReader::new(lab.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let entered: Vec<String> = lines
        .filter_map(|line| Some(line.split_once("--net=")?.1.to_owned()))
        .take(3)
        .collect();
    let namespaces: Vec<PathBuf> = entered
        .iter()
        .map(|path| std::fs::read_link(path).unwrap())
        .collect();
    let leases = |process: u32| {
        let own = format!("oooi-lab.{process}.");
        let all = std::fs::read_dir(std::env::temp_dir()).unwrap();
        all.filter(|entry| {
            entry
                .as_ref()
                .unwrap()
                .file_name()
                .to_string_lossy()
                .starts_with(&own)
        })
        .count()
    };
    assert_eq!((namespaces.len(), leases(lab.id())), (3, 1));
    lab.kill().unwrap();
    lab.wait().unwrap();

    let all = std::fs::read_dir("/proc")
        .unwrap()
        .map(|entry| entry.unwrap().path().join("ns/net"));
    let used: BTreeSet<PathBuf> = all.filter_map(|link| std::fs::read_link(link).ok()).collect();
    assert!(
        namespaces.iter().all(|namespace| !used.contains(namespace)),
        "somebody still lives in {namespaces:?}"
    );
    assert_eq!(report(0, &["--nodes", "1"])["held"], true);
    assert_eq!(leases(lab.id()), 0);
}

#[test]
fn an_infra_of_ones_own_boots_with_a_control_plane_that_the_lab_makes_up() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/infra-minimal.yaml");
    let report = report(0, &["--nodes", "1", "--infra", example]);
    assert_eq!(report["held"], true);
    assert!(
        report.to_string().contains("api.my-cluster.example.com"),
        "{report}"
    );
}

#[test]
fn an_infra_that_is_wrong_is_said_with_its_mistakes() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/dnsserver.yaml");
    let ended = Command::new(env!("CARGO_BIN_EXE_oooi"))
        .args(["lab", "--infra", example])
        .output()
        .unwrap();
    assert_eq!(
        ended.status.code(),
        Some(2),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
}

#[test]
fn envoy_is_a_gateway_like_the_built_in_one() {
    let envoy = std::env::var("OOOI_ENVOY").expect("OOOI_ENVOY names an Envoy: run this by `make test-net`");
    assert_eq!(
        report(0, &["--nodes", "1", "--engine", "envoy", "--envoy", &envoy])["held"],
        true
    );
}

#[test]
fn two_labs_at_once_do_not_meet() {
    let other = std::thread::spawn(|| report(0, &["--nodes", "2"]));
    assert_eq!(report(0, &["--nodes", "2"])["held"], true);
    assert_eq!(other.join().unwrap()["held"], true);
}
