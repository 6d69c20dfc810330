//! How many answers a second one client may have.
//!
//! A table of fixed size, a bucket a client: it cannot grow, and clients that fall on the same bucket share
//! it. Over the rate, every second question gets an empty answer with TC, so that a real client comes by
//! TCP, where its address is proven, and the rest get nothing.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

/// The rate that one client is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Answers a second.
    pub rate: u32,
    /// Answers at once after a pause.
    pub burst: u32,
}

const BUCKETS: usize = 4096;

#[derive(Clone, Copy)]
struct Bucket {
    /// What is left, in thousandths of an answer.
    left: u64,
    /// When it was filled last, in milliseconds.
    filled: u64,
    slip: bool,
}

/// The buckets of one core.
pub(super) struct Limiter {
    limit: RateLimit,
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
        let full = Bucket {
            left: u64::from(limit.burst) * 1000,
            filled: 0,
            slip: false,
        };
        Limiter {
            limit,
            buckets: vec![full; BUCKETS],
            hasher: RandomState::new(),
        }
    }

    /// Takes one answer from the client's bucket. An IPv6 client is its /56, of which it may have all.
    pub(super) fn take(&mut self, client: IpAddr, now: u64) -> Allowance {
        let network = match client {
            IpAddr::V4(address) => u64::from(u32::from(address)),
            IpAddr::V6(address) => (u128::from(address) >> 72) as u64,
        };
        let at = self.hasher.hash_one(network) as usize % BUCKETS;
        let bucket = &mut self.buckets[at];
        let passed = now.saturating_sub(bucket.filled);
        let most = u64::from(self.limit.burst.max(1)) * 1000;
        bucket.left = (bucket.left + passed * u64::from(self.limit.rate)).min(most);
        bucket.filled = now;
        if bucket.left >= 1000 {
            bucket.left -= 1000;
            return Allowance::Answer;
        }
        bucket.slip = !bucket.slip;
        if bucket.slip {
            Allowance::Truncate
        } else {
            Allowance::Drop
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_its_burst_then_its_rate_and_others_are_not_touched() {
        let mut limiter = Limiter::new(RateLimit { rate: 10, burst: 5 });
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
