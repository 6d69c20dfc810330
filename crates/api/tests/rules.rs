//! The rules of the definitions, evaluated without an API server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "rules/mod.rs"]
mod table;

use std::collections::BTreeSet;

use serde_json::Value;

/// What `oooi check` says of a manifest.
fn mistakes(manifest: &Value) -> Vec<String> {
    let source = oooi_manifest::Source::new("case", manifest.to_string());
    oooi_manifest::read(&source).unwrap()[0]
        .check()
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn a_file_is_refused_for_the_same_reasons_as_by_the_api_server() {
    for case in table::cases() {
        let mistakes = mistakes(&case.manifest());
        match case.refused {
            None => assert!(
                mistakes.is_empty(),
                "{} must be accepted: {mistakes:?}",
                case.title()
            ),
            Some(message) => assert!(
                mistakes.iter().any(|mistake| mistake.contains(message)),
                "{} must be refused with {message:?}: {mistakes:?}",
                case.title()
            ),
        }
    }
}

#[test]
fn every_rule_refuses_a_row_of_the_table() {
    let refusals: Vec<&str> = table::cases().iter().filter_map(|case| case.refused).collect();
    let mut rules = BTreeSet::new();
    for definition in oooi_api::definitions() {
        collect(&serde_json::to_value(&definition).unwrap(), &mut rules);
    }
    assert!(rules.len() > 20, "the definitions lost their rules: {rules:?}");
    for message in rules {
        let covered = refusals
            .iter()
            .any(|refusal| !refusal.is_empty() && message.contains(refusal));
        assert!(covered, "no row of the table breaks this rule: {message}");
    }
}

fn collect(value: &Value, rules: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, inner) in fields {
                if key == "x-kubernetes-validations" {
                    rules.extend(
                        inner
                            .as_array()
                            .unwrap()
                            .iter()
                            .map(|rule| rule["message"].as_str().unwrap().to_owned()),
                    );
                }
                collect(inner, rules);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, rules)),
        _ => {}
    }
}

#[test]
fn every_example_is_valid() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let mut seen = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let source = oooi_manifest::Source::new(
            path.display().to_string(),
            std::fs::read_to_string(&path).unwrap(),
        );
        for document in oooi_manifest::read(&source).unwrap() {
            let mistakes = document.check();
            assert!(mistakes.is_empty(), "{mistakes:?}");
            seen += 1;
        }
    }
    assert!(seen >= 6, "only {seen} examples were found");
}
