//! The native engine's live view of a [`Snapshot`]: the same routes, and for each backend its balancer and
//! counters, which outlive the snapshot.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::balance::{Balancer, Pick};
use crate::metrics::{BackendMetrics, Metrics};
use crate::route::Routes;
use crate::snapshot::{Cluster, ListenerKey, Snapshot};

/// One backend while it runs.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) cluster: Arc<Cluster>,
    /// Shared with the upstream of the same name in the next table.
    balancer: Arc<Mutex<Balancer>>,
    pub(crate) metrics: BackendMetrics,
}

impl Upstream {
    pub(crate) fn pick(&self, tried: &[SocketAddr], now: Instant) -> Option<Pick> {
        self.balancer.lock().pick(tried, now)
    }

    pub(crate) fn succeeded(&self, address: SocketAddr) {
        self.balancer.lock().succeeded(address);
    }

    pub(crate) fn failed(&self, pick: Pick, now: Instant) -> Option<Duration> {
        self.balancer.lock().failed(pick, now)
    }

    pub(crate) fn not_tried(&self, pick: Pick, now: Instant) {
        self.balancer.lock().not_tried(pick, now);
    }

    pub(crate) fn health(&self, now: Instant) -> Vec<(SocketAddr, bool)> {
        self.balancer.lock().health(now).collect()
    }
}

/// What connections are served by. Replaced as a whole; established connections hold on to nothing of it but
/// their own upstream.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) listeners: Arc<BTreeMap<ListenerKey, Arc<Routes>>>,
    pub(crate) upstreams: HashMap<Arc<str>, Arc<Upstream>>,
    pub(crate) idle_timeout: Duration,
}

impl Table {
    /// The table of a snapshot. Work is done for backends that changed; the others are taken from `before`.
    pub(crate) fn next(before: &Self, snapshot: &Snapshot, metrics: &Metrics) -> Self {
        let upstreams = snapshot.clusters.iter().map(|(name, cluster)| {
            let upstream = match before.upstreams.get(name) {
                Some(old) if Arc::ptr_eq(&old.cluster, cluster) => old.clone(),
                old => Self::upstream(old, cluster, metrics),
            };
            (name.clone(), upstream)
        });
        let table = Self {
            listeners: snapshot.listeners.clone(),
            upstreams: upstreams.collect(),
            idle_timeout: snapshot.idle_timeout,
        };
        for name in before
            .upstreams
            .keys()
            .filter(|name| !table.upstreams.contains_key(*name))
        {
            metrics.backend_gone(name);
        }
        table
    }

    fn upstream(old: Option<&Arc<Upstream>>, cluster: &Arc<Cluster>, metrics: &Metrics) -> Arc<Upstream> {
        let (balancer, backend) = match old {
            Some(old) => (old.balancer.clone(), old.metrics.clone()),
            None => (Arc::default(), metrics.backend(&cluster.name)),
        };
        balancer.lock().set_endpoints(&cluster.endpoints);
        backend
            .endpoints
            .set(i64::try_from(cluster.endpoints.len()).unwrap_or(i64::MAX));
        Arc::new(Upstream {
            cluster: cluster.clone(),
            balancer,
            metrics: backend,
        })
    }
}
