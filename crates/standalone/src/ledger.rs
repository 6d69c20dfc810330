//! The leases of the DHCP server as the DNS server beside it knows them: each gives its address a name.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use oooi_dhcp::lease::Lease;
use oooi_dhcp::store::{Exception, LeaseStore, Loaded, StoreError};
use oooi_dhcp::time::Timestamp;
use oooi_dns::names::Names;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::desired::Desired;

/// Leases that are stored together are one change: a rack that powers up asks all at once.
const TOGETHER: Duration = Duration::from_millis(50);
/// Leases that expired without a word are looked for so often.
const SWEEP: Duration = Duration::from_secs(15);

/// Everything that the DHCP server has stored, by address. Clones share it, and it outlives both servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(watch::Sender<BTreeMap<Ipv4Addr, Lease>>);

/// A store that writes into a ledger what it has stored.
pub(crate) struct Beside<S> {
    store: S,
    ledger: Ledger,
}

impl Ledger {
    /// A store beside which the ledger is kept.
    pub(crate) fn beside<S: LeaseStore>(&self, store: S) -> Beside<S> {
        Beside {
            store,
            ledger: self.clone(),
        }
    }

    /// The names that leases and machines give, as they change. The task ends when nobody holds the receiver any more.
    pub(crate) fn names(&self, mut desired: watch::Receiver<Arc<Desired>>) -> watch::Receiver<Arc<Names>> {
        let mut leases = self.0.subscribe();
        let (sender, receiver) = watch::channel(Arc::<Names>::default());
        tokio::spawn(async move {
            let mut sweep = tokio::time::interval(SWEEP);
            sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    () = sender.closed() => return,
                    Ok(()) = leases.changed() => tokio::time::sleep(TOGETHER).await,
                    Ok(()) = desired.changed() => {}
                    _ = sweep.tick() => {}
                }
                let machines = desired.borrow_and_update().machines.clone();
                let names =
                    oooi_feed::names::of(leases.borrow_and_update().values(), &machines, Timestamp::wall());
                sender.send_if_modified(|current| {
                    let news = **current != names;
                    *current = Arc::new(names);
                    news
                });
            }
        });
        receiver
    }
}

impl<S: LeaseStore> LeaseStore for Beside<S> {
    async fn load(&mut self) -> Result<Loaded, StoreError> {
        let loaded = self.store.load().await?;
        let all = loaded.leases.iter().map(|lease| (lease.address, lease.clone()));
        self.ledger.0.send_replace(all.collect());
        Ok(loaded)
    }

    async fn commit(&mut self, leases: &[Lease]) -> Result<Vec<Exception>, StoreError> {
        let exceptions = self.store.commit(leases).await?;
        let is_stored = |place: usize| !exceptions.iter().any(|exception| exception.index == place);
        self.ledger.0.send_modify(|all| {
            let stored = leases.iter().enumerate().filter(|(place, _)| is_stored(*place));
            all.extend(stored.map(|(_, lease)| (lease.address, lease.clone())));
        });
        Ok(exceptions)
    }
}
