//! How many answers a second one client may have.
//!
//! A table of fixed size, a bucket a client: it cannot grow, and clients that fall on the same bucket share
//! it. Over the rate, every second question gets an empty answer with TC, so that a real client comes by
//! TCP, where its address is proven, and the rest get nothing.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The rate that one client is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Answers a second.
    pub rate: u32,
    /// Answers at once after a pause.
    pub burst: u32,
}

const BUCKETS: usize = 4096;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

#[derive(Default)]
struct Bucket {
    /// When all answers so far are paid for, in nanoseconds: each takes its share of a second.
    paid: AtomicU64,
    slip: AtomicBool,
}

/// The buckets, shared by all cores: a client that asks by many sockets is heard by all of them.
pub(super) struct Limiter {
    /// What one answer takes of a second, in nanoseconds.
    share: u64,
    /// How far a client may be ahead of its payment.
    credit: u64,
    buckets: Vec<Bucket>,
    hasher: RandomState,
}

/// What becomes of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowance {
    Answer,
    Truncate,
    Drop,
}

impl Limiter {
    pub(super) fn new(limit: RateLimit) -> Limiter {
        let share = NANOS_PER_SECOND / u64::from(limit.rate.max(1));
        Limiter {
            share,
            credit: share * u64::from(limit.burst.max(1)),
            buckets: (0..BUCKETS).map(|_| Bucket::default()).collect(),
            hasher: RandomState::new(),
        }
    }

    /// Takes one answer from the client's bucket. An IPv6 client is its /56, of which it may have all.
    pub(super) fn take(&self, client: IpAddr, now_millis: u64) -> Allowance {
        let network = match client {
            IpAddr::V4(address) => u64::from(u32::from(address)),
            IpAddr::V6(address) => (u128::from(address) >> 72) as u64,
        };
        let bucket = &self.buckets[self.hasher.hash_one(network) as usize % BUCKETS];
        let now = now_millis * 1_000_000;
        let pay = |paid: u64| {
            let next = paid.max(now) + self.share;
            (next <= now + self.credit).then_some(next)
        };
        if bucket.paid.fetch_update(Relaxed, Relaxed, pay).is_ok() {
            return Allowance::Answer;
        }
        if bucket.slip.fetch_not(Relaxed) {
            Allowance::Drop
        } else {
            Allowance::Truncate
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_its_burst_then_its_rate_and_others_are_not_touched() {
        let limiter = Limiter::new(RateLimit { rate: 10, burst: 5 });
        let client = IpAddr::from([10, 0, 0, 20]);
        let burst: Vec<Allowance> = (0..7).map(|_| limiter.take(client, 1000)).collect();
        assert_eq!(burst[..5], [Allowance::Answer; 5]);
        assert_eq!(burst[5..], [Allowance::Truncate, Allowance::Drop]);
        assert_eq!(
            limiter.take(client, 1100),
            Allowance::Answer,
            "a tenth of a second fills one"
        );
        assert_ne!(limiter.take(client, 1100), Allowance::Answer);
        let other = (1..200).map(|last| IpAddr::from([10, 0, 1, last]));
        let served = other
            .map(|other| limiter.take(other, 1100))
            .filter(|got| *got == Allowance::Answer)
            .count();
        assert!(served > 190, "{served} of 199 others were served");
    }
}
