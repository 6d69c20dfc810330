//! What wakes the controller of HostedClusters: everything that it reads.

use std::future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Service;
use kube::runtime::controller::Action;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use oooi_api::Infra;
use oooi_api::foreign::{HostedCluster, Ingress, NodePool, Route};
use oooi_plan::hosted_cluster::is_opted_in;
use oooi_plan::object_name::control_plane_namespace;

use super::observe::Stores;
use super::watched::Watched;
use super::{Error, MANAGER, look};
use crate::context::Context;
use crate::control_planes::ControlPlanes;
use crate::gaps::Gaps;
pub(super) use crate::manager::key;
use crate::manager::{Options, failed, told};
use crate::presence::Presence;

/// What this controller has at hand.
pub(super) struct Surroundings {
    pub(super) common: Arc<Context>,
    pub(super) stores: Stores,
    pub(super) presence: Presence,
    pub(super) planes: ControlPlanes,
    pub(super) load_balancer_wait: Duration,
}

/// Runs the controller whenever HyperShift is installed. It ends only by being dropped.
pub(crate) async fn run(options: &Options, presence: &Presence, planes: &ControlPlanes) {
    loop {
        presence.appears::<HostedCluster>().await;
        tracing::info!("HyperShift is there: HostedClusters are looked after");
        tokio::select! {
            () = follow(options, presence, planes) => {}
            () = presence.vanishes::<HostedCluster>() => tracing::info!("HyperShift is gone"),
        }
    }
}

async fn follow(options: &Options, presence: &Presence, planes: &ControlPlanes) {
    let gaps = Gaps::default();
    let (node_pools, pool_changes) = watched(&gaps, options.watch(watcher::Config::default()));
    let (infras, infra_changes) = watched(&gaps, options.watch(watcher::Config::default()));
    // Control planes are in namespaces of their own, whichever the HostedClusters are in.
    let services = watcher(Api::all(options.client.clone()), watcher::Config::default());
    let (services, service_changes) = watched(
        &gaps,
        only(services, is_of_a_control_plane).map(|event| event.map(pruned)),
    );
    let client = options.client.clone();
    let routes = presence.while_served::<Route, _>(move || {
        only(
            watcher(Api::all(client.clone()), watcher::Config::default()),
            is_published,
        )
    });
    let (routes, route_changes) = watched(&gaps, routes);
    let client = options.client.clone();
    let ingresses = presence.while_served::<Ingress, _>(move || {
        let named = watcher::Config::default().fields("metadata.name=cluster");
        watcher(Api::all(client.clone()), named)
    });
    let (ingresses, ingress_changes) = watched(&gaps, ingresses);

    let controller = options.controller::<Watched>();
    let clusters = controller.store();
    let around = Arc::new(Surroundings {
        common: options.context(MANAGER),
        stores: Stores {
            node_pools,
            routes,
            services,
            ingresses,
            infras,
        },
        presence: presence.clone(),
        planes: planes.clone(),
        load_balancer_wait: options.load_balancer_wait,
    });
    let (by_route, by_service, all) = (clusters.clone(), clusters.clone(), clusters);
    controller
        .watches_stream(pool_changes, |pool: NodePool| {
            let (name, namespace) = (pool.spec.cluster_name.clone()?, pool.namespace()?);
            Some(ObjectRef::new(&name).within(&namespace))
        })
        .watches_stream(infra_changes, |infra: Infra| {
            Some(ObjectRef::new(&infra.name_any()).within(&infra.namespace()?))
        })
        .watches_stream(route_changes, move |route: Route| {
            of_plane(&by_route, route.namespace())
        })
        .watches_stream(service_changes, move |service: Service| {
            of_plane(&by_service, service.namespace())
        })
        .watches_stream(ingress_changes, move |_: Ingress| opted_in(&all))
        .reconcile_all_on(gaps.items())
        .run(look, on_error, around)
        .for_each(told)
        .await;
}

#[allow(clippy::needless_pass_by_value, reason = "the signature of an error policy")]
fn on_error(cluster: Arc<Watched>, error: &Error, around: Arc<Surroundings>) -> Action {
    failed(&*cluster, error, &around.common)
}

/// A store that a watch fills, and the changes that it sees.
fn watched<K, S>(
    gaps: &Gaps,
    stream: S,
) -> (
    Store<K>,
    impl Stream<Item = Result<K, watcher::Error>> + Send + 'static,
)
where
    K: kube::Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
    S: Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static,
{
    let (store, writer) = reflector::store();
    (store, gaps.touched(stream.default_backoff().reflect(writer)))
}

/// Passes on what concerns these objects alone, so that no others are kept.
fn only<K: Send>(
    stream: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send,
    keep: fn(&K) -> bool,
) -> impl Stream<Item = Result<Event<K>, watcher::Error>> + Send {
    stream.filter(move |event| {
        future::ready(match event {
            Ok(Event::Apply(object) | Event::InitApply(object) | Event::Delete(object)) => keep(object),
            Ok(Event::Init | Event::InitDone) | Err(_) => true,
        })
    })
}

/// Whether a Service is one of those that a control plane publishes.
fn is_of_a_control_plane(service: &Service) -> bool {
    const NAMES: [&str; 4] = [
        "kube-apiserver",
        "ignition-server-proxy",
        "konnectivity-server",
        "oauth-openshift",
    ];
    let name = service.metadata.name.as_deref().unwrap_or_default();
    NAMES.contains(&name) || name.starts_with("default-ingress-passthrough-service-")
}

/// Whether a Route is one of those that a control plane is published by.
fn is_published(route: &Route) -> bool {
    const NAMES: [&str; 4] = [
        "kube-apiserver",
        "ignition-server",
        "konnectivity-server",
        "oauth",
    ];
    NAMES.contains(&route.metadata.name.as_deref().unwrap_or_default())
}

/// A Service with what is read of it, and nothing else: a large cluster has many.
fn pruned(event: Event<Service>) -> Event<Service> {
    let prune = |mut service: Service| {
        service.metadata.annotations = None;
        service.metadata.labels = None;
        if let Some(entries) = &mut service.metadata.managed_fields {
            entries.retain(|entry| entry.manager.as_deref() == Some(MANAGER));
        }
        service
    };
    match event {
        Event::Apply(service) => Event::Apply(prune(service)),
        Event::InitApply(service) => Event::InitApply(prune(service)),
        other @ (Event::Delete(_) | Event::Init | Event::InitDone) => other,
    }
}

/// The HostedCluster whose control plane is in this namespace.
fn of_plane(clusters: &Store<Watched>, namespace: Option<String>) -> Option<ObjectRef<Watched>> {
    let namespace = namespace?;
    let found = clusters.find(|cluster| {
        let (own, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        control_plane_namespace(&own, &name) == namespace
    })?;
    Some(ObjectRef::from_obj(&*found))
}

fn opted_in(clusters: &Store<Watched>) -> Vec<ObjectRef<Watched>> {
    let clusters = clusters.state_filter(|cluster| is_opted_in(&cluster.cluster()));
    clusters
        .iter()
        .map(|cluster| ObjectRef::from_obj(&**cluster))
        .collect()
}
