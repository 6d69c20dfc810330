//! The components of Infras as watches keep them at hand.
//!
//! A watch may lag behind what was just written, and an address that was chosen a moment ago must not be chosen again: what
//! a watch has not caught up with is read from the API server, and so is what it does not tell of.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, Resource, ResourceExt};
use oooi_api::{DhcpServer, DnsServer, ProxyServer};

use crate::apply::Object;

/// The components of all Infras.
pub(crate) struct Components {
    pub(crate) dhcp: AtHand<DhcpServer>,
    pub(crate) dns: AtHand<DnsServer>,
    pub(crate) proxy: AtHand<ProxyServer>,
}

/// The components of one kind.
pub(crate) struct AtHand<K: Resource<DynamicType = ()> + 'static> {
    store: Store<K>,
    /// The versions that were written here and that the watch has not told of yet.
    written: Mutex<HashMap<ObjectRef<K>, u64>>,
}

/// The number of a version: a later one is larger. One that is no number is later than any.
fn number(version: Option<String>) -> u64 {
    version.and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
}

impl<K: Object + 'static> AtHand<K> {
    pub(crate) fn new(store: Store<K>) -> Self {
        AtHand {
            store,
            written: Mutex::default(),
        }
    }

    fn written(&self) -> MutexGuard<'_, HashMap<ObjectRef<K>, u64>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An object was written here.
    pub(super) fn wrote(&self, object: &K) {
        let version = number(object.resource_version());
        self.written().insert(ObjectRef::from_obj(object), version);
    }

    /// An object as it is now.
    pub(super) async fn get(
        &self,
        client: &Client,
        namespace: &str,
        name: &str,
    ) -> Result<Option<K>, kube::Error> {
        match self.known(&ObjectRef::new(name).within(namespace)) {
            Some(known) => Ok(Some(known)),
            None => Api::namespaced(client.clone(), namespace).get_opt(name).await,
        }
    }

    /// An object as the watch tells, unless it lags behind.
    fn known(&self, reference: &ObjectRef<K>) -> Option<K> {
        let known = self.store.get(reference)?;
        let mut written = self.written();
        if let Some(&least) = written.get(reference) {
            let told = number(known.resource_version());
            if told < least || told == u64::MAX {
                return None;
            }
            written.remove(reference);
        }
        Some(K::clone(&known))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::reflector;
    use kube::runtime::watcher::Event;

    use super::*;

    fn object(version: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.namespace = Some("n".into());
        object.metadata.name = Some("a".into());
        object.metadata.resource_version = Some(version.into());
        object
    }

    #[test]
    fn what_was_written_here_is_not_known_before_the_watch_tells_of_it() {
        let (store, mut told) = reflector::store();
        let at_hand = AtHand::new(store);
        let version = || {
            let known = at_hand.known(&ObjectRef::from_obj(&object("")));
            known.and_then(|known| known.resource_version())
        };
        assert_eq!(version(), None);
        told.apply_watcher_event(&Event::Apply(object("9")));
        assert_eq!(version().as_deref(), Some("9"));
        at_hand.wrote(&object("11"));
        assert_eq!(version(), None);
        told.apply_watcher_event(&Event::Apply(object("10")));
        assert_eq!(version(), None, "what somebody else wrote before");
        told.apply_watcher_event(&Event::Apply(object("12")));
        assert_eq!(version().as_deref(), Some("12"));
        at_hand.wrote(&object("no number"));
        told.apply_watcher_event(&Event::Apply(object("no number")));
        assert_eq!(version(), None);
    }
}
