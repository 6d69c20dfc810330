//! What else happens to a running server: other stations, new configurations, people, and a shared store.

use std::net::Ipv4Addr;
use std::sync::Arc;

use oooi_api::report::Event;
use tracing::{error, info, warn};

use super::{Desk, SELDOM};
use crate::config::Config;
use crate::control::{Command, Released};
use crate::frame::{self, Heard};
use crate::lease::{Lease, State};
use crate::mac::Mac;
use crate::machines::Machines;
use crate::message::Message;
use crate::probe;
use crate::respond;
use crate::server::Waiting;
use crate::socket::Inbox;
use crate::store::Update;
use crate::time::Timestamp;

impl Desk<'_> {
    pub(in crate::server) fn frames(&mut self, inbox: &Inbox) {
        for (packet, _) in inbox.packets() {
            match packet.ok().and_then(frame::hear) {
                Some(Heard::Has(address, mac)) => self.taken_by(address, mac),
                Some(Heard::Serves(server, mac)) => self.stranger(server, Some(mac)),
                None => {}
            }
        }
    }

    /// A station answered an ARP probe.
    fn taken_by(&mut self, address: Ipv4Addr, mac: Mac) {
        if address == self.config.server() {
            return self.not_alone(address, mac);
        }
        let Some(waiting) = self.probes.answered(address, mac) else {
            return;
        };
        let now = self.clock.now();
        self.conflict(address, &format!("{mac} answers for it"));
        let quarantine = respond::conflict(address, mac, &self.config, now);
        // At once in memory, so that the message that waited leads to another address.
        self.leases.put(quarantine.clone());
        self.store(quarantine, Waiting::Nobody);
        self.decide_again(&waiting, now);
    }

    pub(super) fn conflict(&mut self, address: Ipv4Addr, why: &str) {
        self.metrics.conflicts.inc();
        warn!(%address, why, "quarantined an address of the pool");
        self.report.event(Event::warning(
            "AddressConflict",
            format!("{address} is used by a station that has no lease for it ({why}): give that station another address or exclude this one"),
        ));
    }

    pub(super) fn decide_again(&mut self, waiting: &probe::Waiting, now: Timestamp) {
        if let Ok(message) = Message::parse(&waiting.packet) {
            self.received = waiting.received;
            self.handle(&waiting.packet, &message, waiting.arrival, now);
            self.note_latency();
        }
    }

    pub(super) fn stranger(&mut self, server: Ipv4Addr, mac: Option<Mac>) {
        let ours = [&self.config.replicas, &self.config.known_servers];
        if ours.iter().any(|own| own.contains(&server)) || self.machines.servers.contains(&server) {
            return;
        }
        self.metrics.rogue_answers.inc();
        if self.rogues.seen(server, self.clock.now()) {
            self.standing.changed();
            let by = mac.map(|mac| format!(" ({mac})")).unwrap_or_default();
            warn!(%server, mac = mac.map(tracing::field::display), "another DHCP server answers on this network");
            self.report.event(Event::warning(
                "RogueServer",
                format!("the DHCP server {server}{by} answers on this network and is not ours: turn it off, or name it in networkConfig.knownServers if it is meant to be there"),
            ));
        }
    }

    /// Another station has the server's own address: what clients send may reach that one.
    fn not_alone(&mut self, server: Ipv4Addr, mac: Mac) {
        self.metrics.conflicts.inc();
        if !self.not_alone.may_log(self.clock.now()) {
            return;
        }
        warn!(%server, %mac, "another station has the server's address");
        self.report.event(Event::warning(
            "ServerAddressTaken",
            format!(
                "{mac} has {server}, the address of this server, as well: give that station another one, or change networkConfig.serverIP"
            ),
        ));
    }

    /// Says so when the server's own address is not on the interface: clients could not answer it. Asks whether
    /// somebody else has it.
    pub(in crate::server) fn check_address(&mut self) {
        let (server, interface) = (self.config.server(), self.socket.interface());
        self.socket.probe(&mut self.outbox, server);
        if self
            .socket
            .addresses()
            .is_ok_and(|addresses| !addresses.contains(&server))
        {
            warn!(%server, interface, "the server's address is not on its interface");
            self.report.event(Event::warning(
                "ServerAddressMissing",
                format!(
                    "{interface} does not have {server}: add the address, or correct networkConfig.serverIP"
                ),
            ));
        }
    }

    pub(in crate::server) fn configure(&mut self, config: Arc<Config>) {
        let now = self.clock.now();
        info!(server = %config.server(), pool = config.pool_size(), "the configuration changed");
        self.config = config;
        self.leases.adopt(&self.config, now);
        self.metrics.config_applied.set(now.0 as f64 / 1000.0);
        self.standing.changed();
        self.not_alone = SELDOM;
        self.check_address();
    }

    /// The wall clock may have jumped while no server ran. To a shared store others may have written meanwhile, by clocks of
    /// their own: what they wrote stays as it is.
    pub(in crate::server) fn doubt_time_since(&mut self, newest: Timestamp, shared: bool) {
        self.overdue = self.leases.doubt_time_since(newest, self.clock.now()) && !shared;
        if shared {
            self.leases.settled();
            // The store says the same when it is followed, but packets that waited for this start may be faster.
            self.hold_expired();
        }
    }

    /// Another replica may have renewed what is over by all that the store says.
    fn hold_expired(&mut self) {
        let until = self.clock.now().after(self.config.lease_time);
        self.leases.hold_expired_until(until);
    }

    /// A machine that is gone frees its lease, also if it went while no server ran.
    pub(in crate::server) fn learn(&mut self, machines: Arc<Machines>) {
        let now = self.clock.now();
        let gone = |lease: &&Lease| {
            lease.is_active(now)
                && machines.lack(lease.mac)
                && (lease.machine || self.machines.has(lease.mac))
        };
        let gone: Vec<Lease> = self.leases.iter().filter(gone).cloned().collect();
        for lease in gone {
            info!(mac = %lease.mac, address = %lease.address, "freed: the machine is gone");
            self.store(lease.released(now), Waiting::Machine);
        }
        self.machines = machines;
    }

    /// Frees what could not be stored as free, unless the machine is back or somebody else has the address.
    pub(super) fn free_again(&mut self, address: Ipv4Addr, mac: Mac, now: Timestamp) {
        let still = |lease: &&Lease| lease.mac == mac && lease.is_active(now) && self.machines.lack(mac);
        let freed = self.leases.get(address).filter(still);
        if let Some(freed) = freed.map(|lease| lease.released(now)) {
            self.store(freed, Waiting::Machine);
        }
    }

    pub(in crate::server) fn obey(&mut self, command: Command) {
        let now = self.clock.now();
        match command {
            Command::Release(address, answer) => {
                let lease = self
                    .leases
                    .get(address)
                    .filter(|lease| lease.state != State::Released && lease.is_live(now));
                match lease.map(|lease| lease.released(now)) {
                    Some(released) => {
                        info!(%address, mac = %released.mac, "released by hand");
                        self.store(released, Waiting::Person(answer));
                    }
                    // Whoever asked may be gone already.
                    None => drop(answer.send(Released::NoLease)),
                }
            }
        }
    }

    pub(in crate::server) fn update(&mut self, update: Update) {
        let now = self.clock.now();
        match update {
            Update::Put(lease) => {
                self.leases.hear(lease, now);
                self.standing.leases_changed(now);
            }
            Update::Forget(address) => {
                self.leases.forget(address);
                self.standing.leases_changed(now);
            }
            Update::Away => {
                self.standing.store_is_away(true);
                error!("the lease store is away: leases are renewed, new clients get no address");
                self.metrics.store_available.set(0);
            }
            Update::Back => {
                self.standing.store_is_away(false);
                info!("the lease store is back");
                self.metrics.store_available.set(1);
                self.hold_expired();
            }
        }
        self.standing.changed();
    }
}
