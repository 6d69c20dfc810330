//! DHCP servers on the network that are not ours.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::time::Timestamp;

/// After this time without a sign a server counts as gone.
const FORGET: Duration = Duration::from_secs(600);
/// More servers than this are not told apart.
const MOST: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Rogues(BTreeMap<Ipv4Addr, Timestamp>);

impl Rogues {
    /// A server was seen. True if that is news.
    pub(super) fn seen(&mut self, server: Ipv4Addr, now: Timestamp) -> bool {
        (self.0.len() < MOST || self.0.contains_key(&server)) && self.0.insert(server, now).is_none()
    }

    /// How many were seen lately.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// When the next one counts as gone.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.0.values().min().map(|seen| seen.after(FORGET))
    }

    /// Forgets those that count as gone. True if there were any.
    pub(super) fn forget_old(&mut self, now: Timestamp) -> bool {
        let before = self.0.len();
        self.0.retain(|_, seen| seen.after(FORGET) > now);
        self.0.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rogue_is_news_once_and_again_after_it_was_gone() {
        let mut rogues = Rogues::default();
        let server = Ipv4Addr::new(10, 0, 0, 9);
        assert!(rogues.seen(server, Timestamp(0)));
        assert!(!rogues.seen(server, Timestamp(1000)));
        assert_eq!(rogues.next(), Some(Timestamp(601_000)));
        assert!(!rogues.forget_old(Timestamp(600_999)));
        assert_eq!(rogues.count(), 1);
        assert!(rogues.forget_old(Timestamp(601_000)));
        assert!(rogues.count() == 0 && rogues.seen(server, Timestamp(700_000)));
    }

    #[test]
    fn made_up_servers_are_bounded() {
        let mut rogues = Rogues::default();
        let news = (0..1000)
            .filter(|n| rogues.seen(Ipv4Addr::from(*n), Timestamp(0)))
            .count();
        assert_eq!((news, rogues.count()), (MOST, MOST));
    }
}
