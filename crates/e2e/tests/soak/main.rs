//! Nodes, endpoints and configuration come and go for `SOAK_SECONDS`, and nothing grows. `make soak` runs it.
//!
//! `oooi up` serves a VLAN in network namespaces. A time of churn is followed by a rest: every client is gone, every
//! server was started anew by a change of an address, and what the process has is counted. Needs root.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod churn;
mod site;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use churn::{Churn, Tally, control_plane, infra};
use oooi_e2e::{Usage, growth};
use oooi_net::Network;
use site::Site;

/// How often there is a rest.
const RESTS: u32 = 40;
/// Machines on which nodes boot.
const MACHINES: usize = 4;
/// Connections that are kept over each churn.
const HELD: usize = 8;

/// Of so many attempts one may fail: the machine may be busy with something else, and clients wait for seconds only.
const TOLERATED: usize = 1000;

/// The gateway has another address after each rest.
fn gateway(round: u32) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 100, 4 + (round % 2) as u8)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_grows_while_nodes_endpoints_and_configuration_change() {
    let seconds =
        std::env::var("SOAK_SECONDS").map_or(600, |text| text.parse().expect("SOAK_SECONDS is a number"));
    let part = Duration::from_secs(seconds) / RESTS;
    let mut site = Site::build();
    let machines: Vec<_> = (0..MACHINES)
        .map(|number| site.machine(&format!("node{number}")))
        .collect();
    let user = site.machine("user");
    user.run(async || {
        let network = Network::open().unwrap();
        network
            .add_address("eth0", "192.168.100.10/24".parse().unwrap())
            .await
            .unwrap();
    })
    .unwrap();
    site.write("infra.yaml", &infra(0, gateway(0)));
    site.write("control-plane.yaml", &control_plane(0, 0));
    site.up();

    let tally = Arc::new(Tally::default());
    let mut rests: Vec<Usage> = Vec::new();
    println!("| rest | memory, KiB | files | threads | tasks | nodes | questions | connections | changes |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for round in 0..RESTS {
        let gateway = gateway(round);
        site.published(&user, gateway).await;
        let churn = Churn {
            resting: Arc::new(AtomicBool::new(false)),
            tally: tally.clone(),
            tls: site.tls.clone(),
        };
        let mut working = Vec::new();
        for machine in &machines {
            let churn = churn.clone();
            working.push(machine.spawn(move || churn.nodes()).unwrap());
        }
        let asking = churn.clone();
        working.push(user.spawn(move || asking.questions()).unwrap());
        let connecting = churn.clone();
        working.push(user.spawn(move || connecting.connections(gateway)).unwrap());
        for _ in 0..HELD {
            let holding = churn.clone();
            working.push(user.spawn(move || holding.held(gateway)).unwrap());
        }
        churn
            .files(&site, gateway, tokio::time::Instant::now() + part)
            .await;
        churn.resting.store(true, Relaxed);
        for one in working {
            one.join().unwrap().unwrap();
        }
        let next = self::gateway(round + 1);
        site.write("infra.yaml", &infra(0, next));
        site.published(&user, next).await;
        let usage = site.at_rest().await;
        let counts = [&tally.nodes, &tally.questions, &tally.connections, &tally.changes];
        let counts = counts.map(|count| count.load(Relaxed).to_string()).join(" | ");
        let Usage {
            memory,
            files,
            threads,
            tasks,
        } = usage;
        println!(
            "| {} | {memory} | {files} | {threads} | {tasks} | {counts} |",
            round + 1
        );
        rests.push(usage);
    }
    let failures = tally.failures.lock().unwrap();
    let tried = [&tally.nodes, &tally.questions, &tally.connections].map(|count| count.load(Relaxed));
    println!("{} of {} failed", failures.len(), tried.iter().sum::<usize>());
    assert!(
        failures.len() * TOLERATED <= tried.iter().sum(),
        "{} failed, such as {:?}",
        failures.len(),
        &failures[..failures.len().min(5)]
    );
    assert_eq!(growth(&rests), [] as [&str; 0]);
}
