//! The query log: one question in so many is written down, with all that a person looks for.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use hickory_proto::rr::RecordType;
use oooi_dns::Options;
use support::{NODE, ask, question, start_with};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the fields of each logged question.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "oooi_dns::query"
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn one_question_in_ten_is_logged_with_its_client_name_and_outcome() {
    let lines = Lines::default();
    // The cores are threads of their own: this program's only test may set the subscriber of all of them.
    tracing::subscriber::set_global_default(lines.clone()).unwrap();
    let options = Options {
        query_log: Some(10),
        ..Options::default()
    };
    let server = start_with(options, |_| {}).await;
    for _ in 0..100 {
        ask(
            NODE,
            server.vlan,
            &question("API.hub.example.com.", RecordType::A),
        )
        .await;
    }
    server.stop().await;
    let lines = lines.0.lock().unwrap();
    // Each of the two cores counts for itself and logs its first.
    assert!((10..=11).contains(&lines.len()), "{} of 100", lines.len());
    for wanted in [
        "client=127.0.1.20:",
        "view=\"vlan\"",
        "API.hub.example.com",
        "kind=1",
        "rcode=0",
    ] {
        assert!(
            lines.iter().all(|line| line.contains(wanted)),
            "{wanted}: {lines:?}"
        );
    }
}
