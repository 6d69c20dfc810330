//! OpenShift's `Route`: a name that the management cluster's router serves.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{absent_is_default, null_is_default};

/// What was asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "route.openshift.io",
    version = "v1",
    kind = "Route",
    plural = "routes",
    namespaced,
    status = "RouteStatus",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq",
    doc = "A name that the management cluster's router serves."
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct RouteSpec {
    /// The name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// What it leads to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<RouteTarget>,
}
absent_is_default!(RouteSpec);

/// What a Route leads to.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteTarget {
    /// `Service`, so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its name, in the Route's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// What the routers made of it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteStatus {
    /// One entry a router.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub ingress: Vec<RouteIngress>,
}

/// What one router made of a Route.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteIngress {
    /// The name that it serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Among them `Admitted`.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<RouteCondition>,
}

/// A condition of a Route. Not the usual type: here the reason, the message and the time may be missing.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteCondition {
    /// Its name.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// `True`, `False` or `Unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_empty_is_readable, read};
    use super::*;

    #[test]
    fn the_name_that_a_router_serves_is_read() {
        let route: Route = read(
            "
apiVersion: route.openshift.io/v1
kind: Route
metadata: {name: ignition-server, namespace: clusters-tenant}
spec:
  host: ignition.example.com
  to: {kind: Service, name: ignition-server-proxy, weight: 100}
  port: {targetPort: https}
  tls: {termination: passthrough}
status:
  ingress:
  - host: ignition.example.com
    routerName: default
    conditions: [{type: Admitted, status: 'True'}]
",
        );
        assert_eq!(
            route.spec.to.unwrap().name.as_deref(),
            Some("ignition-server-proxy")
        );
        let ingress = &route.status.unwrap().ingress[0];
        assert_eq!(ingress.host.as_deref(), Some("ignition.example.com"));
        assert_eq!(ingress.conditions[0].status.as_deref(), Some("True"));
    }

    #[test]
    fn an_empty_object_is_readable() {
        assert_empty_is_readable::<Route>();
    }
}
