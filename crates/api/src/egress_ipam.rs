//! `EgressIPAM`: which addresses namespaces leave the cluster with.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::schema::{self, rule};

/// Networks that namespaces get egress addresses of, and the nodes that carry them.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "redhatcop.redhat.io",
    version = "v1alpha1",
    kind = "EgressIPAM",
    root = "EgressIpam",
    status = "EgressIpamStatus",
    category = "oooi",
    derive = "PartialEq",
    doc = "Gives every namespace that asks for it one egress address of each of its networks, and puts those addresses \
           on nodes.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        description = "Whether every namespace has its addresses and every address has a node",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(name = "Topology", type_ = "string", json_path = ".spec.topologyLabel"),
    printcolumn(name = "Namespaces", type_ = "integer", json_path = ".status.namespaces"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct EgressIpamSpec {
    /// The networks, in order. A namespace gets one address of each.
    #[serde(default, rename = "cidrAssignments", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["CIDR"])
    )]
    pub cidr_assignments: Vec<CidrAssignment>,
    /// The node label whose value tells which network a node carries addresses of.
    pub topology_label: String,
    /// Which nodes may carry addresses at all. Unset means every node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "node_selector")]
    pub node_selector: Option<LabelSelector>,
    /// Which free address a namespace gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_policy: Option<AllocationPolicy>,
}

fn node_selector(generator: &mut SchemaGenerator) -> Schema {
    let mut selector = generator.subschema_for::<LabelSelector>();
    selector.insert("x-kubernetes-map-type".into(), "atomic".into());
    selector
}

/// A network and the nodes that carry its addresses.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CidrAssignment {
    /// The network. Its addresses must be routable to the nodes that carry them.
    #[serde(rename = "CIDR")]
    #[schemars(schema_with = "egress_network")]
    pub cidr: String,
    /// The value of the topology label of the nodes that carry its addresses.
    pub label_value: String,
    /// Addresses that are used for something else.
    #[serde(default, rename = "reservedIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub reserved_ips: Vec<String>,
}

fn egress_network(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 18,
        "x-kubernetes-validations": [rule(
            "isCIDR(self) && cidr(self).ip().family() == 4",
            "must be an IPv4 network such as 10.0.128.0/20",
        )],
    })
}

/// Which free address a namespace gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum AllocationPolicy {
    /// The lowest one.
    #[default]
    Lowest,
    /// Any.
    Random,
}

/// What is known of an EgressIPAM.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgressIpamStatus {
    /// How it is, one entry an aspect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The generation of the specification that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Namespaces that ask for addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<i32>,
    /// How full each network is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["CIDR"]))]
    pub cidrs: Vec<CidrUsage>,
    /// Namespaces without all their addresses, the first hundred; their own events tell more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 100),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub failing_namespaces: Vec<FailingNamespace>,
}

/// How full a network is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CidrUsage {
    /// The network.
    #[serde(rename = "CIDR")]
    pub cidr: String,
    /// Addresses that can be given.
    pub total: i64,
    /// Addresses that are given.
    pub used: i64,
    /// Addresses that are left.
    pub free: i64,
}

/// A namespace without all its addresses.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailingNamespace {
    /// Its name.
    pub name: String,
    /// One CamelCase word.
    pub reason: String,
    /// What is wrong and what to do.
    pub message: String,
}
