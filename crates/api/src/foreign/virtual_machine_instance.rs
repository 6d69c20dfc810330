//! KubeVirt's `VirtualMachineInstance`: a running virtual machine, and the MAC addresses that it asks with.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{absent_is_default, null_is_default};

/// What was asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "kubevirt.io",
    version = "v1",
    kind = "VirtualMachineInstance",
    plural = "virtualmachineinstances",
    namespaced,
    status = "VirtualMachineInstanceStatus",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq",
    doc = "A running virtual machine. Its name is the name of the node that it is."
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct VirtualMachineInstanceSpec {
    /// The machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<Domain>,
    /// What its interfaces are connected to.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<VirtualMachineNetwork>,
}
absent_is_default!(VirtualMachineInstanceSpec);

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Domain {
    /// Its devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<Devices>,
}

/// The devices of a machine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Devices {
    /// Its interfaces.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<MachineInterface>,
}

/// An interface as it was asked for.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineInterface {
    /// Also the name of its network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Set at admission where a pool of MAC addresses is kept: the earliest and most stable place of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
}

/// What an interface is connected to.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineNetwork {
    /// The name of the interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Set for a network of Multus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multus: Option<MultusNetwork>,
}

/// A network of Multus.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MultusNetwork {
    /// A NetworkAttachmentDefinition as `namespace/name`, or as its name in the machine's own namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_name: Option<String>,
}

/// What is seen of it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceStatus {
    /// How far it has come, such as `Running` or `Succeeded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Its interfaces. May lag the machine's first packets.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<ObservedInterface>,
}

/// An interface as it is seen.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedInterface {
    /// The name that it has in the specification; absent for one that only the guest knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its MAC address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Its first address, as the guest's agent or the pod says.
    #[serde(rename = "ipAddress", skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<String>,
    /// All its addresses.
    #[serde(
        rename = "ipAddresses",
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ip_addresses: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_empty_is_readable, read};
    use super::*;

    #[test]
    fn the_mac_addresses_are_read_from_both_places() {
        let machine: VirtualMachineInstance = read(
            "
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: workers-0, namespace: clusters-tenant}
spec:
  terminationGracePeriodSeconds: 0
  networks:
  - {name: iface1, multus: {networkName: default/vlan100}}
  - {name: other, pod: {}}
  domain:
    memory: {guest: 8Gi}
    devices:
      disks: []
      interfaces: [{name: iface1, bridge: {}, macAddress: '02:00:00:00:00:01'}]
status:
  phase: Running
  interfaces: [{name: iface1, mac: '02:00:00:00:00:02', ipAddress: 192.168.100.7, ipAddresses: [192.168.100.7, 'fe80::1'], queueCount: 1}]
",
        );
        let interfaces = machine.spec.domain.unwrap().devices.unwrap().interfaces;
        assert_eq!(interfaces[0].mac_address.as_deref(), Some("02:00:00:00:00:01"));
        let network = machine.spec.networks[0].multus.as_ref().unwrap();
        assert_eq!(network.network_name.as_deref(), Some("default/vlan100"));
        assert_eq!(machine.spec.networks[1].multus, None);
        let status = machine.status.unwrap();
        assert_eq!(status.interfaces[0].mac.as_deref(), Some("02:00:00:00:00:02"));
        assert_eq!(status.interfaces[0].ip_address.as_deref(), Some("192.168.100.7"));
        assert_eq!(status.interfaces[0].ip_addresses.len(), 2);
        assert_eq!(status.phase.as_deref(), Some("Running"));
    }

    #[test]
    fn an_empty_object_is_readable() {
        assert_empty_is_readable::<VirtualMachineInstance>();
    }
}
