//! Which APIs the cluster serves: kinds of other projects come and go with them.
//!
//! Every version of an API group is announced by an APIService, whether a CustomResourceDefinition or another API
//! server stands behind it. These are watched by their metadata, so that a kind is followed from the moment it is
//! there, and nobody asks for one that is not.

use std::collections::BTreeSet;

use futures_util::stream::{self, Stream, StreamExt};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use tokio::sync::watch;

use crate::first_look::{FirstLook, Unlisted};

/// Which APIs the cluster serves. Clones see the same.
#[derive(Clone)]
pub struct Presence(watch::Receiver<BTreeSet<String>>);

impl Presence {
    /// What is known, which is nothing until the future beside it runs. It ends only by being dropped.
    pub fn of(client: Client) -> (Self, impl Future<Output = ()>) {
        let (sender, receiver) = watch::channel(BTreeSet::new());
        let follow = async move {
            let (store, writer) = reflector::store::<PartialObjectMeta<APIService>>();
            watcher(Api::all(client), watcher::Config::default())
                .default_backoff()
                .reflect(writer)
                .for_each(|event| {
                    match event {
                        Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_)) => {
                            let names = store.state().iter().map(|service| service.name_any()).collect();
                            sender.send_if_modified(|known| {
                                let changed = *known != names;
                                *known = names;
                                changed
                            });
                        }
                        Ok(Event::Init | Event::InitApply(_)) => {}
                        Err(error) => {
                            tracing::warn!(%error, "the served APIs cannot be watched, trying again");
                        }
                    }
                    std::future::ready(())
                })
                .await;
        };
        (Presence(receiver), follow)
    }

    /// Whether a kind is served.
    pub fn has<K: Resource<DynamicType = ()>>(&self) -> bool {
        self.0.borrow().contains(&announcement::<K>())
    }

    /// Waits until it is known which APIs there are. Kubernetes always serves some.
    pub async fn known(&self) {
        self.until(|known| !known.is_empty()).await;
    }

    /// The same, but not for ever.
    pub(crate) async fn known_in_time(&self, look: &FirstLook) -> Result<(), Unlisted> {
        look.in_time::<APIService, _>(self.known()).await
    }

    /// Waits until other APIs are served than those that were last waited for or looked at by this clone.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await; // nobody watches any more: the manager ends
        }
    }

    /// Waits until a kind is served.
    pub async fn appears<K: Resource<DynamicType = ()>>(&self) {
        self.becomes::<K>(true).await;
    }

    /// Waits until a kind is no longer served.
    pub async fn vanishes<K: Resource<DynamicType = ()>>(&self) {
        self.becomes::<K>(false).await;
    }

    async fn becomes<K: Resource<DynamicType = ()>>(&self, served: bool) {
        let name = announcement::<K>();
        self.until(|known| known.contains(&name) == served).await;
    }

    async fn until(&self, holds: impl Fn(&BTreeSet<String>) -> bool) {
        if self.0.clone().wait_for(|known| holds(known)).await.is_err() {
            std::future::pending::<()>().await; // nobody watches any more: the manager ends
        }
    }

    /// What `make` gives while a kind is served, each time anew.
    pub fn while_served<K, S>(
        &self,
        make: impl Fn() -> S + Send + 'static,
    ) -> impl Stream<Item = S::Item> + Send + 'static
    where
        K: Resource<DynamicType = ()> + 'static,
        S: Stream + Send + 'static,
        S::Item: Send,
    {
        let presence = self.clone();
        stream::unfold((), move |()| {
            let (presence, stream) = (presence.clone(), make());
            async move {
                presence.appears::<K>().await;
                let gone = async move { presence.vanishes::<K>().await };
                Some((stream.take_until(Box::pin(gone)), ()))
            }
        })
        .flatten()
    }
}

/// The name of the APIService of a kind.
fn announcement<K: Resource<DynamicType = ()>>() -> String {
    format!("{}.{}", K::version(&()), K::group(&()))
}
