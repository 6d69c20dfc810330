//! A snapshot as Envoy's resources: listeners, clusters and the endpoints of clusters.
//!
//! [`Resources::next`] encodes only what changed since the resources before it. Each resource has a version that
//! is a hash of what it was made of, so that it is the same after a restart and in every replica: an Envoy that
//! comes back with what it has is sent the difference.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::google::protobuf::Any;
use oooi_proxy::name_map::NameMap;
use oooi_proxy::route::Routes;
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
pub type Set = NameMap<Arc<Resource>>;

/// Everything that an Envoy is told.
#[derive(Debug, Clone, Default)]
pub struct Resources {
    sets: [Arc<Set>; 3],
    /// Of each kind, the shares of its resources in its version.
    sums: [u64; 3],
    source: Option<Arc<Snapshot>>,
}

impl Resources {
    /// The resources of one kind.
    pub fn set(&self, kind: Kind) -> &Arc<Set> {
        &self.sets[kind as usize]
    }

    /// The resources of a snapshot for Envoys that listen on `addresses`. What did not change is shared with `before`;
    /// work is done for what differs from its snapshot.
    pub fn next(before: &Self, snapshot: &Arc<Snapshot>, addresses: &[IpAddr]) -> Self {
        let mut next = Self {
            source: Some(snapshot.clone()),
            ..before.clone()
        };
        let nothing = Arc::default();
        let old = before.source.as_ref().unwrap_or(&nothing);
        for changed in snapshot.clusters.differences(&old.clusters) {
            let cluster = changed.after.map(|cluster| &**cluster);
            next.put(Kind::Clusters, changed.name, cluster.map(cluster_resource));
            // Of endpoints that are not known yet nothing is said: an Envoy that has some keeps them.
            let known = cluster.filter(|cluster| cluster.known);
            next.put(Kind::Endpoints, changed.name, known.map(endpoints_resource));
        }
        let same_timeout = old.idle_timeout == snapshot.idle_timeout;
        for (key, routes) in snapshot.listeners.iter() {
            let unchanged = old.listeners.get(key).is_some_and(|old| Arc::ptr_eq(old, routes));
            if !(unchanged && same_timeout) {
                let resource = listener_resource(*key, routes, addresses, snapshot.idle_timeout);
                next.put(Kind::Listeners, &listener::name(*key).into(), Some(resource));
            }
        }
        for key in old
            .listeners
            .keys()
            .filter(|key| !snapshot.listeners.contains_key(key))
        {
            next.put(Kind::Listeners, &listener::name(*key).into(), None);
        }
        next
    }

    /// Lets this resource stand under its name, or none. One that has the same content as before stays as it is.
    fn put(&mut self, kind: Kind, name: &Arc<str>, resource: Option<Resource>) {
        let (set, sum) = (&mut self.sets[kind as usize], &mut self.sums[kind as usize]);
        let old = set.get(name);
        if old.map(|old| &old.version) == resource.as_ref().map(|resource| &resource.version) {
            return;
        }
        *sum = sum.wrapping_sub(old.map_or(0, |old| share(old)));
        *sum = sum.wrapping_add(resource.as_ref().map_or(0, share));
        match resource {
            Some(resource) => Arc::make_mut(set).insert(name.clone(), Arc::new(resource)),
            None => Arc::make_mut(set).remove(name),
        }
    }

    /// The version of all resources of a kind together.
    pub fn version(&self, kind: Kind) -> String {
        version(&self.sums[kind as usize])
    }
}

/// What a resource adds to the version of its kind: a sum does not depend on the order, and a change needs no other
/// resource.
fn share(resource: &Resource) -> u64 {
    hash(&(&resource.name, &resource.version))
}

fn listener_resource(key: ListenerKey, routes: &Routes, addresses: &[IpAddr], idle: Duration) -> Resource {
    Resource {
        name: listener::name(key),
        version: version(&(key_hash(key), routes, addresses, idle)),
        body: any(&listener::build(key, routes, addresses, idle)),
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
    format!("{:016x}", hash(content))
}

fn hash(content: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    (FORMAT, content).hash(&mut hasher);
    hasher.finish()
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
