//! The gRPC service that Envoys get their configuration from: both variants of ADS, any number of Envoys.
//!
//! Each stream has a task: requests and updates go into its [`Stream`], and what that owes goes out. What the
//! Envoys refuse is collected by node, counted, and reported with Envoy's own words.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use oooi_api::report::{Event, Report};
use oooi_proxy::announce;
use oooi_proxy::snapshot::Snapshot;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream as Responses, StreamExt};
use tonic::{Status, Streaming};

use crate::metrics::Metrics;
use crate::resources::{Kind, Resources};
use crate::stream::{Response, Stream, Variant, Verdict};
use crate::wire::Incoming;

/// How long listeners wait for a client that does not ask for endpoints.
const GATE: Duration = Duration::from_secs(2);
/// How long after a refusal listeners are sent again: the port may be free by then.
const RETRY: Duration = Duration::from_secs(5);
/// Twice as long each time, up to this.
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// Responses on their way in one stream: one of each kind.
const IN_FLIGHT: usize = 4;

/// The control plane: snapshots in, resources out.
#[derive(Clone)]
pub struct ControlPlane(Arc<Inner>);

struct Inner {
    addresses: Vec<IpAddr>,
    resources: watch::Sender<Arc<Resources>>,
    snapshot: Mutex<Arc<Snapshot>>,
    nodes: Mutex<BTreeMap<String, NodeState>>,
    opened: watch::Sender<u64>,
    ended: watch::Sender<bool>,
    report: Arc<dyn Report>,
    metrics: Metrics,
}

/// What is known of one Envoy.
#[derive(Debug, Default, Clone)]
struct NodeState {
    streams: usize,
    refused: BTreeMap<Kind, String>,
    /// The resources that it was last seen to have answered for, all of them.
    settled: Option<Arc<Resources>>,
}

impl ControlPlane {
    /// A control plane for Envoys that listen on these addresses.
    pub fn new(addresses: Vec<IpAddr>, metrics: Metrics, report: Arc<dyn Report>) -> Self {
        let resources = watch::Sender::new(Arc::default());
        let (snapshot, nodes) = (Mutex::default(), Mutex::default());
        let (opened, ended) = (watch::Sender::default(), watch::Sender::default());
        Self(Arc::new(Inner {
            addresses,
            resources,
            snapshot,
            nodes,
            opened,
            ended,
            report,
            metrics,
        }))
    }

    /// The gRPC service.
    pub fn service(&self) -> AggregatedDiscoveryServiceServer<Self> {
        AggregatedDiscoveryServiceServer::new(self.clone())
    }

    /// Takes a snapshot over and sends every Envoy what it lacks.
    pub fn update(&self, snapshot: &Arc<Snapshot>) {
        let inner = &self.0;
        let before = std::mem::replace(&mut *inner.snapshot.lock(), snapshot.clone());
        inner.metrics.lacking.show(&before, snapshot);
        announce::changes(&before, snapshot, &*inner.report);
        let resources = Resources::next(&inner.resources.borrow(), snapshot, &inner.addresses);
        inner.resources.send_replace(Arc::new(resources));
        inner.metrics.updates.inc();
        inner.report_state();
    }

    /// Follows snapshots until no further one can come.
    pub async fn follow(&self, mut snapshots: watch::Receiver<Arc<Snapshot>>) {
        loop {
            let snapshot = snapshots.borrow_and_update().clone();
            self.update(&snapshot);
            if snapshots.changed().await.is_err() {
                return;
            }
        }
    }

    /// The snapshot that is served.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.0.snapshot.lock().clone()
    }

    /// Whether this Envoy has answered for everything that is served now.
    pub fn is_settled(&self, node: &str) -> bool {
        let resources = self.0.resources.borrow().clone();
        let nodes = self.0.nodes.lock();
        let settled = nodes.get(node).and_then(|state| state.settled.as_ref());
        settled.is_some_and(|settled| Arc::ptr_eq(settled, &resources))
    }

    /// Ends every stream, now and from now on.
    pub(crate) fn end_streams(&self) {
        self.0.ended.send_replace(true);
    }

    /// How many streams were opened so far: an Envoy that starts opens one.
    pub fn opened(&self) -> watch::Receiver<u64> {
        self.0.opened.subscribe()
    }

    /// How many Envoys are connected.
    pub fn connected(&self) -> usize {
        self.0
            .nodes
            .lock()
            .values()
            .filter(|state| state.streams > 0)
            .count()
    }
}

impl Inner {
    fn report_state(&self) {
        let refused: Vec<String> = self
            .nodes
            .lock()
            .iter()
            .flat_map(|(node, state)| refusals(node, state))
            .collect();
        let snapshot = self.snapshot.lock().clone();
        let listeners = snapshot.listeners.keys();
        let addresses = listeners.flat_map(|key| {
            self.addresses
                .iter()
                .map(move |ip| format!("{ip}:{}/{}", key.port, key.transport))
        });
        self.report
            .state(announce::state(&snapshot, addresses.collect(), &refused));
    }

    /// Takes note of what an Envoy said.
    fn note(&self, node: &str, verdict: &Verdict) {
        let mut nodes = self.nodes.lock();
        let state = nodes.entry(node.to_owned()).or_default();
        let changed = match verdict {
            Verdict::Noted | Verdict::Unknown => return,
            Verdict::Accepted(kind) => {
                self.metrics.accepted(*kind);
                state.refused.remove(kind).is_some()
            }
            Verdict::Refused(kind, message) => {
                self.metrics.refused(*kind);
                // What is sent again is often refused again, which is no news.
                state.refused.insert(*kind, message.clone()).as_ref() != Some(message)
            }
        };
        self.show_refusals(&nodes);
        drop(nodes);
        if let Verdict::Refused(kind, message) = verdict
            && changed
        {
            let message = format!(
                "Envoy {node} refused the {} and keeps what it had: {message}",
                kind.label()
            );
            self.report.event(Event::warning("EngineRefused", message));
        }
        if changed {
            self.report_state();
        }
    }

    fn show_refusals(&self, nodes: &BTreeMap<String, NodeState>) {
        for kind in Kind::ALL {
            let refusing = nodes.values().any(|state| state.refused.contains_key(&kind));
            self.metrics.refusing(kind, refusing);
        }
    }

    fn settled(&self, node: &str, resources: &Arc<Resources>) {
        if let Some(state) = self.nodes.lock().get_mut(node) {
            state.settled = Some(resources.clone());
        }
    }
}

fn refusals(node: &str, state: &NodeState) -> Vec<String> {
    let each = state.refused.iter();
    each.map(|(kind, message)| format!("Envoy {node} refused the {}: {message}", kind.label()))
        .collect()
}

/// Counts a stream as long as it is there. The Envoy of the last one is forgotten with it.
struct Connected {
    inner: Arc<Inner>,
    node: String,
}

impl Connected {
    fn new(inner: &Arc<Inner>, node: String) -> Self {
        tracing::info!(node, "Envoy connected");
        inner.nodes.lock().entry(node.clone()).or_default().streams += 1;
        inner.metrics.streams.inc();
        inner.opened.send_modify(|count| *count += 1);
        Self {
            inner: inner.clone(),
            node,
        }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        tracing::info!(node = self.node, "Envoy disconnected");
        self.inner.metrics.streams.dec();
        let mut nodes = self.inner.nodes.lock();
        let Some(state) = nodes.get_mut(&self.node) else {
            return;
        };
        state.streams -= 1;
        if state.streams > 0 {
            return;
        }
        let refused = nodes
            .remove(&self.node)
            .is_some_and(|state| !state.refused.is_empty());
        self.inner.show_refusals(&nodes);
        drop(nodes);
        if refused {
            self.inner.report_state();
        }
    }
}

/// A wait that goes on through everything that happens meanwhile.
struct Wait {
    time: Duration,
    until: Option<Instant>,
}

impl Wait {
    fn new(time: Duration) -> Self {
        Self { time, until: None }
    }

    /// Begins, goes on or is over.
    fn hold(&mut self, waits: bool) {
        self.until = match waits {
            true => self.until.or_else(|| Some(Instant::now() + self.time)),
            false => None,
        };
    }

    /// Ends when the wait does; never if there is none.
    async fn end(&self) {
        match self.until {
            Some(until) => tokio::time::sleep_until(until).await,
            None => std::future::pending().await,
        }
    }
}

/// Serves one stream of either variant until the client or the process goes.
async fn serve<Q, R>(
    inner: Arc<Inner>,
    variant: Variant,
    mut requests: Streaming<Q>,
    responses: mpsc::Sender<Result<R, Status>>,
) where
    Q: Into<Incoming>,
    R: From<Response>,
{
    let mut updates = inner.resources.subscribe();
    let mut ended = inner.ended.subscribe();
    let mut stream = Stream::new(variant);
    let mut connected = None;
    let (mut gate, mut retry) = (Wait::new(GATE), Wait::new(RETRY));
    loop {
        let resources = updates.borrow_and_update().clone();
        while let Some(response) = stream.next(&resources) {
            inner.metrics.sent(response.kind, response.resources.len());
            if responses.send(Ok(response.into())).await.is_err() {
                return;
            }
        }
        if let Some(Connected { node, .. }) = &connected
            && stream.is_settled(&resources)
        {
            inner.settled(node, &resources);
        }
        gate.hold(stream.is_gated(&resources));
        retry.hold(stream.has_refused());
        tokio::select! {
            _ = ended.wait_for(|ended| *ended) => return,
            request = requests.next() => {
                let incoming: Incoming = match request {
                    Some(Ok(request)) => request.into(),
                    Some(Err(status)) => return tracing::debug!(%status, "stream broken"),
                    None => return,
                };
                // Only the first request of a stream has to say who it is from.
                let node = connected.get_or_insert_with(|| Connected::new(&inner, incoming.node)).node.clone();
                let verdict = stream.request(incoming.request, &resources);
                inner.note(&node, &verdict);
                if verdict == Verdict::Accepted(Kind::Listeners) {
                    retry.time = RETRY;
                }
            }
            changed = updates.changed() => {
                if changed.is_err() {
                    return;
                }
                stream.restore_gate();
            }
            () = gate.end() => stream.lift_gate(),
            () = retry.end() => {
                retry.time = (retry.time * 2).min(LONGEST_RETRY);
                stream.retry();
            }
        }
    }
}

type Outgoing<R> = Pin<Box<dyn Responses<Item = Result<R, Status>> + Send>>;

#[tonic::async_trait]
impl AggregatedDiscoveryService for ControlPlane {
    type StreamAggregatedResourcesStream = Outgoing<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Outgoing<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        request: tonic::Request<Streaming<DiscoveryRequest>>,
    ) -> Result<tonic::Response<Self::StreamAggregatedResourcesStream>, Status> {
        let (sender, receiver) = mpsc::channel(IN_FLIGHT);
        tokio::spawn(serve(
            self.0.clone(),
            Variant::StateOfTheWorld,
            request.into_inner(),
            sender,
        ));
        Ok(tonic::Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn delta_aggregated_resources(
        &self,
        request: tonic::Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<tonic::Response<Self::DeltaAggregatedResourcesStream>, Status> {
        let (sender, receiver) = mpsc::channel(IN_FLIGHT);
        tokio::spawn(serve(
            self.0.clone(),
            Variant::Delta,
            request.into_inner(),
            sender,
        ));
        Ok(tonic::Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}
