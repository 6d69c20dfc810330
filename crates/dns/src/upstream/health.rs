//! How an upstream does: its speed, and whether it is worth asking.
//!
//! All cores write here without a lock. Three failures in a row take an upstream out; a probe every so
//! often, further and further apart, brings it back. Time is milliseconds, handed in.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// So many failures in a row take an upstream out.
const FAILURES: u32 = 3;
/// The first pause before a probe, in milliseconds; it doubles up to the last.
const FIRST_PAUSE: u64 = 500;
/// The longest pause between probes.
const LAST_PAUSE: u64 = 30_000;

/// The state of one upstream.
#[derive(Debug, Default)]
pub struct Health {
    /// Smoothed round trip in microseconds; 0 where none was measured yet.
    round_trip: AtomicU32,
    /// Failures since the last answer.
    failures: AtomicU32,
    /// The next probe of one that is out, in milliseconds.
    probe_at: AtomicU64,
}

/// What a report changed, for logs and events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing that anybody must know.
    None,
    /// It is out now.
    Lost,
    /// It is back.
    Recovered,
}

impl Health {
    /// It answered after so long.
    pub fn answered(&self, round_trip: Duration) -> Change {
        let measured = u32::try_from(round_trip.as_micros()).unwrap_or(u32::MAX).max(1);
        let known = self.round_trip.load(Relaxed);
        let smoothed = if known == 0 {
            measured
        } else {
            known - known / 8 + measured / 8
        };
        self.round_trip.store(smoothed.max(1), Relaxed);
        if self.failures.load(Relaxed) == 0 {
            return Change::None;
        }
        if self.failures.swap(0, Relaxed) >= FAILURES {
            Change::Recovered
        } else {
            Change::None
        }
    }

    /// It did not answer in time, or in a way that is no answer.
    pub fn failed(&self, now: u64) -> Change {
        let failures = self.failures.fetch_add(1, Relaxed).saturating_add(1);
        if failures < FAILURES {
            return Change::None;
        }
        let doubled = FIRST_PAUSE << (failures - FAILURES).min(10);
        self.probe_at.store(now + doubled.min(LAST_PAUSE), Relaxed);
        if failures == FAILURES {
            Change::Lost
        } else {
            Change::None
        }
    }

    /// Is it worth asking?
    pub fn is_up(&self) -> bool {
        self.failures.load(Relaxed) < FAILURES
    }

    /// Is it out, and its next probe due?
    pub fn probe_due(&self, now: u64) -> bool {
        !self.is_up() && now >= self.probe_at.load(Relaxed)
    }

    /// Smoothed round trip in microseconds; 0 where none was measured yet.
    pub fn round_trip(&self) -> u32 {
        self.round_trip.load(Relaxed)
    }

    /// For how long to wait for its answer before the next upstream is asked as well.
    pub fn patience(&self) -> Duration {
        match self.round_trip.load(Relaxed) {
            0 => Duration::from_millis(600),
            known => Duration::from_micros(u64::from(known) * 4)
                .clamp(Duration::from_millis(250), Duration::from_millis(1200)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_in_a_row_take_an_upstream_out_and_one_answer_brings_it_back() {
        let health = Health::default();
        assert_eq!([health.failed(0), health.failed(0)], [Change::None; 2]);
        assert_eq!(health.answered(Duration::from_millis(1)), Change::None);
        assert_eq!([health.failed(0), health.failed(0)], [Change::None; 2]);
        assert!(health.is_up());
        assert_eq!(health.failed(0), Change::Lost);
        assert!(!health.is_up());
        assert_eq!(health.answered(Duration::from_millis(1)), Change::Recovered);
        assert!(health.is_up());
    }

    #[test]
    fn probes_come_further_and_further_apart_up_to_half_a_minute() {
        let health = Health::default();
        let mut pauses = Vec::new();
        for failure in 0..12 {
            health.failed(0);
            if failure >= 2 {
                pauses.push(
                    (0..60_000)
                        .step_by(500)
                        .find(|&now| health.probe_due(now))
                        .unwrap(),
                );
            }
        }
        assert_eq!(
            pauses,
            [
                500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000, 30_000
            ]
        );
    }

    #[test]
    fn patience_follows_the_round_trip_within_bounds() {
        let health = Health::default();
        assert_eq!(health.patience(), Duration::from_millis(600));
        health.answered(Duration::from_micros(300));
        assert_eq!(health.patience(), Duration::from_millis(250));
        let slow = Health::default();
        slow.answered(Duration::from_millis(200));
        assert_eq!(slow.patience(), Duration::from_millis(800));
        slow.answered(Duration::from_secs(60));
        assert_eq!(slow.patience(), Duration::from_millis(1200));
    }
}
