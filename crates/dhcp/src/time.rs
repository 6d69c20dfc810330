//! Time as the server counts it.
//!
//! Decisions take a [`Timestamp`] and never ask for one. The shell asks a [`Clock`], which never goes back: it
//! starts at the wall clock, but not before the newest moment that the store has seen, and then follows a clock
//! that counts real seconds. So a step of the wall clock neither prolongs nor ends a lease while the server runs,
//! and a wall clock that went back between two runs only makes leases last longer.

use std::time::{Duration, SystemTime};

/// A moment: milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The moment so much later, or the last one that there is.
    pub fn after(self, span: Duration) -> Timestamp {
        Timestamp(
            self.0
                .saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
        )
    }

    /// How long it takes from `earlier` until now; nothing if `earlier` is not earlier.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// The wall clock's present moment.
    pub fn wall() -> Timestamp {
        let since = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

impl From<jiff::Timestamp> for Timestamp {
    fn from(moment: jiff::Timestamp) -> Self {
        Timestamp(u64::try_from(moment.as_millisecond()).unwrap_or(0))
    }
}

impl From<Timestamp> for jiff::Timestamp {
    fn from(moment: Timestamp) -> Self {
        i64::try_from(moment.0)
            .ok()
            .and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok())
            .unwrap_or(jiff::Timestamp::MAX)
    }
}

/// Gives the present moment and never goes back.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Timestamp,
    started: Duration,
}

impl Clock {
    /// A clock that starts at `wall`, or at `floor` if that is later.
    pub fn start(wall: Timestamp, floor: Timestamp) -> Self {
        Clock {
            start: wall.max(floor),
            started: since_boot(),
        }
    }

    /// The present moment.
    pub fn now(&self) -> Timestamp {
        self.start.after(since_boot().saturating_sub(self.started))
    }
}

/// Real time since the machine started, sleep included: leases run on while a host is suspended.
fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_starts_no_earlier_than_what_the_store_has_seen() {
        let seen = Timestamp(5_000_000);
        assert!(Clock::start(Timestamp(1_000), seen).now() >= seen);
        assert!(Clock::start(Timestamp(9_000_000), seen).now() >= Timestamp(9_000_000));
    }

    #[test]
    fn moments_pass_to_calendar_time_and_back() {
        let moment = Timestamp(1_700_000_000_123);
        assert_eq!(Timestamp::from(jiff::Timestamp::from(moment)), moment);
        assert_eq!(jiff::Timestamp::from(Timestamp(u64::MAX)), jiff::Timestamp::MAX);
    }
}
