//! `DHCPLease`: one leased address, kept in the API server so that several DHCP servers can share it.
//!
//! Its name is `<dhcpserver>-a-b-c-d` for the address a.b.c.d: since the API server has one object a name, no
//! address can ever be leased twice.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// A leased address.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "hostedcluster.densityops.com",
    version = "v1alpha1",
    kind = "DHCPLease",
    root = "DhcpLease",
    namespaced,
    shortname = "dhcplease",
    category = "oooi",
    derive = "PartialEq",
    doc = "An address that a DHCP server leased to a client. Servers write it; people read it, and delete it to free \
           the address.",
    selectable = ".spec.server",
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.address"),
    printcolumn(name = "MAC", type_ = "string", json_path = ".spec.mac"),
    printcolumn(name = "Hostname", type_ = "string", json_path = ".spec.hostname"),
    printcolumn(name = "State", type_ = "string", json_path = ".spec.state"),
    printcolumn(name = "Expires", type_ = "string", json_path = ".spec.expires")
)]
#[serde(rename_all = "camelCase")]
pub struct DhcpLeaseSpec {
    /// The DHCPServer that leased it.
    #[schemars(length(min = 1, max = 253))]
    pub server: String,
    /// The address.
    #[schemars(schema_with = "schema::ipv4")]
    pub address: String,
    /// The client's hardware address. Empty for an address that is only held back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::mac")]
    pub mac: Option<String>,
    /// The client's identifier (option 61) in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 510))]
    pub client_id: Option<String>,
    /// The client's host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub hostname: Option<String>,
    /// The client is a known virtual machine: the address is freed when the machine is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub machine: bool,
    /// What the address is.
    #[serde(default)]
    pub state: DhcpLeaseState,
    /// Since when the client has it.
    #[schemars(extend("format" = "date-time"))]
    pub granted: String,
    /// Until when it has it.
    #[schemars(extend("format" = "date-time"))]
    pub expires: String,
}

/// What a leased address is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum DhcpLeaseState {
    /// A client's.
    #[default]
    Bound,
    /// Free again; kept so that its last client gets it back.
    Released,
    /// Somebody else uses it: held back until it expires.
    Quarantined,
}
