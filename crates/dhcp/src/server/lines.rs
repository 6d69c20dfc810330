//! How often something is said. Whoever floods the network must not fill the log.

use std::time::Duration;

use crate::time::Timestamp;

/// Some log lines in each span of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines {
    most: u32,
    span: Duration,
    /// How many were written in the present span.
    written: u32,
    /// When the present span ends.
    until: Timestamp,
}

impl Lines {
    pub(super) const fn new(most: u32, span: Duration) -> Self {
        Lines {
            most,
            span,
            written: 0,
            until: Timestamp(0),
        }
    }

    /// Whether another line may be written.
    pub(super) fn may_log(&mut self, now: Timestamp) -> bool {
        if self.until <= now {
            (self.written, self.until) = (0, now.after(self.span));
        }
        self.written = self.written.saturating_add(1);
        self.written <= self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_gets_its_lines_and_no_more_until_the_span_is_over() {
        let mut lines = Lines::new(3, Duration::from_secs(1));
        let mut written = |at: u64| (0..100).filter(|_| lines.may_log(Timestamp(at))).count();
        assert_eq!([5_000, 5_999, 6_000, 60_000].map(&mut written), [3, 0, 3, 3]);
    }
}
