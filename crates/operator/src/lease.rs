//! Leadership by a Lease: at most one manager writes.
//!
//! ```text
//! candidate ──► nobody holds it, or its holder was not seen to renew for a whole term ──► replace ──► leads
//! leader ─────► renews every third of a term ──► not renewed for two thirds ──► leads no more
//! ```
//! Guarantees: every write carries the resourceVersion that was read, so of two candidates one fails. Whether a
//! holder is gone is decided by this process's monotonic clock from the moment a change was last *seen*; clocks of
//! other machines and times in the Lease are for people. A leader gives up a third of a term before another may take
//! over. Leadership that was lost does not come back: the process is to end.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

/// Who wants to lead, and by which Lease.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// This process, such as its pod's name.
    pub identity: String,
    /// After how long without a renewal another one takes over.
    pub term: Duration,
}

/// What was last seen of the Lease.
struct Seen {
    version: Option<String>,
    at: Instant,
}

impl Candidate {
    /// Takes part until it leads, then sets `leading` and keeps it for as long as it can. Returns when leadership is
    /// lost, with `leading` unset: whoever called must end.
    pub async fn lead(&self, client: Client, leading: &watch::Sender<bool>) {
        let leases = Api::<Lease>::namespaced(client, &self.namespace);
        let (mut held, mut renewed) = self.acquire(&leases).await;
        tracing::info!(lease = self.name, identity = self.identity, "leads");
        leading.send_replace(true);
        loop {
            sleep(self.term / 3).await;
            // Counted from before the last request that succeeded, so never later than others count.
            let deadline = renewed + self.term * 2 / 3;
            let began = Instant::now();
            match timeout_at(deadline, self.renew(&leases, &held)).await {
                Ok(Ok(lease)) => (held, renewed) = (lease, began),
                Ok(Err(kube::Error::Api(status))) if status.code == 409 || status.code == 404 => {
                    tracing::error!("another manager took the lease over, or it was deleted");
                    break;
                }
                Ok(Err(error)) if Instant::now() < deadline => {
                    tracing::warn!(%error, "the lease cannot be renewed, trying again");
                }
                Ok(Err(_)) | Err(_) => {
                    tracing::error!("the lease could not be renewed in time");
                    break;
                }
            }
        }
        leading.send_replace(false);
    }

    /// Waits until the lease is free and takes it. Gives also the moment before it was taken.
    async fn acquire(&self, leases: &Api<Lease>) -> (Lease, Instant) {
        let mut seen = Seen {
            version: None,
            at: Instant::now(),
        };
        loop {
            let began = Instant::now();
            match self.try_acquire(leases, &mut seen).await {
                Ok(Some(lease)) => return (lease, began),
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "the lease cannot be taken, trying again"),
            }
            sleep(self.term / 6).await;
        }
    }

    /// One attempt. A conflict means that somebody else was faster.
    async fn try_acquire(&self, leases: &Api<Lease>, seen: &mut Seen) -> Result<Option<Lease>, kube::Error> {
        let params = PostParams::default();
        let written = match leases.get_opt(&self.name).await? {
            None => leases.create(&params, &self.lease(None)).await,
            Some(existing) => {
                if seen.version != existing.resource_version() {
                    *seen = Seen {
                        version: existing.resource_version(),
                        at: Instant::now(),
                    };
                }
                let holder = existing
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.holder_identity.clone());
                let free = holder.is_none_or(|holder| holder.is_empty());
                if !free && seen.at.elapsed() < self.term {
                    return Ok(None);
                }
                leases
                    .replace(&self.name, &params, &self.lease(Some(&existing)))
                    .await
            }
        };
        match written {
            Ok(lease) => Ok(Some(lease)),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn renew(&self, leases: &Api<Lease>, held: &Lease) -> Result<Lease, kube::Error> {
        let mut lease = held.clone();
        lease.spec.get_or_insert_default().renew_time = Some(MicroTime(Timestamp::now()));
        leases.replace(&self.name, &PostParams::default(), &lease).await
    }

    /// The Lease with this process as its holder. With the version of the one that it replaces, so that it replaces
    /// no other.
    fn lease(&self, existing: Option<&Lease>) -> Lease {
        let now = MicroTime(Timestamp::now());
        let transitions = existing.and_then(|lease| lease.spec.as_ref()?.lease_transitions);
        Lease {
            metadata: existing.map_or_else(
                || ObjectMeta {
                    name: Some(self.name.clone()),
                    ..ObjectMeta::default()
                },
                |existing| existing.metadata.clone(),
            ),
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: i32::try_from(self.term.as_secs()).ok(),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                lease_transitions: existing.map(|_| transitions.unwrap_or_default().saturating_add(1)),
                ..LeaseSpec::default()
            }),
        }
    }
}
