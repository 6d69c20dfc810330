//! A store that several servers share, in memory: what the API server is to replicas, without the API server.
//!
//! It keeps one record an address, refuses an address that another client has, tells every other server what one
//! of them stored, and takes a little time for each commit.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::lease::Lease;
use crate::store::{Exception, Fate, LeaseStore, Loaded, StoreError, Update};

/// The records that servers share. Clones are the same records.
#[derive(Clone, Default)]
pub struct Shared(Arc<Mutex<Records>>);

#[derive(Default)]
struct Records {
    leases: HashMap<Ipv4Addr, Lease>,
    servers: Vec<mpsc::Sender<Update>>,
}

impl Shared {
    /// Every record.
    pub fn leases(&self) -> Vec<Lease> {
        self.records().leases.values().cloned().collect()
    }

    /// The store of one server.
    pub fn store(&self) -> SharedStore {
        SharedStore {
            shared: self.clone(),
            own: None,
        }
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap()
    }
}

/// One server's way to the shared records.
pub struct SharedStore {
    shared: Shared,
    own: Option<mpsc::Sender<Update>>,
}

impl LeaseStore for SharedStore {
    async fn load(&mut self) -> Result<Loaded, StoreError> {
        let (sender, receiver) = mpsc::channel(4096);
        self.own = Some(sender.clone());
        let mut records = self.shared.records();
        records.servers.push(sender);
        let leases: Vec<Lease> = records.leases.values().cloned().collect();
        let newest = leases.iter().map(|lease| lease.since).max().unwrap_or_default();
        Ok(Loaded {
            leases,
            newest,
            updates: Some(receiver),
        })
    }

    async fn commit(&mut self, leases: &[Lease]) -> Result<Vec<Exception>, StoreError> {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let mut records = self.shared.records();
        let mut exceptions = Vec::new();
        for (index, lease) in leases.iter().enumerate() {
            let other = records.leases.get(&lease.address);
            match other.filter(|other| !other.same_client(lease) && other.is_live(lease.since)) {
                Some(other) => exceptions.push(Exception {
                    index,
                    fate: Fate::Taken(other.clone()),
                }),
                None => {
                    records.leases.insert(lease.address, lease.clone());
                    let own = self.own.as_ref();
                    records.servers.retain(|server| {
                        own.is_some_and(|own| own.same_channel(server))
                            || server.try_send(Update::Put(lease.clone())).is_ok()
                    });
                }
            }
        }
        Ok(exceptions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::State;
    use crate::testing::battery::{self, Harness, lease};

    impl Harness for Shared {
        type Store = SharedStore;

        async fn open(&self) -> SharedStore {
            self.store()
        }
    }

    #[tokio::test]
    async fn the_shared_store_passes_the_battery_of_stores() {
        battery::run(Shared::default).await;
    }

    #[tokio::test]
    async fn what_one_server_stores_another_hears_and_cannot_give_away() {
        let shared = Shared::default();
        let (mut one, mut two) = (shared.store(), shared.store());
        one.load().await.unwrap();
        let mut updates = two.load().await.unwrap().updates.unwrap();
        let mine = lease(1, 1, State::Bound);
        assert!(one.commit(std::slice::from_ref(&mine)).await.unwrap().is_empty());
        assert_eq!(updates.recv().await, Some(Update::Put(mine.clone())));
        let refused = two
            .commit(&[lease(2, 2, State::Bound), lease(1, 2, State::Bound)])
            .await
            .unwrap();
        assert_eq!(
            refused,
            [Exception {
                index: 1,
                fate: Fate::Taken(mine)
            }]
        );
    }
}
