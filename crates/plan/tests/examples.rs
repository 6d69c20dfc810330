//! The whole plan of every Infra under `examples/`, and that planning again changes nothing.

#![allow(clippy::unwrap_used)] // helpers of tests

mod support;

use std::path::Path;

use oooi_api::Infra;
use oooi_plan::Known;
use support::{documents, planned};

#[test]
fn every_example_has_the_plan_that_is_written_down() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut planned_examples = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let infras = documents(&text)
            .into_iter()
            .filter(|document| document.kind() == "Infra");
        for (at, document) in infras.enumerate() {
            let infra: Infra = document.decode().unwrap();
            let components = planned(&infra, &Known::default());
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let name = if at == 0 {
                name
            } else {
                format!("{name}-{}", at + 1)
            };
            let plan = serde_saphyr::to_string(&components).unwrap();
            insta::assert_snapshot!(name.as_str(), plan);
            planned_examples += 1;

            let again = planned(&infra, &Known::after(&components));
            assert_eq!(again, components, "{name} changes when it is planned again");
        }
    }
    assert!(planned_examples >= 4, "only {planned_examples} Infras were found");
}
