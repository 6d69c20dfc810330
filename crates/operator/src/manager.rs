//! All controllers in one process: what they watch, and what wakes them.
//!
//! Everything that a controller reads it also watches, so that nothing is polled. Objects that are only waited for
//! are watched by their metadata alone.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt, future};
use k8s_openapi::NamespaceResourceScope;
use kube::core::PartialObjectMeta;
use kube::runtime::controller::{Action, Config as ControllerConfig};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{Controller, WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use oooi_api::foreign::NetworkAttachmentDefinition;
use oooi_api::{DhcpServer, DnsServer, Infra, ProxyServer};
use tokio::sync::watch;

use crate::apply::{Object, Writer};
use crate::context::{Context, Images, Pauses};
use crate::hosted_cluster;
use crate::identity::{self, OURS};
use crate::infra::{self, Stores, definition_of};
use crate::presence::Presence;
use crate::server;

/// How long the first look at networks may take. Where Multus is not installed there is nothing to look at.
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
    /// The only namespace that is looked after; all of them if there is none.
    pub namespace: Option<String>,
    /// The images of servers.
    pub images: Images,
    /// How long others may take to give the API server's Service an address before the gateway's is written there.
    pub load_balancer_wait: Duration,
    /// Whether this process leads. Once it does not, nothing is written any more.
    pub leading: watch::Receiver<bool>,
}

impl Options {
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    pub(crate) fn context(&self, manager: &'static str) -> Arc<Context> {
        Arc::new(Context {
            client: self.client.clone(),
            writer: Writer::new(self.client.clone(), manager, self.leading.clone()),
            images: self.images.clone(),
            pauses: Pauses::default(),
        })
    }
}

/// Runs all controllers. It ends only by being dropped.
pub async fn run(options: &Options) {
    let (presence, follow) = Presence::of(options.client.clone());
    tokio::join!(
        follow,
        hosted_cluster::run(options, &presence),
        infras(options),
        server::watch::run::<DhcpServer>(options),
        server::watch::run::<DnsServer>(options),
        server::watch::run::<ProxyServer>(options),
    );
}

struct InfraContext {
    common: Arc<Context>,
    stores: Stores,
}

/// The controller of Infras.
async fn infras(options: &Options) {
    let (networks, filled) = reflector::store();
    // Definitions may be in any namespace, whichever the Infras are in.
    let definitions = Api::<NetworkAttachmentDefinition>::all(options.client.clone());
    let network_changes = watcher(definitions, watcher::Config::default())
        .default_backoff()
        .reflect(filled)
        .touched_objects();
    // One at a time: of two Infras on one VLAN the second must see what the first chose.
    let config = ControllerConfig::default().concurrency(1);
    let controller = Controller::new(options.api::<Infra>(), watcher::Config::default()).with_config(config);
    let stores = Stores {
        infras: controller.store(),
        networks,
    };
    let ctx = Arc::new(InfraContext {
        common: options.context(infra::MANAGER),
        stores: stores.clone(),
    });
    let (by_network, by_neighbour) = (stores.clone(), stores);
    controller
        .owns_stream(touched::<DhcpServer>(options, OURS))
        .owns_stream(touched::<DnsServer>(options, OURS))
        .owns_stream(touched::<ProxyServer>(options, OURS))
        .watches_stream(network_changes, move |definition| {
            users(&by_network.infras, &definition)
        })
        .watches(
            options.api::<Infra>(),
            watcher::Config::default(),
            move |changed| neighbours(&by_neighbour, &changed),
        )
        .run(reconcile_infra, infra_failed, ctx)
        .for_each(|_| future::ready(()))
        .await;
}

async fn reconcile_infra(infra: Arc<Infra>, ctx: Arc<InfraContext>) -> Result<Action, infra::Error> {
    // Nothing is known of networks before they were listed once.
    let _ = tokio::time::timeout(FIRST_LOOK, ctx.stores.networks.wait_until_ready()).await;
    let key = key(&*infra);
    let action = infra::reconcile(infra, &ctx.stores, &ctx.common).await?;
    ctx.common.pauses.succeeded(&key);
    Ok(action)
}

#[allow(clippy::needless_pass_by_value, reason = "the signature of an error policy")]
fn infra_failed(infra: Arc<Infra>, error: &infra::Error, ctx: Arc<InfraContext>) -> Action {
    failed(&*infra, error, &ctx.common)
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
    watcher(options.api::<PartialObjectMeta<K>>(), config)
        .default_backoff()
        .touched_objects()
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
