//! The controller of one kind of server: what it watches, and what wakes it.

use std::sync::Arc;

use futures_util::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{
    ConfigMap, Namespace, PersistentVolumeClaim, Pod, PodStatus, Service, ServiceAccount, ServiceSpec,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::runtime::controller::Action;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};

use super::grant::elsewhere;
use super::status::{AVAILABLE, NETWORK_STATUS};
use super::{Error, Server, ServerContext, reconcile};
use crate::condition;
use crate::gaps::Gaps;
use crate::identity::{self, OURS, Role};
use crate::manager::{Options, at_hand, failed, key, told, touched};

/// Runs it. It ends only by being dropped.
pub(crate) async fn run<S: Server>(options: &Options) {
    let selector = format!("{OURS},app.kubernetes.io/component={}", S::ROLE.word());
    let gaps = Gaps::default();
    let common = options.context(S::MANAGER);
    let seen = common.writer.seen().clone();
    let ours = || watcher::Config::default().labels(&selector);
    // What a server has in other namespaces may be in any of them.
    let (bindings, fill) = reflector::store();
    let everywhere = Api::<PartialObjectMeta<RoleBinding>>::all(options.client.clone());
    let known = seen.clone();
    let binding_changes = watcher(everywhere, ours())
        .default_backoff()
        .modify(|binding| binding.managed_fields_mut().clear())
        .inspect(move |event| {
            if let Ok(event) = event {
                known.note(event);
            }
        });
    let binding_changes = gaps.touched(binding_changes.reflect(fill));
    let (policies, fill_policies) = reflector::store();
    let (classes, fill_classes) = reflector::store();

    let controller = options.controller::<S>();
    let servers = controller.store();
    let by_namespace = servers.clone();
    let namespaces = Api::<PartialObjectMeta<Namespace>>::all(options.client.clone());
    let namespace_changes = gaps.touched(watcher(namespaces, watcher::Config::default()).default_backoff());
    let (pod_store, fill_pods) = reflector::store();
    let pods = options.watch::<Pod>(ours()).modify(prune_pod);
    let (deployments, deployment_changes) = at_hand(options, &gaps, &seen, &selector, prune_deployment);
    let (services, service_changes) = at_hand(options, &gaps, &seen, &selector, prune_service);
    let (claims, claim_changes) = at_hand(options, &gaps, &seen, &selector, prune_claim);
    let mut controller = controller
        .owns_stream(deployment_changes)
        .owns_stream(service_changes)
        .owns_stream(claim_changes)
        .owns_stream(touched::<ConfigMap>(options, &gaps, &seen, &selector))
        .owns_stream(touched::<ServiceAccount>(options, &gaps, &seen, &selector))
        .owns_stream(touched::<PodDisruptionBudget>(options, &gaps, &seen, &selector))
        .watches_stream(gaps.touched(pods.reflect(fill_pods)), |pod| beside(pod.meta()))
        .watches_stream(binding_changes, |binding| {
            owner(binding.meta()).or_else(|| beside(binding.meta()))
        })
        .watches_stream(namespace_changes, move |namespace| {
            let name = namespace.name_any();
            needing(&by_namespace, |server| {
                elsewhere(server.namespace().as_deref(), &server.grants()).contains(&name)
            })
        });
    if S::ROLE == Role::Dhcp {
        let classes = Api::<PartialObjectMeta<StorageClass>>::all(options.client.clone());
        let classes = watcher(classes, watcher::Config::default())
            .default_backoff()
            .modify(|class| class.managed_fields_mut().clear());
        let class_changes = gaps.touched(classes.reflect(fill_classes));
        let by_class = servers.clone();
        controller = controller.watches_stream(class_changes, move |_| needing(&by_class, may_lack_class));
    }
    if S::ROLE == Role::Proxy {
        let policies = Api::<PartialObjectMeta<NetworkPolicy>>::all(options.client.clone());
        let policies = watcher(policies, watcher::Config::default())
            .default_backoff()
            .modify(|policy| {
                policy.managed_fields_mut().clear();
                policy.annotations_mut().clear();
            });
        let policy_changes = gaps.touched(policies.reflect(fill_policies));
        let services = Api::<PartialObjectMeta<Service>>::all(options.client.clone());
        let service_changes = gaps.touched(watcher(services, watcher::Config::default()).default_backoff());
        let (by_policy, by_service) = (servers.clone(), servers);
        controller = controller
            .watches_stream(policy_changes, move |policy| {
                let (owner, namespace) = (owner(policy.meta()), policy.namespace());
                let beside = needing(&by_policy, |server: &S| {
                    owner.is_none()
                        && server
                            .targets()
                            .iter()
                            .any(|t| Some(&t.namespace) == namespace.as_ref())
                });
                owner.into_iter().chain(beside).collect::<Vec<_>>()
            })
            .watches_stream(service_changes, move |service| {
                let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
                needing(&by_service, |server: &S| {
                    let mut targets = server.targets().into_iter();
                    targets.any(|target| target.namespace == namespace && target.service == name)
                })
            });
    }
    let ctx = Arc::new(ServerContext {
        common,
        pods: pod_store,
        deployments,
        services,
        claims,
        bindings,
        policies,
        classes,
    });
    controller
        .reconcile_all_on(gaps.items())
        .run(reconcile_one::<S>, failed_one, ctx)
        .for_each(told)
        .await;
}

/// The server that an object in another namespace belongs to.
fn owner<S: Server>(metadata: &ObjectMeta) -> Option<ObjectRef<S>> {
    let (namespace, name) = identity::owner_elsewhere(metadata)?;
    Some(ObjectRef::new(name).within(namespace))
}

/// The server that an object in its own namespace belongs to.
fn beside<S: Server>(metadata: &ObjectMeta) -> Option<ObjectRef<S>> {
    let (instance, namespace) = (identity::instance(metadata)?, metadata.namespace.as_deref()?);
    Some(ObjectRef::new(instance).within(namespace))
}

fn prune_deployment(deployment: &mut Deployment) {
    deployment.spec = None;
}

fn prune_service(service: &mut Service) {
    service.status = None;
    service.spec = service.spec.take().map(|spec| ServiceSpec {
        cluster_ip: spec.cluster_ip,
        ..ServiceSpec::default()
    });
}

fn prune_claim(claim: &mut PersistentVolumeClaim) {
    claim.spec = None;
}

/// A pod with what is read of it, and nothing else.
fn prune_pod(pod: &mut Pod) {
    pod.spec = None;
    pod.metadata.owner_references = None;
    pod.annotations_mut().retain(|key, _| key == NETWORK_STATUS);
    if let Some(status) = &mut pod.status {
        *status = PodStatus {
            conditions: status.conditions.take(),
            container_statuses: status.container_statuses.take(),
            ..PodStatus::default()
        };
    }
}

/// Whether the volume of a server may not come for want of a StorageClass. Also of one that was not looked at yet: it may
/// be looked at just now, with the classes that there were.
fn may_lack_class<S: Server>(server: &S) -> bool {
    let available = condition::find(server.conditions(), AVAILABLE);
    available.is_none_or(|available| available.status != "True")
}

/// The servers that something matters to.
fn needing<S: Server>(servers: &Store<S>, matters: impl Fn(&S) -> bool) -> Vec<ObjectRef<S>> {
    servers
        .state()
        .iter()
        .filter(|server| matters(server))
        .map(|server| ObjectRef::from_obj(&**server))
        .collect()
}

async fn reconcile_one<S: Server>(server: Arc<S>, ctx: Arc<ServerContext>) -> Result<Action, Error> {
    let key = key(&*server);
    ctx.common.counted(&key, reconcile(server, &ctx)).await
}

#[allow(clippy::needless_pass_by_value, reason = "the signature of an error policy")]
fn failed_one<S: Server>(server: Arc<S>, error: &Error, ctx: Arc<ServerContext>) -> Action {
    failed(&*server, error, &ctx.common)
}
