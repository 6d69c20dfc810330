//! Requests and responses as they are on the wire, for both variants of the protocol.

use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::{ControlPlane as Identifier, Node};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
    Resource as DeltaResource,
};
use prost::Message;

use crate::resources::Resource;
use crate::stream::{Request, Response, Variant};

/// Reads a request from its bytes.
pub fn decode(variant: Variant, bytes: &[u8]) -> Result<Incoming, prost::DecodeError> {
    match variant {
        Variant::StateOfTheWorld => DiscoveryRequest::decode(bytes).map(Into::into),
        Variant::Delta => DeltaDiscoveryRequest::decode(bytes).map(Into::into),
    }
}

/// A request with its sender.
#[derive(Debug)]
pub struct Incoming {
    /// The id of its node; only the first request of a stream has to have one.
    pub node: String,
    /// What it asks for.
    pub request: Request,
}

fn node_id(node: Option<Node>) -> String {
    node.map(|node| node.id)
        .filter(|id| !id.is_empty())
        .unwrap_or_else(|| "unnamed".to_owned())
}

impl From<DiscoveryRequest> for Incoming {
    fn from(request: DiscoveryRequest) -> Self {
        let first = request.response_nonce.is_empty();
        Self {
            node: node_id(request.node),
            request: Request {
                type_url: request.type_url,
                nonce: request.response_nonce,
                error: request.error_detail.map(|status| status.message),
                subscribe: request.resource_names,
                has_version: if first {
                    request.version_info
                } else {
                    String::new()
                },
                ..Request::default()
            },
        }
    }
}

impl From<DeltaDiscoveryRequest> for Incoming {
    fn from(request: DeltaDiscoveryRequest) -> Self {
        Self {
            node: node_id(request.node),
            request: Request {
                type_url: request.type_url,
                nonce: request.response_nonce,
                error: request.error_detail.map(|status| status.message),
                subscribe: request.resource_names_subscribe,
                unsubscribe: request.resource_names_unsubscribe,
                has: request.initial_resource_versions.into_iter().collect(),
                ..Request::default()
            },
        }
    }
}

fn identifier() -> Option<Identifier> {
    Some(Identifier {
        identifier: concat!("oooi ", env!("CARGO_PKG_VERSION")).to_owned(),
    })
}

impl From<Response> for DiscoveryResponse {
    fn from(response: Response) -> Self {
        Self {
            version_info: response.version,
            type_url: response.kind.type_url().to_owned(),
            nonce: response.nonce,
            resources: response
                .resources
                .iter()
                .map(|resource| resource.body.clone())
                .collect(),
            control_plane: identifier(),
            ..Self::default()
        }
    }
}

impl From<Response> for DeltaDiscoveryResponse {
    fn from(response: Response) -> Self {
        let resource = |resource: &Arc<Resource>| DeltaResource {
            name: resource.name.clone(),
            version: resource.version.clone(),
            resource: Some(resource.body.clone()),
            ..DeltaResource::default()
        };
        Self {
            system_version_info: response.version,
            type_url: response.kind.type_url().to_owned(),
            nonce: response.nonce,
            resources: response.resources.iter().map(resource).collect(),
            removed_resources: response.removed,
            control_plane: identifier(),
            ..Self::default()
        }
    }
}
