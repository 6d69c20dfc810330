//! The binary as scripts see it: what it prints, and how it ends.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::net::Ipv4Addr;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use oooi_dhcp::lease::{Lease, State};
use oooi_dhcp::mac::Mac;
use oooi_dhcp::store::journal::Journal;
use oooi_dhcp::time::Timestamp;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");

fn oooi(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_oooi"))
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn the_version_names_the_commit() {
    let shown = oooi(&["--version"]);
    let line = text(&shown.stdout).trim();
    assert!(
        line.starts_with(concat!("oooi ", env!("CARGO_PKG_VERSION"), " (")) && line.ends_with(')'),
        "{line}"
    );
}

#[test]
fn wrong_usage_ends_with_2_and_says_so_on_standard_error() {
    let ended = oooi(&["chekc"]);
    assert_eq!(ended.status.code(), Some(2));
    assert!(
        text(&ended.stderr).contains("check"),
        "the nearest command is suggested: {}",
        text(&ended.stderr)
    );
    assert!(ended.stdout.is_empty());
}

#[test]
fn valid_manifests_end_with_0_and_those_to_look_at_with_3() {
    let ended = oooi(&["check", "-f", &format!("{EXAMPLES}/egressipam.yaml")]);
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stdout));
    assert!(text(&ended.stdout).ends_with("EgressIPAM zones is valid\n"));
    let ended = oooi(&["check", "-f", EXAMPLES]);
    assert_eq!(ended.status.code(), Some(3), "{}", text(&ended.stdout));
    assert!(
        text(&ended.stdout).contains("Infra my-cluster is valid\nwarning: "),
        "{}",
        text(&ended.stdout)
    );
}

#[test]
fn a_plan_is_shown_as_a_tree_and_as_resources_that_are_valid_themselves() {
    let shown = oooi(&["plan", "-f", &format!("{EXAMPLES}/infra.yaml")]);
    assert!(
        text(&shown.stdout).contains("DNSServer my-cluster-dns on 192.168.100.3"),
        "{}",
        text(&shown.stdout)
    );
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("plan.yaml");
    std::fs::write(
        &file,
        oooi(&["plan", "-o", "yaml", "-f", &format!("{EXAMPLES}/infra.yaml")]).stdout,
    )
    .unwrap();
    let checked = oooi(&["check", "-f", file.to_str().unwrap()]);
    assert_eq!(
        text(&checked.stdout).matches("is valid").count(),
        3,
        "{}",
        text(&checked.stdout)
    );
}

#[test]
fn the_tree_of_a_plan_looks_like_this() {
    for example in ["infra", "infra-minimal", "infra-two-replicas"] {
        let shown = oooi(&["plan", "-f", &format!("{EXAMPLES}/{example}.yaml")]);
        assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
        insta::assert_snapshot!(format!("plan_of_{example}"), text(&shown.stdout));
    }
}

#[test]
fn mistakes_look_like_this() {
    let manifest = "\
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: x}
spec:
  networkConfig:
    cidr: 192.168.100.0/33
    gatway: 192.168.100.1
    networkAttachmentDefinition: vlan100
---
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: y}
spec:
  networkConfig:
    cidr: 192.168.100.0/24
    gateway: 192.168.101.1
    networkAttachmentDefinition: vlan100
  infraComponents:
    dhcp: {serverIP: 192.168.100.2, rangeStart: 192.168.100.100, rangeEnd: 192.168.100.50}
";
    let ended = with_input(&["check", "-f", "-"], manifest);
    assert_eq!(ended.status.code(), Some(2));
    insta::assert_snapshot!("mistakes", text(&ended.stdout));
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let page = oooi(&["man"]);
    assert!(page.status.success());
    let page = text(&page.stdout);
    assert!(page.contains(".TH oooi 1"), "{page}");
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("man1");
    let ended = oooi(&["man", "--output-dir", folder.to_str().unwrap()]);
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    // Whatever the help lists has a page, and the first page names it.
    let help = oooi(&["--help"]);
    let commands: Vec<String> = text(&help.stdout)
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        // What is indented further goes on with the line before.
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect();
    assert!(commands.len() >= 14, "{commands:?}");
    for command in commands {
        let page = std::fs::read_to_string(folder.join(format!("oooi-{command}.1"))).unwrap();
        assert!(
            page.contains(".SH SYNOPSIS") && page.contains(".SH OPTIONS"),
            "{command}: {page}"
        );
    }
    let unwritable = oooi(&["man", "--output-dir", "/proc/nothing"]);
    assert_eq!(unwritable.status.code(), Some(1));
    assert!(
        text(&unwritable.stderr).contains("manual pages cannot be written to /proc/nothing"),
        "{}",
        text(&unwritable.stderr)
    );
}

fn with_input(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_oooi"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn an_invalid_manifest_ends_with_2_and_shows_every_mistake() {
    let manifest = "apiVersion: redhatcop.redhat.io/v1alpha1\nkind: EgressIPAM\nmetadata: {name: a}\n\
                    spec: {topologyLable: zone, cidrAssignments: none}\n";
    let ended = with_input(&["check", "-f", "-"], manifest);
    assert_eq!(ended.status.code(), Some(2));
    let shown = text(&ended.stdout);
    assert!(
        shown.contains("-:4:8: spec.topologyLable: unknown field"),
        "{shown}"
    );
    assert!(shown.contains("did you mean `topologyLabel`?"), "{shown}");
    assert!(
        shown.contains("spec.cidrAssignments: must be a list, not the text \"none\""),
        "{shown}"
    );
    assert!(shown.contains("3 mistakes found"), "{shown}");
}

#[test]
fn a_file_that_is_not_there_ends_with_2_and_is_named() {
    let ended = oooi(&["check", "-f", "/nonexistent/infra.yaml"]);
    assert_eq!(ended.status.code(), Some(2));
    assert!(
        text(&ended.stderr).contains("/nonexistent/infra.yaml cannot be read"),
        "{}",
        text(&ended.stderr)
    );
}

#[test]
fn a_server_refuses_a_manifest_of_another_kind() {
    let ended = oooi(&["dns", "-f", &format!("{EXAMPLES}/infra.yaml")]);
    assert_eq!(ended.status.code(), Some(2));
    assert!(
        text(&ended.stderr).contains("there is no DNSServer among the documents"),
        "{}",
        text(&ended.stderr)
    );
}

#[test]
fn the_definitions_are_printed_as_one_stream() {
    let shown = oooi(&["crds"]);
    assert_eq!(
        text(&shown.stdout)
            .matches("kind: CustomResourceDefinition")
            .count(),
        6
    );
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let shown = oooi(&["completions", shell]);
        assert!(
            shown.status.success() && text(&shown.stdout).contains("check"),
            "{shell}"
        );
    }
}

#[test]
fn logs_can_be_read_by_programs() {
    let ended = oooi(&[
        "--log-format",
        "json",
        "--log-level",
        "a=b=c",
        "check",
        "-f",
        EXAMPLES,
    ]);
    let line = text(&ended.stderr).lines().next().unwrap().to_owned();
    let entry: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(entry["level"], "WARN", "{line}");
}

#[test]
fn leases_of_a_directory_without_any_are_an_error_that_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let ended = oooi(&["leases", "--state-dir", directory.path().to_str().unwrap()]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        text(&ended.stderr).contains("leases.journal"),
        "{}",
        text(&ended.stderr)
    );
}

#[test]
fn a_lease_is_freed_without_a_running_server() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().to_str().unwrap();
    let since = Timestamp::wall();
    let lease = Lease {
        address: Ipv4Addr::new(192, 168, 100, 100),
        mac: Mac([2, 0, 0, 0, 0, 1]),
        id: [1, 2, 0, 0, 0, 0, 1].into(),
        host_name: None,
        machine: false,
        state: State::Bound,
        since,
        expires: since.after(Duration::from_secs(3600)),
    };
    Journal::open(directory.path()).unwrap().append(&[lease]).unwrap();

    let release = || oooi(&["leases", "--state-dir", state, "release", "192.168.100.100"]);
    let freed = release();
    assert_eq!(
        text(&freed.stdout),
        "192.168.100.100 is free\n",
        "{}",
        text(&freed.stderr)
    );
    let again = release();
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("nobody has 192.168.100.100"));
}
