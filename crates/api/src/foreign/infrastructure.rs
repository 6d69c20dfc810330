//! OpenShift's `Infrastructure`: what the management cluster runs on.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::absent_is_default;

/// What was asked for: nothing that we read.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "Infrastructure",
    plural = "infrastructures",
    status = "InfrastructureStatus",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq",
    doc = "What the cluster runs on. There is one, `cluster`."
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct InfrastructureSpec {}
absent_is_default!(InfrastructureSpec);

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct InfrastructureStatus {
    /// The name that tags the cluster's objects in its cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure_name: Option<String>,
    /// The platform and what is known of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform_status: Option<PlatformStatus>,
}

/// The platform and what is known of it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlatformStatus {
    /// Which platform.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<CloudPlatform>,
    /// Only with [`CloudPlatform::AWS`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws: Option<AwsPlatformStatus>,
    /// Only with [`CloudPlatform::Azure`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure: Option<AzurePlatformStatus>,
}

/// The name of a platform.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum CloudPlatform {
    /// Amazon Web Services.
    AWS,
    /// Microsoft Azure.
    Azure,
    /// Any other: bare metal, vSphere, OpenStack, none and so on.
    #[serde(untagged)]
    Other(String),
}

/// What is known of AWS.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AwsPlatformStatus {
    /// The region.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
}

/// What is known of Azure.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AzurePlatformStatus {
    /// Holds the machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_group_name: Option<String>,
    /// Holds the network, where it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_resource_group_name: Option<String>,
    /// Which of the Azure clouds, such as `AzurePublicCloud`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_name: Option<String>,
    /// The resource manager of an Azure Stack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arm_endpoint: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_empty_is_readable, read};
    use super::*;

    #[test]
    fn the_platform_and_its_region_are_read() {
        let infrastructure: Infrastructure = read(
            "
apiVersion: config.openshift.io/v1
kind: Infrastructure
metadata: {name: cluster}
spec: {platformSpec: {type: AWS}}
status:
  infrastructureName: mgmt-a1
  apiServerURL: https://api.mgmt.example.com:6443
  platformStatus: {type: AWS, aws: {region: eu-north-1, resourceTags: []}}
",
        );
        let status = infrastructure.status.unwrap();
        assert_eq!(status.infrastructure_name.as_deref(), Some("mgmt-a1"));
        let platform = status.platform_status.unwrap();
        assert_eq!(platform.type_, Some(CloudPlatform::AWS));
        assert_eq!(platform.aws.unwrap().region.as_deref(), Some("eu-north-1"));
    }

    #[test]
    fn a_platform_that_needs_no_calls_is_kept_as_its_text() {
        let platform: PlatformStatus = serde_json::from_str(r#"{"type": "VSphere"}"#).unwrap();
        assert_eq!(platform.type_, Some(CloudPlatform::Other("VSphere".into())));
    }

    #[test]
    fn an_empty_object_is_readable() {
        assert_empty_is_readable::<Infrastructure>();
    }
}
