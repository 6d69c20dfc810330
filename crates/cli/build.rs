//! Puts the commit into the binary, for `oooi --version`.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=OOOI_COMMIT");
    println!("cargo:rerun-if-changed=../../.git/HEAD");
    println!("cargo:rerun-if-changed=../../.git/refs/heads");
    let commit = std::env::var("OOOI_COMMIT")
        .ok()
        .or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    println!(
        "cargo:rustc-env=OOOI_COMMIT={}",
        commit.as_deref().unwrap_or("unknown")
    );
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(args)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    String::from_utf8(output.stdout)
        .ok()
        .map(|text| text.trim().to_owned())
}
