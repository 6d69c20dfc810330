//! Chooses the endpoint of a connection. No clock: `now` is handed in.
//!
//! Round-robin over the endpoints that are well. An endpoint that refuses [`FAILURES`] connections in a row is
//! ejected for [`EJECTION`], doubled each time up to [`LONGEST_EJECTION`]; then one connection tries it again.
//! Where every endpoint is ejected the ejections are ignored: trying a sick endpoint beats refusing a client.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Failed connections in a row before an endpoint is ejected.
pub const FAILURES: u32 = 2;
/// How long the first ejection lasts.
pub const EJECTION: Duration = Duration::from_secs(1);
/// How long an ejection lasts at most.
pub const LONGEST_EJECTION: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
struct Endpoint {
    address: SocketAddr,
    failures: u32,
    ejections: u32,
    ejected_until: Option<Instant>,
}

/// The endpoints of one backend, and how they did.
#[derive(Debug, Default)]
pub struct Balancer {
    endpoints: Vec<Endpoint>,
    next: usize,
}

impl Balancer {
    /// Takes a new set of endpoints; those that stay keep their record.
    pub fn set_endpoints(&mut self, addresses: &[SocketAddr]) {
        let old = std::mem::take(&mut self.endpoints);
        let fresh = |address| Endpoint {
            address,
            failures: 0,
            ejections: 0,
            ejected_until: None,
        };
        let known = |address| old.iter().find(|endpoint| endpoint.address == address).cloned();
        self.endpoints = addresses
            .iter()
            .map(|a| known(*a).unwrap_or_else(|| fresh(*a)))
            .collect();
    }

    /// The endpoint for the next attempt, none of those that were `tried` for this connection.
    pub fn pick(&mut self, tried: &[SocketAddr], now: Instant) -> Option<SocketAddr> {
        let count = self.endpoints.len();
        let turn = (0..count).map(|step| (self.next + step) % count);
        let untried = |index: &usize| !tried.contains(&self.endpoints[*index].address);
        let well = |index: &usize| {
            self.endpoints[*index]
                .ejected_until
                .is_none_or(|until| until <= now)
        };
        let index = turn
            .clone()
            .find(|i| untried(i) && well(i))
            .or_else(|| turn.clone().find(untried))?;
        self.next = (index + 1) % count;
        let endpoint = &mut self.endpoints[index];
        if let Some(until) = endpoint.ejected_until
            && until <= now
        {
            // One connection finds out whether it is well again; the others wait for its verdict.
            endpoint.ejected_until = Some(now + ejection(endpoint.ejections));
        }
        Some(endpoint.address)
    }

    /// A connection to this endpoint was made: it is well.
    pub fn succeeded(&mut self, address: SocketAddr) {
        if let Some(endpoint) = self.find(address) {
            (endpoint.failures, endpoint.ejections, endpoint.ejected_until) = (0, 0, None);
        }
    }

    /// A connection to this endpoint failed. Returns for how long it is ejected, if it is now.
    pub fn failed(&mut self, address: SocketAddr, now: Instant) -> Option<Duration> {
        let endpoint = self.find(address)?;
        endpoint.failures = endpoint.failures.saturating_add(1);
        if endpoint.failures < FAILURES {
            return None;
        }
        endpoint.ejections = endpoint.ejections.saturating_add(1);
        let time = ejection(endpoint.ejections);
        endpoint.ejected_until = Some(now + time);
        Some(time)
    }

    /// Each endpoint, and whether it is ejected now.
    pub fn health(&self, now: Instant) -> impl Iterator<Item = (SocketAddr, bool)> {
        self.endpoints
            .iter()
            .map(move |e| (e.address, e.ejected_until.is_some_and(|until| until > now)))
    }

    fn find(&mut self, address: SocketAddr) -> Option<&mut Endpoint> {
        self.endpoints
            .iter_mut()
            .find(|endpoint| endpoint.address == address)
    }
}

fn ejection(times: u32) -> Duration {
    EJECTION
        .saturating_mul(1 << times.saturating_sub(1).min(16))
        .min(LONGEST_EJECTION)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> SocketAddr {
        ([10, 0, 0, last], 6443).into()
    }

    fn balancer(count: u8) -> Balancer {
        let mut balancer = Balancer::default();
        balancer.set_endpoints(&(1..=count).map(address).collect::<Vec<_>>());
        balancer
    }

    fn eject(balancer: &mut Balancer, last: u8, now: Instant) -> Duration {
        let times: Vec<_> = (0..FAILURES)
            .filter_map(|_| balancer.failed(address(last), now))
            .collect();
        assert_eq!(times.len(), 1, "the last failure ejects, not an earlier one");
        times[0]
    }

    #[test]
    fn endpoints_take_turns() {
        let (mut balancer, now) = (balancer(3), Instant::now());
        let picks: Vec<_> = (0..6).filter_map(|_| balancer.pick(&[], now)).collect();
        assert_eq!(picks, [1, 2, 3, 1, 2, 3].map(address));
    }

    #[test]
    fn a_failed_attempt_goes_on_with_the_next_until_all_are_tried() {
        let (mut balancer, now) = (balancer(3), Instant::now());
        let mut tried = Vec::new();
        while let Some(address) = balancer.pick(&tried, now) {
            tried.push(address);
        }
        assert_eq!(tried, [1, 2, 3].map(address));
        assert_eq!(Balancer::default().pick(&[], now), None);
    }

    #[test]
    fn an_ejected_endpoint_is_passed_over_then_tried_by_one_connection() {
        let (mut balancer, now) = (balancer(2), Instant::now());
        let time = eject(&mut balancer, 1, now);
        assert!((0..4).all(|_| balancer.pick(&[], now) == Some(address(2))));
        let later = now + time;
        let picks: Vec<_> = (0..4).filter_map(|_| balancer.pick(&[], later)).collect();
        assert_eq!(picks.iter().filter(|pick| **pick == address(1)).count(), 1);
        balancer.succeeded(address(1));
        let picks: Vec<_> = (0..4).filter_map(|_| balancer.pick(&[], later)).collect();
        assert_eq!(picks.iter().filter(|pick| **pick == address(1)).count(), 2);
    }

    #[test]
    fn ejections_grow_to_a_limit_and_start_anew_after_a_success() {
        let (mut balancer, now) = (balancer(2), Instant::now());
        assert_eq!(eject(&mut balancer, 1, now), EJECTION);
        assert_eq!(balancer.failed(address(1), now), Some(2 * EJECTION));
        let last = (0..100).filter_map(|_| balancer.failed(address(1), now)).last();
        assert_eq!(last, Some(LONGEST_EJECTION));
        balancer.succeeded(address(1));
        assert_eq!(eject(&mut balancer, 1, now), EJECTION);
    }

    #[test]
    fn where_all_are_ejected_all_are_tried() {
        let (mut balancer, now) = (balancer(2), Instant::now());
        eject(&mut balancer, 1, now);
        eject(&mut balancer, 2, now);
        assert!(balancer.health(now).all(|(_, ejected)| ejected));
        assert!(balancer.pick(&[], now).is_some());
        assert_eq!(balancer.pick(&[address(1)], now), Some(address(2)));
    }

    #[test]
    fn an_update_keeps_the_record_of_those_that_stay() {
        let (mut balancer, now) = (balancer(2), Instant::now());
        eject(&mut balancer, 1, now);
        balancer.set_endpoints(&[address(1), address(3)]);
        assert_eq!(
            balancer.health(now).collect::<Vec<_>>(),
            [(address(1), true), (address(3), false)]
        );
        balancer.set_endpoints(&[]);
        assert_eq!(balancer.pick(&[], now), None);
    }
}
