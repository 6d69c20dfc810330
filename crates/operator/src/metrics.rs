//! What the manager counts.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabel {
    controller: &'static str,
}

/// The counters of a manager. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    runs: Family<ControllerLabel, Counter>,
    errors: Family<ControllerLabel, Counter>,
    durations: Family<ControllerLabel, Histogram, fn() -> Histogram>,
    leader: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        // From a millisecond to half a minute.
        let buckets: fn() -> Histogram = || Histogram::new(exponential_buckets(0.001, 2.0, 16));
        Metrics {
            runs: Family::default(),
            errors: Family::default(),
            durations: Family::new_with_constructor(buckets),
            leader: Gauge::default(),
        }
    }
}

impl Metrics {
    /// Makes the counters visible under `oooi_…`.
    pub fn register(&self, registry: &mut Registry) {
        let reconcile = registry.sub_registry_with_prefix("oooi_reconcile");
        reconcile.register("runs", "Objects that a controller looked at", self.runs.clone());
        reconcile.register(
            "errors",
            "Looks that failed and are repeated later",
            self.errors.clone(),
        );
        reconcile.register_with_unit(
            "duration",
            "How long a look took",
            Unit::Seconds,
            self.durations.clone(),
        );
        registry.register("oooi_leader", "Whether this manager leads", self.leader.clone());
    }

    /// A controller looked at an object.
    pub(crate) fn reconciled(&self, controller: &'static str, took: Duration, succeeded: bool) {
        let label = ControllerLabel { controller };
        self.runs.get_or_create(&label).inc();
        if !succeeded {
            self.errors.get_or_create(&label).inc();
        }
        self.durations.get_or_create(&label).observe(took.as_secs_f64());
    }

    /// Whether this manager leads.
    pub fn leads(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_errors_durations_and_leadership_are_exposed() {
        let (metrics, mut registry) = (Metrics::default(), Registry::default());
        metrics.register(&mut registry);
        metrics.reconciled("oooi-infra", Duration::from_millis(3), true);
        metrics.reconciled("oooi-infra", Duration::from_millis(5), false);
        metrics.leads(true);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "oooi_reconcile_runs_total{controller=\"oooi-infra\"} 2",
            "oooi_reconcile_errors_total{controller=\"oooi-infra\"} 1",
            "oooi_reconcile_duration_seconds_count{controller=\"oooi-infra\"} 2",
            "oooi_leader 1",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
