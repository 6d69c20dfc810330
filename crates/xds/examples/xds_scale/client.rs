//! A client of the control plane that does nothing but accept: what pushing costs without Envoy's own work.

use std::net::SocketAddr;
use std::thread::JoinHandle;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use oooi_xds::resources::Kind;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Endpoint;

use crate::Failure;

/// The name by which it is known.
pub(crate) const NODE: &str = "bare";
const LARGEST: usize = 64 << 20;

pub(crate) struct Bare {
    over: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), Failure>>,
}

impl Bare {
    /// Connects to a control plane and follows it.
    pub(crate) fn start(control: SocketAddr) -> Result<Self, Failure> {
        let (over, ended) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                tokio::select! {
                    result = follow(control) => result,
                    _ = ended => Ok(()),
                }
            })
        });
        Ok(Self { over, thread })
    }

    pub(crate) fn end(self) -> Result<(), Failure> {
        drop(self.over);
        self.thread.join().map_err(|_| "the bare client's thread broke")?
    }
}

async fn follow(control: SocketAddr) -> Result<(), Failure> {
    let channel = Endpoint::from_shared(format!("http://{control}"))?
        .connect()
        .await?;
    let (requests, receiver) = mpsc::unbounded_channel();
    let node = Node {
        id: NODE.to_owned(),
        ..Node::default()
    };
    for kind in [Kind::Clusters, Kind::Listeners] {
        requests.send(DeltaDiscoveryRequest {
            node: Some(node.clone()),
            ..request(kind)
        })?;
    }
    let mut client = AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(LARGEST);
    let stream = client.delta_aggregated_resources(UnboundedReceiverStream::new(receiver));
    let mut responses = stream.await?.into_inner();
    while let Some(response) = responses.message().await? {
        requests.send(DeltaDiscoveryRequest {
            type_url: response.type_url.clone(),
            response_nonce: response.nonce,
            ..DeltaDiscoveryRequest::default()
        })?;
        if response.type_url == Kind::Clusters.type_url() && !response.resources.is_empty() {
            requests.send(DeltaDiscoveryRequest {
                resource_names_subscribe: response.resources.into_iter().map(|one| one.name).collect(),
                ..request(Kind::Endpoints)
            })?;
        }
    }
    Ok(())
}

fn request(kind: Kind) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: kind.type_url().to_owned(),
        ..DeltaDiscoveryRequest::default()
    }
}
