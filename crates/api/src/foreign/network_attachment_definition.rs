//! `NetworkAttachmentDefinition` of the Network Plumbing Working Group: a network that Multus attaches pods to.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::absent_is_default;

/// What it is.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "k8s.cni.cncf.io",
    version = "v1",
    kind = "NetworkAttachmentDefinition",
    plural = "network-attachment-definitions",
    namespaced,
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq",
    doc = "A network that Multus attaches pods and virtual machines to."
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct NetworkAttachmentDefinitionSpec {
    /// The CNI configuration as JSON text. Unset means a file on the node that has the object's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}
absent_is_default!(NetworkAttachmentDefinitionSpec);

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_empty_is_readable, read};
    use super::*;

    #[test]
    fn the_configuration_stays_text() {
        let definition: NetworkAttachmentDefinition = read(
            r#"
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan100, namespace: default}
spec:
  config: '{"cniVersion": "0.3.1", "type": "bridge", "bridge": "vlan100"'
  later: field
"#,
        );
        assert!(
            definition.spec.config.unwrap().starts_with("{\"cniVersion\""),
            "text that is no JSON is for whoever parses it to report"
        );
    }

    #[test]
    fn an_empty_object_is_readable() {
        assert_empty_is_readable::<NetworkAttachmentDefinition>();
    }
}
