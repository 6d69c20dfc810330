//! How fast a cloud is asked, and how long is waited before it is asked again. Pure: the time is handed in.

use std::time::{Duration, Instant};

/// So often one thing is asked before it counts as failed.
pub(crate) const ATTEMPTS: u32 = 5;

/// The longest pause that a cloud can ask for; one that asks for more is asked later, by the next pass.
const LONGEST: Duration = Duration::from_secs(30);

/// The pause after a failed attempt, the first being 0: what the cloud asks for, else longer each time.
pub(crate) fn pause(attempt: u32, asked_for: Option<Duration>) -> Duration {
    let own = Duration::from_millis(200).saturating_mul(1 << attempt.min(8));
    asked_for.unwrap_or(own).min(LONGEST)
}

/// Lets so many calls a second through, and a few at once.
pub(crate) struct Pace {
    per_second: f64,
    burst: f64,
    left: f64,
    at: Instant,
}

impl Pace {
    pub(crate) fn new(per_second: u32, burst: u32, now: Instant) -> Self {
        Pace {
            per_second: f64::from(per_second),
            burst: f64::from(burst),
            left: f64::from(burst),
            at: now,
        }
    }

    /// Takes a turn: how long to wait for it.
    pub(crate) fn turn(&mut self, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + passed * self.per_second).min(self.burst) - 1.0;
        self.at = now;
        Duration::from_secs_f64((-self.left / self.per_second).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_calls_pass_at_once_and_then_so_many_a_second() {
        let begin = Instant::now();
        let mut pace = Pace::new(10, 3, begin);
        let waits: Vec<u128> = (0..5).map(|_| pace.turn(begin).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200]);
        assert_eq!(pace.turn(begin + Duration::from_secs(60)), Duration::ZERO);
    }

    #[test]
    fn pauses_grow_and_what_the_cloud_asks_for_counts_within_reason() {
        assert!(pause(1, None) > pause(0, None));
        assert_eq!(pause(0, Some(Duration::from_secs(7))), Duration::from_secs(7));
        assert_eq!(pause(0, Some(Duration::from_secs(7000))), LONGEST);
        assert_eq!(pause(u32::MAX, None), LONGEST);
    }
}
