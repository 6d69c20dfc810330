//! The table of leases, in memory.
//!
//! One record an address, found by address, by client identifier and by hardware address. [`Leases::put`] is the
//! only way in. A record keeps its place as long as its address has one, and the indexes name places: to renew a
//! lease touches none of them. Two queues by expiry say which address has been unused for longest: one of records
//! that a store keeps, one of offers, which only memory knows. Offers are bounded: beyond [`MAX_OFFERS`] the oldest
//! is forgotten, so that a flood of made-up clients costs no more than that. An offer of an address that was a lease
//! covers that record and does not end what it says: if nothing is stored after the offer, the record still counts.
//!
//! The table holds facts, no policy: whether an address may be given to a client is decided in `respond`.

mod index;

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::time::Duration;

use slab::Slab;

use crate::config::Config;
use crate::lease::{Lease, State};
use crate::mac::Mac;
use crate::time::Timestamp;
use index::{Hashing, Index};

/// After such a silence of the store what is owed to it is written at once; a server that starts again sooner writes
/// nothing before it has something to write.
const DOUBTFUL: Duration = Duration::from_secs(60);

/// The most offers that are remembered at once.
pub const MAX_OFFERS: usize = 8192;

/// Every lease that the server knows.
#[derive(Clone, Debug, Default)]
pub struct Leases {
    records: Slab<Lease>,
    by_address: Index,
    /// The latest record of a client by its identifier.
    by_id: Index,
    /// Every record of a hardware address.
    by_mac: Index,
    hashing: Hashing,
    stored: BTreeSet<(Timestamp, Ipv4Addr)>,
    /// Those of which the client or its machine is gone: they have nobody to wait for.
    released: BTreeSet<(Timestamp, Ipv4Addr)>,
    offers: BTreeSet<(Timestamp, Ipv4Addr)>,
    /// The leases in whose place there are offers.
    covered: HashMap<Ipv4Addr, Lease>,
    /// No lease that ran out is given to another client before this moment.
    hold_expired_until: Timestamp,
    /// Leases that last longer than the store knows.
    owed: Vec<Lease>,
    fresh: Fresh,
}

/// Where to find addresses that have no record.
#[derive(Clone, Debug, Default)]
struct Fresh {
    /// Where in the range the search starts.
    start: u64,
    /// How many addresses from the start on are known to have a record or to be kept out of the pool. It only
    /// saves work and changes no answer, hence the cell.
    tried: Cell<u64>,
    /// Among those tried, but their records were forgotten.
    vacated: BTreeSet<Ipv4Addr>,
}

impl Leases {
    /// A table of what a store kept.
    pub fn new(config: &Config, mut stored: Vec<Lease>, now: Timestamp) -> Self {
        let mut leases = Leases::default();
        stored.sort_by_key(|lease| lease.since); // the last one is its client's latest
        stored.into_iter().for_each(|lease| leases.put(lease));
        leases.adopt(config, now);
        leases
    }

    /// The pool changed: forget addresses that left it and are unused, and look for free ones anew.
    ///
    /// Replicas start in different places, so that two of them seldom choose the same address at once.
    pub fn adopt(&mut self, config: &Config, now: Timestamp) {
        let left = |lease: &&Lease| {
            !lease.is_live(now)
                && !config.pool.contains(lease.address)
                && !config.reservations.is_reserved(lease.address)
        };
        let left: Vec<Ipv4Addr> = self.iter().filter(left).map(|lease| lease.address).collect();
        left.into_iter().for_each(|address| self.forget(address));
        let own = config
            .replicas
            .iter()
            .position(|replica| *replica == config.server)
            .unwrap_or(0) as u64;
        let start = config.pool.range().size() * own / config.replicas.len().max(1) as u64;
        self.fresh = Fresh {
            start,
            ..Fresh::default()
        };
    }

    /// The wall clock may have jumped since the `newest` moment that the store has seen, while no server ran: what was a
    /// lease then has as long left as it had. Those leases are [owed](Self::owed) to the store. True if that should not
    /// wait for another lease.
    pub fn doubt_time_since(&mut self, newest: Timestamp, now: Timestamp) -> bool {
        let unseen = now.since(newest);
        let live = |lease: &&Lease| lease.is_live(newest);
        let mut doubtful: Vec<Lease> = self.iter().filter(live).cloned().collect();
        let latest = doubtful.iter().map(|lease| lease.since).max();
        let until_now = now.since(latest.unwrap_or(now));
        for lease in &mut doubtful {
            lease.expires = lease.expires.after(unseen);
            self.put(lease.clone());
            // In memory only once it is stored: what is recent is confirmed as stored.
            lease.since = lease.since.after(until_now);
        }
        self.owed = doubtful;
        unseen >= DOUBTFUL && !self.owed.is_empty()
    }

    /// What has to be stored together with whatever is stored next, and before it: leases whose end was put off. What is
    /// written makes a later moment the newest one, from which on the next start counts.
    pub fn owed(&self, now: Timestamp) -> Vec<Lease> {
        let still = |lease: &&Lease| {
            let held = self.get(lease.address).filter(|held| held.is_live(now));
            held.is_some_and(|held| held.expires == lease.expires && held.same_client(lease))
        };
        self.owed.iter().filter(still).cloned().collect()
    }

    /// Nothing is owed to the store any more.
    pub fn settled(&mut self) {
        self.owed = Vec::new();
    }

    /// No address that another client had is given away before `until`, nor before what was said earlier. Who was offered
    /// one has nothing of it.
    pub fn hold_expired_until(&mut self, until: Timestamp) {
        self.hold_expired_until = self.hold_expired_until.max(until);
        let covered = std::mem::take(&mut self.covered);
        covered.into_values().for_each(|lease| self.uncover(lease));
    }

    /// Whether another client has the address of a lease, or had it and it is not known to be over.
    pub fn is_kept(&self, lease: &Lease, now: Timestamp) -> bool {
        let was_lease = || lease.state == State::Bound || self.covered.contains_key(&lease.address);
        lease.is_live(now) || now < self.hold_expired_until && was_lease()
    }

    /// The record of an address.
    pub fn get(&self, address: Ipv4Addr) -> Option<&Lease> {
        self.records.get(self.place(address)?)
    }

    fn place(&self, address: Ipv4Addr) -> Option<usize> {
        let has_it = |lease: &Lease| lease.address == address;
        self.by_address
            .find(&self.records, self.hashing.address(address), has_it)
    }

    /// The latest record of a client by its identifier.
    pub fn of_id(&self, id: &[u8]) -> Option<&Lease> {
        let has_it = |lease: &Lease| *lease.id == *id;
        self.records
            .get(self.by_id.find(&self.records, self.hashing.id(id), has_it)?)
    }

    /// Every record of a hardware address.
    pub fn of_mac(&self, mac: Mac) -> impl Iterator<Item = &Lease> {
        self.by_mac
            .all(&self.records, self.hashing.mac(mac))
            .filter(move |lease| lease.mac == mac)
    }

    /// Every record.
    pub fn iter(&self) -> impl Iterator<Item = &Lease> {
        self.records.iter().map(|(_, lease)| lease)
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// How many records are offers.
    pub fn offers(&self) -> usize {
        self.offers.len()
    }

    /// Writes a record that another replica stored. Its wall clock may be far from ours, so what it gave lasts as long from
    /// when it is heard of; by its own clock if that is longer.
    pub fn hear(&mut self, mut lease: Lease, now: Timestamp) {
        let span = lease.expires.since(lease.since);
        if lease.state != State::Released {
            lease.expires = lease.expires.max(now.after(span));
        }
        self.put(lease);
    }

    /// Writes a record in place of the address's former one.
    pub fn put(&mut self, lease: Lease) {
        let (queued, state) = ((lease.expires, lease.address), lease.state);
        let place = match self.place(lease.address) {
            Some(place) => self.replace(place, lease),
            None => self.insert(lease),
        };
        self.queue(state).insert(queued);
        // A quarantined address has no client: it must not come up as the latest address of one.
        if state != State::Declined {
            self.is_latest(place);
        }
        self.fresh.vacated.remove(&queued.1);
        while self.offers.len() > MAX_OFFERS
            && let Some(&(_, oldest)) = self.offers.first()
        {
            match self.covered.remove(&oldest) {
                Some(lease) => self.uncover(lease),
                None => self.forget(oldest),
            }
        }
    }

    /// Names the latest record of a client.
    fn is_latest(&mut self, place: usize) {
        self.by_id.set(
            &self.records,
            place,
            |lease| self.hashing.id(&lease.id),
            |a, b| a.id == b.id,
        );
    }

    /// Puts a lease back in whose place an offer was. Its client may have got another one since.
    fn uncover(&mut self, lease: Lease) {
        let later = self.of_id(&lease.id).filter(|other| other.since > lease.since);
        let later = later.map(|other| other.address);
        self.put(lease);
        if let Some(place) = later.and_then(|address| self.place(address)) {
            self.is_latest(place);
        }
    }

    fn insert(&mut self, lease: Lease) -> usize {
        let place = self.records.insert(lease);
        self.by_address
            .add(&self.records, place, |lease| self.hashing.address(lease.address));
        self.by_mac
            .add(&self.records, place, |lease| self.hashing.mac(lease.mac));
        place
    }

    fn replace(&mut self, place: usize, lease: Lease) -> usize {
        if let Some(record) = self.records.get_mut(place) {
            let same_client = record.id == lease.id && lease.state != State::Declined;
            let same_hardware = record.mac == lease.mac;
            let is_stored = lease.state.is_stored();
            let former = std::mem::replace(record, lease);
            self.queue(former.state).remove(&(former.expires, former.address));
            if is_stored {
                self.covered.remove(&former.address);
            }
            if !same_client {
                self.by_id.remove(self.hashing.id(&former.id), place);
            }
            if !same_hardware {
                self.by_mac.remove(self.hashing.mac(former.mac), place);
                self.by_mac
                    .add(&self.records, place, |lease| self.hashing.mac(lease.mac));
            }
            if !is_stored && former.state == State::Bound {
                self.covered.insert(former.address, former);
            }
        }
        place
    }

    /// Drops the record of an address.
    pub fn forget(&mut self, address: Ipv4Addr) {
        let Some(place) = self.place(address) else { return };
        let Some(lease) = self.records.try_remove(place) else {
            return;
        };
        self.queue(lease.state).remove(&(lease.expires, address));
        self.covered.remove(&address);
        self.by_address.remove(self.hashing.address(address), place);
        self.by_id.remove(self.hashing.id(&lease.id), place);
        self.by_mac.remove(self.hashing.mac(lease.mac), place);
        self.fresh.vacated.insert(address);
    }

    /// The queue of records that stand so.
    fn queue(&mut self, state: State) -> &mut BTreeSet<(Timestamp, Ipv4Addr)> {
        match state {
            State::Released => &mut self.released,
            state if state.is_stored() => &mut self.stored,
            _ => &mut self.offers,
        }
    }

    /// The address to give to a client that has none: one that nobody had, or the one unused for longest.
    pub fn free(&self, config: &Config, now: Timestamp) -> Option<Ipv4Addr> {
        self.never_used(config)
            .or_else(|| self.longest_unused(config, now))
    }

    fn never_used(&self, config: &Config) -> Option<Ipv4Addr> {
        if let Some(address) = self
            .fresh
            .vacated
            .iter()
            .find(|address| self.is_fresh(config, **address))
        {
            return Some(*address);
        }
        let range = config.pool.range();
        for tried in self.fresh.tried.get()..range.size() {
            self.fresh.tried.set(tried);
            let offset = (self.fresh.start + tried) % range.size();
            let address = Ipv4Addr::from(u32::from(range.first()).wrapping_add(u32::try_from(offset).ok()?));
            if self.is_fresh(config, address) {
                return Some(address);
            }
        }
        self.fresh.tried.set(range.size());
        None
    }

    fn is_fresh(&self, config: &Config, address: Ipv4Addr) -> bool {
        config.is_dynamic(address) && self.place(address).is_none()
    }

    fn longest_unused(&self, config: &Config, now: Timestamp) -> Option<Ipv4Addr> {
        let held = now < self.hold_expired_until;
        // Addresses that left the pool while they were in use are passed over until `adopt` forgets them.
        let may_be =
            |address: &Ipv4Addr| config.is_dynamic(*address) && !(held && self.covered.contains_key(address));
        let expired = |queue: &BTreeSet<(Timestamp, Ipv4Addr)>| {
            let mut expired = queue.iter().take_while(|(expires, _)| *expires <= now);
            expired.find(|(_, address)| may_be(address)).copied()
        };
        let unused = expired(&self.offers).or_else(|| {
            let ran_out = if held { None } else { expired(&self.stored) };
            ran_out.into_iter().chain(expired(&self.released)).min()
        });
        unused.map(|(_, address)| address)
    }
}

#[cfg(test)]
#[path = "leases_tests.rs"]
mod tests;
