//! Sticky assignment.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use crate::{Pool, Unavailable};

/// What [`assign`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assigned<K> {
    /// Who has which address now.
    pub addresses: BTreeMap<K, Ipv4Addr>,
    /// Who could not keep the address it had, and why. It has another one in `addresses`, if one was free.
    pub lost: Vec<(K, Unavailable)>,
    /// Who has none: the pool is exhausted.
    pub without: Vec<K>,
}

/// Gives everybody in `wanted` one address.
///
/// Whoever has an address in `kept` keeps it, as long as the pool has it; where two have the same, the first in
/// `wanted` does. After that, in the order of `wanted`, everybody else gets the lowest free address. What somebody
/// keeps is taken out of the pool before anything new is chosen, so a newcomer never displaces anybody, whatever the
/// order. A name that stands in `wanted` twice counts once.
pub fn assign<K: Ord + Clone>(pool: &mut Pool, wanted: &[K], kept: &BTreeMap<K, Ipv4Addr>) -> Assigned<K> {
    let mut assigned = Assigned {
        addresses: BTreeMap::new(),
        lost: Vec::new(),
        without: Vec::new(),
    };
    let mut seen = std::collections::BTreeSet::new();
    let mut missing = Vec::new();
    for name in wanted.iter().filter(|name| seen.insert(*name)) {
        let outcome = kept.get(name).map(|address| (address, pool.take(*address)));
        match outcome {
            Some((address, Ok(()))) => {
                assigned.addresses.insert(name.clone(), *address);
            }
            Some((_, Err(reason))) => {
                assigned.lost.push((name.clone(), reason));
                missing.push(name);
            }
            None => missing.push(name),
        }
    }
    for name in missing {
        match pool.take_lowest() {
            Some(address) => {
                assigned.addresses.insert(name.clone(), address);
            }
            None => assigned.without.push(name.clone()),
        }
    }
    assigned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newcomer_never_takes_an_address_that_somebody_keeps() {
        let mut pool = Pool::new("10.0.0.1-10.0.0.3".parse().unwrap());
        let kept = BTreeMap::from([("old", Ipv4Addr::new(10, 0, 0, 1))]);
        let assigned = assign(&mut pool, &["new", "old"], &kept);
        assert_eq!(assigned.addresses["old"], Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(assigned.addresses["new"], Ipv4Addr::new(10, 0, 0, 2));
    }

    #[test]
    fn who_loses_an_address_gets_another_and_the_reason() {
        let mut pool = Pool::new("10.0.0.1-10.0.0.3".parse().unwrap());
        let there = Ipv4Addr::new(10, 0, 0, 2);
        let kept = BTreeMap::from([("a", there), ("b", there)]);
        let assigned = assign(&mut pool, &["a", "b"], &kept);
        assert_eq!(assigned.addresses["a"], there);
        assert_eq!(assigned.addresses["b"], Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(assigned.lost, [("b", Unavailable::Taken(there))]);
    }

    #[test]
    fn an_exhausted_pool_names_who_goes_without() {
        let mut pool = Pool::new("10.0.0.1".parse().unwrap());
        let assigned = assign(&mut pool, &["a", "b", "c"], &BTreeMap::new());
        assert_eq!(assigned.without, ["b", "c"]);
    }
}
