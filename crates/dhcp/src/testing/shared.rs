//! A store that several servers share, in memory: what the API server is to replicas, without the API server.
//!
//! It keeps one record an address, refuses an address that another client has, tells every other server what one
//! of them stored, and takes a little time for each commit. While it is away, clients that have an address keep it.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::lease::{Lease, State};
use crate::store::{Exception, Fate, LeaseStore, Loaded, StoreError, Update};

/// The records that servers share. Clones are the same records.
#[derive(Clone, Default)]
pub struct Shared(Arc<Mutex<Records>>);

#[derive(Default)]
struct Records {
    leases: HashMap<Ipv4Addr, Lease>,
    servers: Vec<mpsc::Sender<Update>>,
    away: bool,
    /// What was put aside while it is away.
    deferred: HashMap<Ipv4Addr, Lease>,
}

impl Records {
    fn tell(&mut self, update: &Update) {
        self.servers
            .retain(|server| server.try_send(update.clone()).is_ok());
    }

    /// What becomes of a lease that cannot be written now.
    fn put_aside(&mut self, lease: &Lease) -> Fate {
        let held = self
            .deferred
            .get(&lease.address)
            .or(self.leases.get(&lease.address));
        let own = held.filter(|held| held.same_client(lease));
        if !own.is_some_and(|held| lease.state != State::Bound || held.is_active(lease.since)) {
            return Fate::NotStored;
        }
        self.deferred.insert(lease.address, lease.clone());
        Fate::Deferred
    }
}

impl Shared {
    /// Nothing is written from now on, and every server knows it.
    pub fn go_away(&self) {
        let mut records = self.records();
        records.away = true;
        records.tell(&Update::Away);
    }

    /// What was put aside is written, and every server knows that there are writes again.
    pub fn come_back(&self) {
        let mut records = self.records();
        let deferred = std::mem::take(&mut records.deferred);
        records.leases.extend(deferred);
        records.away = false;
        records.tell(&Update::Back);
    }

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
            if records.away {
                let fate = records.put_aside(lease);
                exceptions.push(Exception { index, fate });
                continue;
            }
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
    async fn while_it_is_away_only_a_client_that_has_its_address_keeps_it() {
        let shared = Shared::default();
        let mut store = shared.store();
        let mut updates = store.load().await.unwrap().updates.unwrap();
        let held = lease(1, 1, State::Bound);
        store.commit(std::slice::from_ref(&held)).await.unwrap();
        shared.go_away();
        assert_eq!(updates.recv().await, Some(Update::Away));
        let renewed = Lease {
            expires: held.expires.after(Duration::from_secs(60)),
            ..held.clone()
        };
        let batch = [
            renewed.clone(),
            lease(1, 3, State::Bound),
            lease(2, 1, State::Bound),
        ];
        let fates = store.commit(&batch).await.unwrap().into_iter();
        let fates: Vec<Fate> = fates.map(|exception| exception.fate).collect();
        assert_eq!(fates, [Fate::Deferred, Fate::NotStored, Fate::NotStored]);
        assert_eq!(shared.leases(), [held]);
        shared.come_back();
        assert_eq!(updates.recv().await, Some(Update::Back));
        assert_eq!(shared.leases(), [renewed]);
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
