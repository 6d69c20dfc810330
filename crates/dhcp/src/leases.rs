//! The table of leases, in memory.
//!
//! One record an address, found by address, by client identifier and by hardware address. [`Leases::put`] is the
//! only way in. Two queues by expiry say which address has been unused for longest: one of records that a store
//! keeps, one of offers, which only memory knows. Offers are bounded: beyond [`MAX_OFFERS`] the oldest is
//! forgotten, so that a flood of made-up clients costs no more than that.
//!
//! The table holds facts, no policy: whether an address may be given to a client is decided in `respond`.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;

use crate::config::Config;
use crate::lease::{Lease, State};
use crate::mac::Mac;
use crate::time::Timestamp;

/// The most offers that are remembered at once.
pub const MAX_OFFERS: usize = 8192;

/// Every lease that the server knows.
#[derive(Clone, Debug, Default)]
pub struct Leases {
    by_address: HashMap<Ipv4Addr, Lease>,
    /// The latest address of a client by its identifier.
    by_id: HashMap<Arc<[u8]>, Ipv4Addr>,
    /// Every address of a hardware address.
    by_mac: BTreeSet<(Mac, Ipv4Addr)>,
    stored: BTreeSet<(Timestamp, Ipv4Addr)>,
    offers: BTreeSet<(Timestamp, Ipv4Addr)>,
    /// No address that another client had is given away before this moment.
    hold_expired_until: Timestamp,
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
    vacated: Vec<Ipv4Addr>,
}

impl Leases {
    /// A table of what a store kept.
    pub fn new(config: &Config, stored: Vec<Lease>, now: Timestamp) -> Self {
        let mut leases = Leases::default();
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

    /// No address that another client had is given away before `until`.
    pub fn hold_expired_until(&mut self, until: Timestamp) {
        self.hold_expired_until = until;
    }

    /// The record of an address.
    pub fn get(&self, address: Ipv4Addr) -> Option<&Lease> {
        self.by_address.get(&address)
    }

    /// The latest record of a client by its identifier.
    pub fn of_id(&self, id: &[u8]) -> Option<&Lease> {
        self.get(*self.by_id.get(id)?)
    }

    /// Every record of a hardware address.
    pub fn of_mac(&self, mac: Mac) -> impl Iterator<Item = &Lease> {
        let all = (mac, Ipv4Addr::UNSPECIFIED)..=(mac, Ipv4Addr::BROADCAST);
        self.by_mac
            .range(all)
            .filter_map(|(_, address)| self.get(*address))
    }

    /// Every record.
    pub fn iter(&self) -> impl Iterator<Item = &Lease> {
        self.by_address.values()
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.by_address.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }

    /// How many records are offers.
    pub fn offers(&self) -> usize {
        self.offers.len()
    }

    /// Writes a record in place of the address's former one.
    pub fn put(&mut self, lease: Lease) {
        self.unlink(lease.address);
        let queue = if lease.state.is_stored() {
            &mut self.stored
        } else {
            &mut self.offers
        };
        queue.insert((lease.expires, lease.address));
        self.by_mac.insert((lease.mac, lease.address));
        // A quarantined address has no client: it must not come up as the latest address of one.
        if lease.state != State::Declined {
            self.by_id.insert(lease.id.clone(), lease.address);
        }
        self.by_address.insert(lease.address, lease);
        while self
            .fresh
            .vacated
            .last()
            .is_some_and(|address| self.by_address.contains_key(address))
        {
            self.fresh.vacated.pop();
        }
        while self.offers.len() > MAX_OFFERS {
            let Some(&(_, oldest)) = self.offers.first() else {
                break;
            };
            self.forget(oldest);
        }
    }

    /// Drops the record of an address.
    pub fn forget(&mut self, address: Ipv4Addr) {
        if self.unlink(address).is_some() {
            self.fresh.vacated.push(address);
        }
    }

    fn unlink(&mut self, address: Ipv4Addr) -> Option<Lease> {
        let lease = self.by_address.remove(&address)?;
        let queue = if lease.state.is_stored() {
            &mut self.stored
        } else {
            &mut self.offers
        };
        queue.remove(&(lease.expires, address));
        if self.by_id.get(&lease.id) == Some(&address) {
            self.by_id.remove(&lease.id);
        }
        self.by_mac.remove(&(lease.mac, address));
        Some(lease)
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
            .rev()
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
        config.is_dynamic(address) && !self.by_address.contains_key(&address)
    }

    fn longest_unused(&self, config: &Config, now: Timestamp) -> Option<Ipv4Addr> {
        // Addresses that left the pool while they were in use are passed over until `adopt` forgets them.
        let expired = |queue: &BTreeSet<(Timestamp, Ipv4Addr)>| {
            let mut expired = queue
                .iter()
                .take_while(|(expires, _)| *expires <= now)
                .map(|(_, address)| *address);
            expired.find(|address| config.is_dynamic(*address))
        };
        let offer = expired(&self.offers);
        if now < self.hold_expired_until {
            return offer;
        }
        offer.or_else(|| expired(&self.stored))
    }
}

#[cfg(test)]
#[path = "leases_tests.rs"]
mod tests;
