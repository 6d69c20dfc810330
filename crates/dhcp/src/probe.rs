//! Addresses that are being asked for by ARP.
//!
//! A probe keeps the message that it was started for. When nobody answered in time the message is decided again,
//! now with the address probed; when somebody did, the address is quarantined and the message decided again, which
//! leads to another address. No other client waits meanwhile.

use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::mac::Mac;
use crate::respond::Arrival;
use crate::time::Timestamp;

/// How long a station has to answer. On one link an answer takes milliseconds.
pub const WAIT: Duration = Duration::from_millis(200);
/// How many probes may run at once. Beyond that a client has to ask again.
pub const MOST: usize = 1024;

/// A message that waits for a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The message.
    pub packet: Vec<u8>,
    /// How it arrived.
    pub arrival: Arrival,
    /// Who sent it.
    pub mac: Mac,
    /// When it was received.
    pub received: Instant,
}

/// Every probe under way.
#[derive(Debug, Default)]
pub struct Probes {
    waiting: HashMap<Ipv4Addr, Waiting>,
    /// In the order of their deadlines; an address that is no longer waited for stays until its deadline.
    deadlines: VecDeque<(Timestamp, Ipv4Addr)>,
}

impl Probes {
    /// Begins a probe. False if there are too many.
    pub fn start(&mut self, address: Ipv4Addr, waiting: Waiting, now: Timestamp) -> bool {
        if self.deadlines.len() >= MOST {
            return false;
        }
        self.waiting.insert(address, waiting);
        self.deadlines.push_back((now.after(WAIT), address));
        true
    }

    /// When the next probe ends.
    pub fn next(&self) -> Option<Timestamp> {
        self.deadlines.front().map(|(deadline, _)| *deadline)
    }

    /// A probe that nobody answered in time.
    pub fn unanswered(&mut self, now: Timestamp) -> Option<(Ipv4Addr, Waiting)> {
        while let Some((_, address)) = self.deadlines.pop_front_if(|(deadline, _)| *deadline <= now) {
            if let Some(waiting) = self.waiting.remove(&address) {
                return Some((address, waiting));
            }
        }
        None
    }

    /// A station has the address: the message that waited for it, if another one's did. A client that still has the
    /// address that it asks for is in nobody's way.
    pub fn answered(&mut self, address: Ipv4Addr, by: Mac) -> Option<Waiting> {
        self.waiting.get(&address).filter(|waiting| waiting.mac != by)?;
        self.waiting.remove(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::LazyLock;

    const STRANGER: Mac = Mac([2, 0, 0, 0, 0, 99]);

    fn waiting(n: u8) -> Waiting {
        static RECEIVED: LazyLock<Instant> = LazyLock::new(Instant::now);
        let received = *RECEIVED;
        Waiting {
            packet: vec![n],
            arrival: Arrival::Broadcast,
            mac: Mac([2, 0, 0, 0, 0, n]),
            received,
        }
    }

    #[test]
    fn a_probe_ends_by_its_deadline_or_by_an_answer_and_never_twice() {
        let mut probes = Probes::default();
        let (one, two) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        assert!(probes.start(one, waiting(1), Timestamp(0)) && probes.start(two, waiting(2), Timestamp(10)));
        assert_eq!(probes.unanswered(Timestamp(199)), None);
        assert_eq!(probes.answered(one, STRANGER), Some(waiting(1)));
        assert_eq!(probes.answered(one, STRANGER), None);
        assert_eq!(probes.unanswered(Timestamp(209)), None);
        assert_eq!(probes.unanswered(Timestamp(210)), Some((two, waiting(2))));
        assert_eq!((probes.unanswered(Timestamp(999)), probes.next()), (None, None));
    }

    #[test]
    fn a_client_that_still_has_the_address_that_it_waits_for_is_no_stranger() {
        let mut probes = Probes::default();
        let address = Ipv4Addr::new(10, 0, 0, 1);
        probes.start(address, waiting(1), Timestamp(0));
        assert_eq!(probes.answered(address, waiting(1).mac), None);
        assert_eq!(
            probes.answered(address, STRANGER),
            Some(waiting(1)),
            "the probe went on"
        );
    }

    #[test]
    fn probes_are_bounded() {
        let mut probes = Probes::default();
        let start =
            |probes: &mut Probes, n: usize| probes.start(Ipv4Addr::from(n as u32), waiting(0), Timestamp(0));
        assert!((0..MOST).all(|n| start(&mut probes, n)));
        assert!(!start(&mut probes, MOST));
    }
}
