//! What the manager counts.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use oooi_api::{DhcpServer, DnsServer, ProxyServer};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::server::Server;
use crate::serving::keeper::SECRET;
use crate::{egress_ipam, hosted_cluster, infra};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabel {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SecretLabel {
    secret: &'static str,
}

/// As dashboards and alerts know it since before this operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EgressLabel {
    egressipam: String,
    node: String,
}

/// What one node carries for an EgressIPAM, its own address included.
pub(crate) struct EgressLoad<'a> {
    pub(crate) ipam: &'a str,
    pub(crate) node: &'a str,
    pub(crate) allocated: u32,
    /// None if nobody knows it: an alert that divides by it must not fire.
    pub(crate) capacity: Option<u32>,
}

/// The egress gauges, and the series that they have.
#[derive(Debug, Default)]
struct Egress {
    capacity: Family<EgressLabel, Gauge>,
    allocated: Family<EgressLabel, Gauge>,
    known: Mutex<BTreeSet<(String, String)>>,
}

/// The counters of a manager. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    runs: Family<ControllerLabel, Counter>,
    errors: Family<ControllerLabel, Counter>,
    durations: Family<ControllerLabel, Histogram, fn() -> Histogram>,
    leader: Gauge,
    /// No series before there is a certificate: an alert on its end must not fire.
    certificate: Family<SecretLabel, Gauge>,
    egress: Arc<Egress>,
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
            certificate: Family::default(),
            egress: Arc::default(),
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
        registry.register(
            "egressip_ip_capacity",
            "Addresses that a node can carry, its own included",
            self.egress.capacity.clone(),
        );
        registry.register(
            "egressip_ip_allocated",
            "Addresses that a node carries, its own included",
            self.egress.allocated.clone(),
        );
        registry.register("oooi_leader", "Whether this manager leads", self.leader.clone());
        registry.register(
            "oooi_certificate_expiry_timestamp_seconds",
            "When the certificate of metrics and webhook ends",
            self.certificate.clone(),
        );
    }

    /// Metrics with a series for every label, from which the reference is written.
    pub fn example() -> Self {
        let metrics = Metrics::default();
        let servers = [DhcpServer::MANAGER, DnsServer::MANAGER, ProxyServer::MANAGER];
        let others = [hosted_cluster::MANAGER, infra::MANAGER, egress_ipam::MANAGER];
        for controller in servers.into_iter().chain(others) {
            metrics.reconciled(controller, Duration::ZERO, false);
        }
        let load = EgressLoad {
            ipam: "ipam",
            node: "node",
            allocated: 0,
            capacity: Some(0),
        };
        metrics.egress([load].into_iter());
        metrics.certificate_ends(SECRET, Timestamp::UNIX_EPOCH);
        metrics
    }

    /// A controller looked at an object.
    pub(crate) fn reconciled(&self, controller: &'static str, took: Duration, succeeded: bool) {
        let label = ControllerLabel { controller };
        self.runs.get_or_create(&label).inc();
        // Counted from zero: an increase is only seen of a series that was there before.
        self.errors.get_or_create(&label).inc_by(u64::from(!succeeded));
        self.durations.get_or_create(&label).observe(took.as_secs_f64());
    }

    /// What all nodes carry. The series of a node that is not among them any more end.
    pub(crate) fn egress<'a>(&self, loads: impl Iterator<Item = EgressLoad<'a>>) {
        let Egress {
            capacity,
            allocated,
            known,
        } = &*self.egress;
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut gone = std::mem::take(&mut *known);
        for load in loads {
            let key = (load.ipam.to_owned(), load.node.to_owned());
            let label = label(&key);
            allocated.get_or_create(&label).set(load.allocated.into());
            match load.capacity {
                Some(number) => drop(capacity.get_or_create(&label).set(number.into())),
                None => drop(capacity.remove(&label)),
            }
            gone.remove(&key);
            known.insert(key);
        }
        for label in gone.iter().map(label) {
            allocated.remove(&label);
            capacity.remove(&label);
        }
    }

    /// The certificate of this Secret is served, and ends then.
    pub(crate) fn certificate_ends(&self, secret: &'static str, at: Timestamp) {
        self.certificate
            .get_or_create(&SecretLabel { secret })
            .set(at.as_second());
    }

    /// Whether this manager leads.
    pub fn leads(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }
}

fn label((ipam, node): &(String, String)) -> EgressLabel {
    EgressLabel {
        egressipam: ipam.clone(),
        node: node.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(metrics: &Metrics) -> String {
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn an_unknown_capacity_is_absent_and_the_series_of_a_node_end_with_it() {
        let metrics = Metrics::default();
        let load = |node, capacity| EgressLoad {
            ipam: "x",
            node,
            allocated: 3,
            capacity,
        };
        metrics.egress([load("n1", Some(15)), load("n2", None)].into_iter());
        let both = text(&metrics);
        assert!(
            both.contains(r#"egressip_ip_capacity{egressipam="x",node="n1"} 15"#),
            "{both}"
        );
        assert!(
            both.contains(r#"egressip_ip_allocated{egressipam="x",node="n2"} 3"#),
            "{both}"
        );
        assert!(
            !both.contains(r#"egressip_ip_capacity{egressipam="x",node="n2"}"#),
            "{both}"
        );
        metrics.egress([load("n2", None)].into_iter());
        assert!(!text(&metrics).contains("n1"));
    }

    #[test]
    fn runs_errors_durations_and_leadership_are_exposed() {
        let (metrics, mut registry) = (Metrics::default(), Registry::default());
        metrics.register(&mut registry);
        metrics.reconciled("oooi-infra", Duration::from_millis(3), true);
        metrics.reconciled("oooi-infra", Duration::from_millis(5), false);
        metrics.reconciled("oooi-dns", Duration::from_millis(1), true);
        metrics.leads(true);
        metrics.certificate_ends("a", Timestamp::from_second(1_800_000_000).unwrap());
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "oooi_reconcile_runs_total{controller=\"oooi-infra\"} 2",
            "oooi_reconcile_errors_total{controller=\"oooi-infra\"} 1",
            "oooi_reconcile_duration_seconds_count{controller=\"oooi-infra\"} 2",
            "oooi_reconcile_errors_total{controller=\"oooi-dns\"} 0",
            "oooi_leader 1",
            "oooi_certificate_expiry_timestamp_seconds{secret=\"a\"} 1800000000",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
