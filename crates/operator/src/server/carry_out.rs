//! Makes everything that runs a server, and removes what it has no more use for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use super::build::{LEASES, Objects, build};
use super::grant::elsewhere;
use super::roll_out::roll_out;
use super::takeover::take_over;
use super::{Error, Server, ServerContext, Target, Wants, admit};
use crate::apply;

/// What came of it.
pub(super) struct Carried {
    /// The Deployments, one a replica.
    pub(super) deployments: Vec<Deployment>,
    /// The volume of its leases.
    pub(super) claim: Option<PersistentVolumeClaim>,
    /// Its Service.
    pub(super) service: Service,
    /// Namespaces that the server needs something in and that are not there.
    pub(super) missing: BTreeSet<String>,
}

/// Applies every object, what pods need before the pods, and removes what is no more wanted.
pub(super) async fn carry_out<S: Server>(
    ctx: &ServerContext,
    server: &S,
    wants: &Wants,
) -> Result<Carried, Error> {
    let writer = &ctx.common.writer;
    let Objects {
        service_account,
        role_binding,
        grants,
        config_map,
        claim,
        deployments,
        service,
        disruption_budget,
    } = build(server, wants, ctx.common.platform, &ctx.common.pods);
    let foreign = elsewhere(server.namespace().as_deref(), &server.grants());
    if !foreign.is_empty() {
        writer.hold(server, true).await?; // before there is anything to be removed
    }
    writer.keep(&service_account).await?;
    writer.keep(&role_binding).await?;
    let missing = self::grants(ctx, server, &grants).await?;
    let bindings = grants.iter().chain([&role_binding]).map(ResourceExt::name_any);
    writer
        .prune::<RoleBinding>(server, &bindings.collect::<Vec<_>>())
        .await?;
    admit(ctx, server, &foreign, &missing).await?;
    if foreign.is_empty() {
        writer.hold(server, false).await?;
    }
    writer.keep(&config_map).await?;
    let claim = match &claim {
        Some(claim) => Some(writer.keep_at_hand(&ctx.claims, claim, |_| false).await?),
        None => None,
    };
    let service = writer.keep_at_hand(&ctx.services, &service, |_| false).await?;
    match &disruption_budget {
        Some(budget) => writer.keep(budget).await?,
        None => writer.prune::<PodDisruptionBudget>(server, &[]).await?,
    }
    // Leases that are to be kept elsewhere do not come along: clients keep what they have as after a takeover.
    let grace = server.on_takeover(ctx.common.now());
    let forgets = AtomicBool::new(false);
    let applied = roll_out(writer, &ctx.deployments, &deployments, |before, after| {
        let forgets_now = grace.is_some() && keeps_leases(before) != keeps_leases(after);
        forgets.fetch_or(forgets_now, Ordering::Relaxed);
        forgets_now
    })
    .await;
    if let Some(fields) = grace.filter(|_| forgets.into_inner()) {
        writer.set_fields(server, fields).await?; // which brings the next look
    }
    if matches!(&applied, Err(apply::Error::Replacing { .. })) {
        take_over(ctx, server, &deployments).await?;
    }
    let applied = applied?;
    let keep: Vec<String> = deployments
        .iter()
        .filter_map(|d| d.metadata.name.clone())
        .collect();
    writer.prune::<Deployment>(server, &keep).await?;
    Ok(Carried {
        deployments: applied,
        claim,
        service,
        missing,
    })
}

/// Whether pods have a volume for leases.
fn keeps_leases(deployment: &Deployment) -> bool {
    let pod = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref());
    let volumes = pod.and_then(|pod| pod.volumes.as_deref()).unwrap_or_default();
    volumes.iter().any(|volume| volume.name == LEASES)
}

/// Lets the pods read what they need, wherever it is. A namespace that is missing holds up nothing: it is named.
async fn grants<S: Server>(
    ctx: &ServerContext,
    server: &S,
    wanted: &[RoleBinding],
) -> Result<BTreeSet<String>, Error> {
    let mut missing = BTreeSet::new();
    for binding in wanted {
        match ctx.common.writer.keep(binding).await {
            Err(error) if error.is_namespace_missing() => {
                missing.extend(binding.namespace());
            }
            other => other?,
        }
    }
    let known = ctx.bindings.state();
    ctx.common
        .writer
        .prune_elsewhere(server, S::ROLE, &known, &places(wanted))
        .await?;
    Ok(missing)
}

/// Admits a gateway to the pods that it forwards to.
async fn admit<S: Server>(
    ctx: &ServerContext,
    server: &S,
    foreign: &BTreeSet<String>,
    missing: &BTreeSet<String>,
) -> Result<(), Error> {
    let by_others = server.is_admitted_by_others();
    let mut by_namespace: BTreeMap<String, Vec<Target>> = BTreeMap::new();
    for target in server.targets().into_iter().filter(|_| !by_others) {
        if foreign.contains(&target.namespace) && !missing.contains(&target.namespace) {
            by_namespace
                .entry(target.namespace.clone())
                .or_default()
                .push(target);
        }
    }
    let mut wanted = Vec::new();
    for (namespace, targets) in &by_namespace {
        let (services, existing) = surroundings(&ctx.common.client, namespace, targets)
            .await
            .map_err(|source| Error::Observe {
                what: "the Services and NetworkPolicies of the backends",
                source,
            })?;
        wanted.extend(admit::policies(server, targets, &services, &existing));
    }
    for policy in &wanted {
        ctx.common.writer.apply(policy).await?;
    }
    let known = ctx.policies.state();
    let keep = places(&wanted);
    ctx.common
        .writer
        .prune_elsewhere::<NetworkPolicy>(server, S::ROLE, &known, &keep)
        .await?;
    Ok(())
}

/// The Services that are forwarded to, and all policies beside them.
async fn surroundings(
    client: &Client,
    namespace: &str,
    targets: &[Target],
) -> Result<(Vec<Service>, Vec<NetworkPolicy>), kube::Error> {
    let names: BTreeSet<&str> = targets.iter().map(|target| target.service.as_str()).collect();
    let api = Api::<Service>::namespaced(client.clone(), namespace);
    let mut services = Vec::new();
    for name in names {
        services.extend(api.get_opt(name).await?);
    }
    let policies = Api::<NetworkPolicy>::namespaced(client.clone(), namespace);
    Ok((services, policies.list(&ListParams::default()).await?.items))
}

/// The namespaces and names of objects.
fn places<K: ResourceExt>(objects: &[K]) -> Vec<(String, String)> {
    let place = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
    objects.iter().map(place).collect()
}
