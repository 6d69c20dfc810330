//! What a server needs outside its own resource: to read something in a namespace, and to reach pods there.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::api::ObjectMeta;

use crate::identity::MACHINE_NAMESPACE;

/// What is granted by one of the ClusterRoles that the manager may bind besides that of a server's own kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Virtual machines.
    Machines,
    /// Services and their endpoints.
    Backends,
    /// Nothing; it uses the SecurityContextConstraints that allow NET_RAW.
    RawSockets,
    /// Nothing; it uses the SecurityContextConstraints that allow NET_ADMIN as well.
    Routes,
}

impl Reading {
    /// The word in the name of its role and of bindings in the server's own namespace.
    pub(super) fn word(self) -> &'static str {
        match self {
            Reading::Machines => "machines",
            Reading::Backends => "backends",
            Reading::RawSockets => "raw-sockets",
            Reading::Routes => "routes",
        }
    }

    /// The name of its ClusterRole.
    pub(super) fn cluster_role(self) -> String {
        format!("oooi-{}", self.word())
    }
}

/// A namespace in which a server reads something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The namespace.
    pub namespace: String,
    /// What is read there.
    pub reading: Reading,
}

/// A port of a Service that a gateway forwards to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The Service's namespace.
    pub namespace: String,
    /// Its name.
    pub service: String,
    /// Its port, by number or by name.
    pub port: IntOrString,
}

/// The namespaces other than its own in which a server needs something.
pub(super) fn elsewhere(own: Option<&str>, grants: &[Grant]) -> BTreeSet<String> {
    grants
        .iter()
        .filter(|grant| Some(grant.namespace.as_str()) != own)
        .map(|grant| grant.namespace.clone())
        .collect()
}

/// The namespace of the machines that a server serves: the one that its Infra noted, else its own.
pub(crate) fn machine_namespace(metadata: &ObjectMeta) -> String {
    let noted = metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(MACHINE_NAMESPACE));
    noted.or(metadata.namespace.as_ref()).cloned().unwrap_or_default()
}

/// Where a server of a VLAN reads its machines.
pub(crate) fn machines(server: &impl ResourceExt) -> Vec<Grant> {
    vec![Grant {
        namespace: machine_namespace(server.meta()),
        reading: Reading::Machines,
    }]
}
