//! HostedCluster → its Infra.
//!
//! ```text
//! HostedCluster, opted in ──derive──► fields of the Infra ──► server-side apply: fields that a person set stay
//!                            └──────► what is missing ──────► condition on both, event on the HostedCluster
//! ```
//! What cannot be derived leaves the Infra as it is: what runs goes on running. A HostedCluster that is being deleted
//! is left alone too, since its nodes need their servers until the end; its Infra goes with it.

mod build;
mod load_balancer;
mod observe;
mod status;
mod watch;
mod watched;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use oooi_api::Infra;
use oooi_api::foreign::HostedCluster;
use oooi_plan::hosted_cluster::{derive, is_opted_in};
use serde_json::json;

use crate::apply;
use crate::condition::Finding;
use crate::first_look::Unlisted;
use crate::identity;
use observe::observe;
pub(crate) use status::DERIVED;
use watch::Surroundings;
pub(crate) use watch::run;
use watched::Watched;

/// The name under which this controller writes.
pub const MANAGER: &str = "oooi-hosted-cluster";

/// Why a HostedCluster was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What it depends on was not listed yet.
    #[error(transparent)]
    Unlisted(#[from] Unlisted),
    /// Something cannot be written.
    #[error(transparent)]
    Apply(#[from] apply::Error),
}

/// Keeps the Infra of one HostedCluster: observe → derive → build → apply → report. `before` is what its status says of
/// that.
async fn reconcile(
    cluster: &HostedCluster,
    before: Option<&Condition>,
    around: &Surroundings,
) -> Result<Action, Error> {
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
        report(around, cluster, before, seen.own(cluster), status::paused()).await?;
        return Ok(Action::await_change());
    }
    if !is_opted_in(cluster) {
        if let Some(infra) = seen.own(cluster) {
            let (namespace, uid) = (
                infra.namespace().unwrap_or_default(),
                cluster.uid().unwrap_or_default(),
            );
            writer
                .remove::<Infra>(&namespace, &infra.name_any(), &uid)
                .await?;
        }
        if before.is_some() {
            writer.unsay(cluster).await?;
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
                    report(around, cluster, before, None, status::in_the_way(cluster)).await?;
                    return Ok(Action::await_change()); // a change of that Infra is seen
                }
                Err(error) => {
                    let lasts = error.is_invalid();
                    // Once may be a connection that broke.
                    if lasts || around.common.pauses.has_failed(&watch::key(cluster)) {
                        let finding = status::refused(&error);
                        report(around, cluster, before, seen.own(cluster), finding).await?;
                    }
                    if lasts {
                        return Ok(Action::await_change()); // all that it follows from is watched
                    }
                    return Err(error.into());
                }
            }
        }
    };
    // Whoever cannot be told holds up no nodes.
    let reported = report(around, cluster, before, infra.as_ref(), status::derived(&derived)).await;
    let wait = load_balancer::serve(around, &seen, &derived).await?;
    reported?;
    Ok(wait.map_or_else(Action::await_change, Action::requeue))
}

/// Says how far the derivation came: on the Infra if there is one, then on the HostedCluster, which is somebody else's and
/// may refuse it. One that never asked for an Infra is told nothing.
async fn report(
    around: &Surroundings,
    cluster: &HostedCluster,
    before: Option<&Condition>,
    infra: Option<&Infra>,
    finding: Finding,
) -> Result<(), apply::Error> {
    let writer = &around.common.writer;
    let now = around.common.now();
    if let Some(infra) = infra {
        let before = infra.status.clone().unwrap_or_default();
        let read = serde_json::to_value(&before).unwrap_or_default();
        let status = status::status(infra, &before.conditions, finding.clone(), now);
        writer.status(infra, &read, &status).await?;
    }
    if is_opted_in(cluster) || before.is_some() {
        let status = status::cluster_status(cluster, before, &finding, now);
        let read = json!({"conditions": before.as_slice()});
        let told = writer.status(cluster, &read, &status).await;
        // Where the condition may not be written, an event is all that tells.
        let heard = told.as_ref().err().is_none_or(apply::Error::is_forbidden);
        if heard && status::is_news(before, &finding) {
            writer.event(cluster, &finding).await;
        }
        told?;
    }
    Ok(())
}

/// Looks at a HostedCluster once everything around it is known.
async fn look(watched: Arc<Watched>, around: Arc<Surroundings>) -> Result<Action, Error> {
    let look = &around.common.first_look;
    let known = around.stores.are_known(&around.presence, look).await;
    let (key, cluster, before) = (watch::key(&*watched), watched.cluster(), watched.condition());
    let look = async {
        match known {
            Ok(()) => reconcile(&cluster, before.as_ref(), &around).await,
            Err(unlisted) => {
                let was_said = unlisted.is_early && before.is_some();
                if cluster.metadata.deletion_timestamp.is_none() && !was_said {
                    let finding = status::unobserved(&unlisted);
                    report(&around, &cluster, before.as_ref(), None, finding).await?;
                }
                Err(unlisted.into())
            }
        }
    };
    around.common.counted(&key, look).await
}
