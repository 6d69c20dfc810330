//! Leases of machines that are gone and that could not be freed: nobody asks for it a second time.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::lease::Lease;
use crate::mac::Mac;
use crate::time::Timestamp;

/// Between two attempts.
const AGAIN: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Unfreed {
    leases: BTreeMap<Ipv4Addr, Mac>,
    next: Option<Timestamp>,
}

impl Unfreed {
    /// A lease was not freed.
    pub(super) fn add(&mut self, lease: &Lease, now: Timestamp) {
        self.leases.insert(lease.address, lease.mac);
        self.next.get_or_insert(now.after(AGAIN));
    }

    /// When it is time for another attempt.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.next
    }

    /// What is to be freed now.
    pub(super) fn due(&mut self, now: Timestamp) -> BTreeMap<Ipv4Addr, Mac> {
        if self.next.is_none_or(|next| now < next) {
            return BTreeMap::new();
        }
        self.next = None;
        std::mem::take(&mut self.leases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::State;
    use crate::testing::battery::lease;

    #[test]
    fn what_was_not_freed_is_due_after_a_while_and_once() {
        let mut unfreed = Unfreed::default();
        assert_eq!((unfreed.next(), unfreed.due(Timestamp(0)).len()), (None, 0));
        unfreed.add(&lease(1, 1, State::Released), Timestamp(1_000));
        unfreed.add(&lease(2, 2, State::Released), Timestamp(2_000));
        assert_eq!(unfreed.next(), Some(Timestamp(6_000)));
        assert_eq!(unfreed.due(Timestamp(5_999)).len(), 0);
        assert_eq!(unfreed.due(Timestamp(6_000)).len(), 2);
        assert_eq!((unfreed.next(), unfreed.due(Timestamp(9_000)).len()), (None, 0));
    }
}
