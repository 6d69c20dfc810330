//! EgressIPAM: namespaces that ask for it leave the cluster with addresses of their own.
//!
//! ```text
//! EgressIPAMs, namespaces, nodes ─┐                         ┌─► annotations of namespaces
//! addresses in use ───────────────┴─► decide (oooi-egress) ─┼─► the network: OVN-Kubernetes or OpenShift SDN
//!                                                           └─► status, events
//! ```
//! All EgressIPAMs are looked after in one pass, since they share one address space and the same nodes. A pass starts
//! from what is there, never from what happened: whatever was missed while nobody ran, the next pass mends. What
//! fails for one namespace, node or EgressIPAM is told there, and the rest of the pass goes on.

mod backend;
mod decide;
mod detect;
mod edits;
mod faults;
mod follow;
mod nowhere;
mod ovn;
mod pass;
mod sdn;
mod status;

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use oooi_cloud::{Environment, Http};
use tokio::sync::{Notify, watch};

use crate::apply::Writer;
use crate::context::Pauses;
use crate::lease::Term;
use crate::metrics::Metrics;
use crate::presence::Presence;
use backend::Backend;
pub use detect::{Network, UnknownNetwork};
use follow::Stores;
use nowhere::Nowhere;
use ovn::Ovn;
use pass::Controller;
pub use sdn::CREDENTIALS;
use sdn::Sdn;

/// The name under which this controller writes.
pub const MANAGER: &str = "oooi-egress";

/// Changes come in swarms: so long after the first one a pass begins.
const SWARM: Duration = Duration::from_millis(100);

/// How clouds are asked, where they must be.
#[derive(Clone)]
pub struct CloudAccess {
    /// The namespace of the Secret [`CREDENTIALS`]; without one, there are only the other ways to be known.
    pub namespace: Option<String>,
    /// What the surroundings of the process say of clouds.
    pub environment: Environment,
    /// Speaks to them.
    pub http: Http,
}

impl CloudAccess {
    /// With the Secret of a namespace, and what the environment of this process says.
    pub fn new(namespace: Option<String>) -> Result<Self, oooi_cloud::TrustError> {
        let environment = Environment::of_process();
        Ok(CloudAccess {
            namespace,
            http: Http::new(&environment)?,
            environment,
        })
    }
}

/// What the controller is run with.
#[derive(Clone)]
pub struct Options {
    /// The cluster.
    pub client: Client,
    /// Whether this process leads. Once it does not, nothing is written any more.
    pub leading: watch::Receiver<Term>,
    /// Which APIs the cluster serves.
    pub presence: Presence,
    /// Which network the cluster has; found out if there is none.
    pub network: Option<Network>,
    /// How clouds are asked.
    pub cloud: CloudAccess,
    /// Where passes are counted, and what nodes carry.
    pub metrics: Metrics,
}

/// Runs the controller. It ends only by being dropped.
pub async fn run(options: &Options) {
    let mut presence = options.presence.clone();
    presence.known().await;
    let network = loop {
        let found = match options.network {
            None => detect::network(&options.client, &presence).await,
            chosen => chosen,
        };
        match found {
            Some(network) => break network,
            None => tokio::select! {
                () = presence.changed() => {}
                () = serve::<Nowhere>(options) => return,
            },
        }
    };
    tracing::info!(%network, "egress addresses are carried by this network");
    match network {
        Network::OvnKubernetes => serve::<Ovn>(options).await,
        Network::OpenShiftSdn => serve::<Sdn>(options).await,
    }
}

/// Passes over everything whenever something changed.
async fn serve<B: Backend>(options: &Options) {
    let wake = Arc::new(Notify::new());
    let (stores, following) = Stores::follow(&options.client, &wake);
    let (backend, following_network) = B::follow(options, &wake).await;
    let writer = Writer::new(options.client.clone(), MANAGER, options.leading.clone());
    let work = async {
        stores.ready().await;
        backend.ready().await;
        let mut controller = Controller::new(options, writer, stores, backend);
        let pauses = Pauses::default();
        loop {
            let began = Instant::now();
            let succeeded = controller.pass().await;
            options.metrics.reconciled(MANAGER, began.elapsed(), succeeded);
            if succeeded {
                pauses.succeeded("pass");
                wake.notified().await;
            } else {
                // Something failed: it is tried again by itself, and at once if something changes.
                let _ = tokio::time::timeout(pauses.failed("pass"), wake.notified()).await;
            }
            tokio::time::sleep(SWARM).await;
        }
    };
    tokio::join!(following, following_network, work);
}
