//! Finds records by what they say.

use std::hash::{BuildHasher, RandomState};
use std::net::Ipv4Addr;

use hashbrown::HashTable;
use slab::Slab;

use crate::lease::Lease;
use crate::mac::Mac;

/// Places of records, by a hash of what is looked for. A place takes four bytes: there are fewer than 2³² addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct Index(HashTable<u32>);

impl Index {
    /// The place of the record with this hash that is the one.
    pub(super) fn find(
        &self,
        records: &Slab<Lease>,
        hash: u64,
        is_it: impl Fn(&Lease) -> bool,
    ) -> Option<usize> {
        let found = self
            .0
            .find(hash, |place| records.get(*place as usize).is_some_and(&is_it));
        found.map(|place| *place as usize)
    }

    /// Every record with this hash, and now and then another.
    pub(super) fn all<'a>(&'a self, records: &'a Slab<Lease>, hash: u64) -> impl Iterator<Item = &'a Lease> {
        self.0
            .iter_hash(hash)
            .filter_map(|place| records.get(*place as usize))
    }

    /// Adds a record.
    pub(super) fn add(&mut self, records: &Slab<Lease>, place: usize, hash: impl Fn(&Lease) -> u64) {
        let hash = |place: &u32| records.get(*place as usize).map_or(0, &hash);
        let place = place as u32;
        self.0.insert_unique(hash(&place), place, hash);
    }

    /// Adds a record, in place of one that is the same to the index.
    pub(super) fn set(
        &mut self,
        records: &Slab<Lease>,
        place: usize,
        hash: impl Fn(&Lease) -> u64,
        same: impl Fn(&Lease, &Lease) -> bool,
    ) {
        let Some(lease) = records.get(place) else { return };
        let found = self.0.find_mut(hash(lease), |other| {
            records
                .get(*other as usize)
                .is_some_and(|other| same(other, lease))
        });
        match found {
            Some(other) => *other = place as u32,
            None => self.add(records, place, hash),
        }
    }

    /// Removes a record that was found by this hash, if it is here.
    pub(super) fn remove(&mut self, hash: u64, place: usize) {
        if let Ok(entry) = self.0.find_entry(hash, |other| *other as usize == place) {
            entry.remove();
        }
    }
}

/// How records are spread over an index.
#[derive(Clone, Debug, Default)]
pub(super) struct Hashing(RandomState);

impl Hashing {
    /// Addresses are ours to choose, and follow each other: so may their places in the index, which are found by
    /// the low bits. The seven highest bits tell apart what falls together.
    pub(super) fn address(&self, address: Ipv4Addr) -> u64 {
        let address = u64::from(u32::from(address));
        address | address << 57
    }

    /// Clients choose their identifiers: none may know which ones fall together.
    pub(super) fn id(&self, id: &[u8]) -> u64 {
        match *id {
            // Hardware type and address, as most have: hashed as one word, at a third of the cost.
            [kind, a, b, c, d, e, f] => self.word([kind, a, b, c, d, e, f, 0]),
            _ => self.0.hash_one(id),
        }
    }

    /// Clients choose their hardware addresses, too.
    pub(super) fn mac(&self, mac: Mac) -> u64 {
        let [a, b, c, d, e, f] = mac.0;
        self.word([a, b, c, d, e, f, 0, 0])
    }

    fn word(&self, bytes: [u8; 8]) -> u64 {
        self.0.hash_one(u64::from_ne_bytes(bytes))
    }
}
