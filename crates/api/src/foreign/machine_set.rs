//! OpenShift's `MachineSet`: how the cluster's machines are made, read for the subnets that they are in.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{absent_is_default, null_is_default};

/// What was asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "machine.openshift.io",
    version = "v1beta1",
    kind = "MachineSet",
    plural = "machinesets",
    namespaced,
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq",
    doc = "Machines of the cluster that are alike."
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct MachineSetSpec {
    /// How a machine is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<MachineTemplate>,
}
absent_is_default!(MachineSetSpec);

/// How a machine is made.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineTemplate {
    /// Its specification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<MachineSpec>,
}

/// The specification of a machine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineSpec {
    /// The part of its platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_spec: Option<ProviderSpec>,
}

/// The part of a platform.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProviderSpec {
    /// An object of the platform's own kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<ProviderValue>,
}

/// An object of a platform's own kind. The schema lets anything be in here.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProviderValue {
    /// The subnet: an object on AWS, a name on Azure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet: Option<MachineSubnet>,
    /// The virtual network, on Azure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vnet: Option<String>,
    /// The resource group of the virtual network, on Azure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_resource_group: Option<String>,
}

/// A subnet, in the way of each platform.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum MachineSubnet {
    /// By its name (Azure).
    Name(String),
    /// By its id or by filters (AWS).
    Reference(SubnetReference),
    /// In a way that we do not know.
    Other(Value),
}

/// A subnet of AWS.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SubnetReference {
    /// Its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What finds it, where the id is unset.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<SubnetFilter>,
}

/// A filter of EC2.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SubnetFilter {
    /// What is compared, such as `tag:Name`.
    pub name: String,
    /// Any of these.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_empty_is_readable, read};
    use super::*;

    fn subnet(value: &str) -> MachineSubnet {
        let set: MachineSet = read(&format!(
            "
apiVersion: machine.openshift.io/v1beta1
kind: MachineSet
metadata: {{name: workers, namespace: openshift-machine-api}}
spec:
  replicas: 2
  template:
    metadata: {{labels: {{a: b}}}}
    spec: {{providerSpec: {{value: {{kind: SomeMachine, instanceType: m5, subnet: {value}}}}}}}
"
        ));
        let template = set.spec.template.unwrap().spec.unwrap();
        template.provider_spec.unwrap().value.unwrap().subnet.unwrap()
    }

    #[test]
    fn a_subnet_is_read_in_the_way_of_each_platform() {
        assert_eq!(subnet("workers"), MachineSubnet::Name("workers".into()));
        let MachineSubnet::Reference(by_id) = subnet("{id: subnet-1, arn: none}") else {
            panic!("a subnet by its id")
        };
        assert_eq!(by_id.id.as_deref(), Some("subnet-1"));
        let MachineSubnet::Reference(by_name) = subnet("{filters: [{name: 'tag:Name', values: [a]}]}") else {
            panic!("a subnet by its name")
        };
        assert_eq!(by_name.filters[0].values, ["a"]);
    }

    #[test]
    fn a_subnet_of_another_form_does_not_make_the_object_unreadable() {
        assert_eq!(subnet("[1, 2]"), MachineSubnet::Other(serde_json::json!([1, 2])));
    }

    #[test]
    fn an_empty_object_is_readable() {
        assert_empty_is_readable::<MachineSet>();
    }
}
