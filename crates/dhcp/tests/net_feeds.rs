//! What the running server does with what it is told and hears: machines that come and go, other servers, strangers.
//! Needs root.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod netns;
mod world;

use std::sync::Arc;
use std::time::Duration;

use netns::await_that;
use oooi_api::dhcp_server::UnknownClients;
use oooi_dhcp::lease::{Lease, State};
use oooi_dhcp::mac::Mac;
use oooi_dhcp::machines::{Machine, Machines};
use oooi_dhcp::message::MessageType;
use oooi_dhcp::testing::battery;
use oooi_dhcp::testing::fixture::SERVER;
use oooi_dhcp::testing::packet::Packet;
use oooi_dhcp::time::Timestamp;
use world::{STRANGER, WORKER, ip, with_past, with_server};

#[test]
fn a_machine_gets_its_name_and_its_lease_is_freed_when_it_is_gone() {
    with_server(
        |spec| spec.lease_config.unknown_clients = Some(UnknownClients::Ignore),
        |world| {
            world.relay.discover(WORKER);
            assert!(world.relay.receive().is_none(), "nobody knows it yet");
            let machine = Machine {
                name: "worker-1".into(),
                address: Some(ip(17)),
            };
            world
                .machines
                .send_replace(Arc::new(Machines::complete([(WORKER, machine)])));
            await_that("the machine is known", || {
                world.relay.discover(WORKER);
                world
                    .relay
                    .receive()
                    .is_some_and(|offer| offer.yiaddr() == ip(17))
            });
            while world.relay.receive().is_some() {}
            world.relay.send(
                Packet::new(MessageType::Request, WORKER)
                    .server(SERVER)
                    .requested(ip(17))
                    .option(55, &[12]),
            );
            let ack = world.relay.expect("an ACK");
            assert_eq!((ack.kind(), ack.option(12).unwrap()), (5, b"worker-1".to_vec()));
            assert_eq!(
                world.lease(ip(17)).unwrap().host_name.as_deref(),
                Some("worker-1")
            );
            // An index that is not whole says nothing about who is gone.
            world.machines.send_replace(Arc::new(Machines::default()));
            world.relay.discover(STRANGER);
            assert!(world.relay.receive().is_none(), "unknown clients are ignored");
            assert_eq!(world.lease(ip(17)).unwrap().state, State::Bound);
            let machine = Machine {
                name: "worker-1".into(),
                address: None,
            };
            world
                .machines
                .send_replace(Arc::new(Machines::complete([(WORKER, machine)])));
            await_that("the machine is known again", || {
                world.relay.discover(WORKER);
                world.relay.receive().is_some()
            });
            world.machines.send_replace(Arc::new(Machines::complete([])));
            await_that("its lease is freed", || {
                world.lease(ip(17)).unwrap().state == State::Released
            });
        },
    );
}

#[test]
fn a_machine_that_went_while_no_server_ran_frees_its_lease_and_other_clients_keep_theirs() {
    let now = Timestamp::wall();
    let lease = |last: u8, mac: Mac, machine: bool| Lease {
        address: ip(last),
        mac,
        machine,
        since: now,
        expires: now.after(Duration::from_secs(600)),
        ..battery::lease(0, 1, State::Bound)
    };
    let (here, other) = (Mac([2, 0, 0, 0, 0, 3]), Mac([2, 0, 0, 0, 0, 4]));
    let stored = [
        lease(11, WORKER, true),
        lease(12, here, true),
        lease(13, other, false),
    ];
    let machine = Machine {
        name: "worker-3".into(),
        address: None,
    };
    let known = Machines::complete([(here, machine)]);
    // Known before the server runs, and learned by it later: nothing else happens on the network in either case.
    for (at_start, learned) in [(known.clone(), None), (Machines::default(), Some(known))] {
        with_past(
            &stored,
            at_start,
            |_| {},
            |world| {
                if let Some(learned) = learned {
                    world.machines.send_replace(Arc::new(learned));
                }
                await_that("the lease of the one that is gone is freed", || {
                    world.lease(ip(11)).unwrap().state == State::Released
                });
                assert_eq!(world.lease(ip(12)).unwrap().state, State::Bound, "it is there");
                assert_eq!(
                    world.lease(ip(13)).unwrap().state,
                    State::Bound,
                    "it never was a machine"
                );
            },
        );
    }
}

#[test]
fn a_full_pool_is_said_once() {
    with_server(
        |spec| spec.lease_config.range_end = "192.168.100.10".into(),
        |world| {
            world.relay.discover(WORKER);
            world
                .relay
                .select(WORKER, world.relay.expect("an offer").yiaddr());
            assert_eq!(world.relay.expect("an ACK").kind(), 5);
            for _ in 0..2 {
                world.relay.discover(STRANGER);
                assert!(world.relay.receive().is_none());
            }
            let events = world.report.events();
            assert_eq!(events.len(), 1);
            assert!(
                events[0].message.contains("all 1 addresses from 192.168.100.10"),
                "{}",
                events[0].message
            );
            await_that("the report says so", || {
                world.report.latest().is_some_and(|report| {
                    report.counts["poolExhausted"] == 1
                        && report.counts["activeLeases"] == 1
                        && report.counts["totalLeases"] == 1
                })
            });
            for line in [
                "oooi_dhcp_pool_addresses 1",
                "oooi_dhcp_pool_exhausted 1",
                "oooi_dhcp_leases_active 1",
                "oooi_dhcp_offers 0",
                "oooi_dhcp_messages_ignored_total{type=\"discover\",reason=\"no_free_address\"} 2",
                "oooi_dhcp_messages_ignored_total{type=\"request\",reason=\"no_free_address\"} 0",
            ] {
                await_that(line, || world.metric(line));
            }
        },
    );
}

#[test]
fn another_server_is_reported_at_once_and_one_that_is_known_is_not() {
    let mut machines = Machines::complete([]);
    machines.servers.insert(ip(5));
    with_past(
        &[],
        machines,
        |spec| {
            spec.network_config.additional_server_ips = vec!["192.168.100.3".into()];
            spec.network_config.known_servers = vec!["192.168.100.4".into()];
        },
        |world| {
            await_that("the server runs", || world.count("rogueServers") == Some(0));
            let choose = |server| {
                let other = Packet::new(MessageType::Request, WORKER).server(server);
                world.relay.send(other.requested(ip(10)));
            };
            // A replica, one that the specification names, one of the same namespace, and a stranger.
            [3, 4, 5, 77].map(ip).into_iter().for_each(choose);
            await_that("the report says so", || world.count("rogueServers") == Some(1));
            assert!(world.metric("oooi_dhcp_rogue_servers 1"));
            assert!(world.metric("oooi_dhcp_rogue_answers_total 1"));
            let line = "oooi_dhcp_messages_ignored_total{type=\"request\",reason=\"other_server\"} 4";
            assert!(world.metric(line), "each was heard");
            let [event] = &world.report.events()[..] else {
                panic!("{:?}", world.report.events())
            };
            assert_eq!(event.reason, "RogueServer");
            for part in ["192.168.100.77", "networkConfig.knownServers"] {
                assert!(event.message.contains(part), "{}", event.message);
            }
        },
    );
}

#[test]
fn packets_that_are_no_messages_and_addresses_that_strangers_use_are_counted() {
    with_server(
        |_| {},
        |world| {
            let packet = Packet::new(MessageType::Discover, STRANGER).build();
            let mut cookie = packet.clone();
            cookie[236] = 0;
            for malformed in [&packet[..100], &cookie, &cookie] {
                world.station.broadcast(68, 67, malformed);
            }
            let malformed = |reason: &str, n: u8| {
                let line = format!("oooi_dhcp_messages_malformed_total{{reason=\"{reason}\"}} {n}");
                world.metric(&line)
            };
            await_that("they are counted", || {
                malformed("truncated", 1) && malformed("cookie", 2)
            });
            assert!(malformed("oversized", 0) && malformed("hops", 0));

            let address = world.bind(WORKER);
            let decline = Packet::new(MessageType::Decline, WORKER).server(SERVER);
            world.relay.send(decline.requested(address));
            await_that("the report says so", || world.count("quarantined") == Some(1));
            for line in [
                "oooi_dhcp_conflicts_total 1",
                "oooi_dhcp_leases_quarantined 1",
                "oooi_dhcp_leases_active 0",
                "oooi_dhcp_pool_addresses 11",
                "oooi_dhcp_pool_exhausted 0",
            ] {
                assert!(world.metric(line), "{line} in {}", world.metrics_page());
            }
        },
    );
}

#[test]
fn the_time_of_a_probe_counts_for_the_offer_and_the_probe_itself_is_no_answer() {
    with_server(
        |spec| spec.lease_config.conflict_probe = Some(true),
        |world| {
            let discover = Packet::new(MessageType::Discover, WORKER).build();
            world.station.broadcast(68, 67, &discover);
            await_that("an offer leaves after the probe", || {
                world.metric("oooi_dhcp_answer_seconds_count 1")
            });
            assert!(world.metric("oooi_dhcp_messages_sent_total{type=\"offer\"} 1"));
            assert!(world.metric("oooi_dhcp_answer_seconds_bucket{le=\"0.1024\"} 0"));
        },
    );
}
