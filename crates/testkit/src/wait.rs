//! Waiting for a condition, never for a time.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::Error;

/// How often a condition is looked at. Short, because tests add these up.
const LOOK: Duration = Duration::from_millis(50);

/// Looks at a condition until it gives a value, or fails after `limit` with what was seen last.
///
/// The condition answers `Ok(value)` when it holds, else `Err(what it saw)`.
pub async fn until<T, S: Into<String>>(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<T, S>,
) -> Result<T, Error> {
    let began = Instant::now();
    loop {
        match look().await {
            Ok(value) => return Ok(value),
            Err(seen) if began.elapsed() >= limit => {
                return Err(Error::TimedOut {
                    what: what.to_owned(),
                    after: limit,
                    seen: seen.into(),
                });
            }
            Err(_) => sleep(LOOK).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_condition_that_comes_true_gives_its_value() {
        let mut looks = 0;
        let value = until("the third look", Duration::from_secs(5), async || {
            looks += 1;
            if looks == 3 { Ok(looks) } else { Err("not yet") }
        });
        assert_eq!(value.await.unwrap(), 3);
    }

    #[tokio::test]
    async fn a_condition_that_stays_false_says_what_was_seen_last() {
        let never = until::<(), _>("a miracle", Duration::from_millis(60), async || Err("a stone"));
        let error = never.await.unwrap_err().to_string();
        assert!(
            error.contains("a miracle") && error.contains("a stone"),
            "{error}"
        );
    }
}
