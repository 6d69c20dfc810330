//! Ten thousand new configurations under load lose no question.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hickory_proto::rr::RecordType;
use oooi_dns::Config;
use support::{NODE, data, question, spec, start, try_ask};

const RELOADS: i64 = 10_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_reloads_under_load_lose_no_question() {
    let server = start(|_| {}).await;
    let with = |ip: &str| {
        let spec = spec(|spec| {
            spec.static_entries[0].ip = ip.into();
            spec.upstream_dns = vec!["127.0.3.99".into()];
        });
        Config::from_spec(&spec).expect("a sound specification")
    };
    let states = [with("127.0.1.4"), with("127.0.1.5")];
    let done = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (vlan, done) = (server.vlan, Arc::clone(&done));
            tokio::spawn(async move {
                let mut seen = [0u64; 2];
                while !done.load(Ordering::SeqCst) {
                    let question = question("api.hub.example.com.", RecordType::A);
                    let answer = try_ask(NODE, vlan, &question).await.expect("no question is lost");
                    match data(&answer)[..] {
                        [ref one] if one == "127.0.1.4" => seen[0] += 1,
                        [ref other] if other == "127.0.1.5" => seen[1] += 1,
                        ref wrong => panic!("neither the old nor the new answer: {wrong:?}"),
                    }
                }
                seen
            })
        })
        .collect();
    for number in 0..RELOADS {
        let mut config = states[number as usize % 2].clone();
        config.source.generation = Some(number);
        server.config.send_replace(Arc::new(config));
        // Each state is served before the next is sent: none of the ten thousand is passed over.
        while server.report.latest().and_then(|state| state.generation) != Some(number) {
            tokio::task::yield_now().await;
        }
    }
    done.store(true, Ordering::SeqCst);
    let mut seen = [0; 2];
    for client in clients {
        let counts = client.await.expect("every question was answered");
        seen = [seen[0] + counts[0], seen[1] + counts[1]];
    }
    assert!(
        seen[0] > 500 && seen[1] > 500,
        "both states were served: {seen:?}"
    );
    server.stop().await;
}
