//! What the server counts.
//!
//! Counters that packets touch are looked up once, here, so that counting one costs an atomic addition.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::message::{Malformed, MessageType};
use crate::respond::Silence;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TypeLabel {
    r#type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct IgnoredLabel {
    r#type: &'static str,
    reason: &'static str,
}

/// Counters by the number of a message type; those of types that are not counted belong to no family.
type ByType = [Counter; 9];

/// Every metric of one server.
#[derive(Clone, Debug)]
pub struct Metrics {
    received: ByType,
    sent: ByType,
    ignored: HashMap<(MessageType, Silence), Counter>,
    malformed: Family<ReasonLabel, Counter>,
    pub(crate) latency: Histogram,
    pub(crate) store_latency: Histogram,
    pub(crate) store_failures: Counter,
    pub(crate) store_available: Gauge,
    pub(crate) send_failures: Counter,
    pub(crate) conflicts: Counter,
    pub(crate) rogue_answers: Counter,
    pub(crate) rogue_servers: Gauge,
    pub(crate) pool_size: Gauge,
    pub(crate) pool_exhausted: Gauge,
    pub(crate) active: Gauge,
    pub(crate) quarantined: Gauge,
    pub(crate) offers: Gauge,
    pub(crate) config_applied: Gauge<f64, AtomicU64>,
}

impl Metrics {
    /// Makes the metrics and makes them visible in a registry. Their names begin with `oooi_dhcp_`.
    pub fn register(registry: &mut Registry) -> Self {
        let registry = registry.sub_registry_with_prefix("oooi_dhcp");
        let received = Family::<TypeLabel, Counter>::default();
        let sent = Family::<TypeLabel, Counter>::default();
        let ignored = Family::<IgnoredLabel, Counter>::default();
        let of_type = |family: &Family<TypeLabel, Counter>, kinds: &[MessageType]| {
            let mut counters = ByType::default();
            for kind in kinds {
                if let Some(counter) = counters.get_mut(*kind as usize) {
                    *counter = family.get_or_create_owned(&TypeLabel { r#type: kind.label() });
                }
            }
            counters
        };
        use MessageType::{Ack, Decline, Discover, Inform, Nak, Offer, Release, Request};
        let malformed = Family::<ReasonLabel, Counter>::default();
        // From zero, as all others: the increase of a series is not seen before it has been there.
        for example in Malformed::EXAMPLES {
            let reason = example.label();
            drop(malformed.get_or_create(&ReasonLabel { reason }));
        }
        let asked = [Discover, Request, Decline, Release, Inform];
        let pairs = asked
            .iter()
            .flat_map(|kind| Silence::ALL.map(|silence| (*kind, silence)));
        let metrics = Metrics {
            received: of_type(&received, &asked),
            sent: of_type(&sent, &[Offer, Ack, Nak]),
            ignored: pairs
                .map(|(kind, silence)| {
                    let label = IgnoredLabel {
                        r#type: kind.label(),
                        reason: silence.label(),
                    };
                    ((kind, silence), ignored.get_or_create_owned(&label))
                })
                .collect(),
            malformed,
            latency: Histogram::new(exponential_buckets(0.000_05, 2.0, 14)),
            store_latency: Histogram::new(exponential_buckets(0.000_05, 2.0, 14)),
            store_failures: Counter::default(),
            store_available: Gauge::default(),
            send_failures: Counter::default(),
            conflicts: Counter::default(),
            rogue_answers: Counter::default(),
            rogue_servers: Gauge::default(),
            pool_size: Gauge::default(),
            pool_exhausted: Gauge::default(),
            active: Gauge::default(),
            quarantined: Gauge::default(),
            offers: Gauge::default(),
            config_applied: Gauge::default(),
        };
        let m = metrics.clone();
        registry.register("messages_received", "Messages of clients, by type", received);
        registry.register("messages_sent", "Answers, by type", sent);
        registry.register(
            "messages_ignored",
            "Messages that got no answer, by type and reason",
            ignored,
        );
        registry.register(
            "messages_malformed",
            "Packets that are no messages, by reason",
            m.malformed,
        );
        registry.register(
            "answer_seconds",
            "Time from receiving a message until its answer left",
            m.latency,
        );
        registry.register(
            "store_commit_seconds",
            "Time to make a batch of leases durable",
            m.store_latency,
        );
        registry.register(
            "store_failures",
            "Batches that could not be stored and got no answer",
            m.store_failures,
        );
        registry.register(
            "store_available",
            "1 while leases can be stored",
            m.store_available,
        );
        registry.register(
            "send_failures",
            "Answers that the network did not take",
            m.send_failures,
        );
        registry.register(
            "conflicts",
            "Addresses of the pool that a stranger was found to use",
            m.conflicts,
        );
        registry.register(
            "rogue_answers",
            "Signs of DHCP servers that are not ours",
            m.rogue_answers,
        );
        registry.register(
            "rogue_servers",
            "DHCP servers that are not ours, seen lately",
            m.rogue_servers,
        );
        registry.register("pool_addresses", "Addresses that can be leased", m.pool_size);
        registry.register(
            "pool_exhausted",
            "1 while a client found no free address",
            m.pool_exhausted,
        );
        registry.register("leases_active", "Leases that have not expired", m.active);
        registry.register(
            "leases_quarantined",
            "Addresses that nobody gets because a stranger uses them",
            m.quarantined,
        );
        registry.register("offers", "Offers that are remembered", m.offers);
        registry.register(
            "config_applied_timestamp_seconds",
            "When the configuration last changed",
            m.config_applied,
        );
        metrics
    }

    /// Whether leases can be stored, which clients need to get one. False until the stored ones are loaded.
    pub fn store_is_available(&self) -> bool {
        self.store_available.get() == 1
    }

    pub(crate) fn received(&self, kind: MessageType) {
        if let Some(counter) = self.received.get(kind as usize) {
            counter.inc();
        }
    }

    pub(crate) fn sent(&self, kind: MessageType) {
        if let Some(counter) = self.sent.get(kind as usize) {
            counter.inc();
        }
    }

    pub(crate) fn ignored(&self, kind: MessageType, silence: Silence) {
        if let Some(counter) = self.ignored.get(&(kind, silence)) {
            counter.inc();
        }
    }

    pub(crate) fn malformed(&self, reason: Malformed) {
        self.malformed
            .get_or_create(&ReasonLabel {
                reason: reason.label(),
            })
            .inc();
    }
}
