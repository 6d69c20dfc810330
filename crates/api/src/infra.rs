//! `Infra`: everything that one hosted cluster needs on its VLAN.

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dhcp_server::{
    DhcpOption, LeaseStorage, LeaseVolume, Reservation, StaticRoute, UnknownClients, exclusions,
};
use crate::dns_server::{DnsStaticEntry, ForwardZone};
use crate::proxy_server::{AppsPorts, LogLevel, ProxyBackend, ProxyEngine};
use crate::schema::{self, Layout};

/// What a hosted cluster needs on its VLAN.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "hostedcluster.densityops.com",
    version = "v1alpha1",
    kind = "Infra",
    namespaced,
    status = "InfraStatus",
    shortname = "infra",
    category = "oooi",
    derive = "PartialEq",
    doc = "The infrastructure of one hosted cluster on its isolated VLAN: a DHCP server, a DNS server and a gateway to \
           the control plane.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        description = "Whether all of it runs as this resource says",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(name = "CIDR", type_ = "string", json_path = ".spec.networkConfig.cidr"),
    printcolumn(name = "DHCP", type_ = "string", json_path = ".status.addresses.dhcp[0]"),
    printcolumn(name = "DNS", type_ = "string", json_path = ".status.addresses.dns[0]"),
    printcolumn(name = "Gateway", type_ = "string", json_path = ".status.addresses.proxy[0]"),
    printcolumn(
        name = "Why",
        type_ = "string",
        description = "The reason of the Ready condition",
        json_path = ".status.conditions[?(@.type=='Ready')].reason",
        priority = "1"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules()))]
pub struct InfraSpec {
    /// The VLAN.
    pub network_config: NetworkConfig,
    /// What runs on it. A component that is left out does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infra_components: Option<InfraComponents>,
    /// The HostedCluster that names, ports and backends are derived from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosted_cluster_ref: Option<HostedClusterRef>,
}

fn rules() -> Vec<Value> {
    let component = |name: &str, field: &str| {
        format!(
            "has(self.infraComponents) && has(self.infraComponents.{name}) && has(self.infraComponents.{name}.{field})"
        )
    };
    let (dhcp, dns, proxy) = (
        component("dhcp", "serverIP"),
        component("dns", "serverIP"),
        component("proxy", "serverIP"),
    );
    let ranged = format!(
        "{} && has(self.infraComponents.dhcp.rangeEnd)",
        component("dhcp", "rangeStart")
    );
    let mut rules = Layout {
        cidr: "self.networkConfig.cidr",
        gateway: "self.networkConfig.gateway",
        servers: &[
            ("DHCP", "self.infraComponents.dhcp.serverIP", &dhcp),
            ("DNS", "self.infraComponents.dns.serverIP", &dns),
            ("proxy", "self.infraComponents.proxy.serverIP", &proxy),
        ],
        range: (
            "self.infraComponents.dhcp.rangeStart",
            "self.infraComponents.dhcp.rangeEnd",
            &ranged,
        ),
    }
    .rules();
    rules.push(schema::rule(
        "!has(self.infraComponents) || !has(self.infraComponents.dhcp) || \
         has(self.infraComponents.dhcp.rangeStart) == has(self.infraComponents.dhcp.rangeEnd)",
        "give both rangeStart and rangeEnd, or neither: a range that nobody set is chosen",
    ));
    rules.push(schema::rule(
        "!has(self.infraComponents) || !has(self.infraComponents.dhcp) || !has(self.infraComponents.dhcp.replicas) || \
         self.infraComponents.dhcp.replicas == 1 || \
         (has(self.infraComponents.dhcp.leaseStorage) && self.infraComponents.dhcp.leaseStorage == 'Kubernetes')",
        "several DHCP replicas share their leases through the API server: set dhcp.leaseStorage to Kubernetes, \
         or dhcp.replicas to 1",
    ));
    rules
}

/// The VLAN of a hosted cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkConfig {
    /// The network of the VLAN, such as `192.168.100.0/24`; from /8 to /30.
    #[schemars(schema_with = "schema::ipv4_network")]
    pub cidr: String,
    /// The default gateway of the VLAN, such as `192.168.100.1`.
    #[schemars(schema_with = "schema::ipv4")]
    pub gateway: String,
    /// The NetworkAttachmentDefinition of the VLAN.
    #[schemars(length(min = 1, max = 253))]
    pub network_attachment_definition: String,
    /// Its namespace. Unset means that of this resource, then `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub network_attachment_namespace: Option<String>,
    /// Resolvers for names that are not the hosted cluster's. With none, such names are not resolved; `system`
    /// means the resolvers of the pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::upstreams")]
    pub dns_servers: Vec<String>,
    /// The largest packet on the VLAN. Unset means that nodes keep their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 576, max = 65535))]
    pub mtu: Option<i32>,
    /// Time servers of the nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::ipv4_set")]
    pub ntp_servers: Vec<String>,
    /// Domains that nodes search. Unset means the hosted cluster's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::hostnames")]
    pub search_domains: Vec<String>,
    /// Routes of the nodes besides the default one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub routes: Vec<StaticRoute>,
}

/// The HostedCluster of an Infra.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostedClusterRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace. Unset means that of this resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
}

/// What runs on the VLAN.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InfraComponents {
    /// The DHCP server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp: Option<DhcpComponent>,
    /// The DNS server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<DnsComponent>,
    /// The gateway to the control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyComponent>,
}

fn enabled() -> bool {
    true
}

/// The DHCP server of an Infra.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DhcpComponent {
    /// Whether it runs.
    #[serde(default = "enabled")]
    pub enabled: bool,
    /// Its address on the VLAN. Unset means that one is chosen and kept; `status.addresses` shows it.
    #[serde(default, rename = "serverIP", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::ipv4_maybe_prefixed")]
    pub server_ip: Option<String>,
    /// Addresses of its further replicas.
    #[serde(
        default,
        rename = "additionalServerIPs",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(schema_with = "schema::ipv4_set")]
    pub additional_server_ips: Vec<String>,
    /// The first address that nodes get. Unset, together with `rangeEnd`, means that the range is chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::ipv4")]
    pub range_start: Option<String>,
    /// The last address that nodes get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::ipv4")]
    pub range_end: Option<String>,
    /// How long a node may keep its address without renewing it, such as `1h` or `24h`.
    #[serde(default = "default_lease_time")]
    #[schemars(schema_with = "schema::lease_time", extend("default" = "1h"))]
    pub lease_time: String,
    /// Addresses that belong to one node each, inside or outside the range.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub reservations: Vec<Reservation>,
    /// Addresses that no node gets: `192.168.100.20`, or `192.168.100.20-192.168.100.29`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "exclusions")]
    pub exclusions: Vec<String>,
    /// Further options that nodes get, by their number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub options: Vec<DhcpOption>,
    /// What to do with machines that are neither reserved nor a known virtual machine of the cluster. Unset means
    /// that they are served, unless another Infra shares the VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_clients: Option<UnknownClients>,
    /// Where leases are kept. Several replicas need `Kubernetes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_storage: Option<LeaseStorage>,
    /// The volume that keeps embedded leases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<LeaseVolume>,
    /// How many servers share the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 5))]
    pub replicas: Option<i32>,
    /// Requests and limits of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// The container image. Unset means the image of the operator itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

fn default_lease_time() -> String {
    "1h".into()
}

/// The DNS server of an Infra.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DnsComponent {
    /// Whether it runs.
    #[serde(default = "enabled")]
    pub enabled: bool,
    /// Its address on the VLAN. Unset means that one is chosen and kept; `status.addresses` shows it.
    #[serde(default, rename = "serverIP", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::ipv4_maybe_prefixed")]
    pub server_ip: Option<String>,
    /// Addresses of its further replicas.
    #[serde(
        default,
        rename = "additionalServerIPs",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(schema_with = "schema::ipv4_set")]
    pub additional_server_ips: Vec<String>,
    /// The base domain of the hosted cluster, such as `example.com`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub base_domain: Option<String>,
    /// The name of the hosted cluster. Its domain is `<clusterName>.<baseDomain>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub cluster_name: Option<String>,
    /// Further names with their addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512))]
    pub static_entries: Vec<DnsStaticEntry>,
    /// Zones with resolvers of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub forward_zones: Vec<ForwardZone>,
    /// For how long an answer is kept at most. Unset means 30s.
    #[serde(default, rename = "cacheTTL", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub cache_ttl: Option<String>,
    /// Whether the resolvers of the management cluster forward the hosted cluster's zone to this server
    /// (OpenShift DNS operator).
    #[serde(
        default,
        rename = "publishToClusterDNS",
        skip_serializing_if = "Option::is_none"
    )]
    pub publish_to_cluster_dns: Option<bool>,
    /// How many servers answer, each at an address of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 5))]
    pub replicas: Option<i32>,
    /// Requests and limits of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// The container image. Unset means the image of the operator itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// The gateway of an Infra.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyComponent {
    /// Whether it runs.
    #[serde(default = "enabled")]
    pub enabled: bool,
    /// Its address on the VLAN. Unset means that one is chosen and kept; `status.addresses` shows it.
    #[serde(default, rename = "serverIP", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::ipv4_maybe_prefixed")]
    pub server_ip: Option<String>,
    /// Addresses of its further replicas.
    #[serde(
        default,
        rename = "additionalServerIPs",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(schema_with = "schema::ipv4_set")]
    pub additional_server_ips: Vec<String>,
    /// The namespace of the control plane. Unset means `<namespace>-<name>` of this resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub control_plane_namespace: Option<String>,
    /// The Service of the API server there.
    #[serde(default = "default_api_server_service", rename = "apiServerService")]
    #[schemars(length(max = 63))]
    pub api_server_service: String,
    /// What pods of the management cluster reach the gateway by: an address, or the name of a Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub internal_proxy_service: Option<String>,
    /// What is forwarded. Unset means what is derived from the HostedCluster, or the services that every control
    /// plane has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub backends: Vec<ProxyBackend>,
    /// The data plane: Envoy, or the built-in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<ProxyEngine>,
    /// After how long without a byte in either direction a connection is closed. Unset means 24h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub idle_timeout: Option<String>,
    /// How much the gateway logs. Unset means `info`. A change applies without a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_level: Option<LogLevel>,
    /// Whether the operator admits the gateway to the namespace of the control plane by a NetworkPolicy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<NetworkPolicyMode>,
    /// Published addresses of the API server that are not on the VLAN and that the gateway answers for.
    #[serde(default, rename = "publishedIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::ipv4_set")]
    pub published_ips: Vec<String>,
    /// Where the hosted cluster's own router listens on its nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apps: Option<AppsPorts>,
    /// How many gateways there are, each at an address of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 5))]
    pub replicas: Option<i32>,
    /// Requests and limits of the data plane's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// The image of Envoy. Unset means the one that the operator was released with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_image: Option<String>,
    /// The image of oooi itself. Unset means the image of the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager_image: Option<String>,
}

fn default_api_server_service() -> String {
    "kube-apiserver".into()
}

/// Whether the operator writes a NetworkPolicy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum NetworkPolicyMode {
    /// It does.
    #[default]
    Managed,
    /// Somebody else does.
    None,
}

/// What is known of an Infra.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InfraStatus {
    /// How it is, one entry an aspect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The generation of the specification that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Which components are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component_status: Option<ComponentStatus>,
    /// The addresses of the servers on the VLAN, chosen ones included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<InfraAddresses>,
}

/// Which components of an Infra are ready.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentStatus {
    /// The DHCP server is.
    #[serde(default, rename = "dhcpReady")]
    pub dhcp_ready: bool,
    /// The DNS server is.
    #[serde(default, rename = "dnsReady")]
    pub dns_ready: bool,
    /// The gateway is.
    #[serde(default)]
    pub proxy_ready: bool,
}

/// The addresses of the servers of an Infra.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InfraAddresses {
    /// Of the DHCP servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dhcp: Vec<String>,
    /// Of the DNS servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<String>,
    /// Of the gateways.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proxy: Vec<String>,
    /// The range that nodes get addresses of, as `first-last`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhcp_range: Option<String>,
}
