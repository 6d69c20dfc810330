//! Infra → its components and the network that they are attached by.

mod build;
pub(crate) mod cluster_dns;
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
use crate::hosted_cluster::DERIVED;
use crate::identity::{self, Role};
use build::{Objects, Router, build, component_name};
use network::Attached;
use nodes::Nodes;
use observe::{Current, observe};
pub use observe::{Stores, definition_of};
use status::Part;
pub use vlans::Vlans;

/// The name under which this controller writes.
pub const MANAGER: &str = "oooi-infra";

/// So long after its end a lease is looked at again.
const JUST_AFTER: Duration = Duration::from_secs(1);

/// Why an Infra was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its surroundings cannot be read.
    #[error("cannot look at the surroundings of the Infra: {0}")]
    Observe(#[source] kube::Error),
    /// The nodes of its cluster are not known yet.
    #[error(
        "the nodes of the hosted cluster are not known: the manager cannot list DHCPLeases, EndpointSlices or \
         VirtualMachineInstances; see whether it may, and whether their API answers"
    )]
    NodesUnknown,
    /// Something cannot be written.
    #[error(transparent)]
    Apply(#[from] apply::Error),
}

/// Keeps one Infra: observe → plan → build → apply → report.
///
/// To be run for one Infra of a VLAN at a time: of two the second must see the addresses that the first chose.
pub(crate) async fn reconcile(
    infra: Arc<Infra>,
    stores: &Stores,
    nodes: &Nodes,
    planes: &ControlPlanes,
    ctx: &Context,
) -> Result<Action, Error> {
    if infra.metadata.deletion_timestamp.is_some() {
        cluster_dns::withdraw(ctx, &infra).await?;
        return Ok(Action::await_change()); // its objects go with it
    }
    if identity::is_paused(infra.meta()) {
        report(ctx, &infra, &status::paused(), None).await?;
        return Ok(Action::await_change());
    }
    let seen = observe(&ctx.client, stores, &infra)
        .await
        .map_err(Error::Observe)?;
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
        ..seen.components.known()
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
    let seen_nodes = if !nodes::wants_apps(&infra) {
        nodes::Seen::default()
    } else if nodes.are_known().await {
        nodes.of(&infra, &machines, ctx.now())
    } else {
        let error = Error::NodesUnknown;
        report(ctx, &infra, &status::failed(&error), Some(addresses)).await?;
        return Err(error);
    };
    let objects = build(&infra, components, &machines, &seen_nodes.addresses);
    let current = match carry_out(ctx, &infra, stores, attached, seen.components, nodes, objects).await {
        Ok(current) => current,
        Err(error) => {
            let error = Error::from(error);
            report(ctx, &infra, &status::failed(&error), Some(addresses)).await?;
            return Err(error);
        }
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

/// Applies what is wanted and removes the rest. The network comes first: pods are attached by it.
async fn carry_out(
    ctx: &Context,
    infra: &Infra,
    stores: &Stores,
    attached: &Attached,
    before: Current,
    nodes: &Nodes,
    objects: Objects,
) -> Result<Current, apply::Error> {
    let Objects {
        dhcp,
        dns,
        proxy,
        apps,
    } = objects;
    if let Some(sibling) = &attached.sibling {
        let known = stores.networks.get(&ObjectRef::from_obj(sibling));
        let known = known.map(|known| NetworkAttachmentDefinition::clone(&known));
        ctx.writer.apply_to(known, sibling).await?;
    }
    let current = Current {
        dhcp: one(ctx, infra, Role::Dhcp, before.dhcp, dhcp).await?,
        dns: one(ctx, infra, Role::Dns, before.dns, dns).await?,
        proxy: one(ctx, infra, Role::Proxy, before.proxy, proxy).await?,
    };
    if attached.sibling.is_none() {
        let (namespace, uid) = place(infra);
        let name = network::sibling_name(infra);
        ctx.writer
            .remove::<NetworkAttachmentDefinition>(&namespace, &name, &uid)
            .await?;
    }
    route_apps(ctx, infra, nodes, apps).await?;
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
async fn one<K: apply::Object>(
    ctx: &Context,
    infra: &Infra,
    role: Role,
    before: Option<K>,
    wanted: Option<K>,
) -> Result<Option<K>, apply::Error> {
    if before
        .as_ref()
        .is_some_and(|before| identity::is_paused(before.meta()))
    {
        return Ok(before);
    }
    match wanted {
        Some(wanted) => ctx.writer.apply_to(before, &wanted).await.map(Some),
        None if before.is_none() => Ok(None),
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
