//! `DHCPServer`: one DHCP server on a VLAN.

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::report::ServerReport;
use crate::schema::{self, Layout, rule};

/// What a DHCP server serves, and where.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "hostedcluster.densityops.com",
    version = "v1alpha1",
    kind = "DHCPServer",
    root = "DhcpServer",
    namespaced,
    status = "DhcpServerStatus",
    shortname = "dhcpserver",
    category = "oooi",
    derive = "PartialEq",
    doc = "A DHCP server on a VLAN. It gives the nodes of a hosted cluster their addresses, resolvers and routes.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        description = "Whether the server runs as this resource says",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(
        name = "ServerIP",
        type_ = "string",
        json_path = ".spec.networkConfig.serverIP"
    ),
    printcolumn(
        name = "Active Leases",
        type_ = "integer",
        description = "Leases that have not expired",
        json_path = ".status.activeLeases"
    ),
    printcolumn(
        name = "Pool",
        type_ = "integer",
        description = "Addresses that can be leased",
        json_path = ".status.totalLeases"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules()))]
pub struct DhcpServerSpec {
    /// The network that the server is on.
    pub network_config: DhcpNetworkConfig,
    /// Which addresses are leased, to whom and for how long.
    pub lease_config: DhcpLeaseConfig,
    /// Further options that clients get, by their number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub options: Vec<DhcpOption>,
    /// The container image. Unset means the image of the operator itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// How many servers share the work. More than one needs `leaseConfig.storage: Kubernetes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 5))]
    pub replicas: Option<i32>,
    /// Requests and limits of the server's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// The volume that keeps the leases when they are embedded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<LeaseVolume>,
}

fn rules() -> Vec<Value> {
    let mut rules = Layout {
        cidr: "self.networkConfig.cidr",
        gateway: "self.networkConfig.gateway",
        servers: &[("DHCP", "self.networkConfig.serverIP", "true")],
        range: ("self.leaseConfig.rangeStart", "self.leaseConfig.rangeEnd", "true"),
    }
    .rules();
    rules.push(rule(
        "!has(self.replicas) || self.replicas == 1 || \
         (has(self.leaseConfig.storage) && self.leaseConfig.storage == 'Kubernetes')",
        "several replicas share their leases through the API server: set leaseConfig.storage to Kubernetes, \
         or replicas to 1",
    ));
    rules
}

/// The network of a DHCP server.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DhcpNetworkConfig {
    /// The network whose addresses the server manages, such as `192.168.100.0/24`.
    #[schemars(schema_with = "schema::ipv4_network")]
    pub cidr: String,
    /// The default gateway that clients get.
    #[schemars(schema_with = "schema::ipv4")]
    pub gateway: String,
    /// The server's own address on the network. A prefix length may follow; it must be that of `cidr`.
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
    /// Resolvers that clients get.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::ipv4_set")]
    pub dns_servers: Vec<String>,
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
    /// DHCP servers of other hosted clusters on the same VLAN, which are no strangers to this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::ipv4_set")]
    pub known_servers: Vec<String>,
    /// The largest packet on the network (option 26).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 576, max = 65535))]
    pub mtu: Option<i32>,
    /// Time servers that clients get (option 42).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::ipv4_set")]
    pub ntp_servers: Vec<String>,
    /// Domains that clients search (option 119). The first one is also their domain (option 15).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::hostnames")]
    pub search_domains: Vec<String>,
    /// Routes that clients get besides the default one (option 121).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub routes: Vec<StaticRoute>,
}

/// Which addresses are leased, to whom and for how long.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DhcpLeaseConfig {
    /// The first address of the pool.
    #[schemars(schema_with = "schema::ipv4")]
    pub range_start: String,
    /// The last address of the pool.
    #[schemars(schema_with = "schema::ipv4")]
    pub range_end: String,
    /// How long a client may keep its address without renewing it, such as `1h` or `24h`.
    #[serde(default = "default_lease_time")]
    #[schemars(schema_with = "schema::lease_time", extend("default" = "1h"))]
    pub lease_time: String,
    /// Addresses that belong to one client each, inside or outside the pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub reservations: Vec<Reservation>,
    /// Addresses that are never leased: `192.168.100.20`, or `192.168.100.20-192.168.100.29`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "exclusions")]
    pub exclusions: Vec<String>,
    /// What to do with clients that are neither reserved nor a known virtual machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_clients: Option<UnknownClients>,
    /// Where leases are kept: in a file of the server, or as `DHCPLease` resources that replicas share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<LeaseStorage>,
    /// Whether an address is probed by ARP before it is offered for the first time. Unset means that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict_probe: Option<bool>,
    /// Until when clients of a server that this one replaced keep the addresses that they ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub migration_grace: Option<String>,
}

fn default_lease_time() -> String {
    "1h".into()
}

pub(crate) fn exclusions(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "maxItems": 256,
        "items": {
            "type": "string",
            "maxLength": 33,
            "pattern": r"^(?:[0-9]{1,3}\.){3}[0-9]{1,3}(\s*-\s*(?:[0-9]{1,3}\.){3}[0-9]{1,3})?$",
            "x-kubernetes-validations": [rule(
                "self.split('-').all(a, isIP(a.trim()))",
                "must be an address (192.168.100.20) or a range of addresses (192.168.100.20-192.168.100.29)",
            )],
        },
    })
}

/// An address that belongs to one client.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rule(
    "has(self.mac) != has(self.clientId)",
    "a reservation names its client either by mac or by clientId",
)]))]
pub struct Reservation {
    /// The client's hardware address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::mac")]
    pub mac: Option<String>,
    /// The client's identifier (option 61) in hexadecimal digits, its type byte included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([0-9a-fA-F]{2}[:]?){1,64}$"), length(max = 192))]
    pub client_id: Option<String>,
    /// The address.
    #[schemars(schema_with = "schema::ipv4")]
    pub address: String,
    /// The host name that the client gets (option 12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        regex(pattern = r"^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?$"),
        length(max = 63)
    )]
    pub hostname: Option<String>,
}

/// A route that clients get.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticRoute {
    /// The network that the route leads to, such as `10.20.0.0/16`.
    #[schemars(schema_with = "destination")]
    pub destination: String,
    /// The next hop.
    #[schemars(schema_with = "schema::ipv4")]
    pub gateway: String,
}

fn destination(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "string",
        "maxLength": 18,
        "x-kubernetes-validations": [rule(
            "isCIDR(self) && cidr(self).ip().family() == 4",
            "must be an IPv4 network such as 10.20.0.0/16",
        )],
    })
}

/// A DHCP option by its number.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DhcpOption {
    /// The option's number.
    #[schemars(range(min = 1, max = 254))]
    pub code: i32,
    /// Its value: text, addresses separated by commas, or hexadecimal digits after `0x`.
    #[schemars(length(max = 1024))]
    pub value: String,
    /// How the value is written. Unset means that its looks decide: `0x…` is hexadecimal, a list of addresses
    /// is a list of addresses, and everything else is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<OptionFormat>,
}

/// How the value of a DHCP option is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum OptionFormat {
    /// As text.
    Text,
    /// As IPv4 addresses separated by commas.
    Addresses,
    /// As hexadecimal digits.
    Hex,
}

/// What to do with clients that nobody named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum UnknownClients {
    /// They get an address.
    #[default]
    Serve,
    /// They get no answer.
    Ignore,
}

/// Where leases are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum LeaseStorage {
    /// In a file of the server.
    #[default]
    Embedded,
    /// As `DHCPLease` resources.
    Kubernetes,
}

/// The volume that keeps embedded leases.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaseVolume {
    /// Its size. Unset means 25Mi, which is enough for a /16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// Its StorageClass. Unset means the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
}

/// What is known of a DHCP server.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DhcpServerStatus {
    /// How the server is, one entry an aspect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The generation of the specification that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Leases that have not expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_leases: Option<i32>,
    /// Addresses that can be leased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_leases: Option<i32>,
    /// When a lease was last given, renewed or freed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_lease_change: Option<String>,
    /// What each running server says of itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["pod"]))]
    pub servers: Vec<ServerReport>,
}
