//! The shared store of one DHCP server.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use kube::Client;
use oooi_api::DhcpLease;
use oooi_dhcp::lease::Lease;
use oooi_dhcp::store::{Exception, Fate, LeaseStore, Loaded, StoreError, Update};
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tracing::{error, info, warn};

use super::record;
use super::table::Table;
use super::writer::{Failure, Writer, Written};
use crate::watching::{Seen, Watching};

/// Writes that are under way at once.
const CONCURRENT: usize = 32;
/// A server that starts knows no lease: so long it waits for the API server, and then says that it cannot start.
const FIRST: Duration = Duration::from_secs(30);
/// Between two attempts to write what was put aside.
const PAUSE: Duration = Duration::from_secs(1);

/// Leases as `DHCPLease` resources.
pub struct ClusterStore {
    shared: Arc<Shared>,
    watching: Option<Watching<DhcpLease>>,
    task: Option<AbortHandle>,
}

struct Shared {
    writer: Writer,
    table: Mutex<Table>,
    /// A write found the API server away.
    lost: Notify,
}

impl Shared {
    /// Never held across an await.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClusterStore {
    /// The leases of the DHCPServer of this name. With its uid, they go when it goes.
    pub fn new(client: Client, namespace: &str, server: &str, uid: Option<String>) -> Self {
        ClusterStore {
            watching: Some(record::watching(client.clone(), namespace, server)),
            shared: Arc::new(Shared {
                writer: Writer::new(client, namespace, server, uid),
                table: Mutex::default(),
                lost: Notify::new(),
            }),
            task: None,
        }
    }
}

impl Drop for ClusterStore {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl LeaseStore for ClusterStore {
    /// Lists all records and follows them from then on.
    ///
    /// The first update is `Back`: renewals of before the start may not have been written, by this server or by
    /// another.
    async fn load(&mut self) -> Result<Loaded, StoreError> {
        let again = || StoreError::Away("the leases were loaded already".into());
        let mut watching = self.watching.take().ok_or_else(again)?;
        let first = async {
            loop {
                if let Seen::All(records) = watching.next().await {
                    return records;
                }
            }
        };
        let waited = |_| {
            StoreError::Away(format!(
                "no leases came from the API server in {} seconds",
                FIRST.as_secs()
            ))
        };
        let records = tokio::time::timeout(FIRST, first).await.map_err(waited)?;
        let leases: Vec<Lease> = records.iter().filter_map(record::read).collect();
        if leases.len() < records.len() {
            warn!(
                records = records.len() - leases.len(),
                "DHCPLeases that are no leases are passed over; delete them to free their addresses"
            );
        }
        self.shared.table().replace(&records);
        let newest = leases.iter().map(|lease| lease.since).max().unwrap_or_default();
        let (updates, receiver) = mpsc::channel(1024);
        let task = tokio::spawn(follow(self.shared.clone(), watching, updates));
        self.task = Some(task.abort_handle());
        Ok(Loaded {
            leases,
            newest,
            updates: Some(receiver),
        })
    }

    /// Writes the leases, those of different addresses at once.
    async fn commit(&mut self, leases: &[Lease]) -> Result<Vec<Exception>, StoreError> {
        let mut fates: Vec<(usize, Result<(), NotStored>)> =
            futures_util::stream::iter(turns(leases).into_values())
                .map(|turns| store_in_turn(&self.shared, leases, turns))
                .buffer_unordered(CONCURRENT)
                .concat()
                .await;
        fates.sort_by_key(|(index, _)| *index);
        let refusal = fates.iter().find_map(|(_, fate)| match fate {
            Err(NotStored::Refused(why)) => Some(why.clone()),
            _ => None,
        });
        if let Some(why) = refusal {
            // A refusal of all of them is no matter of one lease: people have to hear of it.
            if fates
                .iter()
                .all(|(_, fate)| matches!(fate, Err(NotStored::Refused(_))))
            {
                return Err(StoreError::Away(why));
            }
            error!(error = why, "a lease cannot be stored");
        }
        let exceptions = fates.into_iter().filter_map(|(index, fate)| {
            let fate = match fate {
                Ok(()) => return None,
                Err(NotStored::Fate(fate)) => fate,
                Err(NotStored::Refused(_)) => Fate::NotStored,
            };
            Some(Exception { index, fate })
        });
        Ok(exceptions.collect())
    }
}

#[derive(Clone)]
enum NotStored {
    Fate(Fate),
    Refused(String),
}

/// What one client wants of an address before another one's turn, by places in the batch.
type Turn = Vec<usize>;

/// The turns of each address.
fn turns(leases: &[Lease]) -> BTreeMap<Ipv4Addr, Vec<Turn>> {
    let mut by_address: BTreeMap<Ipv4Addr, Vec<Turn>> = BTreeMap::new();
    for (index, lease) in leases.iter().enumerate() {
        let turns = by_address.entry(lease.address).or_default();
        let goes_on = |turn: &&mut Turn| {
            let before = turn.last().and_then(|last| leases.get(*last));
            before.is_some_and(|before| before.same_client(lease))
        };
        match turns.last_mut().filter(goes_on) {
            Some(turn) => turn.push(index),
            None => turns.push(vec![index]),
        }
    }
    by_address
}

/// Writes what the clients of one address want, one after the other, and says what became of each lease.
///
/// Of one client's turn only the last is written, and the others meet its fate: a client that repeats itself while the API
/// server takes its time costs one write.
async fn store_in_turn(
    shared: &Shared,
    leases: &[Lease],
    turns: Vec<Turn>,
) -> Vec<(usize, Result<(), NotStored>)> {
    let mut fates = Vec::new();
    for turn in turns {
        if let Some(last) = turn.last().and_then(|last| leases.get(*last)) {
            let fate = store(shared, last).await;
            fates.extend(turn.into_iter().map(|index| (index, fate.clone())));
        }
    }
    fates
}

/// Writes one lease, or puts it aside while the API server is away.
async fn store(shared: &Shared, lease: &Lease) -> Result<(), NotStored> {
    let seen = {
        let mut table = shared.table();
        if table.away {
            return Err(NotStored::Fate(table.put_aside(lease)));
        }
        table.begin(lease);
        table.known(lease.address)
    };
    let written = shared.writer.write(seen, lease).await;
    let mut table = shared.table();
    table.end(lease.address);
    match written {
        Ok(Written::Stored(known)) => {
            table.note(known);
            Ok(())
        }
        Ok(Written::Taken(known)) => {
            let other = known.lease.clone();
            table.note(known);
            Err(NotStored::Fate(Fate::Taken(other)))
        }
        Err(Failure::Refused(why)) => Err(NotStored::Refused(why)),
        Err(Failure::Away(_)) => {
            table.away = true;
            shared.lost.notify_one();
            Err(NotStored::Fate(table.put_aside(lease)))
        }
    }
}

/// Tells the server what others store, and when the API server is away and back.
async fn follow(shared: Arc<Shared>, mut watching: Watching<DhcpLease>, updates: mpsc::Sender<Update>) {
    let mut away = false;
    if updates.send(Update::Back).await.is_err() {
        return;
    }
    loop {
        let seen = tokio::select! {
            () = updates.closed() => return,
            () = shared.lost.notified() => {
                watching.restart();
                Seen::Lost
            }
            seen = watching.next() => seen,
        };
        let may_end = may_end(&seen);
        let mut news: Vec<Update> = match seen {
            Seen::All(records) => shared.table().replace(&records),
            Seen::Put(record) => shared.table().put(&record).into_iter().collect(),
            Seen::Gone(record) => shared.table().remove(&record).into_iter().collect(),
            Seen::Lost => {
                shared.table().away = true;
                let first = !std::mem::replace(&mut away, true);
                first.then_some(Update::Away).into_iter().collect()
            }
        };
        if away && may_end {
            match catch_up(&shared, &mut news).await {
                Ok(()) => {
                    away = false;
                    news.push(Update::Back);
                }
                Err(why) => {
                    warn!(error = why, "renewals of the outage cannot be written yet");
                    // It lists but does not write: neither is asked for without a pause.
                    tokio::time::sleep(PAUSE).await;
                    watching.restart();
                }
            }
        }
        for update in news {
            if updates.send(update).await.is_err() {
                return;
            }
        }
    }
}

/// Whether an outage may be over by what the watch says: only a whole list comes from an API server that answers, and
/// says that nothing was missed.
fn may_end<K>(seen: &Seen<K>) -> bool {
    matches!(seen, Seen::All(_))
}

/// Writes what was put aside. One that meets another client's record has lost.
async fn catch_up(shared: &Shared, news: &mut Vec<Update>) -> Result<(), String> {
    let mut late = 0usize;
    loop {
        let (lease, seen) = {
            let mut table = shared.table();
            let Some(lease) = table.next_deferred() else {
                table.away = false;
                break;
            };
            let seen = table.known(lease.address);
            (lease, seen)
        };
        let written = shared.writer.write(seen, &lease).await;
        let mut table = shared.table();
        match written {
            Ok(Written::Stored(known)) => {
                table.note(known);
                late += 1;
            }
            Ok(Written::Taken(known)) => {
                warn!(address = %lease.address, mac = %lease.mac, other = %known.lease.mac,
                    "renewed in the outage, but another client has it now: the next renewal is refused");
                news.push(Update::Put(known.lease.clone()));
                table.note(known);
            }
            Err(Failure::Refused(why)) => {
                error!(address = %lease.address, error = why, "a late renewal is lost");
            }
            Err(Failure::Away(why)) => return Err(why),
        }
        table.settle(&lease);
    }
    if late > 0 {
        info!(leases = late, "renewals of the outage are written");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use oooi_dhcp::lease::State;
    use oooi_dhcp::testing::battery::lease;

    #[test]
    fn what_a_client_repeats_is_one_turn_and_clients_of_an_address_take_turns_in_order() {
        let [one, two] = [1, 3].map(|n| lease(1, n, State::Bound));
        let (elsewhere, freed) = (lease(2, 1, State::Bound), one.released(one.since));
        let batch = [one.clone(), elsewhere, freed, two.clone(), two, one];
        let turns: Vec<Vec<Turn>> = turns(&batch).into_values().collect();
        assert_eq!(turns, [vec![vec![0, 2], vec![3, 4], vec![5]], vec![vec![1]]]);
    }

    #[test]
    fn an_outage_is_over_with_a_whole_list_and_with_nothing_else() {
        assert!(may_end(&Seen::All(Vec::<u8>::new())));
        for seen in [Seen::Put(1), Seen::Gone(1), Seen::Lost] {
            assert!(!may_end(&seen), "{seen:?}");
        }
    }
}
