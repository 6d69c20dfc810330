//! What the running server does while its store fails, is slow or is away, and afterwards. Needs root.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod netns;
mod world;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use netns::await_that;
use oooi_dhcp::control::Released;
use oooi_dhcp::lease::{Lease, State};
use oooi_dhcp::mac::Mac;
use oooi_dhcp::machines::{Machine, Machines};
use oooi_dhcp::message::MessageType;
use oooi_dhcp::testing::battery;
use oooi_dhcp::testing::fixture::SERVER;
use oooi_dhcp::testing::packet::Packet;
use oooi_dhcp::time::Timestamp;
use world::{NEWCOMER, STRANGER, WORKER, ip, with_past, with_server};

/// One machine that is known, and no other.
fn the_worker() -> Machines {
    let machine = Machine {
        name: "worker-1".into(),
        address: None,
    };
    Machines::complete([(WORKER, machine)])
}

#[test]
fn without_a_store_there_is_no_ack_and_it_goes_on_by_itself() {
    with_server(
        |_| {},
        |world| {
            world.relay.discover(WORKER);
            let offer = world.relay.expect("an offer");
            assert!(world.metrics.store_is_available());
            world.failing.store(true, Ordering::SeqCst);
            for _ in 0..2 {
                world.relay.select(WORKER, offer.yiaddr());
                assert!(world.relay.receive().is_none(), "nothing may be acknowledged");
            }
            assert!(world.shared.leases().is_empty());
            let acknowledged =
                |n| world.metric(&format!("oooi_dhcp_messages_sent_total{{type=\"ack\"}} {n}"));
            assert!(acknowledged(0), "what did not leave is not counted");
            assert!(
                world.metric("oooi_dhcp_store_failures_total 2")
                    && world.metric("oooi_dhcp_store_available 0")
            );
            assert!(!world.metrics.store_is_available(), "the probe follows");
            world.failing.store(false, Ordering::SeqCst);
            world.relay.select(WORKER, offer.yiaddr());
            assert_eq!(world.relay.expect("an ACK").kind(), 5);
            assert_eq!(world.lease(offer.yiaddr()).unwrap().state, State::Bound);
            await_that("the metrics follow", || {
                world.metric("oooi_dhcp_store_available 1") && acknowledged(1)
            });
            let events: Vec<&str> = world.report.events().iter().map(|event| event.reason).collect();
            assert_eq!(
                events,
                ["LeaseStoreFailed", "LeaseStoreRecovered"],
                "each is said once"
            );
        },
    );
}

#[test]
fn a_client_that_floods_a_slow_store_leaves_room_for_others() {
    with_server(
        |_| {},
        |world| {
            world.relay.discover(WORKER);
            let address = world.relay.expect("an offer").yiaddr();
            world.held.send_replace(true);
            let mut name = 0_u32;
            await_that("no more of its leases wait", || {
                for _ in 0..256 {
                    // Under ever new names, so that what is stored already is never enough.
                    name += 1;
                    let request = Packet::new(MessageType::Request, WORKER).server(SERVER);
                    let named = request.option(12, format!("worker-{name}").as_bytes());
                    world.relay.send(named.requested(address));
                }
                world.not_stored() > 0
            });
            world.relay.discover(STRANGER);
            let offer = world.relay.expect("an offer").yiaddr();
            let before = world.not_stored();
            world.relay.select(STRANGER, offer);
            // Packets are handled in order: with this offer the one before was.
            world.relay.discover(STRANGER);
            world.relay.expect("another offer");
            assert_eq!(world.not_stored(), before, "it waits for the store");
            world.held.send_replace(false);
            await_that("it is stored", || {
                world.lease(offer).is_some_and(|lease| lease.mac == STRANGER)
            });
        },
    );
}

#[test]
fn a_lease_stands_while_its_renewal_under_another_identifier_is_not_stored() {
    with_past(
        &[],
        the_worker(),
        |_| {},
        |world| {
            world.relay.discover(WORKER);
            let address = world.relay.expect("an offer").yiaddr();
            world.relay.select(WORKER, address);
            assert_eq!(world.relay.expect("an ACK").kind(), 5);
            world.failing.store(true, Ordering::SeqCst);
            let renewal = Packet::new(MessageType::Request, WORKER).ciaddr(address);
            world.relay.send(renewal.client_id(b"\xffinitrd"));
            await_that("the store fails", || world.count("storeFailing") == Some(1));
            assert_eq!(world.count("activeLeases"), Some(1));
        },
    );
}

#[test]
fn in_an_outage_of_a_shared_store_leases_are_renewed_and_nothing_new_is_given() {
    with_server(
        |_| {},
        |world| {
            let address = world.bind(WORKER);
            world.relay.discover(STRANGER);
            let offered = world.relay.expect("an offer").yiaddr();
            world.shared.go_away();
            await_that("the server knows", || world.metric("oooi_dhcp_store_available 0"));
            // Under another name, so that what is stored already is not enough.
            let renewal = Packet::new(MessageType::Request, WORKER).ciaddr(address);
            world.relay.send(renewal.option(12, b"renamed"));
            let ack = world.relay.expect("an ACK");
            assert_eq!((ack.kind(), ack.yiaddr()), (5, address));
            let name = || world.lease(address).unwrap().host_name;
            assert_eq!(name(), None, "it is not written yet");
            world.relay.select(STRANGER, offered);
            assert!(world.relay.receive().is_none(), "it was offered before");
            world.relay.discover(NEWCOMER);
            assert!(world.relay.receive().is_none(), "it is new");
            let rapid = Packet::new(MessageType::Discover, NEWCOMER).option(80, &[]);
            world.relay.send(rapid);
            assert!(world.relay.receive().is_none(), "it is new and in a hurry");
            await_that("the report says so", || world.count("storeFailing") == Some(1));
            assert_eq!(world.count("activeLeases"), Some(1));

            world.shared.come_back();
            await_that("the server knows", || world.metric("oooi_dhcp_store_available 1"));
            assert_eq!(name().as_deref(), Some("renamed"));
            world.relay.select(STRANGER, offered);
            assert_eq!(world.relay.expect("an ACK").kind(), 5);
            world.bind(NEWCOMER);
            await_that("the report says so", || world.count("storeFailing") == Some(0));
        },
    );
}

#[test]
fn after_an_outage_no_address_that_was_a_lease_changes_hands_for_a_lease_time() {
    let (now, over) = (Timestamp::wall(), Timestamp(Timestamp::wall().0 - 3_600_000));
    let expired = |last: u8, mac: Mac| Lease {
        address: ip(last),
        mac,
        id: [1, 2, 0, 0, 0, 0, mac.0[5]].into(),
        machine: false,
        since: over,
        expires: over.after(Duration::from_secs(10)),
        ..battery::lease(0, 1, State::Bound)
    };
    // The last one tells the server that the store was written to just now.
    let stored = [
        expired(10, WORKER),
        expired(11, NEWCOMER),
        expired(12, STRANGER).released(now),
    ];
    with_past(
        &stored,
        Machines::default(),
        |spec| {
            spec.lease_config.range_end = "192.168.100.11".into();
            spec.lease_config.lease_time = "10s".into();
        },
        |world| {
            await_that("the server runs", || world.count("activeLeases") == Some(0));
            world.shared.go_away();
            await_that("the server knows", || world.metric("oooi_dhcp_store_available 0"));
            // Another replica may have renewed it, and that may be lost.
            world
                .relay
                .send(Packet::new(MessageType::Request, WORKER).ciaddr(ip(10)));
            assert!(world.relay.receive().is_none(), "it is over by what is known");
            let back = Instant::now();
            world.shared.come_back();
            await_that("the server knows", || world.metric("oooi_dhcp_store_available 1"));
            world.relay.discover(STRANGER);
            assert!(world.relay.receive().is_none(), "both addresses are held");
            assert_eq!(world.bind(WORKER), ip(10), "its own client gets it again");
            let mut offered = None;
            await_that("a lease time is over", || {
                world.relay.discover(STRANGER);
                offered = world.relay.receive().map(|offer| offer.yiaddr());
                offered.is_some()
            });
            assert_eq!(offered, Some(ip(11)));
            let held = back.elapsed();
            assert!(held >= Duration::from_secs(10), "{held:?}");
        },
    );
}

#[test]
fn an_address_is_said_to_be_free_when_that_is_stored() {
    with_server(
        |_| {},
        |world| {
            let address = world.bind(WORKER);
            world.failing.store(true, Ordering::SeqCst);
            assert_eq!(world.release(address), Released::NotStored);
            assert_eq!(world.lease(address).unwrap().state, State::Bound);
            world.failing.store(false, Ordering::SeqCst);
            assert_eq!(world.release(address), Released::Stored);
            assert_eq!(world.lease(address).unwrap().state, State::Released);
            assert_eq!(world.release(address), Released::NoLease);
        },
    );
}

#[test]
fn a_lease_whose_machine_went_while_nothing_could_be_stored_is_freed_later() {
    with_past(
        &[],
        the_worker(),
        |_| {},
        |world| {
            let address = world.bind(WORKER);
            world.failing.store(true, Ordering::SeqCst);
            world.machines.send_replace(Arc::new(Machines::complete([])));
            await_that("it is tried", || {
                !world.metric("oooi_dhcp_store_failures_total 0")
            });
            world.failing.store(false, Ordering::SeqCst);
            await_that("it is tried again", || {
                world.lease(address).unwrap().state == State::Released
            });
        },
    );
}

#[test]
fn a_lease_that_is_asked_for_again_while_its_end_is_stored_is_stored_again() {
    with_server(
        |_| {},
        |world| {
            let address = world.bind(WORKER);
            world.held.send_replace(true);
            let release = Packet::new(MessageType::Release, WORKER).server(SERVER);
            world.relay.send(release.ciaddr(address));
            // It could pass for one that was not heard: nobody was told yet that it is over.
            world.relay.select(WORKER, address);
            assert!(world.relay.receive().is_none(), "it waits for the store");
            world.held.send_replace(false);
            assert_eq!(world.relay.expect("an ACK").kind(), 5);
            assert_eq!(world.lease(address).unwrap().state, State::Bound);
        },
    );
}
