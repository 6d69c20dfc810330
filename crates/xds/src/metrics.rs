//! What the control plane counts.

use oooi_proxy::metrics::Lacking;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::resources::Kind;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

/// The counters of the control plane. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    pub(crate) streams: Gauge,
    pub(crate) updates: Counter,
    pub(crate) lacking: Lacking,
    sent: Family<KindLabel, Counter>,
    resources: Family<KindLabel, Counter>,
    accepted: Family<KindLabel, Counter>,
    refused: Family<KindLabel, Counter>,
    refusing: Family<KindLabel, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            streams: Gauge::default(),
            updates: Counter::default(),
            lacking: Lacking::default(),
            sent: Family::default(),
            resources: Family::default(),
            accepted: Family::default(),
            refused: Family::default(),
            refusing: Family::default(),
        };
        // From zero: the increase of a series is not seen before it has been there.
        for kind in Kind::ALL {
            let label = KindLabel { kind: kind.label() };
            for family in [
                &metrics.sent,
                &metrics.resources,
                &metrics.accepted,
                &metrics.refused,
            ] {
                drop(family.get_or_create(&label));
            }
            drop(metrics.refusing.get_or_create(&label));
        }
        metrics
    }
}

impl Metrics {
    /// Makes the counters visible under `oooi_xds_…`, and what backends lack under its name in every engine.
    pub fn register(&self, registry: &mut Registry) {
        let xds = registry.sub_registry_with_prefix("oooi_xds");
        xds.register("streams", "Streams that Envoys have open", self.streams.clone());
        xds.register("updates", "Configurations taken over", self.updates.clone());
        xds.register("responses", "Responses sent", self.sent.clone());
        xds.register("resources", "Resources sent", self.resources.clone());
        xds.register(
            "accepted",
            "Responses that an Envoy took over",
            self.accepted.clone(),
        );
        xds.register("refused", "Responses that an Envoy refused", self.refused.clone());
        xds.register(
            "refusing",
            "1 while an Envoy has refused the last response and goes on with what it had",
            self.refusing.clone(),
        );
        registry.register_collector(Box::new(self.lacking.clone()));
    }

    pub(crate) fn sent(&self, kind: Kind, resources: usize) {
        let label = KindLabel { kind: kind.label() };
        self.sent.get_or_create(&label).inc();
        self.resources.get_or_create(&label).inc_by(resources as u64);
    }

    pub(crate) fn accepted(&self, kind: Kind) {
        let label = KindLabel { kind: kind.label() };
        self.accepted.get_or_create(&label).inc();
    }

    pub(crate) fn refused(&self, kind: Kind) {
        let label = KindLabel { kind: kind.label() };
        self.refused.get_or_create(&label).inc();
    }

    pub(crate) fn refusing(&self, kind: Kind, refusing: bool) {
        let label = KindLabel { kind: kind.label() };
        self.refusing.get_or_create(&label).set(i64::from(refusing));
    }

    /// Whether an Envoy goes on with what it had.
    pub fn is_refusing(&self, kind: Kind) -> bool {
        let label = KindLabel { kind: kind.label() };
        self.refusing.get_or_create(&label).get() == 1
    }

    /// Resources sent so far.
    pub fn resources_sent(&self, kind: Kind) -> u64 {
        self.resources
            .get_or_create(&KindLabel { kind: kind.label() })
            .get()
    }
}
