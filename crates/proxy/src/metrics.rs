//! What the native engine counts. The xDS manager uses the same names for what means the same in Envoy.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::snapshot::{Problem, Snapshot};

/// Why a connection was refused or ended by the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No backend has the name that it asks for.
    UnknownName,
    /// It asks for no name, and no backend of the port answers that.
    NoName,
    /// The first bytes are no TLS hello.
    NotTls,
    /// The hello was not complete in time.
    HelloTimeout,
    /// The client went before its hello was complete.
    HelloEnded,
    /// The client has too many connections.
    ClientLimit,
    /// As many connections are open as there may be. Only Envoy and datagrams end by that; others wait.
    ConnectionLimit,
    /// The backend has no endpoint.
    NoEndpoint,
    /// None of the backend's endpoints answered.
    ConnectFailed,
    /// There was no file descriptor or memory left for a socket to the backend.
    Exhausted,
    /// Silent for too long.
    Idle,
    /// One of the two sides broke off.
    PeerReset,
}

impl Reason {
    /// Every one of them.
    const ALL: [Reason; 12] = [
        Self::UnknownName,
        Self::NoName,
        Self::NotTls,
        Self::HelloTimeout,
        Self::HelloEnded,
        Self::ClientLimit,
        Self::ConnectionLimit,
        Self::NoEndpoint,
        Self::ConnectFailed,
        Self::Exhausted,
        Self::Idle,
        Self::PeerReset,
    ];

    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownName => "unknown_name",
            Self::NoName => "no_name",
            Self::NotTls => "not_tls",
            Self::HelloTimeout => "hello_timeout",
            Self::HelloEnded => "hello_ended",
            Self::ClientLimit => "client_limit",
            Self::ConnectionLimit => "connection_limit",
            Self::NoEndpoint => "no_endpoint",
            Self::ConnectFailed => "connect_failed",
            Self::Exhausted => "exhausted",
            Self::Idle => "idle",
            Self::PeerReset => "peer_reset",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BackendLabel {
    backend: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BytesLabel {
    backend: String,
    direction: &'static str,
}

/// Which backends have no ready endpoint, whichever engine serves them. Clones share it.
///
/// The number of endpoints does not say it: pods that are not ready are tried where no other is.
#[derive(Debug, Clone, Default)]
pub struct Lacking(Family<BackendLabel, Gauge>);

impl Lacking {
    const NAME: &str = "oooi_proxy_backends_without_ready_endpoints";

    /// Shows what `after` lacks. Work is done for what differs from `before`.
    pub fn show(&self, before: &Snapshot, after: &Snapshot) {
        for changed in after.clusters.differences(&before.clusters) {
            match changed.after {
                Some(_) => self.set(changed.name, false),
                None => drop(self.0.remove(&BackendLabel {
                    backend: changed.name.to_string(),
                })),
            }
        }
        let there = |problem: &&Problem| after.clusters.contains_key(&problem.backend);
        for problem in before.problems.iter().filter(there) {
            self.set(&problem.backend, false);
        }
        for problem in &after.problems {
            self.set(&problem.backend, true);
        }
    }

    fn set(&self, backend: &str, lacks: bool) {
        let label = BackendLabel {
            backend: backend.to_owned(),
        };
        self.0.get_or_create(&label).set(i64::from(lacks));
    }
}

impl Collector for Lacking {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "1 for a backend that has no ready endpoint";
        self.0
            .encode(encoder.encode_descriptor(Self::NAME, help, None, self.0.metric_type())?)
    }
}

/// All counters of the engine. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    active: Family<BackendLabel, Gauge>,
    total: Family<BackendLabel, Counter>,
    bytes: Family<BytesLabel, Counter>,
    connect_seconds: Family<BackendLabel, Histogram, fn() -> Histogram>,
    connect_failures: Family<BackendLabel, Counter>,
    endpoints: Family<BackendLabel, Gauge>,
    resets: Family<ReasonLabel, Counter>,
    pub(crate) lacking: Lacking,
    pub(crate) accept_paused: Gauge,
    pub(crate) updates: Counter,
}

fn connect_histogram() -> Histogram {
    Histogram::new([0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0])
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            active: Family::default(),
            total: Family::default(),
            bytes: Family::default(),
            connect_seconds: Family::new_with_constructor(connect_histogram),
            connect_failures: Family::default(),
            endpoints: Family::default(),
            resets: Family::default(),
            lacking: Lacking::default(),
            accept_paused: Gauge::default(),
            updates: Counter::default(),
        };
        // From zero: the increase of a series is not seen before it has been there.
        for reason in Reason::ALL {
            metrics.resets(reason);
        }
        metrics
    }
}

/// The counters of one backend, looked up once.
#[derive(Debug, Clone)]
pub(crate) struct BackendMetrics {
    pub(crate) active: Gauge,
    pub(crate) total: Counter,
    pub(crate) to_backend: Counter,
    pub(crate) to_client: Counter,
    pub(crate) connect_seconds: Histogram,
    pub(crate) connect_failures: Counter,
    pub(crate) endpoints: Gauge,
}

impl Metrics {
    /// Makes the counters visible under `oooi_proxy_…`.
    pub fn register(&self, registry: &mut Registry) {
        let proxy = registry.sub_registry_with_prefix("oooi_proxy");
        proxy.register(
            "connections_active",
            "Connections and UDP sessions that are open",
            self.active.clone(),
        );
        proxy.register(
            "connections",
            "Connections and UDP sessions that reached a backend",
            self.total.clone(),
        );
        proxy.register("bytes", "Bytes relayed, by direction", self.bytes.clone());
        proxy.register(
            "connect_seconds",
            "Time to connect to an endpoint",
            self.connect_seconds.clone(),
        );
        proxy.register(
            "connect_failures",
            "Attempts to connect to an endpoint that failed",
            self.connect_failures.clone(),
        );
        proxy.register(
            "endpoints",
            "Endpoints that a backend has",
            self.endpoints.clone(),
        );
        proxy.register(
            "resets",
            "Connections refused or ended by the gateway, by reason",
            self.resets.clone(),
        );
        proxy.register(
            "accept_paused",
            "Listeners that do not accept for now",
            self.accept_paused.clone(),
        );
        proxy.register("updates", "Configurations taken over", self.updates.clone());
        registry.register_collector(Box::new(self.lacking.clone()));
    }

    /// Metrics with a backend, from which the reference is written.
    pub fn example() -> Self {
        let metrics = Self::default();
        metrics.backend(&"kube-apiserver".into());
        metrics.lacking.set("kube-apiserver", false);
        metrics
    }

    /// Counts a connection that was refused or ended.
    pub(crate) fn reset(&self, reason: Reason) {
        self.resets
            .get_or_create(&ReasonLabel {
                reason: reason.as_str(),
            })
            .inc();
    }

    /// How many were, for this reason.
    pub fn resets(&self, reason: Reason) -> u64 {
        self.resets
            .get_or_create(&ReasonLabel {
                reason: reason.as_str(),
            })
            .get()
    }

    /// Attempts to connect to an endpoint of a backend that failed.
    pub fn connect_failures(&self, backend: &str) -> u64 {
        self.connect_failures
            .get_or_create(&BackendLabel {
                backend: backend.to_owned(),
            })
            .get()
    }

    /// Configurations taken over so far.
    pub fn updates(&self) -> u64 {
        self.updates.get()
    }

    /// Open connections of a backend.
    pub fn active(&self, backend: &str) -> i64 {
        self.active
            .get_or_create(&BackendLabel {
                backend: backend.to_owned(),
            })
            .get()
    }

    pub(crate) fn backend(&self, name: &Arc<str>) -> BackendMetrics {
        let label = BackendLabel {
            backend: name.to_string(),
        };
        let bytes = |direction| {
            self.bytes.get_or_create_owned(&BytesLabel {
                backend: name.to_string(),
                direction,
            })
        };
        BackendMetrics {
            active: self.active.get_or_create_owned(&label),
            total: self.total.get_or_create_owned(&label),
            to_backend: bytes("to_backend"),
            to_client: bytes("to_client"),
            connect_seconds: self.connect_seconds.get_or_create_owned(&label),
            connect_failures: self.connect_failures.get_or_create_owned(&label),
            endpoints: self.endpoints.get_or_create_owned(&label),
        }
    }

    /// A backend that is gone shows no endpoints any more; its counters stay, as Prometheus expects of them.
    pub(crate) fn backend_gone(&self, name: &Arc<str>) {
        self.endpoints.remove(&BackendLabel {
            backend: name.to_string(),
        });
    }
}
