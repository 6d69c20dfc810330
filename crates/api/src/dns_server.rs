//! `DNSServer`: one split-horizon DNS server.

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::report::ServerReport;
use crate::schema;

/// What a DNS server answers, and where.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "hostedcluster.densityops.com",
    version = "v1alpha1",
    kind = "DNSServer",
    root = "DnsServer",
    namespaced,
    status = "DnsServerStatus",
    shortname = "dns",
    category = "oooi",
    derive = "PartialEq",
    doc = "A DNS server on a VLAN. Nodes there resolve the names of their control plane to the gateway, pods resolve \
           them to the internal service, and everything else is forwarded.",
    printcolumn(name = "Domain", type_ = "string", json_path = ".spec.hostedClusterDomain"),
    printcolumn(
        name = "ServerIP",
        type_ = "string",
        json_path = ".spec.networkConfig.serverIP"
    ),
    printcolumn(name = "ProxyIP", type_ = "string", json_path = ".spec.networkConfig.proxyIP"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        description = "Whether the server runs as this resource says",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct DnsServerSpec {
    /// The network that the server is on.
    pub network_config: DnsNetworkConfig,
    /// The domain of the hosted cluster, such as `my-cluster.example.com`. The server owns this zone.
    #[schemars(schema_with = "schema::hostname")]
    pub hosted_cluster_domain: String,
    /// Names with their addresses. `*.apps.…` stands for every name below it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub static_entries: Vec<DnsStaticEntry>,
    /// Resolvers for everything else. With none, nothing is forwarded; `system` means the resolvers of the pod.
    #[serde(default, rename = "upstreamDNS", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::upstreams")]
    pub upstream_dns: Vec<String>,
    /// In which order the resolvers are asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_policy: Option<UpstreamPolicy>,
    /// Zones with resolvers of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub forward_zones: Vec<ForwardZone>,
    /// For how long an answer is kept at most.
    #[serde(default = "default_cache_ttl", rename = "cacheTTL")]
    #[schemars(schema_with = "schema::duration", extend("default" = "30s"))]
    pub cache_ttl: String,
    /// Accepted for compatibility: changes apply at once.
    #[serde(default = "default_reload_interval")]
    #[schemars(schema_with = "schema::duration", extend("default" = "5s"))]
    pub reload_interval: String,
    /// The container image. Unset means the image of the operator itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// How many servers answer, each at an address of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 5))]
    pub replicas: Option<i32>,
    /// Requests and limits of the server's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
}

fn default_cache_ttl() -> String {
    "30s".into()
}

fn default_reload_interval() -> String {
    "5s".into()
}

/// The network of a DNS server.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DnsNetworkConfig {
    /// The server's own address on the VLAN, with or without a prefix length (/24 if it has none).
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
    /// The gateway's address on the VLAN: what names of the control plane resolve to there.
    #[serde(rename = "proxyIP")]
    #[schemars(schema_with = "schema::ipv4")]
    pub proxy_ip: String,
    /// Addresses of the gateway's further replicas.
    #[serde(default, rename = "additionalProxyIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::ipv4_set")]
    pub additional_proxy_ips: Vec<String>,
    /// What the same names resolve to for pods: an address, or the name of a Service. Unset means that pods'
    /// queries are only forwarded.
    #[serde(default, rename = "internalProxyIP", skip_serializing_if = "Option::is_none")]
    pub internal_proxy_ip: Option<String>,
    /// Whose queries see the names of the control plane. Unset means the network of `serverIP`.
    #[serde(
        default,
        rename = "secondaryNetworkCIDR",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::ipv4_network")]
    pub secondary_network_cidr: Option<String>,
    /// The port, for UDP and TCP.
    #[serde(default = "default_dns_port", rename = "dnsPort")]
    #[schemars(schema_with = "schema::port", extend("default" = 53))]
    pub dns_port: i32,
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
}

fn default_dns_port() -> i32 {
    53
}

/// A name with its addresses.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DnsStaticEntry {
    /// The fully qualified name; a leading `*.` stands for every name below.
    #[schemars(schema_with = "schema::hostname")]
    pub hostname: String,
    /// Its address.
    #[schemars(schema_with = "schema::ipv4")]
    pub ip: String,
    /// Its further addresses.
    #[serde(default, rename = "additionalIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::ipv4_set")]
    pub additional_ips: Vec<String>,
}

/// A zone with resolvers of its own.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForwardZone {
    /// The zone: every name in and below it.
    #[schemars(schema_with = "schema::hostname")]
    pub zone: String,
    /// Its resolvers.
    #[schemars(schema_with = "schema::upstreams")]
    pub upstreams: Vec<String>,
    /// In which order they are asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<UpstreamPolicy>,
}

/// In which order resolvers are asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum UpstreamPolicy {
    /// The first one that is healthy.
    #[default]
    Sequential,
    /// Each in turn.
    RoundRobin,
    /// The one that answered fastest of late.
    Fastest,
}

/// What is known of a DNS server.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DnsServerStatus {
    /// How the server is, one entry an aspect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The generation of the specification that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The ConfigMap that holds the server's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_name: Option<String>,
    /// The Deployment that runs the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment_name: Option<String>,
    /// The Service in front of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    /// The address of that Service, for resolvers of the cluster that forward to it.
    #[serde(default, rename = "serviceClusterIP", skip_serializing_if = "Option::is_none")]
    pub service_cluster_ip: Option<String>,
    /// What each running server says of itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["pod"]))]
    pub servers: Vec<ServerReport>,
}
