//! All controllers in one process: what they watch, and what wakes them.
//!
//! Everything that a controller reads it also watches, so that nothing is polled. Objects that are only waited for
//! are watched by their metadata alone.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt, future, stream};
use k8s_openapi::NamespaceResourceScope;
use kube::core::PartialObjectMeta;
use kube::runtime::controller::{Action, Config as ControllerConfig};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use oooi_api::foreign::{DNS, NetworkAttachmentDefinition};
use oooi_api::{DhcpServer, DnsServer, Infra, ProxyServer};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::apply::{Object, Writer};
use crate::context::{Context, Images, Pauses, Platform};
use crate::control_planes::ControlPlanes;
use crate::controllers::Controller;
use crate::egress_ipam;
use crate::hosted_cluster;
use crate::identity::{self, OURS};
use crate::infra::{self, Stores, definition_of};
use crate::metrics::Metrics;
use crate::presence::Presence;
use crate::server;

/// How long the first look at networks may take.
const FIRST_LOOK: Duration = Duration::from_secs(5);

/// The cluster that this process runs in, else the one of the user's kubeconfig.
pub async fn connect() -> Result<Client, kube::Error> {
    Client::try_default().await
}

/// What a manager is run with.
#[derive(Clone)]
pub struct Options {
    /// The cluster.
    pub client: Client,
    /// The namespaces that are looked after; all of them if there is none.
    pub namespaces: Vec<String>,
    /// The controllers that run.
    pub controllers: Vec<Controller>,
    /// The images of servers.
    pub images: Images,
    /// What the cluster is.
    pub platform: Platform,
    /// How long others may take to give the API server's Service an address before the gateway's is written there.
    pub load_balancer_wait: Duration,
    /// Which network carries egress addresses; found out if there is none.
    pub egress_network: Option<egress_ipam::Network>,
    /// How clouds are asked for egress addresses.
    pub cloud: egress_ipam::CloudAccess,
    /// Where reconciliations are counted.
    pub metrics: Metrics,
    /// Whether this process leads. Once it does not, nothing is written any more.
    pub leading: watch::Receiver<bool>,
}

impl Options {
    /// What is looked after of a kind. Several namespaces are a part of all of them: see [`Options::watch`].
    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match &*self.namespaces {
            [namespace] => Api::namespaced(self.client.clone(), namespace),
            _ => Api::all(self.client.clone()),
        }
    }

    /// Watches what is looked after of a kind. What the API server notes about the writers of fields is dropped:
    /// nobody reads it here, and it is a large part of small objects.
    pub(crate) fn watch<K>(
        &self,
        config: watcher::Config,
    ) -> impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let namespaces = self.namespaces.clone();
        let looked_after = move |object: &K| match &object.meta().namespace {
            Some(namespace) => namespaces.len() < 2 || namespaces.contains(namespace),
            None => true,
        };
        watcher(self.api::<K>(), config)
            .default_backoff()
            .modify(|object| object.managed_fields_mut().clear())
            .filter(move |event| {
                future::ready(match event {
                    Ok(Event::Apply(object) | Event::InitApply(object) | Event::Delete(object)) => {
                        looked_after(object)
                    }
                    Ok(Event::Init | Event::InitDone) | Err(_) => true,
                })
            })
    }

    /// A controller of a kind.
    pub(crate) fn controller<K>(&self) -> kube::runtime::Controller<K>
    where
        K: Object + Send + Sync + 'static,
    {
        let (store, writer) = reflector::store();
        let changes = self
            .watch(watcher::Config::default())
            .reflect(writer)
            .applied_objects();
        kube::runtime::Controller::for_stream(changes, store)
    }

    async fn if_chosen(&self, controller: Controller, work: impl Future<Output = ()>) {
        if self.controllers.contains(&controller) {
            work.await;
        }
    }

    pub(crate) fn context(&self, manager: &'static str) -> Arc<Context> {
        Arc::new(Context {
            client: self.client.clone(),
            writer: Writer::new(self.client.clone(), manager, self.leading.clone()),
            images: self.images.clone(),
            platform: self.platform,
            pauses: Pauses::default(),
            controller: manager,
            metrics: self.metrics.clone(),
        })
    }
}

/// Runs all controllers. It ends only by being dropped.
pub async fn run(options: &Options) {
    let (presence, follow) = Presence::of(options.client.clone());
    let planes = ControlPlanes::default();
    tokio::join!(
        follow,
        options.if_chosen(
            Controller::HostedCluster,
            hosted_cluster::run(options, &presence, &planes)
        ),
        options.if_chosen(Controller::Infra, infras(options, &presence, &planes)),
        options.if_chosen(Controller::DhcpServer, server::watch::run::<DhcpServer>(options)),
        options.if_chosen(Controller::DnsServer, server::watch::run::<DnsServer>(options)),
        options.if_chosen(
            Controller::ProxyServer,
            server::watch::run::<ProxyServer>(options)
        ),
        options.if_chosen(Controller::EgressIpam, egress(options, &presence)),
    );
}

/// The controller of EgressIPAMs. They are of the whole cluster: a manager of some namespaces leaves them alone.
async fn egress(options: &Options, presence: &Presence) {
    if !options.namespaces.is_empty() {
        return;
    }
    let options = egress_ipam::Options {
        client: options.client.clone(),
        leading: options.leading.clone(),
        presence: presence.clone(),
        network: options.egress_network,
        cloud: options.cloud.clone(),
        metrics: options.metrics.clone(),
    };
    egress_ipam::run(&options).await;
}

struct InfraContext {
    common: Arc<Context>,
    stores: Stores,
    planes: ControlPlanes,
    presence: Presence,
}

/// The controller of Infras.
async fn infras(options: &Options, presence: &Presence, planes: &ControlPlanes) {
    let (networks, filled) = reflector::store();
    // Definitions may be in any namespace, whichever the Infras are in.
    let client = options.client.clone();
    let definitions = presence.while_served::<NetworkAttachmentDefinition, _>(move || {
        watcher(Api::all(client.clone()), watcher::Config::default())
    });
    let network_changes = definitions
        .default_backoff()
        .modify(|definition: &mut NetworkAttachmentDefinition| definition.managed_fields_mut().clear())
        .reflect(filled)
        .touched_objects();
    // One at a time: of two Infras on one VLAN the second must see what the first chose.
    let config = ControllerConfig::default().concurrency(1);
    let controller = options.controller::<Infra>().with_config(config);
    let stores = Stores {
        infras: controller.store(),
        networks,
    };
    let ctx = Arc::new(InfraContext {
        common: options.context(infra::MANAGER),
        stores: stores.clone(),
        planes: planes.clone(),
        presence: presence.clone(),
    });
    let client = options.client.clone();
    let resolvers = presence.while_served::<DNS, _>(move || {
        let named = watcher::Config::default().fields("metadata.name=default");
        watcher(Api::<PartialObjectMeta<DNS>>::all(client.clone()), named)
    });
    let (by_resolver, by_plane) = (stores.infras.clone(), stores.infras.clone());
    let referring = planes.changes().flat_map(move |()| {
        let refers = |infra: &Infra| infra.spec.hosted_cluster_ref.is_some();
        stream::iter(chosen(&by_plane, refers))
    });
    let (by_network, by_neighbour) = (stores.clone(), stores);
    controller
        .owns_stream(touched::<DhcpServer>(options, OURS))
        .owns_stream(touched::<DnsServer>(options, OURS))
        .owns_stream(touched::<ProxyServer>(options, OURS))
        .watches_stream(network_changes, move |definition| {
            users(&by_network.infras, &definition)
        })
        .watches_stream(
            options
                .watch::<Infra>(watcher::Config::default())
                .touched_objects(),
            move |changed| neighbours(&by_neighbour, &changed),
        )
        .watches_stream(resolvers.default_backoff().touched_objects(), move |_| {
            chosen(&by_resolver, infra::cluster_dns::is_wanted)
        })
        .reconcile_on(referring)
        .run(reconcile_infra, infra_failed, ctx)
        .for_each(|_| future::ready(()))
        .await;
}

async fn reconcile_infra(infra: Arc<Infra>, ctx: Arc<InfraContext>) -> Result<Action, infra::Error> {
    // Nothing is known of networks before they were listed once.
    if ctx.presence.has::<NetworkAttachmentDefinition>() {
        let _ = tokio::time::timeout(FIRST_LOOK, ctx.stores.networks.wait_until_ready()).await;
    }
    let key = key(&*infra);
    let look = infra::reconcile(infra, &ctx.stores, &ctx.planes, &ctx.common);
    ctx.common.counted(&key, look).await
}

#[allow(clippy::needless_pass_by_value, reason = "the signature of an error policy")]
fn infra_failed(infra: Arc<Infra>, error: &infra::Error, ctx: Arc<InfraContext>) -> Action {
    failed(&*infra, error, &ctx.common)
}

/// The Infras of which something holds.
fn chosen(infras: &Store<Infra>, holds: impl Fn(&Infra) -> bool) -> Vec<ObjectRef<Infra>> {
    let infras = infras.state_filter(holds);
    infras.iter().map(|infra| ObjectRef::from_obj(&**infra)).collect()
}

/// The Infras that a definition matters to: the one that owns it, and those that name it.
fn users(infras: &Store<Infra>, definition: &NetworkAttachmentDefinition) -> Vec<ObjectRef<Infra>> {
    let owner = identity::controller(definition.meta()).map(|owner| owner.uid.clone());
    let name = definition.name_any();
    infras
        .state()
        .iter()
        .filter(|infra| {
            infra.spec.network_config.network_attachment_definition == name
                || owner.is_some() && infra.uid() == owner
        })
        .map(|infra| ObjectRef::from_obj(&**infra))
        .collect()
}

/// The Infras that name the same definition or are on the same VLAN by another one.
fn neighbours(stores: &Stores, changed: &Infra) -> Vec<ObjectRef<Infra>> {
    let vlan = |infra: &Infra| {
        let definition = definition_of(&stores.networks, infra)?;
        let network = oooi_plan::network::Network::read(definition.spec.config.as_deref()).ok()?;
        Some(network.vlan)
    };
    let Some(own) = vlan(changed) else {
        return Vec::new();
    };
    let others = stores.infras.state();
    let others = others.iter().filter(|other| other.uid() != changed.uid());
    others
        .filter(|other| vlan(other).as_ref() == Some(&own))
        .map(|other| ObjectRef::from_obj(&**other))
        .collect()
}

/// Changes of objects by their metadata, deletions included.
pub(crate) fn touched<K>(
    options: &Options,
    selector: &str,
) -> impl Stream<Item = Result<PartialObjectMeta<K>, watcher::Error>> + Send + 'static
where
    K: Object + Send + 'static,
{
    let config = watcher::Config::default().labels(selector);
    options.watch::<PartialObjectMeta<K>>(config).touched_objects()
}

pub(crate) fn key<K: Object>(object: &K) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// What failed is tried again, each time later.
pub(crate) fn failed<K: Object>(object: &K, error: &impl Debug, ctx: &Context) -> Action {
    let key = key(object);
    let pause = ctx.pauses.failed(&key);
    tracing::warn!(kind = %K::kind(&()), object = key, ?error, ?pause, "failed, will be tried again");
    Action::requeue(pause)
}
