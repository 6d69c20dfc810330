//! What is watched, and how it wakes the controller.

use std::fmt::Debug;
use std::sync::Arc;

use futures_util::future::{self, BoxFuture};
use futures_util::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use oooi_api::EgressIpam;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

/// A namespace, of which only the metadata matters.
pub(super) type NamespaceMeta = PartialObjectMeta<Namespace>;

/// What every network needs.
pub(super) struct Stores {
    pub(super) ipams: Store<EgressIpam>,
    pub(super) namespaces: Store<NamespaceMeta>,
    pub(super) nodes: Store<Node>,
}

impl Stores {
    /// Follows all of it for as long as the future runs.
    pub(super) fn follow(client: &Client, wake: &Arc<Notify>) -> (Self, BoxFuture<'static, ()>) {
        let (ipams, first) = follow(Api::all(client.clone()), wake, |_| ());
        let (namespaces, second) = follow(Api::all(client.clone()), wake, |_| ());
        let (nodes, third) = follow(Api::all(client.clone()), wake, |node: &mut Node| {
            if let Some(status) = &mut node.status {
                status.images = None; // most of a node's size
            }
        });
        let stores = Stores {
            ipams,
            namespaces,
            nodes,
        };
        (stores, future::join3(first, second, third).map(drop).boxed())
    }

    /// Waits until all of it was listed once. Before that nothing can be told from something being absent.
    pub(super) async fn ready(&self) {
        let Stores {
            ipams,
            namespaces,
            nodes,
        } = self;
        let _ = tokio::join!(
            ipams.wait_until_ready(),
            namespaces.wait_until_ready(),
            nodes.wait_until_ready()
        );
    }
}

/// Follows one kind, and wakes the controller at each change. `slim` takes away what nobody reads.
pub(super) fn follow<K>(
    api: Api<K>,
    wake: &Arc<Notify>,
    slim: fn(&mut K),
) -> (Store<K>, BoxFuture<'static, ()>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    follow_some(api, watcher::Config::default(), wake, slim)
}

/// Follows those objects of one kind that are chosen.
pub(super) fn follow_some<K>(
    api: Api<K>,
    chosen: watcher::Config,
    wake: &Arc<Notify>,
    slim: fn(&mut K),
) -> (Store<K>, BoxFuture<'static, ()>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (store, filled) = reflector::store();
    let wake = wake.clone();
    let events = watcher(api, chosen)
        .default_backoff()
        .modify(move |object| {
            object.managed_fields_mut().clear();
            slim(object);
        })
        .reflect(filled);
    let following = events.for_each(move |event| {
        match event {
            // A list wakes it too if it is empty: what is gone since an earlier one may have been all.
            Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_)) => wake.notify_one(),
            Ok(Event::Init | Event::InitApply(_)) => {}
            Err(error) => tracing::warn!(kind = %K::kind(&()), %error, "cannot watch, will try again"),
        }
        future::ready(())
    });
    (store, following.boxed())
}
