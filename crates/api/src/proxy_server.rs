//! `ProxyServer`: one layer-4 gateway.

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::report::ServerReport;
use crate::schema::{self, rule};

/// What a gateway forwards, and where to.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "hostedcluster.densityops.com",
    version = "v1alpha1",
    kind = "ProxyServer",
    namespaced,
    status = "ProxyServerStatus",
    shortname = "proxy",
    shortname = "proxies",
    category = "oooi",
    derive = "PartialEq",
    doc = "A gateway on a VLAN. It forwards TLS connections to the services of a control plane by the server name \
           that they ask for, without ending TLS.",
    printcolumn(
        name = "ServerIP",
        type_ = "string",
        json_path = ".spec.networkConfig.serverIP"
    ),
    printcolumn(name = "Port", type_ = "integer", json_path = ".spec.port"),
    printcolumn(name = "Backends", type_ = "integer", json_path = ".status.backendCount"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        description = "Whether the gateway runs as this resource says",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rule(
    "self.backends.all(a, self.backends.exists_one(b, b.name == a.name))",
    "every backend needs a name of its own: rename one of the two",
)]))]
pub struct ProxyServerSpec {
    /// The network that the gateway is on.
    pub network_config: ProxyNetworkConfig,
    /// What is forwarded.
    #[schemars(length(min = 1, max = 256))]
    pub backends: Vec<ProxyBackend>,
    /// The data plane: Envoy, or the built-in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<ProxyEngine>,
    /// The port of the Service in front of the gateway.
    #[serde(default = "default_port")]
    #[schemars(schema_with = "schema::port", extend("default" = 443))]
    pub port: i32,
    /// The port on which Envoy gets its configuration, on loopback.
    #[serde(default = "default_xds_port")]
    #[schemars(schema_with = "schema::port", extend("default" = 18000))]
    pub xds_port: i32,
    /// How much is logged.
    #[serde(default)]
    #[schemars(extend("default" = "info"))]
    pub log_level: LogLevel,
    /// After how long without a byte in either direction a connection is closed. Unset means 24h: watches and
    /// konnectivity are quiet for long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub idle_timeout: Option<String>,
    /// Published addresses of the API server that are not on the VLAN and that the gateway answers for.
    #[serde(default, rename = "publishedIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::ipv4_set")]
    pub published_ips: Vec<String>,
    /// Where the hosted cluster's own router listens on its nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apps: Option<AppsPorts>,
    /// The image of Envoy. Unset means the one that the operator was released with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_image: Option<String>,
    /// The image of oooi itself. Unset means the image of the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager_image: Option<String>,
    /// How many gateways there are, each at an address of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 5))]
    pub replicas: Option<i32>,
    /// Requests and limits of the data plane's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
}

fn default_port() -> i32 {
    443
}

fn default_xds_port() -> i32 {
    18000
}

/// The network of a gateway.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyNetworkConfig {
    /// The gateway's own address on the VLAN, with or without a prefix length (/24 if it has none).
    #[serde(rename = "serverIP")]
    #[schemars(schema_with = "schema::ipv4_maybe_prefixed")]
    pub server_ip: String,
    /// Addresses of the further replicas, in their order.
    #[serde(
        default,
        rename = "additionalServerIPs",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(schema_with = "schema::ipv4_set")]
    pub additional_server_ips: Vec<String>,
    /// The NetworkAttachmentDefinition of the VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_attachment_name: Option<String>,
    /// Its namespace. Unset means that of this resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_attachment_namespace: Option<String>,
    /// The VLAN's own gateway, where the plugins of the network cannot route answers to clients beyond it: an init
    /// container then writes the routes, with NET_ADMIN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::ipv4")]
    pub route_via: Option<String>,
    /// An older name of `networkAttachmentName`, which wins where both are set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nad_name: Option<String>,
    /// An older name of `networkAttachmentNamespace`, which wins where both are set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nad_namespace: Option<String>,
    /// The VLAN's own gateway, through which answers leave for clients of other networks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::ipv4")]
    pub gateway: Option<String>,
}

impl ProxyNetworkConfig {
    /// The NetworkAttachmentDefinition, under whichever name it was given.
    pub fn attachment(&self) -> Option<&str> {
        self.network_attachment_name
            .as_deref()
            .or(self.nad_name.as_deref())
    }

    /// Its namespace, under whichever name it was given.
    pub fn attachment_namespace(&self) -> Option<&str> {
        self.network_attachment_namespace
            .as_deref()
            .or(self.nad_namespace.as_deref())
    }
}

/// A service that is reached through the gateway.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyBackend {
    /// What to call it, such as `kube-apiserver`.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub name: String,
    /// The server name that clients ask for; a leading `*.` stands for every name below, and `*` alone for plain
    /// TCP: whatever arrives on the port.
    #[schemars(schema_with = "schema::hostname")]
    pub hostname: String,
    /// Further server names of the same service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::hostnames")]
    pub alternate_hostnames: Vec<String>,
    /// The port that clients connect to.
    #[schemars(schema_with = "schema::port")]
    pub port: i32,
    /// The Service that is forwarded to.
    #[schemars(length(min = 1, max = 63))]
    pub target_service: String,
    /// The port of that Service, by number or by name.
    #[schemars(schema_with = "schema::service_port")]
    pub target_port: IntOrString,
    /// The namespace of that Service.
    #[schemars(length(min = 1, max = 63))]
    pub target_namespace: String,
    /// TCP, TLS and HTTPS mean the same: bytes are passed on as they are. UDP is relayed by session.
    #[serde(default)]
    #[schemars(extend("default" = "TCP"))]
    pub protocol: Protocol,
    /// How many seconds all attempts to connect to the Service may take together.
    #[serde(default = "default_timeout_seconds")]
    #[schemars(range(min = 1, max = 3600), extend("default" = 30, "format" = "int32"))]
    pub timeout_seconds: i32,
    /// Whether the Service is told the client's address, and in which form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<ProxyProtocol>,
}

fn default_timeout_seconds() -> i32 {
    30
}

/// The data plane of a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ProxyEngine {
    /// Envoy, configured over xDS.
    #[default]
    Envoy,
    /// The built-in data plane.
    Native,
}

/// What a backend speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Protocol {
    /// A byte stream.
    #[default]
    #[serde(rename = "TCP")]
    Tcp,
    /// The same as TCP.
    #[serde(rename = "TLS")]
    Tls,
    /// The same as TCP.
    #[serde(rename = "HTTPS")]
    Https,
    /// Datagrams.
    #[serde(rename = "UDP")]
    Udp,
}

/// How a Service is told the client's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ProxyProtocol {
    /// By a header of version 2 of the PROXY protocol.
    V2,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Everything.
    Trace,
    /// What helps to find a mistake.
    Debug,
    /// What happens.
    #[default]
    Info,
    /// What may need attention.
    Warning,
    /// What failed.
    Error,
    /// What ends the process.
    Critical,
}

/// Where the hosted cluster's own router listens on its nodes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppsPorts {
    /// The node port of HTTPS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::port")]
    pub https_port: Option<i32>,
    /// The node port of HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::port")]
    pub http_port: Option<i32>,
}

/// What is known of a gateway.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyServerStatus {
    /// How the gateway is, one entry an aspect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The generation of the specification that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Backends that are forwarded to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_count: Option<i32>,
    /// The ConfigMap that holds Envoy's start-up configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_name: Option<String>,
    /// The Deployment that runs the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment_name: Option<String>,
    /// The Service in front of the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    /// The address of that Service.
    #[serde(default, rename = "serviceIP", skip_serializing_if = "Option::is_none")]
    pub service_ip: Option<String>,
    /// What each running gateway says of itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["pod"]))]
    pub servers: Vec<ServerReport>,
}
