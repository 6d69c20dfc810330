//! A server that runs in this process, with everything that it is told in the hands of a test.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "each test uses a part of it"
)]

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oooi_api::dhcp_server::DhcpServerSpec;
use oooi_api::report::Recorded;
use oooi_dhcp::config::Config;
use oooi_dhcp::control::{Command, Released};
use oooi_dhcp::lease::Lease;
use oooi_dhcp::mac::Mac;
use oooi_dhcp::machines::Machines;
use oooi_dhcp::metrics::Metrics;
use oooi_dhcp::server::{self, Feeds};
use oooi_dhcp::socket::Socket;
use oooi_dhcp::store::{Exception, LeaseStore, Loaded, StoreError};
use oooi_dhcp::testing::fixture::{self, SERVER};
use oooi_dhcp::testing::shared::Shared;
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, oneshot, watch};

use crate::netns::relay::Relay;
use crate::netns::{Lan, Namespace};

pub const WORKER: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub const STRANGER: Mac = Mac([2, 0, 0, 0, 0, 2]);
pub const NEWCOMER: Mac = Mac([2, 0, 0, 0, 0, 3]);

pub fn ip(last: u8) -> Ipv4Addr {
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
pub struct World<'a> {
    /// The relay's host.
    pub station: &'a Namespace,
    pub relay: &'a Relay,
    pub machines: &'a watch::Sender<Arc<Machines>>,
    pub commands: &'a mpsc::Sender<Command>,
    pub failing: &'a AtomicBool,
    pub held: &'a watch::Sender<bool>,
    pub shared: &'a Shared,
    pub report: &'a Recorded,
    pub registry: &'a Registry,
    pub metrics: &'a Metrics,
}

impl World<'_> {
    pub fn metrics_page(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, self.registry).unwrap();
        text
    }

    pub fn metric(&self, line: &str) -> bool {
        self.metrics_page().lines().any(|found| found == line)
    }

    /// Frees an address by hand.
    pub fn release(&self, address: Ipv4Addr) -> Released {
        let (sender, answer) = oneshot::channel();
        let command = Command::Release(address, sender);
        self.commands.blocking_send(command).unwrap();
        answer.blocking_recv().unwrap()
    }

    /// Gives a client a lease.
    pub fn bind(&self, mac: Mac) -> Ipv4Addr {
        self.relay.discover(mac);
        let address = self.relay.expect("an offer").yiaddr();
        self.relay.select(mac, address);
        assert_eq!(self.relay.expect("an ACK").kind(), 5);
        address
    }

    /// How many requests got no answer since their lease was not stored.
    pub fn not_stored(&self) -> u64 {
        let name = "oooi_dhcp_messages_ignored_total{type=\"request\",reason=\"not_stored\"} ";
        let page = self.metrics_page();
        let value = page.lines().find_map(|line| line.strip_prefix(name));
        value.unwrap().parse().unwrap()
    }

    /// A number of the last report.
    pub fn count(&self, name: &str) -> Option<i64> {
        self.report.latest()?.counts.get(name).copied()
    }

    pub fn lease(&self, address: Ipv4Addr) -> Option<Lease> {
        self.shared
            .leases()
            .into_iter()
            .find(|lease| lease.address == address)
    }
}

pub fn with_server(more: impl FnOnce(&mut DhcpServerSpec), body: impl FnOnce(World<'_>)) {
    with_past(&[], Machines::default(), more, body);
}

/// The same, with leases of before and the machines that are known at the start.
pub fn with_past(
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
