//! Asking in turn, and again where that can do no harm.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::pace::{ATTEMPTS, Pace, pause};

/// Whether something is changed by what is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing is.
    Read,
    /// It may be done although no answer came.
    Write,
}

/// An attempt that failed.
pub(crate) struct Failed {
    pub(crate) error: Error,
    /// How long the cloud wants to be left alone.
    pub(crate) after: Option<Duration>,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed { error, after: None }
    }
}

/// Asks until there is an answer that tells something, each time when it is its turn. What may have been done is not done
/// twice: whoever asked looks first.
pub(crate) async fn persist<T, F>(kind: Kind, pace: &Mutex<Pace>, ask: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Failed>>,
{
    let mut attempt = 0;
    loop {
        let turn = pace
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .turn(Instant::now());
        tokio::time::sleep(turn).await;
        let Failed { error, after } = match ask().await {
            Ok(answer) => return Ok(answer),
            Err(failed) => failed,
        };
        let again = match &error {
            Error::Throttled { .. } | Error::Unreachable { .. } => true,
            Error::Unknown { .. } => kind == Kind::Read,
            Error::NoCredentials { .. } | Error::Denied { .. } | Error::Refused { .. } => false,
        };
        attempt += 1;
        if !again || attempt == ATTEMPTS {
            return Err(error);
        }
        tracing::debug!(%error, attempt, "a cloud is asked again");
        tokio::time::sleep(pause(attempt - 1, after)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    async fn attempts(kind: Kind, error: Error) -> u32 {
        let count = Cell::new(0);
        let pace = Mutex::new(Pace::new(1000, 1, Instant::now()));
        let result: Result<(), Error> = persist(kind, &pace, || async {
            count.set(count.get() + 1);
            Err(Failed {
                error: error.clone(),
                after: Some(Duration::ZERO),
            })
        })
        .await;
        assert_eq!(result, Err(error));
        count.get()
    }

    #[tokio::test]
    async fn a_write_whose_answer_was_lost_is_not_sent_again_and_a_read_is() {
        let lost = || Error::Unknown {
            call: "x".into(),
            why: "y".into(),
        };
        assert_eq!(attempts(Kind::Write, lost()).await, 1);
        assert_eq!(attempts(Kind::Read, lost()).await, ATTEMPTS);
        let put_off = Error::Throttled { call: "x".into() };
        assert_eq!(attempts(Kind::Write, put_off).await, ATTEMPTS, "it was not done");
        let refused = Error::Refused {
            call: "x".into(),
            code: "y".into(),
            message: "z".into(),
        };
        assert_eq!(attempts(Kind::Read, refused).await, 1, "it says no each time");
    }

    #[tokio::test]
    async fn every_attempt_waits_for_its_turn() {
        let (began, asked) = (Instant::now(), Cell::new(0));
        let pace = Mutex::new(Pace::new(20, 1, began));
        for _ in 0..2 {
            let result: Result<(), Error> = persist(Kind::Read, &pace, || async {
                asked.set(asked.get() + 1);
                Ok(())
            })
            .await;
            assert_eq!(result, Ok(()));
        }
        assert_eq!(asked.get(), 2);
        // The first is asked at once, the second a twentieth of a second later.
        assert!(
            began.elapsed() >= Duration::from_millis(50),
            "{:?}",
            began.elapsed()
        );
    }
}
