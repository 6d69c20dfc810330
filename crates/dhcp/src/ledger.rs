//! Leases for people: what `oooi leases` shows and does on a state directory, with or without a running server.

use std::net::Ipv4Addr;
use std::path::Path;

use crate::control::{self, Released};
use crate::lease::Lease;
use crate::store::StoreError;
use crate::store::journal::{Journal, Unusable};
use crate::time::Timestamp;

/// Why the leases of a directory cannot be shown or changed.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The journal.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The running server.
    #[error("the running server does not answer on {path}: {source}")]
    Server {
        /// Its socket.
        path: String,
        /// What went wrong.
        source: std::io::Error,
    },
    /// The running server cannot write.
    #[error("{0} is not free: the running server cannot store leases now, and its log says why")]
    NotStored(Ipv4Addr),
}

/// Every lease, by address. A running server is not disturbed.
pub fn list(directory: &Path) -> Result<Vec<Lease>, LedgerError> {
    let mut leases = Journal::read(directory)?;
    leases.sort_by_key(|lease| lease.address);
    Ok(leases)
}

/// Frees an address: through the running server, or in the journal if none runs. False if nobody had it.
pub fn release(directory: &Path, address: Ipv4Addr, now: Timestamp) -> Result<bool, LedgerError> {
    // Whoever names a wrong directory is told so; to open it would make a journal there.
    Journal::read(directory)?;
    let mut journal = match Journal::open(directory) {
        Err(StoreError::Journal(Unusable::Locked { .. })) => {
            let path = directory.join(control::FILE).display().to_string();
            let asked = control::release(directory, address);
            return match asked.map_err(|source| LedgerError::Server { path, source })? {
                Released::Stored => Ok(true),
                Released::NoLease => Ok(false),
                Released::NotStored => Err(LedgerError::NotStored(address)),
            };
        }
        opened => opened?,
    };
    let leases = Journal::read(directory)?;
    match leases
        .iter()
        .find(|lease| lease.address == address && lease.is_live(now))
    {
        None => Ok(false),
        Some(lease) => {
            // No later than anything in the journal: from its newest moment on the next start counts, for all leases.
            let newest = leases.iter().map(|lease| lease.since).max();
            journal.append(&[lease.released(newest.unwrap_or(lease.since))])?;
            Ok(true)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::State;
    use crate::testing::battery::lease;
    use std::time::Duration;

    #[test]
    fn a_lease_is_listed_and_released_without_a_server() {
        let directory = tempfile::tempdir().unwrap();
        let stored = lease(9, 1, State::Bound);
        Journal::open(directory.path())
            .unwrap()
            .append(&[lease(10, 2, State::Bound), stored.clone()])
            .unwrap();
        assert_eq!(list(directory.path()).unwrap().first(), Some(&stored));
        let now = stored.since.after(Duration::from_secs(5));
        assert!(release(directory.path(), stored.address, now).unwrap());
        assert!(!release(directory.path(), stored.address, now).unwrap());
        assert_eq!(list(directory.path()).unwrap()[0].state, State::Released);
    }

    #[test]
    fn a_release_without_a_server_says_nothing_of_the_time_since() {
        let directory = tempfile::tempdir().unwrap();
        let stored = [lease(9, 1, State::Bound), lease(10, 2, State::Bound)];
        let newest = stored[0].since.max(stored[1].since);
        Journal::open(directory.path()).unwrap().append(&stored).unwrap();
        let ahead = stored[0].since.after(Duration::from_secs(30));
        assert!(release(directory.path(), stored[0].address, ahead).unwrap());
        let after = list(directory.path()).unwrap();
        assert_eq!(after.iter().map(|lease| lease.since).max(), Some(newest));
    }

    #[test]
    fn a_directory_without_leases_is_named_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let error = release(directory.path(), Ipv4Addr::LOCALHOST, Timestamp(0)).unwrap_err();
        assert!(error.to_string().contains("leases.journal"), "{error}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_running_server_is_asked() {
        let directory = tempfile::tempdir().unwrap();
        let _journal = Journal::open(directory.path()).unwrap();
        let mut commands = control::listen(directory.path()).unwrap();
        let address = Ipv4Addr::new(10, 0, 0, 9);
        let mut asked = async |said: Released| {
            let path = directory.path().to_owned();
            let asked = tokio::task::spawn_blocking(move || release(&path, address, Timestamp(0)));
            let Some(control::Command::Release(asked_for, answer)) = commands.recv().await else {
                panic!("no command")
            };
            assert_eq!(asked_for, address);
            answer.send(said).unwrap();
            asked.await.unwrap()
        };
        assert!(asked(Released::Stored).await.unwrap());
        assert!(!asked(Released::NoLease).await.unwrap());
        let error = asked(Released::NotStored).await.unwrap_err().to_string();
        assert!(error.starts_with("10.0.0.9 is not free"), "{error}");
    }
}
