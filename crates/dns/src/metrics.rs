//! What the server counts.
//!
//! Each core has its own [`Counters`] and is alone in writing them, so that counting costs an addition and
//! no bus traffic; they are summed when somebody asks. [`Metrics`] writes all of it, and what the cache,
//! the upstreams and the questions in flight say of themselves, for Prometheus.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::server::Shared;
use crate::view::ViewKind;
use crate::wire::{Rcode, kind};

/// A counter that one thread writes and any thread reads.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// One more. Only the owning thread may call this: it is no atomic addition.
    pub fn bump(&self) {
        self.0.store(self.0.load(Relaxed) + 1, Relaxed);
    }

    /// The number now.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

const KINDS: [(u16, &str); 13] = [
    (kind::A, "A"),
    (kind::AAAA, "AAAA"),
    (kind::PTR, "PTR"),
    (kind::SRV, "SRV"),
    (kind::HTTPS, "HTTPS"),
    (kind::CNAME, "CNAME"),
    (kind::TXT, "TXT"),
    (kind::MX, "MX"),
    (kind::NS, "NS"),
    (kind::SOA, "SOA"),
    (kind::DS, "DS"),
    (kind::DNSKEY, "DNSKEY"),
    (kind::ANY, "ANY"),
];
const KIND_LABELS: usize = KINDS.len() + 1;
const RCODES: [&str; 7] = [
    "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "other",
];

/// What one core counts.
#[derive(Debug, Default)]
pub struct Counters {
    answers: [[[Count; RCODES.len()]; KIND_LABELS]; 2],
    /// Messages that are no questions and get an error code.
    pub malformed: Count,
    /// Messages that get no answer at all.
    pub silent: Count,
    /// Answers from the cache within their time.
    pub cache_hits: Count,
    /// Answers from the cache past their time.
    pub cache_stale: Count,
    /// Questions that the cache could not answer.
    pub cache_misses: Count,
    /// Hot answers fetched anew before their end.
    pub prefetches: Count,
    /// Questions over the rate that a client is allowed.
    pub rate_limited: Count,
    /// Questions turned away because too many were in flight.
    pub overloaded: Count,
    /// TCP connections taken.
    pub connections: Count,
    /// TCP connections turned away.
    pub connections_refused: Count,
}

impl Counters {
    /// Counts an answer of every sort, for the reference of metrics.
    pub(crate) fn answer_everything(&self) {
        for view in ViewKind::ALL {
            for (asked, _) in KINDS.iter().chain(&[(0, "other")]) {
                for code in 0..RCODES.len() {
                    self.answered(view, *asked, Rcode(code as u16));
                }
            }
        }
    }

    /// Counts an answer.
    pub fn answered(&self, view: ViewKind, asked: u16, rcode: Rcode) {
        // A and AAAA are nearly all questions and stand first.
        let at = KINDS
            .iter()
            .position(|(kind, _)| *kind == asked)
            .unwrap_or(KINDS.len());
        let code = usize::from(rcode.0).min(RCODES.len() - 1);
        self.answers[view as usize][at][code].bump();
    }
}

/// Upper bounds of the classes of durations, in microseconds.
const BOUNDS: [u64; 12] = [
    250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
];

/// Durations in classes; written by all cores.
#[derive(Debug, Default)]
pub struct Histogram {
    classes: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl Histogram {
    /// Counts one duration.
    pub fn observe(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let class = BOUNDS.partition_point(|&bound| bound < micros);
        self.classes[class].fetch_add(1, Relaxed);
        self.micros.fetch_add(micros, Relaxed);
    }

    /// Seconds in all, how many, and how many in each class by its upper bound in seconds.
    fn snapshot(&self) -> (f64, u64, Vec<(f64, u64)>) {
        let counts: Vec<u64> = self.classes.iter().map(|class| class.load(Relaxed)).collect();
        let bounds = BOUNDS.iter().map(|&bound| bound as f64 / 1e6).chain([f64::MAX]);
        let sum = self.micros.load(Relaxed) as f64 / 1e6;
        (
            sum,
            counts.iter().sum(),
            bounds.zip(counts.iter().copied()).collect(),
        )
    }
}

/// Writes everything for Prometheus.
#[derive(Clone)]
pub struct Metrics {
    shared: Arc<Shared>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl Metrics {
    pub(crate) fn new(shared: Arc<Shared>) -> Metrics {
        Metrics { shared }
    }

    /// Puts the metrics into a registry; their names begin with `oooi_dns_`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }

    fn sum(&self, count: impl Fn(&Counters) -> &Count) -> u64 {
        self.shared
            .counters
            .iter()
            .map(|counters| count(counters).get())
            .sum()
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let queries = "Questions answered, by the view of the client, type and response code";
        let mut family = encoder.encode_descriptor("oooi_dns_queries", queries, None, MetricType::Counter)?;
        for view in ViewKind::ALL {
            for at in 0..KIND_LABELS {
                let kind = KINDS.get(at).map_or("other", |(_, label)| *label);
                for (code, rcode) in RCODES.iter().enumerate() {
                    let count = self.sum(|counters| &counters.answers[view as usize][at][code]);
                    if count > 0 {
                        let labels = [("view", view.label()), ("type", kind), ("rcode", *rcode)];
                        family
                            .encode_family(&labels)?
                            .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
                    }
                }
            }
        }
        self.encode_counters(&mut encoder)?;
        self.encode_gauges(&mut encoder)?;
        self.encode_upstreams(&mut encoder)
    }
}

type Counter = (&'static str, &'static str, fn(&Counters) -> &Count);

const COUNTERS: [Counter; 10] = [
    (
        "oooi_dns_malformed",
        "Messages answered with an error because they are no questions",
        |c| &c.malformed,
    ),
    ("oooi_dns_silent", "Messages that got no answer", |c| &c.silent),
    ("oooi_dns_cache_hits", "Answers from the cache", |c| &c.cache_hits),
    (
        "oooi_dns_cache_stale",
        "Answers from the cache past their time, as no upstream answered",
        |c| &c.cache_stale,
    ),
    (
        "oooi_dns_cache_misses",
        "Questions that the cache could not answer",
        |c| &c.cache_misses,
    ),
    (
        "oooi_dns_prefetches",
        "Hot answers fetched anew before their end",
        |c| &c.prefetches,
    ),
    (
        "oooi_dns_rate_limited",
        "Questions over the rate allowed to a client",
        |c| &c.rate_limited,
    ),
    (
        "oooi_dns_overloaded",
        "Questions turned away as too many were in flight",
        |c| &c.overloaded,
    ),
    ("oooi_dns_tcp_connections", "TCP connections taken", |c| {
        &c.connections
    }),
    (
        "oooi_dns_tcp_connections_refused",
        "TCP connections turned away",
        |c| &c.connections_refused,
    ),
];

impl Metrics {
    fn encode_counters(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, count) in COUNTERS {
            encoder
                .encode_descriptor(name, help, None, MetricType::Counter)?
                .encode_counter::<NoLabelSet, _, u64>(&self.sum(count), None)?;
        }
        Ok(())
    }

    fn encode_gauges(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let serving = self.shared.serving();
        let gauges: [(&str, &str, i64); 4] = [
            (
                "oooi_dns_cache_entries",
                "Answers in the cache",
                self.shared.cache.len() as i64,
            ),
            (
                "oooi_dns_cache_bytes",
                "Octets that the cache takes",
                self.shared.cache.octets() as i64,
            ),
            (
                "oooi_dns_in_flight",
                "Questions that wait for an upstream",
                self.shared.in_flight.len() as i64,
            ),
            (
                "oooi_dns_names",
                "Own names with records",
                serving.map_or(0, |now| now.horizon.own_names() as i64),
            ),
        ];
        for (name, help, value) in gauges {
            encoder
                .encode_descriptor(name, help, None, MetricType::Gauge)?
                .encode_gauge(&value)?;
        }
        Ok(())
    }

    fn encode_upstreams(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(serving) = self.shared.serving() else {
            return Ok(());
        };
        let members: Vec<_> = serving.groups.members().cloned().collect();
        let label = |label: &str| [("upstream", label.to_owned())];
        let mut up = encoder.encode_descriptor(
            "oooi_dns_upstream_up",
            "1 while it answers",
            None,
            MetricType::Gauge,
        )?;
        for member in &members {
            let value = i64::from(member.health.is_up() && !member.is_looping());
            up.encode_family(&label(&member.label))?.encode_gauge(&value)?;
        }
        let help = "Questions that it did not answer";
        let mut failures =
            encoder.encode_descriptor("oooi_dns_upstream_failures", help, None, MetricType::Counter)?;
        for member in &members {
            let value = member.failures.load(Relaxed);
            failures
                .encode_family(&label(&member.label))?
                .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        let help = "How long its answers took";
        let name = "oooi_dns_upstream_latency_seconds";
        let mut latency = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for member in &members {
            let (sum, count, classes) = member.latency.snapshot();
            latency
                .encode_family(&label(&member.label))?
                .encode_histogram::<NoLabelSet>(sum, count, &classes, None)?;
        }
        Ok(())
    }
}
