//! Leadership by a Lease: at most one manager writes.
//!
//! ```text
//! candidate ──► nobody holds it, or its holder was not seen to renew for a whole term ──► replace ──► leads
//! leader ─────► renews every third of a term, tries again ──► not renewed for two thirds ──► leads no more
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

/// For how long this process leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Term {
    /// Not, or no more.
    #[default]
    Over,
    /// Until then, unless it is renewed. A process that was stopped finds this as it left it, and that it is over.
    Until(Instant),
    /// It is the only one.
    Unlimited,
}

impl Term {
    /// Whether it leads at this moment.
    pub fn runs(self) -> bool {
        match self {
            Term::Over => false,
            Term::Until(end) => Instant::now() < end,
            Term::Unlimited => true,
        }
    }
}

/// What was last seen of the Lease.
struct Seen {
    version: Option<String>,
    at: Instant,
}

impl Candidate {
    /// Takes part until it leads, then sets `leading` and keeps it for as long as it can. Returns when leadership is
    /// lost, with `leading` unset: whoever called must end.
    pub async fn lead(&self, client: Client, leading: &watch::Sender<Term>) {
        let leases = Api::<Lease>::namespaced(client, &self.namespace);
        let (mut held, mut renewed) = self.acquire(&leases).await;
        tracing::info!(lease = self.name, identity = self.identity, "leads");
        leading.send_replace(Term::Until(self.ends(renewed)));
        while let Some((lease, began)) = self.prolong(&leases, &held, self.ends(renewed)).await {
            (held, renewed) = (lease, began);
            // Who waits to lead or not to lead has nothing to do because of a renewal.
            leading.send_if_modified(|term| {
                *term = Term::Until(self.ends(renewed));
                false
            });
        }
        leading.send_replace(Term::Over);
    }

    /// When this process gives up, if it renewed last by a request that it sent then. Counted from before that request,
    /// so never later than others count.
    fn ends(&self, renewed: Instant) -> Instant {
        renewed + self.term * 2 / 3
    }

    /// Waits, and renews the lease. Gives also the moment before that; nothing if leadership is lost.
    async fn prolong(
        &self,
        leases: &Api<Lease>,
        held: &Lease,
        deadline: Instant,
    ) -> Option<(Lease, Instant)> {
        sleep(self.term / 3).await;
        loop {
            let began = Instant::now();
            if began >= deadline {
                tracing::error!("the lease could not be renewed in time");
                return None;
            }
            // No attempt takes the time that another one needs.
            let limit = deadline.min(began + self.term / 5);
            match timeout_at(limit, self.renew(leases, held)).await {
                // What comes too late, such as to a process that was stopped, is no renewal.
                Ok(Ok(Some(lease))) if Instant::now() < deadline => return Some((lease, began)),
                Ok(Ok(Some(_))) => {}
                Ok(Ok(None)) => {
                    tracing::error!("another manager took the lease over, or it was deleted");
                    return None;
                }
                Ok(Err(error)) => tracing::warn!(%error, "the lease cannot be renewed, trying again"),
                Err(_) => tracing::warn!("no answer to a renewal of the lease, trying again"),
            }
            sleep(self.term / 15).await;
        }
    }

    /// Waits until the lease is free and takes it. Gives also the moment before it was taken.
    async fn acquire(&self, leases: &Api<Lease>) -> (Lease, Instant) {
        let mut seen = Seen {
            version: None,
            at: Instant::now(),
        };
        loop {
            let began = Instant::now();
            let deadline = self.ends(began);
            match timeout_at(deadline, self.try_acquire(leases, &mut seen)).await {
                // Whoever is told too late that it leads does not: others may count on it no more.
                Ok(Ok(Some(lease))) if Instant::now() < deadline => return (lease, began),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::warn!(%error, "the lease cannot be taken, trying again"),
                Err(_) => tracing::warn!("no answer about the lease, trying again"),
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

    /// Renews the lease, if it is still the one that is held.
    async fn renew(&self, leases: &Api<Lease>, held: &Lease) -> Result<Option<Lease>, kube::Error> {
        match self.replace(leases, held.clone()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                // An attempt whose answer was lost may have come through.
                match leases.get_opt(&self.name).await? {
                    Some(now) if is_same_term(&now, held) => self.replace(leases, now).await.map(Some),
                    _ => Ok(None),
                }
            }
            other => other.map(Some),
        }
    }

    async fn replace(&self, leases: &Api<Lease>, mut lease: Lease) -> Result<Lease, kube::Error> {
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

/// Whether nobody took a lease over since it was taken.
fn is_same_term(now: &Lease, held: &Lease) -> bool {
    let of = |lease: &Lease| {
        let spec = lease.spec.clone().unwrap_or_default();
        (spec.holder_identity, spec.acquire_time, spec.lease_transitions)
    };
    now.uid() == held.uid() && of(now) == of(held)
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
