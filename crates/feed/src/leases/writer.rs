//! Writes one lease: creates its record, or replaces the version that was seen.

use std::future::Future;
use std::net::Ipv4Addr;
use std::time::Duration;

use kube::api::PostParams;
use kube::{Api, Client};
use oooi_api::DhcpLease;
use oooi_dhcp::lease::{Lease, State};

use super::record;
use super::table::Known;

/// An API server that takes longer is away: clients ask again after a second, and give up after a few.
const PATIENCE: Duration = Duration::from_secs(2);
/// So often a record may change under one write.
const ATTEMPTS: usize = 8;

/// What came of a write.
#[derive(Debug)]
pub(super) enum Written {
    Stored(Known),
    /// Another client has the address.
    Taken(Known),
}

/// Why nothing came of it.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("the API server does not answer: {0}")]
    Away(String),
    #[error("the API server refuses: {0}")]
    Refused(String),
}

/// One server's hand on the records.
#[derive(Clone)]
pub(super) struct Writer {
    api: Api<DhcpLease>,
    server: String,
    uid: Option<String>,
}

impl Writer {
    pub(super) fn new(client: Client, namespace: &str, server: &str, uid: Option<String>) -> Self {
        Writer {
            api: Api::namespaced(client, namespace),
            server: server.to_owned(),
            uid,
        }
    }

    /// The record of an address.
    pub(super) async fn read(&self, address: Ipv4Addr) -> Result<Option<Known>, Failure> {
        let name = record::name(&self.server, address);
        match within(self.api.get_opt(&name)).await {
            Ok(None) => Ok(None),
            Ok(Some(record)) => match record::read(&record) {
                Some(lease) => Ok(Some(known(&record, lease))),
                None => Err(Failure::Refused(format!(
                    "DHCPLease {name} is no lease: delete it to free the address"
                ))),
            },
            Err(error) => Err(classify(error)),
        }
    }

    /// Writes a lease over the record that was seen last, if any.
    pub(super) async fn write(&self, mut seen: Option<Known>, lease: &Lease) -> Result<Written, Failure> {
        let mut record = record::write(&self.server, self.uid.as_deref(), lease);
        let name = record::name(&self.server, lease.address);
        let (mut fresh, mut unheard) = (false, false);
        for _ in 0..ATTEMPTS {
            if let Some(other) = seen.as_ref().filter(|seen| is_taken(&seen.lease, lease, unheard)) {
                if fresh {
                    return Ok(Written::Taken(other.clone()));
                }
                // What was seen may be old: nobody is refused by hearsay.
                seen = self.read(lease.address).await?;
                fresh = true;
                continue;
            }
            record.metadata.resource_version = seen.as_ref().map(|seen| seen.version.clone());
            let answer = match &seen {
                None => within(self.api.create(&PostParams::default(), &record)).await,
                Some(_) => within(self.api.replace(&name, &PostParams::default(), &record)).await,
            };
            match answer {
                Ok(stored) => return Ok(Written::Stored(known(&stored, lease.clone()))),
                Err(Trouble::Kube(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {
                    let before = seen.take();
                    seen = self.read(lease.address).await?;
                    (fresh, unheard) = (true, true);
                    // The kind or the namespace itself is missing: asking again changes nothing.
                    if status.code == 404 && before.is_none() {
                        return Err(Failure::Refused(status.message.clone()));
                    }
                }
                Err(trouble) => return Err(classify(trouble)),
            }
        }
        Err(Failure::Refused(format!(
            "DHCPLease {name} changes faster than it can be written"
        )))
    }
}

/// Whether an address belongs to another client at the moment of a lease. What was written since this replica looked does,
/// whatever it says of time: the clock of who wrote it may be behind.
fn is_taken(held: &Lease, lease: &Lease, unheard: bool) -> bool {
    !held.same_client(lease) && held.state != State::Released && (unheard || held.is_live(lease.since))
}

fn known(record: &DhcpLease, lease: Lease) -> Known {
    Known {
        version: record.metadata.resource_version.clone().unwrap_or_default(),
        lease,
    }
}

enum Trouble {
    Kube(kube::Error),
    Slow,
}

async fn within<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Trouble> {
    match tokio::time::timeout(PATIENCE, request).await {
        Ok(answer) => answer.map_err(Trouble::Kube),
        Err(_) => Err(Trouble::Slow),
    }
}

/// An answer that says no is a refusal; one that says "not now", or none at all, means away.
fn classify(trouble: Trouble) -> Failure {
    match trouble {
        Trouble::Slow => Failure::Away(format!("nothing came in {} seconds", PATIENCE.as_secs())),
        Trouble::Kube(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => {
            Failure::Refused(status.message.clone())
        }
        Trouble::Kube(error) => Failure::Away(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oooi_dhcp::testing::battery::lease;

    #[test]
    fn a_machine_is_known_by_its_hardware_and_its_clone_is_another() {
        let held = Lease {
            machine: true,
            ..lease(1, 1, State::Bound)
        };
        let renamed = Lease {
            id: [255, 9].into(),
            ..held.clone()
        };
        let clone = Lease {
            id: held.id.clone(),
            machine: false,
            ..lease(1, 3, State::Bound)
        };
        assert!(!is_taken(&held, &renamed, true));
        assert!(is_taken(&held, &clone, false) && is_taken(&clone, &held, false));
    }
}
