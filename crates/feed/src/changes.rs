//! Whether anything changed: watches of many kinds, of which nothing but that is wanted.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::watching::Watching;

/// Changes that come together are one: a rollout touches many objects in a moment.
const TOGETHER: Duration = Duration::from_millis(100);

/// Watches that end with it.
#[derive(Debug, Default)]
pub struct Changes {
    told: Arc<Notify>,
    watches: JoinSet<()>,
}

impl Changes {
    /// Watches the objects of a kind in a namespace as well. That the API server went away or came back is a change.
    pub fn watch<K>(&mut self, client: &Client, namespace: &str)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Debug
            + Send
            + Sync
            + 'static,
    {
        let api = Api::<K>::namespaced(client.clone(), namespace);
        let what = format!("{} of namespace {namespace}", K::plural(&()));
        self.follow(api, what);
    }

    /// Watches the objects of a kind that is in no namespace as well.
    pub fn watch_global<K>(&mut self, client: &Client)
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope>
            + Clone
            + DeserializeOwned
            + Debug
            + Send
            + Sync
            + 'static,
    {
        self.follow(Api::<K>::all(client.clone()), K::plural(&()).into_owned());
    }

    fn follow<K>(&mut self, api: Api<K>, what: String)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let mut watching = Watching::new(api, watcher::Config::default(), what);
        let told = self.told.clone();
        self.watches.spawn(async move {
            loop {
                drop(watching.next().await);
                told.notify_one();
            }
        });
    }

    /// Waits for a change, and for those that come with it. What changed since the last call counts.
    pub async fn next(&self) {
        self.told.notified().await;
        tokio::time::sleep(TOGETHER).await;
    }
}
