//! Ten thousand new configurations, upstreams and names under load lose no question.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod support;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hickory_proto::rr::RecordType;
use oooi_dns::{Config, Names};
use support::upstream::{Act, Upstream, address};
use support::{NODE, data, question, spec, start, try_ask};

const RELOADS: i64 = 10_000;

/// Asks for the names that `name` gives for each number until all is done; how often each of two answers came.
async fn ask_on(
    to: SocketAddr,
    name: impl Fn(u32) -> String,
    expected: [&str; 2],
    done: Arc<AtomicBool>,
) -> [u64; 2] {
    let mut seen = [0; 2];
    for number in 0.. {
        if done.load(Ordering::SeqCst) {
            break;
        }
        let question = question(&name(number), RecordType::A);
        let answer = try_ask(NODE, to, &question).await.expect("no question is lost");
        let answer = data(&answer);
        let which = expected.iter().position(|one| answer == [*one]);
        let which = which.unwrap_or_else(|| panic!("neither the old nor the new answer: {answer:?}"));
        seen[which] += 1;
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_reloads_under_load_lose_no_question() {
    let server = start(|_| {}).await;
    // They take a moment, so that questions are in flight while their upstreams are replaced.
    let late = |last| {
        Upstream::start(move |question, _| Act::Late(Duration::from_millis(5), address(question, 60, last)))
    };
    let upstreams = [late(1).await, late(2).await];
    let with = |ip: &str, upstream: &Upstream| {
        let text = upstream.text();
        let spec = spec(|spec| {
            spec.static_entries[0].ip = ip.into();
            spec.upstream_dns = vec![text];
        });
        Config::from_spec(&spec).expect("a sound specification")
    };
    let states = [with("127.0.1.4", &upstreams[0]), with("127.0.1.5", &upstreams[1])];
    let names = [33, 34].map(|last| {
        let mut names = Names::default();
        names.add("worker", IpAddr::from([127, 0, 1, last]));
        Arc::new(names)
    });
    let reload = |number: i64| {
        let mut config = states[number as usize % 2].clone();
        config.source.generation = Some(number);
        server
            .names
            .send_replace(Arc::clone(&names[number as usize / 2 % 2]));
        server.config.send_replace(Arc::new(config));
    };
    let served = |number: i64| server.report.latest().and_then(|state| state.generation) == Some(number);
    reload(0);
    while !served(0) {
        tokio::task::yield_now().await;
    }
    let done = Arc::new(AtomicBool::new(false));
    let ask = |name: fn(u32, usize) -> String, expected| {
        let clients = (0..2).map(move |client| move |number| name(number, client));
        let tasks = clients.map(|name| tokio::spawn(ask_on(server.vlan, name, expected, Arc::clone(&done))));
        tasks.collect::<Vec<_>>()
    };
    let kinds = [
        ask(|_, _| "api.hub.example.com.".into(), ["127.0.1.4", "127.0.1.5"]),
        ask(
            |_, _| "worker.hub.example.com.".into(),
            ["127.0.1.33", "127.0.1.34"],
        ),
        // Each name once: it is never in the cache.
        ask(
            |number, client| format!("n{number}-{client}.example.org."),
            ["192.0.2.1", "192.0.2.2"],
        ),
    ];
    for number in 1..RELOADS {
        reload(number);
        // Each state is served before the next is sent: none of the ten thousand is passed over.
        while !served(number) {
            tokio::task::yield_now().await;
        }
    }
    done.store(true, Ordering::SeqCst);
    for clients in kinds {
        let mut seen = [0; 2];
        for client in clients {
            let counts = client.await.expect("every question was answered");
            seen = [seen[0] + counts[0], seen[1] + counts[1]];
        }
        assert!(seen[0] > 50 && seen[1] > 50, "both states were served: {seen:?}");
    }
    server.stop().await;
}
