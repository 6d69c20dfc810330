//! The state of a running server, and what packets and commits do to it. Nothing here waits.

mod events;

use std::sync::Arc;
use std::time::{Duration, Instant};

use oooi_api::report::Report;
use tracing::{debug, info};

use super::lines::Lines;
use super::rogues::Rogues;
use super::standing::Standing;
use super::unfreed::Unfreed;
use super::{Answer, Batch, Waiting};
use crate::config::Config;
use crate::control::Released;
use crate::lease::{Lease, State};
use crate::leases::Leases;
use crate::machines::Machines;
use crate::message::{self, Malformed, Message, MessageType};
use crate::metrics::Metrics;
use crate::probe::{self, Probes};
use crate::reply::Reply;
use crate::respond::{Action, Arrival, OFFER_TIME, Silence, View, respond};
use crate::socket::{Inbox, Outbox, Socket};
use crate::store::{Exception, Fate, StoreError};
use crate::time::{Clock, Timestamp};

/// Log lines a second about what single clients do and are refused; the counters have them all.
const LINES: Lines = Lines::new(50, Duration::from_secs(1));
/// Another station with the server's address answers as often as it is asked.
const SELDOM: Lines = Lines::new(1, Duration::from_secs(60));

pub(super) struct Desk<'s> {
    socket: &'s Socket,
    config: Arc<Config>,
    machines: Arc<Machines>,
    leases: Leases,
    clock: Clock,
    metrics: Metrics,
    report: Arc<dyn Report>,
    probes: Probes,
    rogues: Rogues,
    standing: Standing,
    unfreed: Unfreed,
    /// What is owed to the store waits for nothing else.
    overdue: bool,
    /// Leases for the next commit.
    pending: Batch,
    /// What leaves at once.
    outbox: Outbox,
    /// How many answers are among it.
    answers: usize,
    /// When the message that is handled came in.
    received: Instant,
    lines: Lines,
    not_alone: Lines,
    message: Vec<u8>,
}

impl<'s> Desk<'s> {
    pub(super) fn new(
        socket: &'s Socket,
        config: Arc<Config>,
        stored: Vec<Lease>,
        report: Arc<dyn Report>,
        metrics: Metrics,
        clock: Clock,
    ) -> Self {
        metrics.store_available.set(1);
        let now = clock.now();
        let newest = stored.iter().map(|lease| lease.since).max();
        metrics.config_applied.set(now.0 as f64 / 1000.0);
        Desk {
            socket,
            leases: Leases::new(&config, stored, now),
            config,
            machines: Arc::default(),
            clock,
            metrics,
            report,
            probes: Probes::default(),
            rogues: Rogues::default(),
            standing: Standing::new(newest),
            unfreed: Unfreed::default(),
            overdue: false,
            pending: Batch::default(),
            outbox: Outbox::default(),
            answers: 0,
            received: Instant::now(),
            lines: LINES,
            not_alone: SELDOM,
            message: Vec::with_capacity(1500),
        }
    }

    pub(super) fn requests(&mut self, inbox: &Inbox) {
        let now = self.clock.now();
        self.received = Instant::now();
        for (packet, arrival) in inbox.packets() {
            match packet.and_then(|packet| Message::parse(packet).map(|message| (packet, message))) {
                Ok((packet, message)) => {
                    self.metrics.received(message.kind);
                    self.handle(packet, &message, arrival, now);
                }
                Err(reason) => self.malformed(packet.unwrap_or_default(), reason),
            }
        }
        self.flush();
        self.note_latency();
    }

    fn malformed(&self, packet: &[u8], reason: Malformed) {
        self.metrics.malformed(reason);
        let (mac, xid) = (message::mac(packet), message::xid(packet).map(Xid));
        debug!(
            mac = mac.map(tracing::field::display), xid = xid.map(tracing::field::display),
            %reason, label = reason.label(), "ignored a packet"
        );
    }

    /// Notes how long the answers took that leave now. Probes are no answers.
    fn note_latency(&mut self) {
        let answers = std::mem::take(&mut self.answers);
        if answers > 0 {
            let taken = self.received.elapsed().as_secs_f64();
            (0..answers).for_each(|_| self.metrics.latency.observe(taken));
        }
    }

    fn handle(&mut self, packet: &[u8], message: &Message<'_>, arrival: Arrival, now: Timestamp) {
        let view = View {
            config: &self.config,
            leases: &self.leases,
            machines: &self.machines,
            now,
        };
        let action = respond(view, message, arrival);
        match action {
            Action::Ignore(silence) => self.ignore(message, silence),
            Action::Offer { hold: Some(_), .. } | Action::Probe { .. } if self.standing.is_away() => {
                self.ignore(message, Silence::NotStored);
            }
            Action::Grant { .. } | Action::Release { .. } | Action::Quarantine { .. }
                if !self.pending.admits(message.mac) =>
            {
                self.ignore(message, Silence::NotStored);
            }
            Action::Probe { hold } => {
                let waiting = probe::Waiting {
                    packet: packet.to_vec(),
                    arrival,
                    mac: message.mac,
                    received: self.received,
                };
                if self.probes.start(hold.address, waiting, now) {
                    debug!(mac = %message.mac, address = %hold.address, xid = %Xid(message.xid), "probing by ARP");
                    self.socket.probe(&mut self.outbox, hold.address);
                    self.leases.put(hold);
                } else {
                    self.ignore(message, Silence::ProbeUnderWay);
                }
            }
            Action::Offer { hold, reply } => {
                if let Some(hold) = hold {
                    self.leases.put(hold);
                }
                self.answer(message, &reply);
            }
            Action::Confirm { reply } | Action::Refuse { reply } => self.answer(message, &reply),
            Action::Grant { lease, reply } => {
                self.claim(&lease, now);
                self.encode(message, &reply);
                self.pending.waiting.push(Waiting::Client(Answer {
                    place: self.pending.answers.len(),
                    kind: message.kind,
                    xid: message.xid,
                }));
                self.pending.since.get_or_insert(self.received);
                self.socket.answer(
                    &mut self.pending.answers,
                    self.config.server,
                    reply.to,
                    &self.message,
                );
                self.pending.leases.push(lease);
            }
            Action::Release { lease } => {
                if self.lines.may_log(now) {
                    info!(mac = %message.mac, address = %lease.address, xid = %Xid(message.xid), "released");
                }
                self.store(lease, Waiting::Nobody);
            }
            Action::Quarantine { lease } => {
                self.conflict(lease.address, "a client declined it");
                self.store(lease, Waiting::Nobody);
            }
        }
    }

    fn ignore(&mut self, message: &Message<'_>, silence: Silence) {
        let asked = message.requested.unwrap_or(message.ciaddr);
        debug!(
            kind = message.kind.label(), mac = %message.mac, address = %asked, xid = %Xid(message.xid),
            reason = silence.label(), "no answer"
        );
        self.metrics.ignored(message.kind, silence);
        match silence {
            Silence::NoFreeAddress => {
                self.standing
                    .pool_is_full(&self.config, &*self.report, self.clock.now());
            }
            Silence::OtherServer => {
                if let Some(server) = message.server {
                    self.stranger(server, None);
                }
            }
            _ => {}
        }
    }

    /// Holds the address of a lease that is not stored yet. A record that is live holds it already, and longer: an
    /// address is granted to nobody but its client, though that may name itself differently now.
    fn claim(&mut self, lease: &Lease, now: Timestamp) {
        let held = self.leases.get(lease.address);
        if !held.is_some_and(|record| record.is_live(now)) {
            self.leases.put(Lease {
                state: State::Offered,
                expires: now.after(OFFER_TIME),
                ..lease.clone()
            });
        }
    }

    /// Queues the end of a lease, which no client waits for. Asked for again before that is stored, it has to be stored
    /// again: it is not recent any more, so that nobody is told that it stands.
    fn store(&mut self, lease: Lease, waiting: Waiting) {
        let held = self.leases.get(lease.address);
        if let Some(held) = held.filter(|held| held.state == State::Bound).cloned() {
            self.leases.put(Lease {
                since: Timestamp::default(),
                ..held
            });
        }
        self.pending.leases.push(lease);
        self.pending.waiting.push(waiting);
    }

    fn answer(&mut self, message: &Message<'_>, reply: &Reply) {
        self.encode(message, reply);
        self.metrics.sent(reply.kind);
        self.answers += 1;
        self.socket
            .answer(&mut self.outbox, self.config.server, reply.to, &self.message);
    }

    fn encode(&mut self, message: &Message<'_>, reply: &Reply) {
        let left_out = reply.encode(&self.config, message, &mut self.message);
        let (mac, address, xid) = (message.mac, reply.yiaddr, Xid(message.xid));
        match reply.kind {
            MessageType::Nak if self.lines.may_log(self.clock.now()) => {
                let asked = message.requested.unwrap_or(message.ciaddr);
                info!(%mac, address = %asked, %xid, reason = reply.message, "refused");
            }
            kind => debug!(kind = kind.label(), %mac, %address, %xid, to = ?reply.to, "answered"),
        }
        if !left_out.is_empty() {
            debug!(%mac, %xid, options = ?left_out, "options left out: the client takes no longer message");
        }
    }

    /// How long until something is due by time alone.
    pub(super) fn next_wake(&self) -> Option<Duration> {
        let due = [
            self.probes.next(),
            self.standing.next(),
            self.rogues.next(),
            self.unfreed.next(),
        ];
        let due = due.into_iter().flatten().min()?;
        Some(due.since(self.clock.now()))
    }

    /// Handles what is due.
    pub(super) fn tick(&mut self) {
        let now = self.clock.now();
        while let Some((address, waiting)) = self.probes.unanswered(now) {
            if let Some(lease) = self
                .leases
                .get(address)
                .filter(|lease| lease.state == State::Probing)
            {
                self.leases.put(Lease {
                    state: State::Offered,
                    ..lease.clone()
                });
            }
            self.decide_again(&waiting, now);
        }
        for (address, mac) in self.unfreed.due(now) {
            self.free_again(address, mac, now);
        }
        if self.rogues.forget_old(now) {
            self.standing.changed();
        }
        if self.standing.is_due(now) {
            self.announce();
        }
    }

    pub(super) fn has_pending(&self) -> bool {
        self.overdue || !self.pending.leases.is_empty()
    }

    pub(super) fn take_batch(&mut self, batch: &mut Batch) {
        std::mem::swap(batch, &mut self.pending);
        self.overdue = false;
        let owed = self.leases.owed(self.clock.now());
        batch.waiting.splice(0..0, owed.iter().map(|_| Waiting::Nobody));
        batch.leases.splice(0..0, owed);
    }

    /// The batch was stored, or was not: answers leave, or do not.
    pub(super) fn committed(
        &mut self,
        batch: &mut Batch,
        outcome: Result<Vec<Exception>, StoreError>,
        taken: Duration,
    ) {
        let now = self.clock.now();
        self.metrics.store_latency.observe(taken.as_secs_f64());
        match outcome {
            Ok(exceptions) => {
                if self.standing.store_works(&*self.report) {
                    self.metrics.store_available.set(1);
                }
                self.leases.settled();
                let acknowledged = self.settle(batch, exceptions, now);
                let failed = self.socket.send(&mut batch.answers);
                self.metrics.send_failures.inc_by(failed as u64);
                if let Some(since) = batch.since.take() {
                    let taken = since.elapsed().as_secs_f64();
                    for _ in 0..acknowledged {
                        self.metrics.sent(MessageType::Ack);
                        self.metrics.latency.observe(taken);
                    }
                }
            }
            Err(error) => {
                self.metrics.store_failures.inc();
                self.metrics.store_available.set(0);
                self.standing
                    .store_fails(&error, batch.leases.len(), &*self.report);
                for (lease, waiting) in batch.leases.drain(..).zip(batch.waiting.drain(..)) {
                    self.not_stored(&lease, waiting, Silence::NotStored.label());
                }
                batch.answers.clear();
                batch.since = None;
            }
        }
        batch.late.clear();
    }

    /// Learns what a commit stored, and drops the answers to what it did not. Returns how many answers are left.
    fn settle(&mut self, batch: &mut Batch, exceptions: Vec<Exception>, now: Timestamp) -> usize {
        let mut acknowledged = 0;
        let mut refused = exceptions.into_iter().peekable();
        let waiting = batch.leases.drain(..).zip(batch.waiting.drain(..));
        for (index, (lease, waiting)) in waiting.enumerate() {
            let exception = refused.next_if(|exception| exception.index == index);
            match exception.map(|exception| exception.fate) {
                None | Some(Fate::Deferred) => {
                    self.leases.put(lease);
                    self.standing.leases_changed(now);
                    match waiting {
                        Waiting::Client(_) => acknowledged += 1,
                        // Whoever asked may be gone already.
                        Waiting::Person(answer) => drop(answer.send(Released::Stored)),
                        Waiting::Nobody | Waiting::Machine => {}
                    }
                }
                Some(fate) => {
                    if let Waiting::Client(answer) = waiting {
                        batch.answers.drop_packet(answer.place);
                    }
                    if let Fate::Taken(other) = fate {
                        self.not_stored(&lease, waiting, "taken");
                        self.leases.hear(other, now);
                    } else {
                        self.not_stored(&lease, waiting, Silence::NotStored.label());
                    }
                }
            }
        }
        acknowledged
    }

    /// A lease was not stored, and whoever waits for it gets no answer.
    fn not_stored(&mut self, lease: &Lease, waiting: Waiting, reason: &str) {
        let now = self.clock.now();
        let mut xid = None;
        match waiting {
            Waiting::Client(answer) => {
                self.metrics.ignored(answer.kind, Silence::NotStored);
                xid = Some(tracing::field::display(Xid(answer.xid)));
            }
            Waiting::Person(answer) => drop(answer.send(Released::NotStored)),
            Waiting::Machine => self.unfreed.add(lease, now),
            Waiting::Nobody => {}
        }
        if self.lines.may_log(now) {
            info!(mac = %lease.mac, address = %lease.address, xid, reason, "no answer");
        }
    }

    /// Sends what leaves at once.
    pub(super) fn flush(&mut self) {
        if !self.outbox.is_empty() {
            let failed = self.socket.send(&mut self.outbox);
            self.metrics.send_failures.inc_by(failed as u64);
        }
    }

    /// Says how the server is.
    pub(super) fn announce(&mut self) {
        let (now, rogues) = (self.clock.now(), self.rogues.count());
        self.standing.announce(
            &self.config,
            &self.leases,
            rogues,
            &self.metrics,
            &*self.report,
            now,
        );
    }
}

/// A transaction as people write it.
struct Xid([u8; 4]);

impl std::fmt::Display for Xid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:08x}", u32::from_be_bytes(self.0))
    }
}
