//! What is around a HostedCluster, from what watches keep at hand. Reads only.

use std::net::Ipv4Addr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use kube::runtime::reflector::{ObjectRef, Store};
use oooi_api::Infra;
use oooi_api::foreign::{HostedCluster, Ingress, NodePool, Route};
use oooi_plan::hosted_cluster::Sources;
use oooi_plan::object_name::control_plane_namespace;

use super::load_balancer;
use crate::first_look::{FirstLook, Unlisted};
use crate::identity;
use crate::presence::Presence;

/// What watches keep at hand.
#[derive(Clone)]
pub(super) struct Stores {
    pub(super) node_pools: Store<NodePool>,
    pub(super) routes: Store<Route>,
    pub(super) services: Store<Service>,
    pub(super) ingresses: Store<Ingress>,
    pub(super) infras: Store<Infra>,
}

impl Stores {
    /// Waits for the first list of each kind, also of those that only OpenShift has: without the Routes that there are
    /// an Infra would lose what was derived from them.
    pub(super) async fn are_known(&self, presence: &Presence, look: &FirstLook) -> Result<(), Unlisted> {
        look.listed(&self.node_pools).await?;
        look.listed(&self.services).await?;
        look.listed(&self.infras).await?;
        if presence.has::<Route>() {
            look.listed(&self.routes).await?;
        }
        if presence.has::<Ingress>() {
            look.listed(&self.ingresses).await?;
        }
        Ok(())
    }
}

/// What was seen.
pub(super) struct Observed {
    node_pools: Vec<NodePool>,
    routes: Vec<Route>,
    pub(super) services: Vec<Service>,
    ingress: Option<Arc<Ingress>>,
    gateways: Vec<Ipv4Addr>,
    /// The Infra of the HostedCluster's name, whoever wrote it.
    pub(super) infra: Option<Arc<Infra>>,
}

impl Observed {
    /// What an Infra is derived from.
    pub(super) fn sources(&self) -> Sources<'_> {
        Sources {
            node_pools: &self.node_pools,
            routes: &self.routes,
            services: &self.services,
            ingress: self.ingress.as_deref(),
            gateways: &self.gateways,
        }
    }

    /// The Infra, if it was derived from this HostedCluster.
    pub(super) fn own(&self, cluster: &HostedCluster) -> Option<&Infra> {
        let uid = cluster.uid();
        self.infra
            .as_deref()
            .filter(|infra| identity::is_ours(&infra.metadata, uid.as_deref()))
    }

    /// The address of the first gateway.
    pub(super) fn gateway(&self) -> Option<Ipv4Addr> {
        self.infra.as_deref().and_then(|infra| gateways(infra).next())
    }
}

/// Looks at everything that the Infra of a HostedCluster is derived from.
pub(super) fn observe(stores: &Stores, cluster: &HostedCluster) -> Observed {
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let plane = control_plane_namespace(&namespace, &name);
    let node_pools = stores
        .node_pools
        .state_filter(|pool| pool.metadata.namespace.as_ref() == Some(&namespace));
    let routes = stores
        .routes
        .state_filter(|route| route.metadata.namespace.as_ref() == Some(&plane));
    let services = stores
        .services
        .state_filter(|service| service.metadata.namespace.as_ref() == Some(&plane));
    let infra = stores.infras.get(&ObjectRef::new(&name).within(&namespace));
    let known = infra.as_deref().into_iter().flat_map(gateways);
    let given = services
        .iter()
        .filter_map(|service| load_balancer::given(service));
    Observed {
        gateways: known.chain(given).collect(),
        node_pools: owned(&node_pools),
        routes: owned(&routes),
        services: owned(&services),
        ingress: stores.ingresses.get(&ObjectRef::new("cluster")),
        infra,
    }
}

fn owned<K: Clone>(shared: &[Arc<K>]) -> Vec<K> {
    shared.iter().map(|object| (**object).clone()).collect()
}

/// The addresses that an Infra's gateways have.
fn gateways(infra: &Infra) -> impl Iterator<Item = Ipv4Addr> + '_ {
    let addresses = infra.status.as_ref().and_then(|status| status.addresses.as_ref());
    let texts = addresses.map(|addresses| &*addresses.proxy).unwrap_or_default();
    texts.iter().filter_map(|text| text.parse().ok())
}
