//! Infra → its components and the network that they are attached by.

mod build;
pub(crate) mod cluster_dns;
pub(crate) mod components;
pub mod network;
pub(crate) mod nodes;
mod observe;
mod status;
pub(crate) mod vlans;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use oooi_api::Infra;
use oooi_api::foreign::NetworkAttachmentDefinition;
use oooi_api::infra::InfraAddresses;
use oooi_plan::{Known, Warning};

use crate::apply;
use crate::condition::{self, Finding};
use crate::context::Context;
use crate::control_planes::ControlPlanes;
use crate::first_look::Unlisted;
use crate::hosted_cluster::DERIVED;
use crate::identity::{self, Role};
use crate::manager::key;
use build::{Objects, Router, build, component_name};
use components::{AtHand, Components};
use network::Attached;
use nodes::Nodes;
use observe::{Current, belongs, observe};
pub use observe::{Stores, definition_of};
use status::Part;
pub(crate) use status::is_refused;
pub use vlans::Vlans;

/// The name under which this controller writes.
pub const MANAGER: &str = "oooi-infra";

/// So long after its end a lease is looked at again.
const JUST_AFTER: Duration = Duration::from_secs(1);

/// What watches keep at hand for whoever looks at an Infra.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    pub(crate) stores: &'a Stores,
    pub(crate) components: &'a Components,
    pub(crate) nodes: &'a Nodes,
    pub(crate) planes: &'a ControlPlanes,
}

/// Why an Infra was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its surroundings cannot be read.
    #[error("cannot look at the surroundings of the Infra: {0}")]
    Observe(#[source] kube::Error),
    /// What it depends on was not listed yet.
    #[error(transparent)]
    Unlisted(#[from] Unlisted),
    /// Something cannot be written.
    #[error(transparent)]
    Apply(#[from] apply::Error),
}

/// Keeps one Infra: observe → plan → build → apply → report.
///
/// To be run for one Infra of a VLAN at a time: of two the second must see the addresses that the first chose. Whether
/// the `surroundings` are known was found out before, since they tell whose turn it is.
pub(crate) async fn reconcile(
    infra: Arc<Infra>,
    surroundings: Result<(), Unlisted>,
    around: Around<'_>,
    ctx: &Context,
) -> Result<Action, Error> {
    let Around {
        stores,
        components: at_hand,
        nodes,
        planes,
    } = around;
    if infra.metadata.deletion_timestamp.is_some() {
        cluster_dns::withdraw(ctx, &infra).await?;
        return Ok(Action::await_change()); // its objects go with it
    }
    if identity::is_paused(infra.meta()) {
        report(ctx, &infra, &status::paused(), None).await?;
        return Ok(Action::await_change());
    }
    if let Err(unlisted) = surroundings {
        if unlisted.is_early && status::was_applied(&infra) {
            return Err(unlisted.into());
        }
        return failed(ctx, &infra, unlisted.into(), None).await;
    }
    let seen = match observe(&ctx.client, stores, at_hand, &infra).await {
        Ok(seen) => seen,
        Err(error) => return failed(ctx, &infra, Error::Observe(error), None).await,
    };
    let attached = match &seen.network {
        Ok(attached) => attached,
        Err(problem) => {
            report(ctx, &infra, &status::without_network(problem.finding()), None).await?;
            return Ok(Action::await_change());
        }
    };
    let known = Known {
        attachment: Some(attached.attachment.clone()),
        route_via: attached.route_via,
        neighbours: seen.neighbours,
        control_plane: planes.of(&infra),
        ..seen.components.known(&infra)
    };
    let components = match oooi_plan::plan(&infra, &known) {
        Ok(components) => components,
        Err(mistakes) => {
            report(
                ctx,
                &infra,
                &status::rejected(network::ready(attached), &mistakes),
                None,
            )
            .await?;
            return Ok(Action::await_change()); // retrying cannot cure a bad specification
        }
    };
    let (addresses, warnings) = (components.addresses(), components.warnings.clone());
    let machines = oooi_plan::infra::control_plane_namespace(&infra, &known);
    let seen_nodes = match nodes::wants_apps(&infra) {
        true => nodes.of(&infra, &machines, ctx.now()),
        false => nodes::Seen::default(),
    };
    let objects = build(
        &infra,
        components,
        &machines,
        &attached.state,
        &seen_nodes.addresses,
    );
    let current = match carry_out(ctx, &infra, around, attached, seen.components, objects).await {
        Ok(current) => current,
        Err(error) => return failed(ctx, &infra, error.into(), Some(addresses)).await,
    };
    warn(ctx, &infra, &warnings).await;
    let findings = findings(&infra, attached, &current, &warnings);
    report(ctx, &infra, &findings, Some(addresses)).await?;
    // A lease that nobody renews ends without a word.
    let left = seen_nodes
        .until
        .and_then(|until| Duration::try_from(until.duration_since(ctx.now())).ok());
    Ok(left.map_or_else(Action::await_change, |left| Action::requeue(left + JUST_AFTER)))
}

/// Says what is not known or cannot be written. What runs goes on running.
async fn failed(
    ctx: &Context,
    infra: &Infra,
    error: Error,
    addresses: Option<InfraAddresses>,
) -> Result<Action, Error> {
    // Once may be a connection that broke.
    if matches!(error, Error::Observe(_)) && !ctx.pauses.has_failed(&key(infra)) {
        return Err(error);
    }
    report(ctx, infra, &status::failed(&error), addresses).await?;
    match &error {
        Error::Apply(refused) if refused.is_invalid() => Ok(Action::await_change()),
        _ => Err(error),
    }
}

/// Applies what is wanted and removes the rest. The network comes first: pods are attached by it.
async fn carry_out(
    ctx: &Context,
    infra: &Infra,
    around: Around<'_>,
    attached: &Attached,
    before: Current,
    objects: Objects,
) -> Result<Current, apply::Error> {
    let Objects {
        dhcp,
        dns,
        proxy,
        apps,
    } = objects;
    if let Some(sibling) = &attached.sibling {
        match around.stores.networks.get(&ObjectRef::from_obj(sibling)) {
            Some(known) => ctx.writer.apply_to(Some((*known).clone()), sibling).await?,
            None => ctx.writer.apply(sibling).await?,
        };
    }
    let Components {
        dhcp: dhcp_servers,
        dns: dns_servers,
        proxy: gateways,
    } = around.components;
    let current = Current {
        dhcp: one(ctx, infra, Role::Dhcp, dhcp_servers, before.dhcp, dhcp).await?,
        dns: one(ctx, infra, Role::Dns, dns_servers, before.dns, dns).await?,
        proxy: one(ctx, infra, Role::Proxy, gateways, before.proxy, proxy).await?,
    };
    if attached.sibling.is_none() {
        let (namespace, uid) = place(infra);
        let name = network::sibling_name(infra);
        ctx.writer
            .remove::<NetworkAttachmentDefinition>(&namespace, &name, &uid)
            .await?;
    }
    route_apps(ctx, infra, around.nodes, apps).await?;
    cluster_dns::publish(ctx, infra, current.dns.as_ref()).await?;
    Ok(current)
}

/// Keeps the Service of the hosted cluster's router and the nodes behind it, or removes both.
async fn route_apps(
    ctx: &Context,
    infra: &Infra,
    nodes: &Nodes,
    wanted: Option<Router>,
) -> Result<(), apply::Error> {
    let (namespace, uid) = place(infra);
    let mut surplus = nodes.slices_of(infra);
    match wanted {
        Some(Router { service, slices }) => {
            for slice in &slices {
                ctx.writer.apply(slice).await?;
                surplus.retain(|name| *name != slice.name_any());
            }
            ctx.writer.apply(&service).await?;
        }
        // Slices come first and go last: where there are none there is no Service either.
        None if surplus.is_empty() => {}
        None => {
            let name = oooi_plan::infra::apps_service(&infra.name_any());
            ctx.writer.remove::<Service>(&namespace, &name, &uid).await?;
        }
    }
    for name in surplus {
        ctx.writer
            .remove::<EndpointSlice>(&namespace, &name, &uid)
            .await?;
    }
    Ok(())
}

/// Makes one component as it is wanted, or removes it. One that a person paused is left as it is.
async fn one<K: apply::Object + 'static>(
    ctx: &Context,
    infra: &Infra,
    role: Role,
    at_hand: &AtHand<K>,
    before: Option<K>,
    wanted: Option<K>,
) -> Result<Option<K>, apply::Error> {
    let own = before.as_ref().filter(|before| belongs(*before, infra));
    if own.is_some_and(|own| identity::is_paused(own.meta())) {
        return Ok(before);
    }
    match wanted {
        Some(wanted) => {
            let version = before.as_ref().and_then(ResourceExt::resource_version);
            let now = ctx.writer.apply_to(before, &wanted).await?;
            if now.resource_version() != version {
                at_hand.wrote(&now);
            }
            Ok(Some(now))
        }
        None if own.is_none() => Ok(None),
        None => {
            let (namespace, uid) = place(infra);
            let name = component_name(infra, role);
            ctx.writer.remove::<K>(&namespace, &name, &uid).await?;
            Ok(None)
        }
    }
}

fn place(infra: &Infra) -> (String, String) {
    (
        infra.namespace().unwrap_or_default(),
        infra.uid().unwrap_or_default(),
    )
}

fn findings(infra: &Infra, attached: &Attached, current: &Current, warnings: &[Warning]) -> Vec<Finding> {
    let Current { dhcp, dns, proxy } = current;
    let part = |meta: &kube::api::ObjectMeta, conditions| Part {
        name: meta.name.clone().unwrap_or_default(),
        conditions,
        generation: meta.generation,
    };
    let parts = [
        dhcp.as_ref()
            .map(|s| part(&s.metadata, s.status.as_ref().map_or(&[][..], |s| &s.conditions))),
        dns.as_ref()
            .map(|s| part(&s.metadata, s.status.as_ref().map_or(&[][..], |s| &s.conditions))),
        proxy
            .as_ref()
            .map(|s| part(&s.metadata, s.status.as_ref().map_or(&[][..], |s| &s.conditions))),
    ];
    status::applied(
        network::ready(attached),
        parts,
        warnings,
        infra
            .status
            .as_ref()
            .and_then(|status| condition::find(&status.conditions, DERIVED)),
    )
}

/// Warnings of a plan are told once a generation.
async fn warn(ctx: &Context, infra: &Infra, warnings: &[Warning]) {
    if status::was_applied(infra) {
        return;
    }
    for warning in warnings {
        ctx.writer.warn(infra, warning.reason, &warning.to_string()).await;
    }
}

async fn report(
    ctx: &Context,
    infra: &Infra,
    findings: &[Finding],
    addresses: Option<InfraAddresses>,
) -> Result<(), apply::Error> {
    let before = infra.status.clone().unwrap_or_default();
    let status = status::status(infra, findings, addresses, ctx.now());
    let read = serde_json::to_value(&before).unwrap_or_default();
    ctx.writer.status(infra, &read, &status).await?;
    if let Some(finding) = condition::news(&before.conditions, findings) {
        ctx.writer.event(infra, finding).await;
    }
    Ok(())
}
