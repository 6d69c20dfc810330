//! What the running server does with what it is told: machines that come and go, and a store that fails.
//! Needs root.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod netns;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use netns::relay::Relay;
use netns::{Lan, Namespace, await_that};
use oooi_api::dhcp_server::{DhcpServerSpec, UnknownClients};
use oooi_api::report::Recorded;
use oooi_dhcp::config::Config;
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

    /// How many messages got no answer since their lease was not stored.
    fn not_stored(&self) -> u64 {
        let name = "oooi_dhcp_messages_ignored_total{reason=\"not_stored\"} ";
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
                    let (_commands, commands) = mpsc::channel(1);
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
fn another_server_is_reported_at_once() {
    with_server(
        |_| {},
        |world| {
            await_that("the server runs", || world.count("rogueServers") == Some(0));
            let other = Packet::new(MessageType::Request, WORKER).server(ip(77));
            world.relay.send(other.requested(ip(10)));
            await_that("the report says so", || world.count("rogueServers") == Some(1));
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
