//! Where leases are kept.
//!
//! A [`LeaseStore`] makes leases durable: the server sends an ACK only after [`LeaseStore::commit`] said that the
//! lease is stored. The leases of one batch of packets are committed together, so that durability costs one
//! synchronisation a batch and not one a lease. Here is the store of a single server, a [`journal`]; a store that
//! several servers share implements the same trait and passes the same battery of tests (feature `testing`).

mod frame;
pub mod journal;
mod record;

use std::net::Ipv4Addr;

use tokio::sync::mpsc;

use crate::lease::Lease;
use crate::time::Timestamp;

/// Keeps leases. One record an address; the latest one counts.
pub trait LeaseStore: Send {
    /// Everything that is stored. Called once, before the first commit.
    fn load(&mut self) -> impl Future<Output = Result<Loaded, StoreError>> + Send;

    /// Makes the leases durable, in their order. An error means that none of them may be acknowledged; a single
    /// lease that met another fate than being stored is an [`Exception`], and exceptions come in the order of the
    /// leases.
    ///
    /// The future may be polled while the server handles further packets, but it is never dropped unfinished
    /// while the server runs on.
    fn commit(&mut self, leases: &[Lease])
    -> impl Future<Output = Result<Vec<Exception>, StoreError>> + Send;
}

/// What a store knew when it was opened.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Every lease.
    pub leases: Vec<Lease>,
    /// The newest moment that any lease speaks of having seen. Time never goes back behind it.
    pub newest: Timestamp,
    /// What others store, if the store is shared.
    pub updates: Option<mpsc::Receiver<Update>>,
}

/// A change of a shared store that this server did not make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// Another server stored a lease.
    Put(Lease),
    /// Somebody removed the record of an address.
    Forget(Ipv4Addr),
    /// The store cannot be reached. Leases that are known are renewed, nothing new is given.
    Away,
    /// The store is reached again and `Put` has told all that was missed. Renewals by other servers may not have
    /// been written, so no expired address changes hands for one lease time.
    Back,
}

/// A lease of a batch that was not simply stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Its place in the batch.
    pub index: usize,
    /// What happened to it.
    pub fate: Fate,
}

/// What happened to a lease that was not simply stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The address belongs to another client, by this record.
    Taken(Lease),
    /// A renewal that may be acknowledged: the store is away and will write it later.
    Deferred,
    /// It must not be acknowledged.
    NotStored,
}

/// Why nothing was stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system refused.
    #[error("{step} {path}: {source}{}", hint(.source))]
    Io {
        /// What was tried, such as `cannot write to`.
        step: &'static str,
        /// The file.
        path: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A store elsewhere does not answer.
    #[error("the lease store is away: {0}")]
    Away(String),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] journal::Unusable),
}

fn hint(source: &std::io::Error) -> &'static str {
    match source.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            " (free space or enlarge the volume; the server goes on by itself)"
        }
        std::io::ErrorKind::PermissionDenied => " (the state directory must belong to the server's user)",
        std::io::ErrorKind::ReadOnlyFilesystem => " (the state directory must be on a writable volume)",
        _ => "",
    }
}
