//! What the running server does with what it is told: machines that come and go, and a store that fails.
//! Needs root.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod netns;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netns::relay::Relay;
use netns::{Lan, Namespace, await_that};
use oooi_api::dhcp_server::{DhcpServerSpec, UnknownClients};
use oooi_api::report::Recorded;
use oooi_dhcp::config::Config;
use oooi_dhcp::control::{Command, Released};
use oooi_dhcp::lease::{Lease, State};
use oooi_dhcp::mac::Mac;
use oooi_dhcp::machines::{Machine, Machines};
use oooi_dhcp::message::MessageType;
use oooi_dhcp::metrics::Metrics;
use oooi_dhcp::server::{self, Feeds};
use oooi_dhcp::socket::Socket;
use oooi_dhcp::store::{Exception, LeaseStore, Loaded, StoreError};
use oooi_dhcp::testing::battery;
use oooi_dhcp::testing::fixture::{self, SERVER};
use oooi_dhcp::testing::packet::Packet;
use oooi_dhcp::testing::shared::Shared;
use oooi_dhcp::time::Timestamp;
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, oneshot, watch};

const WORKER: Mac = Mac([2, 0, 0, 0, 0, 1]);
const STRANGER: Mac = Mac([2, 0, 0, 0, 0, 2]);
const NEWCOMER: Mac = Mac([2, 0, 0, 0, 0, 3]);

fn ip(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 100, last)
}

/// A store that fails while it is told to, or takes its time.
struct Failing<S> {
    store: S,
    failing: Arc<AtomicBool>,
    held: watch::Receiver<bool>,
}

impl<S: LeaseStore> LeaseStore for Failing<S> {
    async fn load(&mut self) -> Result<Loaded, StoreError> {
        self.store.load().await
    }

    async fn commit(&mut self, leases: &[Lease]) -> Result<Vec<Exception>, StoreError> {
        self.held.wait_for(|held| !held).await.unwrap();
        if self.failing.load(Ordering::SeqCst) {
            let source = std::io::ErrorKind::StorageFull.into();
            return Err(StoreError::Io {
                step: "cannot write to",
                path: "leases".into(),
                source,
            });
        }
        self.store.commit(leases).await
    }
}

/// A running server, as a test sees it.
struct World<'a> {
    /// The relay's host.
    station: &'a Namespace,
    relay: &'a Relay,
    machines: &'a watch::Sender<Arc<Machines>>,
    commands: &'a mpsc::Sender<Command>,
    failing: &'a AtomicBool,
    held: &'a watch::Sender<bool>,
    shared: &'a Shared,
    report: &'a Recorded,
    registry: &'a Registry,
    metrics: &'a Metrics,
}

impl World<'_> {
    fn metrics_page(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, self.registry).unwrap();
        text
    }

    fn metric(&self, line: &str) -> bool {
        self.metrics_page().lines().any(|found| found == line)
    }

    /// Frees an address by hand.
    fn release(&self, address: Ipv4Addr) -> Released {
        let (sender, answer) = oneshot::channel();
        let command = Command::Release(address, sender);
        self.commands.blocking_send(command).unwrap();
        answer.blocking_recv().unwrap()
    }

    /// Gives a client a lease.
    fn bind(&self, mac: Mac) -> Ipv4Addr {
        self.relay.discover(mac);
        let address = self.relay.expect("an offer").yiaddr();
        self.relay.select(mac, address);
        assert_eq!(self.relay.expect("an ACK").kind(), 5);
        address
    }

    /// How many requests got no answer since their lease was not stored.
    fn not_stored(&self) -> u64 {
        let name = "oooi_dhcp_messages_ignored_total{type=\"request\",reason=\"not_stored\"} ";
        let page = self.metrics_page();
        let value = page.lines().find_map(|line| line.strip_prefix(name));
        value.unwrap().parse().unwrap()
    }

    /// A number of the last report.
    fn count(&self, name: &str) -> Option<i64> {
        self.report.latest()?.counts.get(name).copied()
    }

    fn lease(&self, address: Ipv4Addr) -> Option<Lease> {
        self.shared
            .leases()
            .into_iter()
            .find(|lease| lease.address == address)
    }
}

fn with_server(more: impl FnOnce(&mut DhcpServerSpec), body: impl FnOnce(World<'_>)) {
    with_past(&[], Machines::default(), more, body);
}

/// The same, with leases of before and the machines that are known at the start.
fn with_past(
    stored: &[Lease],
    known: Machines,
    more: impl FnOnce(&mut DhcpServerSpec),
    body: impl FnOnce(World<'_>),
) {
    let mut lan = Lan::new("192.168.100.2/24");
    let station = lan.attach();
    station.run("ip addr add 192.168.100.9/24 dev eth0");
    let relay = station.enter(|| Relay::new(ip(9), SERVER));
    relay.wait(Some(Duration::from_millis(500)));
    let (shared, failing, report) = (
        Shared::default(),
        Arc::new(AtomicBool::new(false)),
        Arc::new(Recorded::default()),
    );
    let filled = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    assert_eq!(filled.block_on(shared.store().commit(stored)).unwrap(), []);
    let (_config, config) = watch::channel(Arc::new(Config::from_spec(&fixture::spec(more), &[]).unwrap()));
    let (machines, index) = watch::channel(Arc::new(known));
    let (command, commands) = mpsc::channel(1);
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let seen = metrics.clone();
    let (ready, is_ready) = oneshot::channel();
    let (end, ended) = oneshot::channel::<()>();
    let (hold, held) = watch::channel(false);
    let store = Failing {
        store: shared.store(),
        failing: failing.clone(),
        held,
    };
    std::thread::scope(|scope| {
        let (server, told) = (&lan.server, report.clone());
        scope.spawn(move || {
            server.enter(|| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap();
                runtime.block_on(async {
                    let socket = Socket::open("br0").unwrap();
                    let feeds = Feeds {
                        config,
                        machines: index,
                        commands,
                    };
                    ready.send(()).unwrap();
                    server::run(socket, feeds, store, told, metrics, async { drop(ended.await) })
                        .await
                        .unwrap();
                });
            });
        });
        is_ready.blocking_recv().unwrap();
        let world = World {
            station: &station,
            relay: &relay,
            machines: &machines,
            commands: &command,
            failing: &failing,
            held: &hold,
            shared: &shared,
            report: &report,
            registry: &registry,
            metrics: &seen,
        };
        body(world);
        drop(end);
    });
}

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
                assert!(world.metric(line), "{line} in {}", world.metrics_page());
            }
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
    let machine = Machine {
        name: "worker-1".into(),
        address: None,
    };
    with_past(
        &[],
        Machines::complete([(WORKER, machine)]),
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
    let machine = Machine {
        name: "worker-1".into(),
        address: None,
    };
    with_past(
        &[],
        Machines::complete([(WORKER, machine)]),
        |_| {},
        |world| {
            let address = world.bind(WORKER);
            world.failing.store(true, Ordering::SeqCst);
            world.machines.send_replace(Arc::new(Machines::complete([])));
            await_that("it is tried", || world.metric("oooi_dhcp_store_failures_total 1"));
            world.failing.store(false, Ordering::SeqCst);
            await_that("it is tried again", || {
                world.lease(address).unwrap().state == State::Released
            });
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
