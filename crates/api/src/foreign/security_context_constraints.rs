//! OpenShift's `SecurityContextConstraints`: what pods of some service accounts may ask for.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::null_is_default;

/// Its fields, which stand beside `metadata`: this kind has no `spec`. The fields that the vendor requires are always
/// written, the others when they are set.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "security.openshift.io",
    version = "v1",
    kind = "SecurityContextConstraints",
    plural = "securitycontextconstraints",
    no_spec,
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq",
    doc = "What pods of some service accounts may ask for."
)]
#[serde(rename_all = "camelCase", default)]
pub struct SecurityContextConstraintsFields {
    /// Where several fit, the highest is tried first.
    pub priority: Option<i32>,
    /// Whether a container may be privileged.
    pub allow_privileged_container: bool,
    /// Whether a process may gain rights that its parent lacks; unset means yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_privilege_escalation: Option<bool>,
    /// Whether the root file system must be read-only.
    pub read_only_root_filesystem: bool,
    /// Capabilities that may be asked for.
    #[serde(deserialize_with = "null_is_default")]
    pub allowed_capabilities: Vec<String>,
    /// Capabilities that are added unasked.
    #[serde(deserialize_with = "null_is_default")]
    pub default_add_capabilities: Vec<String>,
    /// Capabilities that are always dropped.
    #[serde(deserialize_with = "null_is_default")]
    pub required_drop_capabilities: Vec<String>,
    /// Whether files of the host may be mounted.
    pub allow_host_dir_volume_plugin: bool,
    /// Whether the host's network may be used.
    pub allow_host_network: bool,
    /// Whether ports of the host may be used.
    pub allow_host_ports: bool,
    /// Whether the host's processes may be seen.
    #[serde(rename = "allowHostPID")]
    pub allow_host_pid: bool,
    /// Whether the host's inter-process communication may be used.
    #[serde(rename = "allowHostIPC")]
    pub allow_host_ipc: bool,
    /// As whom containers run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_user: Option<RunAsUserStrategy>,
    /// Their SELinux labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub se_linux_context: Option<SELinuxStrategy>,
    /// The group of their volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_group: Option<IdStrategy>,
    /// Their further groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supplemental_groups: Option<IdStrategy>,
    /// Profiles of seccomp that may be asked for.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub seccomp_profiles: Vec<String>,
    /// Kernel settings beyond the safe ones that may be asked for.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub allowed_unsafe_sysctls: Vec<String>,
    /// Kernel settings that may not be asked for.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub forbidden_sysctls: Vec<String>,
    /// Kinds of volumes that may be asked for.
    #[serde(deserialize_with = "null_is_default")]
    pub volumes: Vec<String>,
    /// Users that may use it.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// Groups that may use it.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
}

/// As whom containers run.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RunAsUserStrategy {
    /// Such as `MustRunAsNonRoot` or `MustRunAsRange`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// The user, with `MustRunAs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<i64>,
    /// The first of a range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid_range_min: Option<i64>,
    /// The last of a range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid_range_max: Option<i64>,
}

/// SELinux labels.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SELinuxStrategy {
    /// `MustRunAs` or `RunAsAny`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
}

/// Group ids.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IdStrategy {
    /// `MustRunAs` or `RunAsAny`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// Which ids; unset means those of the namespace.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<IdRange>,
}

/// A range of ids.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IdRange {
    /// The first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<i64>,
    /// The last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_empty_is_readable, read};
    use super::*;

    #[test]
    fn the_constraints_are_read_and_null_is_an_empty_list() {
        let constraints: SecurityContextConstraints = read(
            "
apiVersion: security.openshift.io/v1
kind: SecurityContextConstraints
metadata: {name: oooi-dhcp}
priority: null
allowedCapabilities: [NET_RAW]
requiredDropCapabilities: null
runAsUser: {type: MustRunAsRange, uidRangeMin: 1000}
fsGroup: {type: MustRunAs, ranges: [{min: 1000, max: 2000}]}
seccompProfiles: [runtime/default]
defaultAllowPrivilegeEscalation: false
",
        );
        let fields = constraints.spec;
        assert_eq!(fields.allowed_capabilities, ["NET_RAW"]);
        assert!(fields.required_drop_capabilities.is_empty());
        assert_eq!(fields.run_as_user.unwrap().uid_range_min, Some(1000));
        assert_eq!(fields.fs_group.unwrap().ranges[0].max, Some(2000));
    }

    #[test]
    fn what_the_vendor_requires_is_always_written() {
        let written = serde_json::to_value(SecurityContextConstraints::default()).unwrap();
        for field in [
            "allowHostDirVolumePlugin",
            "allowHostIPC",
            "allowHostNetwork",
            "allowHostPID",
            "allowHostPorts",
            "allowPrivilegedContainer",
            "allowedCapabilities",
            "defaultAddCapabilities",
            "priority",
            "readOnlyRootFilesystem",
            "requiredDropCapabilities",
            "volumes",
        ] {
            assert!(written.get(field).is_some(), "{field} is missing");
        }
    }

    #[test]
    fn an_empty_object_is_readable() {
        assert_empty_is_readable::<SecurityContextConstraints>();
    }
}
