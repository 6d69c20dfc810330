//! All controllers in one process: what they watch, and what wakes them.
//!
//! Everything that a controller reads it also watches, so that nothing is polled. Objects that are only waited for
//! are watched by their metadata alone.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt, future, stream};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Service;
use kube::core::PartialObjectMeta;
use kube::runtime::controller::{self, Action, Config as ControllerConfig};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use oooi_api::foreign::{DNS, NetworkAttachmentDefinition};
use oooi_api::{DhcpServer, DnsServer, Infra, ProxyServer};
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedMutexGuard, watch};

use crate::apply::{Object, Writer};
use crate::context::{Context, Images, Pauses, Platform, Pods};
use crate::control_planes::ControlPlanes;
use crate::controllers::Controller;
use crate::egress_ipam;
use crate::first_look::{FirstLook, Unlisted};
use crate::gaps::Gaps;
use crate::hosted_cluster;
use crate::identity::{self, OURS};
use crate::infra::components::{AtHand, Components};
use crate::infra::nodes::{self, Nodes};
use crate::infra::vlans::Turns;
use crate::infra::{self, Around, Stores, Vlans};
use crate::lease::Term;
use crate::metrics::Metrics;
use crate::namespaces::{self, Watch};
use crate::presence::Presence;
use crate::seen::Seen;
use crate::server;

/// So many objects of a kind are looked at at once. Each has a connection; the API server does not get faster by more.
const AT_ONCE: u16 = 8;

/// Changes come in swarms: an object is looked at when nothing more came for so long.
const SWARM: Duration = Duration::from_millis(200);

/// After so long without a byte a connection is given up: the API server ends every watch a little earlier. Without that
/// a watch whose packets get lost would wait for ever.
const SILENCE: Duration = Duration::from_secs(295);

/// The cluster that this process runs in, else the one of the user's kubeconfig.
pub async fn connect() -> Result<Client, kube::Error> {
    let mut config = kube::Config::infer().await.map_err(kube::Error::InferConfig)?;
    config.read_timeout.get_or_insert(SILENCE);
    Client::try_from(config)
}

/// What a manager is run with.
#[derive(Clone)]
pub struct Options {
    /// The cluster.
    pub client: Client,
    /// The namespaces that are looked after; all of them if there is none. Control planes, machines and networks are in
    /// other namespaces, which come and go, and so are neighbours on a VLAN: what is there is watched everywhere.
    pub namespaces: Vec<String>,
    /// The controllers that run.
    pub controllers: Vec<Controller>,
    /// The images of servers.
    pub images: Images,
    /// What the cluster is.
    pub platform: Platform,
    /// What the pods of all servers get.
    pub pods: Pods,
    /// How long others may take to give the API server's Service an address before the gateway's is written there.
    pub load_balancer_wait: Duration,
    /// Which network carries egress addresses; found out if there is none.
    pub egress_network: Option<egress_ipam::Network>,
    /// How clouds are asked for egress addresses.
    pub cloud: egress_ipam::CloudAccess,
    /// Where reconciliations are counted.
    pub metrics: Metrics,
    /// Whether this process leads. Once it does not, nothing is written any more.
    pub leading: watch::Receiver<Term>,
}

impl Options {
    /// Watches what is looked after of a kind. What the API server notes about the writers of fields is dropped:
    /// nobody reads it here, and it is a large part of small objects.
    pub(crate) fn watch<K>(&self, config: watcher::Config) -> Watch<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let one = |api: Api<K>| -> Watch<K> {
            watcher(api, config.clone())
                .default_backoff()
                .modify(|object| object.managed_fields_mut().clear())
                .boxed()
        };
        let namespaced = |namespace: &String| one(Api::namespaced(self.client.clone(), namespace));
        match &*self.namespaces {
            [] => one(Api::all(self.client.clone())),
            [namespace] => namespaced(namespace),
            several => namespaces::join(several.iter().map(namespaced).collect()).boxed(),
        }
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
        let config = ControllerConfig::default().concurrency(AT_ONCE).debounce(SWARM);
        kube::runtime::Controller::for_stream(changes, store).with_config(config)
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
            pods: self.pods.clone(),
            first_look: FirstLook::default(),
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
    turns: Turns,
    stores: Stores,
    components: Components,
    nodes: Nodes,
    planes: ControlPlanes,
    presence: Presence,
}

/// The controller of Infras.
async fn infras(options: &Options, presence: &Presence, planes: &ControlPlanes) {
    let gaps = Gaps::default();
    let (networks, filled) = reflector::store();
    // Definitions may be in any namespace, whichever the Infras are in.
    let client = options.client.clone();
    let definitions = presence.while_served::<NetworkAttachmentDefinition, _>(move || {
        watcher(Api::all(client.clone()), watcher::Config::default())
    });
    let definitions = definitions
        .default_backoff()
        .modify(|definition: &mut NetworkAttachmentDefinition| definition.managed_fields_mut().clear())
        .reflect(filled);
    // Another manager may look after an Infra on the same VLAN.
    let (everywhere, filled_everywhere) = reflector::store();
    let all = watcher(
        Api::<Infra>::all(options.client.clone()),
        watcher::Config::default(),
    );
    let all = all
        .default_backoff()
        .modify(|infra| infra.managed_fields_mut().clear())
        .reflect(filled_everywhere);
    let controller = options.controller::<Infra>();
    let stores = Stores {
        infras: controller.store(),
        everywhere,
        networks,
        vlans: Vlans::default(),
    };
    let (nodes, changes) = Nodes::follow(options, presence, &gaps);
    let common = options.context(infra::MANAGER);
    let seen = common.writer.seen().clone();
    // What servers say of themselves is read from their own resource.
    let (dhcp, dhcp_changes) = at_hand(options, &gaps, &seen, OURS, |server: &mut DhcpServer| {
        server.status.iter_mut().for_each(|status| status.servers.clear());
    });
    let (dns, dns_changes) = at_hand(options, &gaps, &seen, OURS, |server: &mut DnsServer| {
        server.status.iter_mut().for_each(|status| status.servers.clear());
    });
    let (proxy, proxy_changes) = at_hand(options, &gaps, &seen, OURS, |server: &mut ProxyServer| {
        server.status.iter_mut().for_each(|status| status.servers.clear());
    });
    let components = Components {
        dhcp: AtHand::new(dhcp),
        dns: AtHand::new(dns),
        proxy: AtHand::new(proxy),
    };
    let ctx = Arc::new(InfraContext {
        common,
        components,
        turns: Turns::default(),
        stores: stores.clone(),
        nodes,
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
    let (by_machine, by_lease, machine_planes) =
        (stores.infras.clone(), stores.infras.clone(), planes.clone());
    let (by_network, by_neighbour) = (stores.clone(), stores);
    controller
        .owns_stream(touched::<Service>(options, &gaps, &seen, nodes::BESIDE))
        .owns_stream(changes.slices)
        .watches_stream(changes.machines, move |machine| {
            nodes::of_machine(&by_machine, &machine_planes, &machine)
        })
        .watches_stream(changes.leases, move |lease| nodes::of_lease(&by_lease, &lease))
        .owns_stream(dhcp_changes)
        .owns_stream(dns_changes)
        .owns_stream(proxy_changes)
        .watches_stream(gaps.touched(definitions), move |definition| {
            users(&by_network.infras, &definition)
        })
        .watches_stream(gaps.touched(all), move |changed| {
            neighbours(&by_neighbour, &changed)
        })
        .watches_stream(gaps.touched(resolvers.default_backoff()), move |_| {
            chosen(&by_resolver, infra::cluster_dns::is_wanted)
        })
        .reconcile_on(referring)
        .reconcile_all_on(gaps.items())
        .run(reconcile_infra, infra_failed, ctx)
        .for_each(told)
        .await;
}

async fn reconcile_infra(infra: Arc<Infra>, ctx: Arc<InfraContext>) -> Result<Action, infra::Error> {
    let surroundings = known_surroundings(&ctx, &infra).await;
    // Who only has to say what is not known holds up nobody on its VLAN.
    let _turn = match surroundings {
        Ok(()) => turn(&ctx, &infra).await,
        Err(_) => None,
    };
    let key = key(&*infra);
    let look = infra::reconcile(
        infra,
        surroundings,
        Around {
            stores: &ctx.stores,
            components: &ctx.components,
            nodes: &ctx.nodes,
            planes: &ctx.planes,
        },
        &ctx.common,
    );
    ctx.common.counted(&key, look).await
}

/// Nothing is known of networks before they were listed once, where there are such, nor of whom they are shared with, nor
/// of the nodes that serve applications.
async fn known_surroundings(ctx: &InfraContext, infra: &Infra) -> Result<(), Unlisted> {
    let look = &ctx.common.first_look;
    ctx.presence.known_in_time(look).await?;
    if ctx.presence.has::<NetworkAttachmentDefinition>() {
        look.listed(&ctx.stores.networks).await?;
    }
    look.listed(&ctx.stores.everywhere).await?;
    if nodes::wants_apps(infra) {
        ctx.nodes.are_known(look).await?;
    }
    Ok(())
}

/// The turn of an Infra on its VLAN. Its network may become another one while it is waited for.
async fn turn(ctx: &InfraContext, infra: &Infra) -> Option<OwnedMutexGuard<()>> {
    loop {
        let vlan = ctx.stores.vlan(infra)?;
        let turn = ctx.turns.of(vlan.clone()).await;
        if ctx.stores.vlan(infra) == Some(vlan) {
            return Some(turn);
        }
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the signature of an error policy")]
fn infra_failed(infra: Arc<Infra>, error: &infra::Error, ctx: Arc<InfraContext>) -> Action {
    failed(&*infra, error, &ctx.common)
}

/// The Infras of which something holds.
pub(crate) fn chosen(infras: &Store<Infra>, holds: impl Fn(&Infra) -> bool) -> Vec<ObjectRef<Infra>> {
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

/// The Infras that name the same definition or are on the same VLAN by another one, and those that were refused: it may
/// have been in their way, on a VLAN that it left.
fn neighbours(stores: &Stores, changed: &Infra) -> Vec<ObjectRef<Infra>> {
    let own = stores.vlan(changed);
    let others = stores.infras.state();
    let others = others.iter().filter(|other| other.uid() != changed.uid());
    others
        .filter(|other| infra::is_refused(other) || own.is_some() && stores.vlan(other) == own)
        .map(|other| ObjectRef::from_obj(&**other))
        .collect()
}

/// Changes of objects by their metadata, deletions included. It is noted which version each of them has.
pub(crate) fn touched<K>(
    options: &Options,
    gaps: &Gaps,
    seen: &Seen,
    selector: &str,
) -> impl Stream<Item = Result<PartialObjectMeta<K>, watcher::Error>> + Send + 'static
where
    K: Object + Send + 'static,
{
    let config = watcher::Config::default().labels(selector);
    let seen = seen.clone();
    let events = options.watch::<PartialObjectMeta<K>>(config);
    gaps.touched(events.inspect(move |event| {
        if let Ok(event) = event {
            seen.note(event);
        }
    }))
}

/// The same of whole objects, which are kept at hand with what `prune` leaves of them. That is not the metadata.
pub(crate) fn at_hand<K>(
    options: &Options,
    gaps: &Gaps,
    seen: &Seen,
    selector: &str,
    prune: fn(&mut K),
) -> (
    Store<K>,
    impl Stream<Item = Result<K, watcher::Error>> + Send + 'static,
)
where
    K: Object + Send + Sync + 'static,
{
    let (store, fill) = reflector::store();
    let seen = seen.clone();
    let events = options.watch::<K>(watcher::Config::default().labels(selector));
    let events = events.modify(prune).reflect(fill).inspect(move |event| {
        if let Ok(event) = event {
            seen.note_whole::<K, _>(event);
        }
    });
    (store, gaps.touched(events))
}

pub(crate) fn key<K: Object>(object: &K) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// Says that a watch failed, such as for lack of rights; it goes on by itself. What failed of an object was said when it
/// did.
pub(crate) fn told<T, E>(result: Result<T, controller::Error<E, watcher::Error>>) -> future::Ready<()>
where
    E: std::error::Error + 'static,
{
    if let Err(controller::Error::QueueError(error)) = result {
        tracing::warn!(%error, "a watch failed, will be tried again");
    }
    future::ready(())
}

/// What failed is tried again, each time later.
pub(crate) fn failed<K: Object>(object: &K, error: &impl Debug, ctx: &Context) -> Action {
    let key = key(object);
    let pause = ctx.pauses.failed(&key);
    tracing::warn!(kind = %K::kind(&()), object = key, ?error, ?pause, "failed, will be tried again");
    Action::requeue(pause)
}
