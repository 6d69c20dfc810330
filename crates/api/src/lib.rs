//! The API of oooi: its own kinds, one a file, and the few fields of other projects' kinds that it reads.
//!
//! The types are the source of the custom resource definitions under `deploy/crds/` ([`definitions`]). Addresses
//! and durations stay strings here: an object with a value that nobody can parse must still be readable, so that
//! its own status can say what is wrong with it. Whoever uses a specification parses it once, into a type that
//! cannot be wrong.

#![allow(clippy::duplicated_attributes, reason = "printer columns repeat their types")]

pub mod dhcp_lease;
pub mod dhcp_server;
pub mod dns_server;
pub mod duration;
pub mod egress_ipam;
pub mod foreign;
pub mod infra;
pub mod mistake;
pub mod proxy_server;
pub mod report;
mod schema;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

pub use dhcp_lease::DhcpLease;
pub use dhcp_server::DhcpServer;
pub use dns_server::DnsServer;
pub use egress_ipam::EgressIpam;
pub use infra::Infra;
pub use proxy_server::ProxyServer;

/// The definitions of all our kinds.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    let mut definitions = vec![
        Infra::crd(),
        DhcpServer::crd(),
        DnsServer::crd(),
        ProxyServer::crd(),
        DhcpLease::crd(),
        EgressIpam::crd(),
    ];
    for version in definitions
        .iter_mut()
        .flat_map(|definition| &mut definition.spec.versions)
    {
        if let Some(schema) = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
        {
            forbid_nulls(schema);
        }
    }
    definitions
}

/// An optional field is set or absent, never null: the API server then drops a null, as it did for the kinds that
/// these replace, and a rule that asks `has(self.x)` need not ask whether `x` is null as well.
fn forbid_nulls(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    for property in schema
        .properties
        .iter_mut()
        .flat_map(|properties| properties.values_mut())
    {
        forbid_nulls(property);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => forbid_nulls(item),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(forbid_nulls),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(additional)) = &mut schema.additional_properties {
        forbid_nulls(additional);
    }
}
