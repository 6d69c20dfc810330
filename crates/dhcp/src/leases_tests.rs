use super::*;
use crate::testing::fixture;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

const NOW: Timestamp = Timestamp(1_000_000_000);

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 100, last)
}

fn lease(last: u8, client: u8, state: State, expires: Timestamp) -> Lease {
    let mac = Mac([2, 0, 0, 0, 0, client]);
    Lease {
        address: address(last),
        mac,
        id: [1, 2, 0, 0, 0, 0, client].into(),
        host_name: None,
        machine: false,
        state,
        since: NOW,
        expires,
    }
}

fn later(seconds: u64) -> Timestamp {
    NOW.after(Duration::from_secs(seconds))
}

#[test]
fn addresses_that_nobody_had_come_first_then_the_one_unused_for_longest() {
    let config = fixture::config(|spec| spec.lease_config.range_end = "192.168.100.12".into());
    let mut leases = Leases::new(&config, vec![], NOW);
    for (last, expires) in [(10, 30), (11, 10), (12, 20)] {
        assert_eq!(leases.free(&config, NOW), Some(address(last)));
        leases.put(lease(last, last, State::Bound, later(expires)));
    }
    assert_eq!(leases.free(&config, NOW), None);
    assert_eq!(leases.free(&config, later(25)), Some(address(11)));
    leases.put(lease(11, 99, State::Bound, later(60)));
    assert_eq!(leases.free(&config, later(25)), Some(address(12)));
}

#[test]
fn no_expired_address_changes_hands_while_expiries_are_held() {
    let config = fixture::config(|spec| spec.lease_config.range_end = "192.168.100.10".into());
    let mut leases = Leases::new(&config, vec![lease(10, 1, State::Bound, later(5))], NOW);
    leases.hold_expired_until(later(100));
    leases.hold_expired_until(later(80));
    assert!(leases.is_kept(leases.get(address(10)).unwrap(), later(99)));
    assert_eq!(leases.free(&config, later(99)), None);
    assert_eq!(leases.free(&config, later(100)), Some(address(10)));
}

#[test]
fn the_latest_lease_of_a_client_is_known_in_whatever_order_they_were_kept() {
    let config = fixture::config(|_| {});
    let former = lease(10, 1, State::Bound, later(50));
    let mut latest = lease(15, 1, State::Bound, later(60));
    latest.since = later(10);
    for stored in [[former.clone(), latest.clone()], [latest.clone(), former.clone()]] {
        let leases = Leases::new(&config, stored.into(), later(20));
        assert_eq!(leases.of_id(&latest.id).unwrap().address, latest.address);
    }
}

#[test]
fn an_address_that_is_taken_and_forgotten_again_and_again_is_remembered_once() {
    let config = fixture::config(|_| {});
    let mut leases = Leases::new(&config, vec![], NOW);
    for _ in 0..3 {
        leases.put(lease(10, 1, State::Offered, later(5)));
        assert!(leases.fresh.vacated.is_empty());
        leases.forget(address(10));
        assert_eq!(leases.fresh.vacated.len(), 1);
    }
}

#[test]
fn an_offer_that_nothing_followed_ends_no_hold_of_the_lease_before_it() {
    let config = fixture::config(|spec| spec.lease_config.range_end = "192.168.100.10".into());
    let over = lease(10, 1, State::Bound, later(5));
    let claim = lease(10, 1, State::Offered, later(40));
    for after in [None, Some(over.released(later(50)))] {
        let mut leases = Leases::new(&config, vec![over.clone()], NOW);
        leases.put(claim.clone());
        leases.put(claim.clone());
        leases.hold_expired_until(later(100));
        let freed = after.is_some();
        after.into_iter().for_each(|after| leases.put(after));
        assert_eq!(
            leases.is_kept(leases.get(address(10)).unwrap(), later(99)),
            !freed
        );
        assert_eq!(leases.free(&config, later(99)), freed.then_some(address(10)));
        assert_eq!(leases.free(&config, later(100)), Some(address(10)));
    }
    let mut leases = Leases::new(&config, vec![], NOW);
    leases.put(claim);
    leases.hold_expired_until(later(100));
    assert_eq!(
        leases.free(&config, later(99)),
        Some(address(10)),
        "it never was a lease"
    );
}

#[test]
fn a_lease_outlives_an_offer_that_is_forgotten_for_want_of_room() {
    let config = fixture::config(|_| {});
    let over = lease(10, 1, State::Bound, later(5));
    let mut leases = Leases::new(&config, vec![over.clone()], NOW);
    leases.put(lease(10, 1, State::Offered, later(40)));
    for n in 0..MAX_OFFERS as u32 {
        let mut offer = lease(0, 2, State::Offered, later(50));
        offer.address = Ipv4Addr::from(n);
        leases.put(offer);
    }
    assert_eq!(leases.get(address(10)), Some(&over));
    assert!(leases.covered.is_empty());
}

#[test]
fn a_lease_that_comes_back_does_not_count_as_its_clients_latest() {
    let config = fixture::config(|_| {});
    let over = lease(10, 1, State::Bound, later(5));
    let mut leases = Leases::new(&config, vec![over.clone()], NOW);
    leases.put(lease(10, 2, State::Offered, later(40)));
    let mut newer = lease(11, 1, State::Bound, later(3600));
    newer.since = later(20);
    leases.put(newer.clone());
    for n in 0..MAX_OFFERS as u32 {
        let mut offer = lease(0, 3, State::Offered, later(50));
        offer.address = Ipv4Addr::from(n);
        leases.put(offer);
    }
    assert_eq!(leases.get(address(10)), Some(&over));
    assert_eq!(leases.of_id(&over.id), Some(&newer));
}

#[test]
fn a_lease_that_is_over_by_the_wall_clock_alone_keeps_its_address_for_what_it_had_left() {
    let config = fixture::config(|spec| spec.lease_config.range_end = "192.168.100.10".into());
    let stored = vec![lease(10, 1, State::Bound, later(50))];
    let (newest, day) = (later(20), 86_400);
    let mut leases = Leases::new(&config, stored, later(day));
    assert!(leases.doubt_time_since(newest, later(day)));
    let held = leases.owed(later(day));
    assert_eq!(leases.free(&config, later(day + 29)), None);
    assert_eq!(leases.free(&config, later(day + 30)), Some(address(10)));

    // Another start, after something was written by that clock.
    let mut leases = Leases::new(&config, held, later(2 * day));
    leases.doubt_time_since(later(day + 10), later(2 * day));
    assert_eq!(leases.free(&config, later(2 * day + 19)), None);
    assert_eq!(leases.free(&config, later(2 * day + 20)), Some(address(10)));
}

#[test]
fn another_start_without_a_client_in_between_counts_no_time_twice() {
    let config = fixture::config(|spec| spec.lease_config.range_end = "192.168.100.11".into());
    let day = 86_400;
    // What was written last was no lease any more.
    let mut stored = vec![
        lease(10, 1, State::Bound, later(50)),
        lease(11, 2, State::Released, later(20)),
    ];
    stored[1].since = later(20);
    for start in [day, day + 5, 2 * day, 3 * day] {
        let newest = stored.iter().map(|lease| lease.since).max().unwrap();
        let mut leases = Leases::new(&config, stored.clone(), later(start));
        leases.doubt_time_since(newest, later(start));
        for held in leases.owed(later(start)) {
            stored.retain(|lease| lease.address != held.address);
            leases.put(held.clone());
            stored.push(held);
        }
        let left = leases.get(address(10)).unwrap().expires.since(later(start));
        assert!(left <= Duration::from_secs(30), "{left:?} at {start}");
        assert!(left >= Duration::from_secs(25), "{left:?} at {start}");
    }
}

#[test]
fn a_clock_that_jumped_by_less_than_a_lease_takes_nothing_off_it() {
    let config = fixture::config(|spec| spec.lease_config.range_end = "192.168.100.10".into());
    let stored = vec![lease(10, 1, State::Bound, later(3600))];
    let mut leases = Leases::new(&config, stored, later(3000));
    leases.doubt_time_since(NOW, later(3000));
    assert_eq!(leases.free(&config, later(3000 + 3599)), None);
}

#[test]
fn a_server_that_starts_again_at_once_owes_the_store_what_it_doubts_until_something_is_stored() {
    let config = fixture::config(|spec| spec.lease_config.range_end = "192.168.100.11".into());
    let stored = vec![
        lease(10, 1, State::Bound, later(50)),
        lease(11, 2, State::Bound, later(50)),
    ];
    let mut leases = Leases::new(&config, stored, later(9));
    assert!(!leases.doubt_time_since(NOW, later(9)), "it can wait");
    assert_eq!(leases.free(&config, later(58)), None);
    let [one, two] = leases.owed(later(9)).try_into().unwrap();
    assert_eq!((one.expires, one.since), (later(59), later(9)));
    leases.put(lease(10, 1, State::Bound, later(90)));
    assert_eq!(leases.owed(later(30)), [two], "the other one was renewed");
    assert_eq!(leases.owed(later(59)), [], "it is over");
    leases.settled();
    assert_eq!(leases.owed(later(30)), []);
}

#[test]
fn what_a_replica_with_another_clock_gave_lasts_as_long_from_when_it_is_heard_of() {
    let config = fixture::config(|spec| spec.lease_config.range_end = "192.168.100.10".into());
    let mut leases = Leases::new(&config, vec![], NOW);
    let (mut renewed, day) = (lease(10, 1, State::Bound, later(60)), 86_400);
    renewed.since = later(10);
    leases.hear(renewed.clone(), later(day));
    assert_eq!(leases.free(&config, later(day + 49)), None, "ours is a day ahead");
    assert_eq!(leases.free(&config, later(day + 50)), Some(address(10)));
    leases.hear(renewed.clone(), NOW);
    assert_eq!(
        leases.free(&config, later(59)),
        None,
        "the other one is a little ahead"
    );
    leases.hear(renewed.released(later(day)), later(day));
    assert_eq!(leases.free(&config, later(day)), Some(address(10)));
}

#[test]
fn a_lease_that_was_over_when_the_store_was_last_written_is_in_no_doubt() {
    let config = fixture::config(|spec| spec.lease_config.range_end = "192.168.100.10".into());
    let mut leases = Leases::new(&config, vec![lease(10, 1, State::Bound, later(5))], later(90));
    assert!(!leases.doubt_time_since(later(10), later(90)));
    assert_eq!(leases.owed(later(90)), []);
    assert_eq!(leases.free(&config, later(90)), Some(address(10)));
}

#[test]
fn offers_are_bounded_and_the_oldest_is_forgotten_and_found_again() {
    let config = fixture::config(|spec| {
        spec.network_config.cidr = "192.168.0.0/16".into();
        spec.lease_config.range_start = "192.168.101.0".into();
        spec.lease_config.range_end = "192.168.254.255".into();
    });
    let mut leases = Leases::new(&config, vec![], NOW);
    for client in 0..(MAX_OFFERS as u32 + 500) {
        let address = leases.free(&config, NOW).unwrap();
        let [_, a, b, c] = client.to_be_bytes();
        let expires = NOW.after(Duration::from_millis(u64::from(client)));
        let mut offer = lease(0, 0, State::Offered, expires);
        (offer.address, offer.mac, offer.id) = (address, Mac([2, 0, 0, a, b, c]), [9, a, b, c].into());
        leases.put(offer);
        assert!(leases.offers() <= MAX_OFFERS && leases.len() <= MAX_OFFERS);
    }
    // An address that was forgotten is used before the pool is searched further.
    assert!(
        u32::from(leases.free(&config, NOW).unwrap()) < u32::from(Ipv4Addr::new(192, 168, 101, 0)) + 8192 + 1
    );
}

#[test]
fn a_record_is_found_by_client_until_another_takes_its_address() {
    let config = fixture::config(|_| {});
    let mut leases = Leases::new(&config, vec![], NOW);
    leases.put(lease(10, 1, State::Bound, later(10)));
    leases.put(lease(11, 1, State::Bound, later(10)));
    assert_eq!(leases.of_mac(Mac([2, 0, 0, 0, 0, 1])).count(), 2);
    assert_eq!(leases.of_id(&[1, 2, 0, 0, 0, 0, 1]).unwrap().address, address(11));
    leases.put(lease(11, 2, State::Bound, later(10)));
    assert_eq!(leases.of_mac(Mac([2, 0, 0, 0, 0, 1])).count(), 1);
    assert!(leases.of_id(&[1, 2, 0, 0, 0, 0, 1]).is_none());
    assert_eq!(leases.get(address(10)).unwrap().mac, Mac([2, 0, 0, 0, 0, 1]));
}

#[test]
fn replicas_look_for_free_addresses_in_different_places_and_find_them_all() {
    let config = fixture::config(|spec| {
        spec.network_config.additional_server_ips = vec!["192.168.100.4".into()];
    });
    let mut second = config.clone();
    second.server = Ipv4Addr::new(192, 168, 100, 4);
    let mut leases = Leases::new(&second, vec![], NOW);
    assert_eq!(
        Leases::new(&config, vec![], NOW).free(&config, NOW),
        Some(address(10))
    );
    let mut given = std::collections::BTreeSet::new();
    while let Some(free) = leases.free(&second, NOW) {
        assert!(given.insert(free));
        leases.put(lease(
            free.octets()[3],
            given.len() as u8,
            State::Bound,
            later(10),
        ));
    }
    assert_eq!(given.len(), 11);
    assert!(given.contains(&address(10)) && given.contains(&address(20)));
}

#[test]
fn addresses_that_left_the_pool_are_forgotten_once_unused() {
    let config = fixture::config(|spec| spec.lease_config.range_start = "192.168.100.15".into());
    let stored = vec![
        lease(10, 1, State::Bound, later(5)),
        lease(11, 2, State::Released, NOW),
    ];
    let mut leases = Leases::new(&config, stored, NOW);
    assert!(leases.get(address(10)).is_some() && leases.get(address(11)).is_none());
    leases.adopt(&config, later(5));
    assert!(leases.is_empty());
}

proptest! {
    #[test]
    fn records_are_found_by_all_that_they_say_and_by_nothing_that_they_said(
        steps in proptest::collection::vec((0..6_u8, 0..4_u8, 0..4_u8, 0..4_usize), 1..80),
    ) {
        let mut leases = Leases::default();
        let mut records: BTreeMap<Ipv4Addr, Lease> = BTreeMap::new();
        let mut latest: BTreeMap<Vec<u8>, Ipv4Addr> = BTreeMap::new();
        for (last, mac, id, what) in steps {
            let mut lease = lease(last, mac, State::Bound, later(u64::from(last)));
            // The identifier of client 3 is one of those that take memory of their own.
            lease.id = if id == 3 { [3; 20].into() } else { [id].into() };
            latest.retain(|_, address| *address != lease.address);
            match [State::Bound, State::Offered, State::Declined].get(what) {
                Some(state) => {
                    lease.state = *state;
                    if *state != State::Declined {
                        latest.insert(lease.id.to_vec(), lease.address);
                    }
                    records.insert(lease.address, lease.clone());
                    leases.put(lease);
                }
                None => {
                    records.remove(&lease.address);
                    leases.forget(lease.address);
                }
            }
            let offers = records.values().filter(|lease| lease.state == State::Offered);
            prop_assert_eq!((leases.len(), leases.offers()), (records.len(), offers.count()));
            for last in 0..6 {
                prop_assert_eq!(leases.get(address(last)), records.get(&address(last)));
            }
            for id in [&[0][..], &[1], &[2], &[3; 20]] {
                let found = leases.of_id(id).map(|lease| lease.address);
                prop_assert_eq!(found, latest.get(id).copied());
            }
            for n in 0..4 {
                let mac = Mac([2, 0, 0, 0, 0, n]);
                let found: BTreeSet<Ipv4Addr> = leases.of_mac(mac).map(|lease| lease.address).collect();
                let own = records.values().filter(|lease| lease.mac == mac);
                prop_assert_eq!(found, own.map(|lease| lease.address).collect());
            }
        }
    }
}
