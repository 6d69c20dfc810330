//! What a store knows of the records, and what it could not write yet. Pure: the watch and the writes fill it.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use oooi_api::DhcpLease;
use oooi_dhcp::lease::{Lease, State};
use oooi_dhcp::store::{Fate, Update};

use super::record;

/// A record as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// Its `resourceVersion`.
    pub(super) version: String,
    pub(super) lease: Lease,
}

/// All records, and renewals that wait for the API server.
#[derive(Debug, Default)]
pub(super) struct Table {
    known: HashMap<Ipv4Addr, Known>,
    deferred: HashMap<Ipv4Addr, Lease>,
    /// Writes whose answer is not there yet: the watch may be faster than it.
    writing: HashMap<Ipv4Addr, Lease>,
    /// Whether the API server is away, by all that is known.
    pub(super) away: bool,
}

impl Table {
    pub(super) fn known(&self, address: Ipv4Addr) -> Option<Known> {
        self.known.get(&address).cloned()
    }

    /// A write begins. What the watch says of it is no news.
    pub(super) fn begin(&mut self, lease: &Lease) {
        self.writing.insert(lease.address, lease.clone());
    }

    /// A write has its answer.
    pub(super) fn end(&mut self, address: Ipv4Addr) {
        self.writing.remove(&address);
    }

    /// A record was written here or read again.
    pub(super) fn note(&mut self, known: Known) {
        if self.is_news(known.lease.address, &known.version) {
            self.known.insert(known.lease.address, known);
        }
    }

    /// All records there are. Says what is new to the server.
    pub(super) fn replace(&mut self, records: &[DhcpLease]) -> Vec<Update> {
        let before = std::mem::take(&mut self.known);
        let mut updates = Vec::new();
        for known in records.iter().filter_map(read) {
            let address = known.lease.address;
            if before.get(&address).is_none_or(|old| old.lease != known.lease) {
                updates.extend(self.told(&known.lease));
            }
            self.known.insert(address, known);
        }
        let gone = before.keys().filter(|address| !self.known.contains_key(address));
        updates.extend(
            gone.filter(|address| !self.deferred.contains_key(address))
                .map(|address| Update::Forget(*address)),
        );
        updates
    }

    /// A record is new or changed. Says what is new to the server; what it wrote itself is not.
    pub(super) fn put(&mut self, record: &DhcpLease) -> Option<Update> {
        let known = read(record)?;
        let address = known.lease.address;
        if !self.is_news(address, &known.version) {
            return None;
        }
        let same = self
            .known
            .get(&address)
            .is_some_and(|old| old.lease == known.lease);
        let update = self.told(&known.lease).filter(|_| !same);
        self.known.insert(address, known);
        update
    }

    /// A record was removed.
    pub(super) fn remove(&mut self, record: &DhcpLease) -> Option<Update> {
        let gone = read(record)?;
        let address = gone.lease.address;
        if !self.is_news(address, &gone.version) {
            return None;
        }
        self.known.remove(&address);
        Some(Update::Forget(address))
    }

    /// Decides on a lease that cannot be written now: a client that has its address keeps it, and nothing new is
    /// given.
    pub(super) fn put_aside(&mut self, lease: &Lease) -> Fate {
        let held = self
            .deferred
            .get(&lease.address)
            .or(self.known.get(&lease.address).map(|known| &known.lease));
        let own = held.filter(|held| held.same_client(lease));
        let allowed = match lease.state {
            State::Bound => own.is_some_and(|held| held.is_active(lease.since)),
            // Neither gives an address to anybody.
            State::Released | State::Declined => own.is_some(),
            State::Offered | State::Probing => false,
        };
        if !allowed {
            return Fate::NotStored;
        }
        self.deferred.insert(lease.address, lease.clone());
        Fate::Deferred
    }

    /// One lease that waits to be written.
    pub(super) fn next_deferred(&self) -> Option<Lease> {
        self.deferred.values().next().cloned()
    }

    /// The lease waits no more, unless a later one took its place.
    pub(super) fn settle(&mut self, lease: &Lease) {
        if self.deferred.get(&lease.address) == Some(lease) {
            self.deferred.remove(&lease.address);
        }
    }

    /// What the server has to hear of a record: nothing if it knows better by a renewal that is not written yet.
    fn told(&self, lease: &Lease) -> Option<Update> {
        let better = self
            .deferred
            .get(&lease.address)
            .is_some_and(|own| own.same_client(lease));
        let own = self.writing.get(&lease.address) == Some(lease);
        (!better && !own).then(|| Update::Put(lease.clone()))
    }

    /// Whether a version is later than the one that is known. Versions count up; one that is no number is taken.
    fn is_news(&self, address: Ipv4Addr, version: &str) -> bool {
        let Some(known) = self.known.get(&address) else {
            return true;
        };
        match (version.parse::<u64>(), known.version.parse::<u64>()) {
            (Ok(new), Ok(old)) => new > old,
            _ => version != known.version,
        }
    }
}

fn read(record: &DhcpLease) -> Option<Known> {
    Some(Known {
        version: record.metadata.resource_version.clone()?,
        lease: record::read(record)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use oooi_dhcp::testing::battery::lease;
    use std::time::Duration;

    fn at(version: u64, lease: &Lease) -> DhcpLease {
        let mut record = record::write("s", None, lease);
        record.metadata.resource_version = Some(version.to_string());
        record
    }

    fn renewed(lease: &Lease, seconds: u64) -> Lease {
        Lease {
            since: lease.since.after(Duration::from_secs(seconds)),
            expires: lease.expires.after(Duration::from_secs(seconds)),
            ..lease.clone()
        }
    }

    #[test]
    fn what_was_written_here_is_no_news_and_what_others_wrote_is() {
        let mut table = Table::default();
        let first = lease(1, 1, State::Bound);
        table.note(read(&at(10, &first)).unwrap());
        assert_eq!(table.put(&at(10, &first)), None);
        let later = renewed(&first, 60);
        assert_eq!(table.put(&at(12, &later)), Some(Update::Put(later.clone())));
        assert_eq!(table.put(&at(11, &first)), None, "an older version came late");
        assert_eq!(table.remove(&at(9, &first)), None, "it was made anew since");
        assert_eq!(table.remove(&at(13, &later)), Some(Update::Forget(first.address)));
    }

    #[test]
    fn a_watch_that_is_faster_than_the_answer_to_a_write_tells_no_news() {
        let mut table = Table::default();
        let (own, other) = (lease(1, 1, State::Bound), lease(1, 2, State::Bound));
        table.begin(&own);
        assert_eq!(table.put(&at(10, &own)), None);
        assert_eq!(table.put(&at(11, &other)), Some(Update::Put(other)));
        table.end(own.address);
        assert_eq!(table.put(&at(12, &own)), Some(Update::Put(own)));
    }

    #[test]
    fn after_a_break_all_that_was_missed_is_told() {
        let mut table = Table::default();
        let [one, two, three] = [1, 2, 3].map(|n| lease(u16::from(n), n, State::Bound));
        table.replace(&[at(1, &one), at(2, &two)]);
        let renewed = renewed(&one, 9);
        let updates = table.replace(&[at(5, &renewed), at(6, &three)]);
        let expected = [
            Update::Put(renewed),
            Update::Put(three),
            Update::Forget(two.address),
        ];
        assert_eq!(updates, expected);
    }

    #[test]
    fn while_away_only_a_client_that_has_its_address_keeps_it() {
        let mut table = Table::default();
        let held = lease(1, 1, State::Bound);
        table.replace(&[at(1, &held), at(2, &lease(2, 2, State::Bound))]);
        assert_eq!(table.put_aside(&renewed(&held, 60)), Fate::Deferred);
        assert_eq!(
            table.put_aside(&renewed(&held, 3630)),
            Fate::Deferred,
            "by the renewal that waits"
        );
        let mut renamed = renewed(&lease(2, 2, State::Bound), 60);
        renamed.id = [255, 9].into();
        assert_eq!(table.put_aside(&renamed), Fate::Deferred, "a machine");
        assert_eq!(table.put_aside(&renewed(&held, 9000)), Fate::NotStored, "expired");
        assert_eq!(
            table.put_aside(&lease(1, 2, State::Bound)),
            Fate::NotStored,
            "another client's"
        );
        assert_eq!(
            table.put_aside(&lease(3, 2, State::Bound)),
            Fate::NotStored,
            "new"
        );
    }

    #[test]
    fn a_renewal_that_waits_is_not_overruled_by_the_older_record_of_the_same_client() {
        let mut table = Table::default();
        let held = lease(1, 1, State::Bound);
        table.replace(&[at(1, &held)]);
        let waits = renewed(&held, 60);
        table.put_aside(&waits);
        let by_another_replica = renewed(&held, 30);
        assert_eq!(table.replace(&[at(4, &by_another_replica)]), []);
        let stolen = lease(1, 2, State::Bound);
        assert_eq!(table.replace(&[at(7, &stolen)]), [Update::Put(stolen)]);
        table.settle(&held);
        assert_eq!(
            table.next_deferred(),
            Some(waits.clone()),
            "only what was written is settled"
        );
        table.settle(&waits);
        assert_eq!(table.next_deferred(), None);
    }
}
