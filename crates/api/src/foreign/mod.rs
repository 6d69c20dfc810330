//! Kinds of other projects, with only the fields that we read or write.
//!
//! ```text
//! any version of the vendor's object ──decode──► the few fields that matter here, the rest passed over
//! ```
//! Nothing is refused that the vendor's own API server accepted: every field may be missing, unknown fields are
//! passed over, an unknown value of an enumeration is kept as its text, and an object without a `spec` reads as one
//! with an empty `spec`. One odd object must never make a whole list unreadable, for then a watch stands still for
//! all the others.
//!
//! The other side of this: what is written back whole loses the fields that are not named here. Foreign objects are
//! therefore patched, never replaced. Objects that we create ourselves have all that their vendor requires.

mod cloud_private_ip_config;
mod dns;
mod egress_ip;
mod host_subnet;
mod hosted_cluster;
mod infrastructure;
mod ingress;
mod machine_set;
mod net_namespace;
mod network;
mod network_attachment_definition;
mod node_pool;
mod publishing;
mod route;
mod security_context_constraints;
mod virtual_machine_instance;

use serde::{Deserialize, Deserializer};

pub use cloud_private_ip_config::{
    CloudPrivateIPConfig, CloudPrivateIPConfigSpec, CloudPrivateIPConfigStatus,
};
pub use dns::{DNS, DNSSpec, ForwardPlugin, ForwardPolicy, ForwardServer};
pub use egress_ip::{EgressIP, EgressIPItem, EgressIPSpec, EgressIPStatus};
pub use host_subnet::{HostSubnet, HostSubnetFields};
pub use hosted_cluster::{
    ApiServerNetworking, ClusterConfiguration, ClusterDns, ClusterNetworking, Endpoint, HostedCluster,
    HostedClusterPlatform, HostedClusterSpec, HostedClusterStatus, InfraCredentials, IngressConfiguration,
    KubeconfigReference, KubevirtPlatform, NetworkEntry, PlatformType, SecretKeyReference,
};
pub use infrastructure::{
    AwsPlatformStatus, AzurePlatformStatus, CloudPlatform, Infrastructure, InfrastructureSpec,
    InfrastructureStatus, PlatformStatus,
};
pub use ingress::{Ingress, IngressSpec};
pub use machine_set::{
    MachineSet, MachineSetSpec, MachineSpec, MachineSubnet, MachineTemplate, ProviderSpec, ProviderValue,
    SubnetFilter, SubnetReference,
};
pub use net_namespace::{NetNamespace, NetNamespaceFields};
pub use network::{Network, NetworkSpec, NetworkStatus, NetworkType};
pub use network_attachment_definition::{NetworkAttachmentDefinition, NetworkAttachmentDefinitionSpec};
pub use node_pool::{AdditionalNetwork, KubevirtNodes, NodePool, NodePoolPlatform, NodePoolSpec};
pub use publishing::{
    HostnamePublishing, NodePortPublishing, PublishedService, PublishingStrategy, PublishingType, ServiceType,
};
pub use route::{Route, RouteCondition, RouteIngress, RouteSpec, RouteStatus, RouteTarget};
pub use security_context_constraints::{
    IdRange, IdStrategy, RunAsUserStrategy, SELinuxStrategy, SecurityContextConstraints,
    SecurityContextConstraintsFields,
};
pub use virtual_machine_instance::{
    Devices, Domain, MachineInterface, MultusNetwork, ObservedInterface, VirtualMachineInstance,
    VirtualMachineInstanceSpec, VirtualMachineInstanceStatus, VirtualMachineNetwork,
};

/// Reads null as the default: servers written in Go send null for an empty list here and there.
fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Lets an object without a `spec` be read: kube's derive asks for the field, and serde lets only what reads as an
/// option be missing. The type derives its own serde code under `#[serde(remote = "Self")]`; this wraps it.
macro_rules! absent_is_default {
    ($spec:ident) => {
        impl<'de> serde::Deserialize<'de> for $spec {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Present($spec);
                impl<'de> serde::Deserialize<'de> for Present {
                    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                        $spec::deserialize(deserializer).map(Present)
                    }
                }
                let present: Option<Present> = serde::Deserialize::deserialize(deserializer)?;
                Ok(present.map(|Present(spec)| spec).unwrap_or_default())
            }
        }

        impl serde::Serialize for $spec {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $spec::serialize(self, serializer)
            }
        }
    };
}
use absent_is_default;

#[cfg(test)]
mod testing;
