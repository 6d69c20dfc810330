//! The battery of tests that every [`LeaseStore`] passes.
//!
//! A crate that brings a store implements [`Harness`] and calls [`run`] from a test. Each part of the battery gets
//! an empty store and opens it again as often as it likes, as a server does that was killed in between.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::lease::{Lease, State};
use crate::mac::Mac;
use crate::store::LeaseStore;
use crate::time::Timestamp;

/// Opens one store again and again.
pub trait Harness {
    /// The store.
    type Store: LeaseStore;

    /// Opens the store. What an earlier one committed is still there; the earlier one is gone.
    fn open(&self) -> impl Future<Output = Self::Store>;
}

const T0: Timestamp = Timestamp(1_700_000_000_000);

/// A lease of client `n` on address `10.0.x.y`.
pub fn lease(address: u16, n: u8, state: State) -> Lease {
    let [a, b] = address.to_be_bytes();
    Lease {
        address: Ipv4Addr::new(10, 0, a, b),
        mac: Mac([2, 0, 0, 0, 0, n]),
        id: [1, 2, 0, 0, 0, 0, n].into(),
        host_name: Some(format!("worker-{n}").into()),
        machine: n.is_multiple_of(2),
        state,
        since: T0,
        expires: T0.after(Duration::from_secs(3600)),
    }
}

/// Runs every part of the battery, each on an empty store.
pub async fn run<H: Harness>(empty: impl Fn() -> H) {
    an_empty_store_is_empty(&empty()).await;
    what_was_committed_is_there_again(&empty()).await;
    the_latest_record_of_an_address_counts(&empty()).await;
    identifiers_and_names_of_any_length_survive(&empty()).await;
    a_large_batch_is_whole(&empty()).await;
    time_does_not_go_back_behind_the_newest_record(&empty()).await;
    a_machine_is_the_same_client_whatever_it_calls_itself(&empty()).await;
}

async fn reopened<H: Harness>(harness: &H) -> (H::Store, BTreeMap<Ipv4Addr, Lease>) {
    let mut store = harness.open().await;
    let loaded = store.load().await.unwrap();
    let count = loaded.leases.len();
    let leases: BTreeMap<Ipv4Addr, Lease> = loaded
        .leases
        .into_iter()
        .map(|lease| (lease.address, lease))
        .collect();
    assert_eq!(leases.len(), count, "one record an address");
    (store, leases)
}

async fn commit<S: LeaseStore>(store: &mut S, leases: &[Lease]) {
    assert_eq!(store.commit(leases).await.unwrap(), [], "every lease is stored");
}

async fn an_empty_store_is_empty<H: Harness>(harness: &H) {
    let (mut store, leases) = reopened(harness).await;
    assert!(leases.is_empty());
    commit(&mut store, &[]).await;
    drop(store);
    assert!(reopened(harness).await.1.is_empty());
}

async fn what_was_committed_is_there_again<H: Harness>(harness: &H) {
    let (mut store, _) = reopened(harness).await;
    let one = lease(1, 1, State::Bound);
    let two = Lease {
        host_name: None,
        ..lease(2, 2, State::Bound)
    };
    let three = lease(3, 3, State::Declined);
    commit(&mut store, std::slice::from_ref(&one)).await;
    commit(&mut store, &[two.clone(), three.clone()]).await;
    drop(store);
    let expected: BTreeMap<Ipv4Addr, Lease> = [one, two, three].map(|lease| (lease.address, lease)).into();
    assert_eq!(reopened(harness).await.1, expected);
    assert_eq!(reopened(harness).await.1, expected, "reading changes nothing");
}

async fn the_latest_record_of_an_address_counts<H: Harness>(harness: &H) {
    let (mut store, _) = reopened(harness).await;
    let first = lease(1, 1, State::Bound);
    let renewed = Lease {
        expires: first.expires.after(Duration::from_secs(9)),
        ..first.clone()
    };
    commit(&mut store, &[first.clone(), renewed.clone()]).await;
    drop(store);
    let (mut store, leases) = reopened(harness).await;
    assert_eq!(leases.get(&first.address), Some(&renewed));
    let now = T0.after(Duration::from_secs(60));
    commit(&mut store, &[renewed.released(now)]).await;
    drop(store);
    let (mut store, leases) = reopened(harness).await;
    // A store may forget what was released; it must not think that it is still leased.
    assert!(
        leases
            .get(&first.address)
            .is_none_or(|lease| lease.state == State::Released)
    );
    let other = Lease {
        since: now,
        ..lease(1, 2, State::Bound)
    };
    commit(&mut store, std::slice::from_ref(&other)).await;
    drop(store);
    assert_eq!(reopened(harness).await.1.get(&first.address), Some(&other));
}

async fn identifiers_and_names_of_any_length_survive<H: Harness>(harness: &H) {
    let (mut store, _) = reopened(harness).await;
    let long: Vec<u8> = (0..=254).collect();
    let leases = [
        Lease {
            id: [0, 255].into(),
            ..lease(1, 1, State::Bound)
        },
        Lease {
            id: long.into(),
            host_name: Some("n".repeat(253).into()),
            ..lease(2, 2, State::Bound)
        },
    ];
    commit(&mut store, &leases).await;
    drop(store);
    assert_eq!(
        reopened(harness).await.1.into_values().collect::<Vec<_>>(),
        leases
    );
}

async fn a_large_batch_is_whole<H: Harness>(harness: &H) {
    let (mut store, _) = reopened(harness).await;
    let leases: Vec<Lease> = (1..=500)
        .map(|address| lease(address, address as u8, State::Bound))
        .collect();
    commit(&mut store, &leases).await;
    drop(store);
    assert_eq!(
        reopened(harness).await.1.into_values().collect::<Vec<_>>(),
        leases
    );
}

async fn a_machine_is_the_same_client_whatever_it_calls_itself<H: Harness>(harness: &H) {
    let (mut store, _) = reopened(harness).await;
    let loader = Lease {
        machine: true,
        ..lease(1, 1, State::Bound)
    };
    let system = Lease {
        id: [255, 1, 2, 3].into(),
        ..loader.clone()
    };
    // Only one of the two was known for a machine when it asked.
    let later = Lease {
        machine: false,
        ..loader.clone()
    };
    // A station that answered a probe turns out to be a client, which has an identifier.
    let seen = Lease {
        id: [].into(),
        machine: false,
        ..lease(2, 3, State::Declined)
    };
    let client = lease(2, 3, State::Bound);
    commit(&mut store, &[loader, seen]).await;
    for lease in [system, later, client] {
        commit(&mut store, std::slice::from_ref(&lease)).await;
        drop(store);
        let (reopened, leases) = reopened(harness).await;
        assert_eq!(leases.get(&lease.address), Some(&lease));
        store = reopened;
    }
}

async fn time_does_not_go_back_behind_the_newest_record<H: Harness>(harness: &H) {
    let (mut store, _) = reopened(harness).await;
    let late = T0.after(Duration::from_secs(5000));
    commit(
        &mut store,
        &[
            Lease {
                since: late,
                ..lease(1, 1, State::Bound)
            },
            lease(2, 2, State::Bound),
        ],
    )
    .await;
    drop(store);
    let newest = harness.open().await.load().await.unwrap().newest;
    assert!(newest >= late, "{newest:?}");
}
