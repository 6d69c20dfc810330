//! What the three servers have in common: from a resource to the objects that run it.
//!
//! ```text
//! DHCPServer, DNSServer, ProxyServer ──wants──► Wants ──build──► objects ──apply──► pods ──status──► conditions
//! ```
//! A kind says what it [`Wants`]; everything behind that is the same for all of them.

mod build;
mod observe;
mod status;
mod wants;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::controller::Action;
use oooi_api::report::ServerReport;
use oooi_plan::Mistake;
use serde_json::Value;

use crate::apply::{self, Object};
use crate::condition::{self, Finding};
use crate::context::{Context, Images};
use crate::identity::{self, Role};
pub(crate) use build::{INTERFACE, POD_IP, config_map_name};
use build::{Objects, build};
use observe::observe;
pub use status::Applied;
pub(crate) use wants::attachment;
pub use wants::{Addresses, LeaseClaim, Probe, Wants};

/// A resource that one kind of server runs from.
pub trait Server: Object + Send + Sync + 'static {
    /// What it is for.
    const ROLE: Role;
    /// The name under which its controller writes.
    const MANAGER: &'static str;

    /// What it needs to run, or all that is wrong with it.
    fn wants(&self, images: &Images) -> Result<Wants, Vec<Mistake>>;
    /// What is said of it so far.
    fn conditions(&self) -> &[Condition];
    /// What its servers say of themselves.
    fn reports(&self) -> &[ServerReport];
    /// Its whole status as it was read.
    fn status(&self) -> Value;
    /// Fields of its status besides conditions, and conditions that only this kind has.
    fn further(&self, applied: &Applied) -> (Value, Vec<Finding>);
}

/// Why a server was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its pods cannot be read.
    #[error("cannot read the pods of the server: {0}")]
    Observe(#[source] kube::Error),
    /// Something cannot be written.
    #[error(transparent)]
    Apply(#[from] apply::Error),
}

/// Keeps one server running: validate → build → apply → observe → report.
pub async fn reconcile<S: Server>(server: Arc<S>, ctx: Arc<Context>) -> Result<Action, Error> {
    if server.meta().deletion_timestamp.is_some() {
        return Ok(Action::await_change()); // its objects go with it
    }
    if identity::is_paused(server.meta()) {
        report(&ctx, &*server, status::paused(), Value::Null).await?;
        return Ok(Action::await_change());
    }
    let wants = match wants::check_name(server.meta()).and_then(|()| server.wants(&ctx.images)) {
        Ok(wants) => wants,
        Err(mistakes) => {
            report(&ctx, &*server, status::rejected(&mistakes), Value::Null).await?;
            return Ok(Action::await_change()); // retrying cannot cure a bad specification
        }
    };
    let deployments = match carry_out(&ctx, &*server, &wants).await {
        Ok(deployments) => deployments,
        Err(error) => {
            report(&ctx, &*server, status::failed(&error), Value::Null).await?;
            return Err(error.into());
        }
    };
    let applied = observe(&ctx.client, &*server, &wants, deployments)
        .await
        .map_err(Error::Observe)?;
    let (fields, further) = server.further(&applied);
    let findings = status::findings(&*server, &applied, further);
    report(&ctx, &*server, findings, fields).await?;
    Ok(Action::await_change())
}

/// Applies every object, what pods need before the pods, and removes Deployments of replicas that are no more.
async fn carry_out<S: Server>(
    ctx: &Context,
    server: &S,
    wants: &Wants,
) -> Result<Vec<Deployment>, apply::Error> {
    let Objects {
        service_account,
        role_binding,
        config_map,
        claim,
        deployments,
        service,
    } = build(server, wants);
    let writer = &ctx.writer;
    writer.apply(&service_account).await?;
    writer.apply(&role_binding).await?;
    writer.apply(&config_map).await?;
    if let Some(claim) = &claim {
        writer.apply(claim).await?;
    }
    writer.apply(&service).await?;
    let mut applied = Vec::new();
    for deployment in &deployments {
        applied.push(writer.apply(deployment).await?);
    }
    let keep: Vec<String> = deployments
        .iter()
        .filter_map(|d| d.metadata.name.clone())
        .collect();
    writer.prune::<Deployment>(server, &keep).await?;
    Ok(applied)
}

async fn report<S: Server>(
    ctx: &Context,
    server: &S,
    findings: Vec<Finding>,
    fields: Value,
) -> Result<(), apply::Error> {
    let status = status::status(server, &findings, fields, ctx.now());
    ctx.writer.status(server, &server.status(), &status).await?;
    if let Some(finding) = condition::news(server.conditions(), &findings) {
        ctx.writer.event(server, finding).await;
    }
    Ok(())
}
