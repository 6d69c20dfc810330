//! Shared leases on a real API server: the battery of stores, races, and outages.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::cell::Cell;
use std::time::Duration;

use oooi_dhcp::lease::{Lease, State};
use oooi_dhcp::store::{Exception, Fate, LeaseStore, Update};
use oooi_dhcp::testing::battery::{self, Harness, lease};
use oooi_feed::leases::{self, ClusterStore};
use support::{Bed, LONG};
use tokio::sync::mpsc;

struct Server<'a> {
    bed: &'a Bed,
    name: String,
}

impl Harness for Server<'_> {
    type Store = ClusterStore;

    async fn open(&self) -> ClusterStore {
        ClusterStore::new(self.bed.dhcp.clone(), self.bed.namespace.name(), &self.name, None)
    }
}

#[tokio::test]
async fn the_cluster_store_passes_the_battery_of_stores() {
    let bed = Bed::new("battery").await;
    let count = Cell::new(0);
    battery::run(|| {
        count.set(count.get() + 1);
        Server {
            bed: &bed,
            name: format!("server-{}", count.get()),
        }
    })
    .await;
}

async fn opened(bed: &Bed, client: kube::Client) -> (ClusterStore, mpsc::Receiver<Update>) {
    let mut store = ClusterStore::new(client, bed.namespace.name(), "tenant-dhcp", None);
    let mut updates = store.load().await.unwrap().updates.unwrap();
    assert_eq!(
        next(&mut updates).await,
        Update::Back,
        "renewals of before may be unwritten"
    );
    (store, updates)
}

async fn next(updates: &mut mpsc::Receiver<Update>) -> Update {
    tokio::time::timeout(LONG, updates.recv()).await.unwrap().unwrap()
}

fn renewed(lease: &Lease, seconds: u64) -> Lease {
    let later = Duration::from_secs(seconds);
    Lease {
        since: lease.since.after(later),
        expires: lease.expires.after(later),
        ..lease.clone()
    }
}

#[tokio::test]
async fn two_stores_at_once_never_both_get_one_address() {
    let bed = Bed::new("race").await;
    let (mut one, _a) = opened(&bed, bed.dhcp.clone()).await;
    let (mut two, _b) = opened(&bed, bed.dhcp.clone()).await;
    let batch = |n: u8| -> Vec<Lease> { (1..=60).map(|address| lease(address, n, State::Bound)).collect() };
    let (first, second) = (batch(1), batch(2));
    let (lost_by_one, lost_by_two) = tokio::join!(one.commit(&first), two.commit(&second));
    let (lost_by_one, lost_by_two) = (lost_by_one.unwrap(), lost_by_two.unwrap());
    assert_eq!(
        lost_by_one.len() + lost_by_two.len(),
        60,
        "each address has one winner"
    );
    for (lost, winners) in [(&lost_by_one, &second), (&lost_by_two, &first)] {
        for Exception { index, fate } in lost {
            assert_eq!(*fate, Fate::Taken(winners[*index].clone()));
        }
    }
    println!(
        "one won {}, two won {}",
        60 - lost_by_one.len(),
        60 - lost_by_two.len()
    );
    let stored = leases::list(bed.client.clone(), bed.namespace.name(), "tenant-dhcp")
        .await
        .unwrap();
    assert_eq!(stored.len(), 60);
}

#[tokio::test]
async fn what_one_server_or_a_person_does_another_hears() {
    let bed = Bed::new("hear").await;
    let (mut one, mut own) = opened(&bed, bed.dhcp.clone()).await;
    let (_two, mut updates) = opened(&bed, bed.dhcp.clone()).await;
    let held = lease(1, 1, State::Bound);
    assert_eq!(one.commit(std::slice::from_ref(&held)).await.unwrap(), []);
    assert_eq!(next(&mut updates).await, Update::Put(held.clone()));

    let now = held.since.after(Duration::from_secs(5));
    let namespace = bed.namespace.name();
    let release = || leases::release(bed.client.clone(), namespace, "tenant-dhcp", held.address, now);
    assert!(release().await.unwrap());
    assert!(!release().await.unwrap(), "nobody has it any more");
    let freed = Update::Put(held.released(now));
    assert_eq!(next(&mut updates).await, freed);
    assert_eq!(next(&mut own).await, freed, "its own writes are no news, this is");

    bed.namespace
        .kubectl(&["delete", "dhcplease", "tenant-dhcp-10-0-0-1"])
        .await
        .unwrap();
    assert_eq!(next(&mut updates).await, Update::Forget(held.address));
}

#[tokio::test]
async fn in_an_outage_renewals_go_on_and_are_written_after_it() {
    let bed = Bed::new("outage").await;
    let (client, mut relay) = bed.cuttable().await;
    let (mut store, mut updates) = opened(&bed, client).await;
    let (kept, stolen) = (lease(1, 1, State::Bound), lease(2, 2, State::Bound));
    assert_eq!(store.commit(&[kept.clone(), stolen.clone()]).await.unwrap(), []);

    relay.cut().await;
    let (kept_on, stolen_on) = (renewed(&kept, 60), renewed(&stolen, 60));
    let fates = store
        .commit(&[kept_on.clone(), lease(3, 3, State::Bound), stolen_on.clone()])
        .await
        .unwrap();
    let fates: Vec<(usize, Fate)> = fates.into_iter().map(|e| (e.index, e.fate)).collect();
    assert_eq!(
        fates,
        [(0, Fate::Deferred), (1, Fate::NotStored), (2, Fate::Deferred)]
    );
    assert_eq!(next(&mut updates).await, Update::Away);

    // Meanwhile another replica, which reaches the API server, gives one of the addresses away.
    let (mut other, _updates) = opened(&bed, bed.dhcp.clone()).await;
    let thief = Lease {
        since: stolen.expires,
        expires: stolen.expires.after(Duration::from_secs(3600)),
        ..lease(2, 9, State::Bound)
    };
    assert_eq!(other.commit(std::slice::from_ref(&thief)).await.unwrap(), []);

    relay.mend().await;
    let mut heard = Vec::new();
    loop {
        match next(&mut updates).await {
            Update::Back => break,
            update => heard.push(update),
        }
    }
    assert!(heard.contains(&Update::Put(thief.clone())), "{heard:?}");
    assert!(
        !heard.contains(&Update::Put(kept.clone())),
        "the older record is no news: {heard:?}"
    );
    let stored = leases::list(bed.client.clone(), bed.namespace.name(), "tenant-dhcp")
        .await
        .unwrap();
    assert_eq!(
        stored,
        [kept_on, thief],
        "the late write is there, the one that lost is not"
    );
    assert_eq!(
        store.commit(&[lease(3, 3, State::Bound)]).await.unwrap(),
        [],
        "new ones are given again"
    );
}

#[tokio::test]
async fn a_commit_that_is_refused_says_why() {
    let bed = Bed::new("refused").await;
    let name = "n".repeat(250);
    let mut store = ClusterStore::new(bed.dhcp.clone(), bed.namespace.name(), &name, None);
    store.load().await.unwrap();
    let error = store
        .commit(&[lease(1, 1, State::Bound)])
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("metadata.name"), "{error}");
}

#[tokio::test]
async fn a_server_without_shared_leases_is_an_error_that_names_the_way() {
    let bed = Bed::new("storage").await;
    let namespace = bed.namespace.name();
    let asked = async |server: &str| leases::are_shared(bed.client.clone(), namespace, server).await;
    let error = asked("nobody").await.unwrap_err().to_string();
    assert!(error.contains("there is no DHCPServer nobody"), "{error}");

    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/dhcpserver.yaml");
    let embedded = std::fs::read_to_string(example)
        .unwrap()
        .replace("namespace: clusters", &format!("namespace: {namespace}"));
    bed.namespace.apply(&embedded).await.unwrap();
    let error = asked("my-cluster-dhcp").await.unwrap_err().to_string();
    let way = format!("kubectl exec -n {namespace} deploy/my-cluster-dhcp -- /oooi leases");
    assert!(error.contains(&way), "{error}");

    let shared = embedded.replace("leaseConfig:", "leaseConfig:\n    storage: Kubernetes");
    bed.namespace.apply(&shared).await.unwrap();
    asked("my-cluster-dhcp").await.unwrap();
}

#[tokio::test]
async fn what_a_client_repeats_meets_one_fate() {
    let bed = Bed::new("repeated").await;
    let (mut store, _updates) = opened(&bed, bed.dhcp.clone()).await;
    let mine = lease(1, 1, State::Bound);
    let last = renewed(&mine, 9);
    let mut batch = vec![mine; 2000];
    batch.extend([last.clone(), lease(1, 3, State::Bound), lease(1, 3, State::Bound)]);
    let lost = |index| Exception {
        index,
        fate: Fate::Taken(last.clone()),
    };
    assert_eq!(store.commit(&batch).await.unwrap(), [lost(2001), lost(2002)]);
    let stored = leases::list(bed.client.clone(), bed.namespace.name(), "tenant-dhcp").await;
    assert_eq!(stored.unwrap(), [last]);
}
