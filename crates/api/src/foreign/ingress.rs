//! OpenShift's `Ingress` configuration: the domain of the management cluster's router.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::absent_is_default;

/// What was asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "Ingress",
    plural = "ingresses",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq",
    doc = "The domain of the cluster's router. There is one, `cluster`. Not the Ingress of networking.k8s.io."
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct IngressSpec {
    /// The domain of Routes without a host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Goes before `domain` for new Routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apps_domain: Option<String>,
}
absent_is_default!(IngressSpec);

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_empty_is_readable, read};
    use super::*;

    #[test]
    fn both_domains_are_read() {
        let ingress: Ingress = read(
            "
apiVersion: config.openshift.io/v1
kind: Ingress
metadata: {name: cluster}
spec: {domain: apps.mgmt.example.com, appsDomain: apps.example.com, componentRoutes: []}
status: {defaultPlacement: Workers}
",
        );
        assert_eq!(ingress.spec.domain.as_deref(), Some("apps.mgmt.example.com"));
        assert_eq!(ingress.spec.apps_domain.as_deref(), Some("apps.example.com"));
    }

    #[test]
    fn an_empty_object_is_readable() {
        assert_empty_is_readable::<Ingress>();
    }
}
