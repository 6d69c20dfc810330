//! The binary as scripts see it: what it prints, and how it ends.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::process::{Command, Output, Stdio};

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
fn an_invalid_manifest_ends_with_2_and_shows_every_mistake() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_oooi"))
        .args(["check", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let manifest = "apiVersion: redhatcop.redhat.io/v1alpha1\nkind: EgressIPAM\nmetadata: {name: a}\n\
                    spec: {topologyLable: zone, cidrAssignments: none}\n";
    child
        .stdin
        .take()
        .unwrap()
        .write_all(manifest.as_bytes())
        .unwrap();
    let ended = child.wait_with_output().unwrap();
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
