//! HyperShift's `HostedCluster`: a cluster whose control plane runs as pods of the management cluster.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PublishedService, absent_is_default, null_is_default};

/// What was asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "hypershift.openshift.io",
    version = "v1beta1",
    kind = "HostedCluster",
    plural = "hostedclusters",
    namespaced,
    status = "HostedClusterStatus",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq",
    doc = "A cluster whose control plane runs as pods of the management cluster."
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct HostedClusterSpec {
    /// The platform of its nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<HostedClusterPlatform>,
    /// The id that labels its infrastructure.
    #[serde(rename = "infraID", skip_serializing_if = "Option::is_none")]
    pub infra_id: Option<String>,
    /// The id of the cluster itself.
    #[serde(rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// A further name that the API server's certificate carries.
    #[serde(rename = "kubeAPIServerDNSName", skip_serializing_if = "Option::is_none")]
    pub kube_api_server_dns_name: Option<String>,
    /// Its domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<ClusterDns>,
    /// Its networks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub networking: Option<ClusterNetworking>,
    /// How each service of the control plane is published.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<PublishedService>,
    /// Configuration of the cluster itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<ClusterConfiguration>,
}
absent_is_default!(HostedClusterSpec);

/// The platform of a cluster's nodes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostedClusterPlatform {
    /// Which platform.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<PlatformType>,
    /// Only with [`PlatformType::KubeVirt`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubevirt: Option<KubevirtPlatform>,
}

/// The name of a platform of HyperShift.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum PlatformType {
    /// Virtual machines of KubeVirt.
    KubeVirt,
    /// Any other; none of them is ours.
    #[serde(untagged)]
    Other(String),
}

/// Nodes as virtual machines of KubeVirt.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KubevirtPlatform {
    /// Whether the domain is one below that of the management cluster, whose router then passes `*.apps` on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_domain_passthrough: Option<bool>,
    /// The end of the name of the passthrough Service.
    #[serde(rename = "generateID", skip_serializing_if = "Option::is_none")]
    pub generate_id: Option<String>,
    /// Set where the virtual machines run on another cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<InfraCredentials>,
}

/// The way to the cluster that runs the virtual machines, where it is another one.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct InfraCredentials {
    /// Holds a kubeconfig.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infra_kube_config_secret: Option<SecretKeyReference>,
    /// The namespace of the virtual machines there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infra_namespace: Option<String>,
}

/// A key of a Secret in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SecretKeyReference {
    /// The Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The domain of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterDns {
    /// The domain that the cluster's own is below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_domain: Option<String>,
    /// Unset stands for the cluster's name, empty for no prefix at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_domain_prefix: Option<String>,
}

/// The networks of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterNetworking {
    /// The networks of the nodes, at most one of each address family.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub machine_network: Vec<NetworkEntry>,
    /// The networks of the pods.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub cluster_network: Vec<NetworkEntry>,
    /// The networks of the Services.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub service_network: Vec<NetworkEntry>,
    /// How the API server shows itself on the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_server: Option<ApiServerNetworking>,
}

/// One network.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkEntry {
    /// The network in CIDR form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cidr: Option<String>,
}

/// How the API server shows itself on the nodes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiServerNetworking {
    /// The address that the node's own proxy listens on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertise_address: Option<String>,
    /// Its port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}

/// Configuration of the cluster itself.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterConfiguration {
    /// Its router.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress: Option<IngressConfiguration>,
}

/// The domains of a cluster's router.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressConfiguration {
    /// Goes before `domain` for new Routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apps_domain: Option<String>,
    /// Unset stands for `apps.` and the cluster's domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
}

/// What has become of it: the authoritative source of the endpoints that nodes use.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostedClusterStatus {
    /// Where the API server is reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<Endpoint>,
    /// Where a node gets its first configuration: `host` or `host:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignition_endpoint: Option<String>,
    /// A URL that has the OAuth server's host and port in it.
    #[serde(rename = "oauthCallbackURLTemplate", skip_serializing_if = "Option::is_none")]
    pub oauth_callback_url_template: Option<String>,
    /// The Secret with the cluster's kubeconfig.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<KubeconfigReference>,
}

/// A host and a port.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    /// A name or an address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}

/// A Secret in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeconfigReference {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_empty_is_readable, read};
    use super::super::{PublishingType, ServiceType};
    use super::*;

    #[test]
    fn the_fields_that_we_read_are_found_among_the_others() {
        let cluster: HostedCluster = read(
            "
apiVersion: hypershift.openshift.io/v1beta1
kind: HostedCluster
metadata: {name: tenant, namespace: clusters}
spec:
  release: {image: registry.invalid/release:1}
  infraID: tenant-x7
  kubeAPIServerDNSName: api.tenant.example.com
  dns: {baseDomain: example.com, baseDomainPrefix: ''}
  platform:
    type: KubeVirt
    kubevirt: {generateID: abc, baseDomainPassthrough: true, storageDriver: {type: Default}}
  networking:
    networkType: OVNKubernetes
    machineNetwork: [{cidr: 192.168.100.0/24}]
    apiServer: {port: 7443}
  services:
  - service: APIServer
    servicePublishingStrategy: {type: LoadBalancer, loadBalancer: {hostname: api.example.com}}
  - service: Ignition
    servicePublishingStrategy: {type: NodePort, nodePort: {address: node.example.com, port: 30443}}
status:
  controlPlaneEndpoint: {host: api.example.com, port: 6443}
  conditions: [{type: Available}]
",
        );
        assert_eq!(
            cluster.spec.platform.as_ref().unwrap().type_,
            Some(PlatformType::KubeVirt)
        );
        let dns = cluster.spec.dns.unwrap();
        assert_eq!(
            dns.base_domain_prefix.as_deref(),
            Some(""),
            "an empty prefix is not a missing one"
        );
        assert_eq!(
            cluster.spec.networking.unwrap().api_server.unwrap().port,
            Some(7443)
        );
        assert_eq!(cluster.spec.services[0].service, Some(ServiceType::APIServer));
        let ignition = cluster.spec.services[1]
            .service_publishing_strategy
            .clone()
            .unwrap();
        assert_eq!(ignition.type_, Some(PublishingType::NodePort));
        assert_eq!(ignition.node_port.unwrap().port, Some(30443));
        assert_eq!(
            cluster.status.unwrap().control_plane_endpoint.unwrap().port,
            Some(6443)
        );
    }

    #[test]
    fn values_of_a_later_version_are_kept_as_their_text() {
        let cluster: HostedCluster = read(
            "
apiVersion: hypershift.openshift.io/v1beta1
kind: HostedCluster
metadata: {name: tenant}
spec:
  platform: {type: Moon}
  services:
  - {service: Gateway, servicePublishingStrategy: {type: Tunnel, tunnel: {depth: 3}}}
",
        );
        assert_eq!(
            cluster.spec.platform.unwrap().type_,
            Some(PlatformType::Other("Moon".into()))
        );
        let service = cluster.spec.services[0].clone();
        assert_eq!(service.service, Some(ServiceType::Other("Gateway".into())));
        let strategy = service.service_publishing_strategy.unwrap();
        assert_eq!(
            serde_json::to_value(&strategy).unwrap(),
            serde_json::json!({"type": "Tunnel"})
        );
    }

    #[test]
    fn an_empty_object_is_readable() {
        assert_empty_is_readable::<HostedCluster>();
    }
}
