//! A snapshot as Envoy's resources: listeners, clusters and the endpoints of clusters.
//!
//! [`Resources::next`] encodes only what changed since the resources before it. Each resource has a version that
//! is a hash of what it was made of, so that it is the same after a restart and in every replica: an Envoy that
//! comes back with what it has is sent the difference.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::google::protobuf::Any;
use oooi_proxy::snapshot::{Cluster, ListenerKey, Snapshot};
use prost::{Message, Name};

use crate::{cluster, listener};

/// Raised whenever the same snapshot gives other resources than before.
const FORMAT: u32 = 1;

/// The kinds of resources, in the order in which an Envoy should get them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Where connections can lead (CDS).
    Clusters,
    /// The addresses behind clusters (EDS).
    Endpoints,
    /// The ports and what they do (LDS).
    Listeners,
}

impl Kind {
    /// All of them, in order.
    pub const ALL: [Self; 3] = [Self::Clusters, Self::Endpoints, Self::Listeners];

    /// The name of the kind on the wire.
    pub fn type_url(self) -> &'static str {
        match self {
            Self::Clusters => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Listeners => "type.googleapis.com/envoy.config.listener.v3.Listener",
        }
    }

    /// The kind of this name.
    pub fn of_type_url(type_url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.type_url() == type_url)
    }

    /// A short name for logs and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Clusters => "clusters",
            Self::Endpoints => "endpoints",
            Self::Listeners => "listeners",
        }
    }
}

/// One resource, encoded.
#[derive(Debug)]
pub struct Resource {
    /// Unique in its kind.
    pub name: String,
    /// The same for the same content.
    pub version: String,
    /// What Envoy decodes.
    pub body: Any,
}

/// Resources of one kind by name.
pub type Set = BTreeMap<String, Arc<Resource>>;

/// Everything that an Envoy is told.
#[derive(Debug, Clone, Default)]
pub struct Resources {
    sets: [Arc<Set>; 3],
    source: Option<Arc<Snapshot>>,
}

impl Resources {
    /// The resources of one kind.
    pub fn set(&self, kind: Kind) -> &Arc<Set> {
        &self.sets[kind as usize]
    }

    /// The resources of a snapshot for Envoys that listen on `addresses`. What did not change is taken from
    /// `before`.
    pub fn next(before: &Self, snapshot: &Arc<Snapshot>, addresses: &[IpAddr]) -> Self {
        let old = before.source.as_ref();
        let same_cluster = |cluster: &Arc<Cluster>| {
            old.and_then(|old| old.clusters.get(&cluster.name))
                .is_some_and(|old| Arc::ptr_eq(old, cluster))
        };
        let same_timeout = old.is_some_and(|old| old.idle_timeout == snapshot.idle_timeout);
        let mut sets = [(); 3].map(|()| Set::new());
        for cluster in snapshot.clusters.values() {
            let name = cluster.name.to_string();
            let unchanged = same_cluster(cluster);
            for (kind, build) in [
                (Kind::Clusters, cluster_resource as fn(&Cluster) -> Resource),
                (Kind::Endpoints, endpoints_resource),
            ] {
                let kept = before.set(kind).get(&name).filter(|_| unchanged).cloned();
                let resource = kept.unwrap_or_else(|| reuse(before.set(kind), build(cluster)));
                sets[kind as usize].insert(name.clone(), resource);
            }
        }
        for (key, routes) in snapshot.listeners.iter() {
            let name = listener::name(*key);
            let unchanged = same_timeout
                && old
                    .and_then(|old| old.listeners.get(key))
                    .is_some_and(|old| Arc::ptr_eq(old, routes));
            let kept = before
                .set(Kind::Listeners)
                .get(&name)
                .filter(|_| unchanged)
                .cloned();
            let resource = kept.unwrap_or_else(|| {
                let version = version(&(key_hash(*key), routes, addresses, snapshot.idle_timeout));
                let body = any(&listener::build(*key, routes, addresses, snapshot.idle_timeout));
                reuse(
                    before.set(Kind::Listeners),
                    Resource {
                        name: name.clone(),
                        version,
                        body,
                    },
                )
            });
            sets[Kind::Listeners as usize].insert(name, resource);
        }
        let mut shared = before.sets.clone();
        for (shared, set) in shared.iter_mut().zip(sets) {
            let same = shared.len() == set.len()
                && shared
                    .values()
                    .zip(set.values())
                    .all(|(old, new)| Arc::ptr_eq(old, new));
            if !same {
                *shared = Arc::new(set);
            }
        }
        Self {
            sets: shared,
            source: Some(snapshot.clone()),
        }
    }

    /// The version of all resources of a kind together.
    pub fn version(&self, kind: Kind) -> String {
        let all: Vec<_> = self
            .set(kind)
            .values()
            .map(|resource| (&resource.name, &resource.version))
            .collect();
        version(&all)
    }
}

/// The old resource where the new one has the same content.
fn reuse(before: &Set, resource: Resource) -> Arc<Resource> {
    match before.get(&resource.name) {
        Some(old) if old.version == resource.version => old.clone(),
        _ => Arc::new(resource),
    }
}

fn key_hash(key: ListenerKey) -> (u16, String) {
    (key.port, key.transport.to_string())
}

fn cluster_resource(cluster: &Cluster) -> Resource {
    // Endpoints are a resource of their own: a cluster stays the same when they change.
    let version = version(&(
        &cluster.name,
        cluster.transport,
        cluster.connect_budget,
        cluster.proxy_protocol,
    ));
    Resource {
        name: cluster.name.to_string(),
        version,
        body: any(&cluster::build(cluster)),
    }
}

fn endpoints_resource(cluster: &Cluster) -> Resource {
    let version = version(&(&cluster.name, cluster.transport, &cluster.endpoints));
    Resource {
        name: cluster.name.to_string(),
        version,
        body: any(&cluster::endpoints(cluster)),
    }
}

fn version(content: &impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    (FORMAT, content).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

pub(crate) fn any<M: Message + Name>(message: &M) -> Any {
    Any {
        type_url: M::type_url(),
        value: message.encode_to_vec(),
    }
}

pub(crate) fn duration(time: Duration) -> Option<envoy_types::pb::google::protobuf::Duration> {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let nanos = i32::try_from(time.subsec_nanos()).unwrap_or(0);
    Some(envoy_types::pb::google::protobuf::Duration { seconds, nanos })
}

#[cfg(test)]
#[path = "resources_tests.rs"]
mod tests;
