//! What the three servers have in common: from a resource to the objects that run it.
//!
//! ```text
//! DHCPServer, DNSServer, ProxyServer ──wants──► Wants ──build──► objects ──apply──► pods ──status──► conditions
//! ```
//! A kind says what it [`Wants`]; everything behind that is the same for all of them. What a server needs in other
//! namespaces ([`Grant`], [`Target`]) cannot have an owner reference: a finalizer holds the resource until it is gone.

mod admit;
mod build;
mod carry_out;
mod grant;
mod observe;
mod roll_out;
mod status;
mod takeover;
mod told;
mod wants;
pub(crate) mod watch;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use kube::core::object::HasStatus;
use kube::runtime::controller::Action;
use kube::runtime::reflector::Store;
use oooi_api::report::ServerReport;
use oooi_plan::Mistake;
use serde_json::{Value, json};

use crate::apply::{self, Object};
use crate::condition::{self, Finding};
use crate::context::{Context, Images};
use crate::first_look::Unlisted;
use crate::identity::{self, NETWORK_POLICY, Role};
pub(crate) use build::{INTERFACE, POD_IP, config_map_name, time_to_end};
use carry_out::carry_out;
pub use grant::{Grant, Reading, Target};
pub(crate) use grant::{machine_namespace, machines};
use observe::observe;
pub use status::Applied;
pub use told::Told;
pub(crate) use wants::attachment;
pub use wants::{Addresses, Envoy, LeaseClaim, Probe, Wants};

/// A resource that one kind of server runs from.
pub trait Server: Object + HasStatus<Status: Told> + Send + Sync + 'static {
    /// What it is for.
    const ROLE: Role;
    /// The name under which its controller writes.
    const MANAGER: &'static str;

    /// What it needs to run. What is wrong with it is added to `mistakes`.
    fn wants(&self, images: &Images, mistakes: &mut Vec<Mistake>) -> Wants;
    /// What its pods read besides their own resource, and where.
    fn grants(&self) -> Vec<Grant>;
    /// Services whose pods it must be able to reach.
    fn targets(&self) -> Vec<Target> {
        Vec::new()
    }
    /// The image that it names.
    fn image(&self) -> Option<&str>;
    /// Fields that it gets when it takes over the clients of a server whose memory it has not.
    fn on_takeover(&self, _now: Timestamp) -> Option<Value> {
        None
    }
    /// Fields of its status besides conditions, and conditions that only this kind has.
    fn further(&self, applied: &Applied) -> (Value, Vec<Finding>);

    /// Whether somebody else admits it to the pods that it forwards to.
    fn is_admitted_by_others(&self) -> bool {
        let mode = self.annotations().get(NETWORK_POLICY);
        mode.is_some_and(|mode| mode == "None")
    }
    /// What is said of it so far.
    fn conditions(&self) -> &[Condition] {
        HasStatus::status(self).map_or(&[], Told::conditions)
    }
    /// What its servers say of themselves.
    fn reports(&self) -> &[ServerReport] {
        HasStatus::status(self).map_or(&[], Told::reports)
    }
    /// Its whole status as it was read.
    fn status_as_read(&self) -> Value {
        HasStatus::status(self).map_or_else(|| json!({}), |status| json!(status))
    }
}

/// What the controller of a server has at hand.
pub(crate) struct ServerContext {
    pub(crate) common: Arc<Context>,
    /// The pods of servers of this kind, with what is read of them.
    pub(crate) pods: Store<Pod>,
    /// The Deployments, Services and volumes of servers of this kind, with what is read of them.
    pub(crate) deployments: Store<Deployment>,
    pub(crate) services: Store<Service>,
    pub(crate) claims: Store<PersistentVolumeClaim>,
    /// RoleBindings that servers of this kind have in other namespaces.
    pub(crate) bindings: Store<PartialObjectMeta<RoleBinding>>,
    /// NetworkPolicies of all namespaces.
    pub(crate) policies: Store<PartialObjectMeta<NetworkPolicy>>,
    /// StorageClasses, where servers of this kind have volumes.
    pub(crate) classes: Store<PartialObjectMeta<StorageClass>>,
}

/// Why a server was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something that it depends on cannot be read.
    #[error("cannot read {what}: {source}")]
    Observe {
        /// What was to be read.
        what: &'static str,
        /// What the API server said.
        source: kube::Error,
    },
    /// Something that it depends on was not listed yet.
    #[error(transparent)]
    Unlisted(#[from] Unlisted),
    /// Something cannot be written.
    #[error(transparent)]
    Apply(#[from] apply::Error),
}

/// Keeps one server running: validate → build → apply → observe → report.
pub(crate) async fn reconcile<S: Server>(server: Arc<S>, ctx: &ServerContext) -> Result<Action, Error> {
    let common = &ctx.common;
    if server.meta().deletion_timestamp.is_some() {
        let_go(common, &*server).await?;
        return Ok(Action::await_change()); // its objects beside it go with it
    }
    if identity::is_paused(server.meta()) {
        report(common, &*server, status::paused(), Value::Null).await?;
        return Ok(Action::await_change());
    }
    let mut mistakes = wants::check_name(server.meta());
    mistakes.extend(check_label(&server.name_any()));
    let wants = server.wants(&common.images, &mut mistakes);
    if !mistakes.is_empty() {
        report(common, &*server, status::rejected(&mistakes), Value::Null).await?;
        return Ok(Action::await_change()); // retrying cannot cure a bad specification
    }
    warn_of_image(common, &*server).await;
    let carried = match carry_out(ctx, &*server, &wants).await {
        Ok(carried) => carried,
        Err(error) => {
            report(common, &*server, status::failed(&error), Value::Null).await?;
            return match &error {
                Error::Apply(refused) if refused.is_invalid() => Ok(Action::await_change()),
                _ => Err(error),
            };
        }
    };
    let applied = match observe(ctx, &*server, &wants, carried).await {
        Ok(applied) => applied,
        Err(Error::Unlisted(slow)) if slow.is_early && !server.conditions().is_empty() => {
            return Err(slow.into()); // what was said before stays
        }
        Err(error) => {
            report(common, &*server, status::failed(&error), Value::Null).await?;
            return Err(error);
        }
    };
    common.writer.forget_reports(&*server, &applied.stale).await?;
    let (fields, further) = server.further(&applied);
    let findings = status::findings(&*server, &applied, further);
    report(common, &*server, findings, fields).await?;
    Ok(Action::await_change())
}

/// The Service of a server has its name: one label, which begins with a letter.
fn check_label(name: &str) -> Option<Mistake> {
    let is_label = name.starts_with(|first: char| first.is_ascii_lowercase()) && !name.contains('.');
    (!is_label).then(|| Mistake {
        path: "metadata.name".into(),
        message: format!(
            "`{name}` cannot be the name of its Service: create it under one that begins with a letter and has no dots"
        ),
    })
}

/// An image that an earlier operator stored is nobody's choice. That is told once a generation.
async fn warn_of_image<S: Server>(ctx: &Context, server: &S) {
    let told = server.status_as_read()["observedGeneration"].as_i64();
    if let Some(image) = server.image().filter(|image| Images::is_stored_default(image))
        && told != server.meta().generation
    {
        let message = format!(
            "the image {image} is the default that an earlier operator stored, and is not used: remove it from the \
             specification, or name another"
        );
        ctx.writer.warn(server, "StoredImageIgnored", &message).await;
    }
}

/// Removes what a server has in other namespaces and lets it go. Nothing is asked of its specification, which may be
/// wrong, nor of those namespaces, which may be gone.
async fn let_go<S: Server>(ctx: &Context, server: &S) -> Result<(), apply::Error> {
    let writer = &ctx.writer;
    writer.clear_elsewhere::<NetworkPolicy>(server, S::ROLE).await?;
    writer.clear_elsewhere::<RoleBinding>(server, S::ROLE).await?;
    writer.hold(server, false).await
}

async fn report<S: Server>(
    ctx: &Context,
    server: &S,
    findings: Vec<Finding>,
    fields: Value,
) -> Result<(), apply::Error> {
    let status = status::status(server, &findings, fields, ctx.now());
    ctx.writer
        .status(server, &server.status_as_read(), &status)
        .await?;
    if let Some(finding) = condition::news(server.conditions(), &findings) {
        ctx.writer.event(server, finding).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_service_can_have_is_a_mistake() {
        assert_eq!(check_label("x-dns"), None);
        for name in ["4u-dns", "a.b"] {
            let mistake = check_label(name).unwrap();
            assert!(mistake.message.contains("its Service"), "{mistake}");
        }
    }
}
