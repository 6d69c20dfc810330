//! What holds for every pool and every set, whatever they are made of.

#![allow(clippy::unwrap_used)] // helpers of tests

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use oooi_ipam::{Pool, Range, Set, assign, hosts};
use proptest::prelude::*;

/// A network small enough to count its addresses out, anywhere, its host bits not masked.
fn network() -> impl Strategy<Value = Ipv4Net> {
    (any::<u32>(), 22u8..=32).prop_map(|(bits, prefix)| Ipv4Net::new(bits.into(), prefix).unwrap())
}

/// An address in or just around a network.
fn near(network: Ipv4Net, offset: i64) -> Ipv4Addr {
    let number = i64::from(u32::from(network.network())) + offset;
    Ipv4Addr::from(u32::try_from(number.clamp(0, i64::from(u32::MAX))).unwrap())
}

proptest! {
    #[test]
    fn a_set_is_what_a_set_of_numbers_is(
        changes in prop::collection::vec((any::<bool>(), 0u32..300, 0u32..40), 0..60),
        base in prop_oneof![Just(0u32), Just(u32::MAX - 400), any::<u32>().prop_map(|n| n.min(u32::MAX - 400))],
    ) {
        let mut set = Set::new();
        let mut model = BTreeSet::new();
        for (insert, start, length) in changes {
            let (first, last) = (base + start, base + start + length);
            let range = Range::new(first.into(), last.into()).unwrap();
            if insert {
                set.insert(range);
                model.extend(first..=last);
            } else {
                set.remove(range);
                model.retain(|n| !(first..=last).contains(n));
            }
        }
        prop_assert_eq!(set.len(), model.len() as u64);
        for (n, number) in model.iter().enumerate() {
            prop_assert_eq!(set.nth(n as u64), Some(Ipv4Addr::from(*number)));
        }
        prop_assert_eq!(set.nth(model.len() as u64), None);
        for number in base..base + 350 {
            prop_assert_eq!(set.contains(number.into()), model.contains(&number));
        }
        // Never adjacent, never overlapping: equal sets have equal representations.
        let ranges: Vec<Range> = set.ranges().collect();
        for pair in ranges.windows(2) {
            prop_assert!(u64::from(u32::from(pair[0].last())) + 1 < u64::from(u32::from(pair[1].first())));
        }
    }

    #[test]
    fn nobody_shares_an_address_and_none_is_outside_or_reserved(
        network in network(),
        reserved in prop::collection::vec((-5i64..1100, 0u32..20), 0..8),
        kept in prop::collection::btree_map(0u16..400, -5i64..1100, 0..40),
        wanted in prop::collection::vec(0u16..400, 0..400),
    ) {
        let mut pool = Pool::new(hosts(network));
        let mut off_limits = Set::new();
        for (offset, length) in reserved {
            let first = near(network, offset);
            let last = Ipv4Addr::from(u32::from(first).saturating_add(length));
            let range = Range::new(first, last).unwrap();
            pool.reserve(range);
            off_limits.insert(range);
        }
        let kept: BTreeMap<u16, Ipv4Addr> =
            kept.into_iter().map(|(name, offset)| (name, near(network, offset))).collect();
        let before = pool.clone();
        let assigned = assign(&mut pool, &wanted, &kept);

        let names: BTreeSet<u16> = wanted.iter().copied().collect();
        let unique: BTreeSet<Ipv4Addr> = assigned.addresses.values().copied().collect();
        prop_assert_eq!(unique.len(), assigned.addresses.len(), "an address was given twice");
        for address in &unique {
            prop_assert!(hosts(network).contains(*address), "{address} is outside {network}");
            prop_assert!(!off_limits.contains(*address), "{address} is reserved");
        }
        // Everybody is served, or nothing is left.
        prop_assert_eq!(assigned.addresses.len() + assigned.without.len(), names.len());
        prop_assert!(assigned.without.is_empty() || pool.free().is_empty());
        prop_assert_eq!(pool.free().len() + unique.len() as u64, pool.capacity());

        // Deterministic, and an answer that was given stays, also when others come before.
        let mut again = before.clone();
        prop_assert_eq!(&assign(&mut again, &wanted, &kept), &assigned);
        let mut reversed: Vec<u16> = wanted.clone();
        reversed.reverse();
        let mut later = before;
        let second = assign(&mut later, &reversed, &assigned.addresses);
        prop_assert_eq!(second.addresses, assigned.addresses);
        prop_assert!(second.lost.is_empty());
    }
}
