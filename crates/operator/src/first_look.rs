//! The first list of what is watched: nothing may be said of what was not looked at, and nobody waits for it for ever.

use std::any::TypeId;
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::Resource;
use kube::runtime::reflector::Store;
use tokio::time::timeout;

/// How long it may take. Whoever waits holds up others of its kind.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);

/// So long a manager that began may only be slow: what was said before stays.
const EARLY: Duration = Duration::from_secs(60);

/// What did not come in time.
#[derive(Debug, thiserror::Error)]
#[error(
    "{kinds} are not known: the manager cannot list them; see whether it may, and whether their API answers"
)]
pub struct Unlisted {
    kinds: String,
    /// The manager has just begun.
    pub(crate) is_early: bool,
}

/// Which kinds a controller waited for in vain. It waits once for each: the next one to ask gets no answer at once, until
/// the list came.
pub struct FirstLook {
    began: Instant,
    limit: Duration,
    late: Mutex<HashSet<TypeId>>,
}

impl Default for FirstLook {
    fn default() -> Self {
        FirstLook {
            began: Instant::now(),
            limit: LIMIT,
            late: Mutex::default(),
        }
    }
}

impl FirstLook {
    fn late(&self) -> MutexGuard<'_, HashSet<TypeId>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a kind was listed once.
    pub(crate) async fn listed<K>(&self, store: &Store<K>) -> Result<(), Unlisted>
    where
        K: Resource<DynamicType = ()> + Clone + 'static,
    {
        // Only a store whose watch is gone for good fails, when the manager ends.
        self.in_time::<K, _>(store.wait_until_ready()).await.map(drop)
    }

    /// Waits for what is known of a kind.
    pub(crate) async fn in_time<K, T>(&self, known: impl Future<Output = T>) -> Result<T, Unlisted>
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        let kind = TypeId::of::<K>();
        let limit = if self.late().contains(&kind) {
            Duration::ZERO
        } else {
            self.limit
        };
        let known = timeout(limit, known).await;
        match &known {
            Ok(_) => self.late().remove(&kind),
            Err(_) => self.late().insert(kind),
        };
        known.map_err(|_| Unlisted {
            kinds: K::plural(&()).into_owned(),
            is_early: self.began.elapsed() < EARLY,
        })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::runtime::reflector;
    use kube::runtime::watcher::Event;

    use super::*;

    #[tokio::test]
    async fn a_list_that_does_not_come_is_named_and_waited_for_once() {
        let (store, mut writer) = reflector::store::<Pod>();
        let mut look = FirstLook {
            limit: Duration::from_millis(10),
            ..FirstLook::default()
        };
        let missing = look.listed(&store).await.unwrap_err().to_string();
        assert!(missing.starts_with("pods are not known"), "{missing}");
        look.limit = Duration::from_secs(3600);
        let again = timeout(Duration::from_secs(60), look.listed(&store)).await;
        assert!(again.unwrap().is_err(), "nobody waits again");
        writer.apply_watcher_event(&Event::Init);
        writer.apply_watcher_event(&Event::InitDone);
        look.listed(&store).await.unwrap();
        assert!(look.late().is_empty(), "a later one is waited for");
    }
}
