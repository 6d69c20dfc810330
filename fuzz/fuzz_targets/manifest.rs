//! Any text as a manifest: read and checked, or refused with a place that exists; never a panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use oooi_manifest::{Source, read};

fuzz_target!(|text: &str| {
    let source = Source::new("fuzz", text);
    let mistakes = match read(&source) {
        Ok(documents) => documents.iter().flat_map(oooi_manifest::Document::check).collect(),
        Err(mistakes) => mistakes,
    };
    for mistake in mistakes {
        assert!(!mistake.with_snippet().is_empty());
    }
});
