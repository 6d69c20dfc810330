//! How a hosted cluster publishes the services of its control plane to its nodes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One service of the control plane and how it is published.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PublishedService {
    /// Which service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceType>,
    /// How.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_publishing_strategy: Option<PublishingStrategy>,
}

/// A service of the control plane.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ServiceType {
    /// kube-apiserver.
    APIServer,
    /// The OAuth server.
    OAuthServer,
    /// The tunnel from the control plane to the nodes.
    Konnectivity,
    /// Where a node gets its first configuration.
    Ignition,
    /// Any other; nodes use none of them.
    #[serde(untagged)]
    Other(String),
}

/// How a service is published. Of the three parts the one of the type counts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PublishingStrategy {
    /// Which way.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<PublishingType>,
    /// For [`PublishingType::LoadBalancer`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<HostnamePublishing>,
    /// For [`PublishingType::NodePort`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_port: Option<NodePortPublishing>,
    /// For [`PublishingType::Route`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<HostnamePublishing>,
}

/// A way to publish a service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum PublishingType {
    /// A Service of type LoadBalancer.
    LoadBalancer,
    /// A port of the management cluster's nodes.
    NodePort,
    /// A Route of the management cluster.
    Route,
    /// Not published.
    None,
    /// Any other.
    #[serde(untagged)]
    Other(String),
}

/// Publishing by LoadBalancer or Route.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostnamePublishing {
    /// The name that clients use. Unset leaves it to the load balancer or the router.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
}

/// Publishing by NodePort.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePortPublishing {
    /// An address or a host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The port; unset lets Kubernetes choose one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}
