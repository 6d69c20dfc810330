//! HostedCluster → its Infra.
//!
//! ```text
//! HostedCluster, opted in ──derive──► fields of the Infra ──► server-side apply: fields that a person set stay
//!                            └──────► what is missing ──────► condition `Derived`, event on the HostedCluster
//! ```
//! What cannot be derived leaves the Infra as it is: what runs goes on running. A HostedCluster that is being deleted
//! is left alone too, since its nodes need their servers until the end; its Infra goes with it.

mod build;
mod load_balancer;
mod observe;
mod status;
mod watch;

use std::sync::Arc;

use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use oooi_api::Infra;
use oooi_api::foreign::HostedCluster;
use oooi_plan::hosted_cluster::{derive, is_opted_in};

use crate::apply;
use crate::condition::Finding;
use crate::identity;
use observe::observe;
pub(crate) use status::DERIVED;
use watch::Surroundings;
pub(crate) use watch::run;

/// The name under which this controller writes.
pub const MANAGER: &str = "oooi-hosted-cluster";

/// Why a HostedCluster was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something cannot be written.
    #[error(transparent)]
    Apply(#[from] apply::Error),
}

/// Keeps the Infra of one HostedCluster: observe → derive → build → apply → report.
async fn reconcile(cluster: &HostedCluster, around: &Surroundings) -> Result<Action, Error> {
    let writer = &around.common.writer;
    let seen = observe(&around.stores, cluster);
    // For whoever wrote an Infra by hand, too.
    let derived = derive(cluster, &seen.sources());
    around.planes.set(cluster, &derived.control_plane);
    if cluster.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change()); // its Infra goes with it, and not before
    }
    if identity::is_paused(cluster.meta())
        || seen.infra.as_ref().is_some_and(|i| identity::is_paused(i.meta()))
    {
        report(around, cluster, seen.own(cluster), status::paused()).await?;
        return Ok(Action::await_change());
    }
    if !is_opted_in(cluster) {
        around.told.forget(cluster);
        if let Some(infra) = seen.own(cluster) {
            let (namespace, uid) = (
                infra.namespace().unwrap_or_default(),
                cluster.uid().unwrap_or_default(),
            );
            writer
                .remove::<Infra>(&namespace, &infra.name_any(), &uid)
                .await?;
        }
        return Ok(Action::await_change());
    }
    let infra = match &derived.infra {
        None => seen.own(cluster).cloned(), // as it was: what runs goes on running
        Some(spec) => {
            let (metadata, fields) = build::infra(cluster, spec);
            match writer.apply_fields::<Infra>(&metadata, fields).await {
                Ok(infra) => Some(infra),
                Err(apply::Error::Foreign { .. }) => {
                    report(around, cluster, None, status::in_the_way(cluster)).await?;
                    return Ok(Action::requeue(status::AGAIN)); // a change of that Infra is seen
                }
                Err(error) => return Err(error.into()),
            }
        }
    };
    report(around, cluster, infra.as_ref(), status::derived(&derived)).await?;
    let wait = load_balancer::serve(around, &seen, &derived).await?;
    // Without an Infra only an event tells what is missing.
    let again = infra.is_none().then_some(status::AGAIN);
    let next = wait.into_iter().chain(again).min();
    Ok(next.map_or_else(Action::await_change, Action::requeue))
}

/// Says how far the derivation came: on the Infra if there is one, and to whoever looks at the HostedCluster.
async fn report(
    around: &Surroundings,
    cluster: &HostedCluster,
    infra: Option<&Infra>,
    finding: Finding,
) -> Result<(), apply::Error> {
    let writer = &around.common.writer;
    let before = infra.and_then(|infra| infra.status.clone()).unwrap_or_default();
    let now = around.common.now();
    if around.told.is_news(cluster, &before.conditions, &finding, now) {
        writer.event(cluster, &finding).await;
    }
    if let Some(infra) = infra {
        let read = serde_json::to_value(&before).unwrap_or_default();
        let status = status::status(infra, &before.conditions, finding, now);
        writer.status(infra, &read, &status).await?;
    }
    Ok(())
}

/// Looks at a HostedCluster once everything around it is known.
async fn look(cluster: Arc<HostedCluster>, around: Arc<Surroundings>) -> Result<Action, Error> {
    around.stores.wait_until_ready(&around.presence).await;
    let key = watch::key(&*cluster);
    around.common.counted(&key, reconcile(&cluster, &around)).await
}
