//! Chooses the endpoint of a connection. No clock: `now` is handed in.
//!
//! Round-robin over the endpoints that are well. An endpoint that refuses [`FAILURES`] connections in a row is
//! ejected for [`EJECTION`], doubled each time up to [`LONGEST_EJECTION`]; then one connection tries it again.
//! Where every endpoint is ejected the ejections are ignored: trying a sick endpoint beats refusing a client.
//!
//! Attempts last for seconds, so many of them may be on their way when an endpoint is ejected. Their failures are no
//! news: they count to the round in which they began, and each ejection and each recovery begins another.

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
    round: u32,
    failures: u32,
    ejections: u32,
    ejected_until: Option<Instant>,
}

/// The endpoint of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pick {
    /// Where to connect to.
    pub address: SocketAddr,
    /// The round to which a failure counts; none for an ejected endpoint that was tried for want of a better one.
    round: Option<u32>,
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
            round: 0,
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
    pub fn pick(&mut self, tried: &[SocketAddr], now: Instant) -> Option<Pick> {
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
        let counts = match endpoint.ejected_until {
            None => true,
            Some(until) if until <= now => {
                // One connection finds out whether it is well again; the others wait for its verdict.
                endpoint.ejected_until = Some(now + ejection(endpoint.ejections));
                true
            }
            Some(_) => false,
        };
        Some(Pick {
            address: endpoint.address,
            round: counts.then_some(endpoint.round),
        })
    }

    /// A connection to this endpoint was made: it is well.
    pub fn succeeded(&mut self, address: SocketAddr) {
        if let Some(endpoint) = self.find(address) {
            if endpoint.ejections > 0 {
                endpoint.round = endpoint.round.wrapping_add(1);
            }
            (endpoint.failures, endpoint.ejections, endpoint.ejected_until) = (0, 0, None);
        }
    }

    /// This attempt failed. Returns for how long its endpoint is ejected, if it is by that.
    pub fn failed(&mut self, pick: Pick, now: Instant) -> Option<Duration> {
        let endpoint = self.find(pick.address)?;
        if pick.round != Some(endpoint.round) {
            return None;
        }
        endpoint.failures = endpoint.failures.saturating_add(1);
        if endpoint.failures < FAILURES {
            return None;
        }
        endpoint.round = endpoint.round.wrapping_add(1);
        endpoint.ejections = endpoint.ejections.saturating_add(1);
        let time = ejection(endpoint.ejections);
        endpoint.ejected_until = Some(now + time);
        Some(time)
    }

    /// This attempt never began. If it was to find out whether an ejected endpoint is well again, the next one is.
    pub fn not_tried(&mut self, pick: Pick, now: Instant) {
        if let Some(endpoint) = self.find(pick.address)
            && pick.round == Some(endpoint.round)
            && endpoint.ejected_until.is_some()
        {
            endpoint.ejected_until = Some(now);
        }
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

    /// An attempt at this endpoint.
    fn attempt(balancer: &mut Balancer, last: u8, now: Instant) -> Pick {
        let all = balancer.endpoints.iter().map(|endpoint| endpoint.address);
        let others: Vec<_> = all.filter(|other| *other != address(last)).collect();
        balancer.pick(&others, now).unwrap()
    }

    fn picks(balancer: &mut Balancer, count: usize, now: Instant) -> Vec<SocketAddr> {
        let picks = (0..count).filter_map(|_| balancer.pick(&[], now));
        picks.map(|pick| pick.address).collect()
    }

    fn eject(balancer: &mut Balancer, last: u8, now: Instant) -> Duration {
        let times: Vec<_> = (0..FAILURES)
            .filter_map(|_| {
                let pick = attempt(balancer, last, now);
                balancer.failed(pick, now)
            })
            .collect();
        assert_eq!(times.len(), 1, "the last failure ejects, not an earlier one");
        times[0]
    }

    #[test]
    fn endpoints_take_turns() {
        let (mut balancer, now) = (balancer(3), Instant::now());
        assert_eq!(picks(&mut balancer, 6, now), [1, 2, 3, 1, 2, 3].map(address));
    }

    #[test]
    fn an_attempt_that_never_began_leaves_its_part_to_the_next() {
        let (mut balancer, now) = (balancer(2), Instant::now());
        let later = now + eject(&mut balancer, 1, now);
        let pick = attempt(&mut balancer, 1, later);
        let is_ejected = |balancer: &Balancer| balancer.health(later).any(|(_, ejected)| ejected);
        assert!(is_ejected(&balancer), "the others wait for the verdict");
        balancer.not_tried(pick, later);
        assert!(!is_ejected(&balancer), "there is none to wait for");
    }

    #[test]
    fn a_failed_attempt_goes_on_with_the_next_until_all_are_tried() {
        let (mut balancer, now) = (balancer(3), Instant::now());
        let mut tried = Vec::new();
        while let Some(pick) = balancer.pick(&tried, now) {
            tried.push(pick.address);
        }
        assert_eq!(tried, [1, 2, 3].map(address));
        assert_eq!(Balancer::default().pick(&[], now), None);
    }

    #[test]
    fn an_ejected_endpoint_is_passed_over_then_tried_by_one_connection() {
        let (mut balancer, now) = (balancer(2), Instant::now());
        let time = eject(&mut balancer, 1, now);
        assert_eq!(picks(&mut balancer, 4, now), [2; 4].map(address));
        let later = now + time;
        let of_first = |picks: Vec<SocketAddr>| picks.iter().filter(|pick| **pick == address(1)).count();
        assert_eq!(of_first(picks(&mut balancer, 4, later)), 1);
        balancer.succeeded(address(1));
        assert_eq!(of_first(picks(&mut balancer, 4, later)), 2);
    }

    #[test]
    fn ejections_grow_to_a_limit_and_start_anew_after_a_success() {
        let (mut balancer, mut now) = (balancer(2), Instant::now());
        let mut time = eject(&mut balancer, 1, now);
        assert_eq!(time, EJECTION);
        for times in 2..100 {
            now += time;
            let probe = attempt(&mut balancer, 1, now);
            time = balancer.failed(probe, now).unwrap();
            assert_eq!(time, ejection(times));
        }
        assert_eq!(time, LONGEST_EJECTION);
        balancer.succeeded(address(1));
        assert_eq!(eject(&mut balancer, 1, now), EJECTION);
    }

    #[test]
    fn what_was_on_its_way_when_an_endpoint_was_ejected_does_not_eject_it_again() {
        let (mut balancer, start) = (balancer(2), Instant::now());
        let pending: Vec<_> = (0..50).map(|_| attempt(&mut balancer, 1, start)).collect();
        let ejected = start + Duration::from_secs(5); // they time out one after the other
        let times = pending.iter().zip(0u32..).filter_map(|(pick, index)| {
            let now = ejected + index * Duration::from_millis(100);
            balancer.failed(*pick, now)
        });
        assert_eq!(times.collect::<Vec<_>>(), [EJECTION]);
        let well = ejected + 2 * EJECTION;
        assert!(picks(&mut balancer, 2, well).contains(&address(1)));
        balancer.succeeded(address(1));
        let late = pending.iter().filter_map(|pick| balancer.failed(*pick, well));
        assert_eq!(late.count(), 0, "they began before it recovered");
    }

    #[test]
    fn of_several_probes_the_first_that_fails_counts() {
        let (mut balancer, now) = (balancer(2), Instant::now());
        let time = eject(&mut balancer, 1, now);
        // Each waits for longer than the ejection lasts.
        let probes: Vec<_> = (1..=5)
            .map(|n| attempt(&mut balancer, 1, now + n * time))
            .collect();
        let failed = now + 6 * time;
        let times: Vec<_> = probes
            .iter()
            .filter_map(|probe| balancer.failed(*probe, failed))
            .collect();
        assert_eq!(times, [2 * EJECTION]);
    }

    #[test]
    fn an_ejected_endpoint_that_is_tried_for_want_of_another_is_not_ejected_for_longer() {
        let (mut balancer, now) = (balancer(1), Instant::now());
        eject(&mut balancer, 1, now);
        let soon = now + EJECTION / 2;
        let pick = balancer.pick(&[], soon).unwrap();
        assert_eq!(balancer.failed(pick, soon), None);
        let later = now + EJECTION;
        assert!(balancer.health(later).all(|(_, ejected)| !ejected));
    }

    #[test]
    fn where_all_are_ejected_all_are_tried() {
        let (mut balancer, now) = (balancer(2), Instant::now());
        eject(&mut balancer, 1, now);
        eject(&mut balancer, 2, now);
        assert!(balancer.health(now).all(|(_, ejected)| ejected));
        assert!(balancer.pick(&[], now).is_some());
        let other = balancer.pick(&[address(1)], now).map(|pick| pick.address);
        assert_eq!(other, Some(address(2)));
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
