//! What a server's pods may do: the ClusterRole of their kind in their own namespace, and what they read wherever it
//! is.
//!
//! The manager may only bind these roles. It holds none of what they grant.

use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use kube::ResourceExt;
use kube::api::ObjectMeta;

use super::{account_name, metadata, named};
use crate::identity::metadata_elsewhere;
use crate::server::{Grant, Server};

/// What its own kind may do.
pub(super) fn build<S: Server>(server: &S) -> RoleBinding {
    let role = format!("oooi-{}", S::ROLE.word());
    binding(server, metadata(server, account_name(server)), role)
}

/// What it reads in one namespace. In its own it goes with the server; elsewhere it has labels that lead back.
pub(super) fn grant<S: Server>(server: &S, grant: &Grant) -> RoleBinding {
    let own = server.namespace().unwrap_or_default();
    let metadata = if grant.namespace == own {
        metadata(server, named(server, grant.reading.word()))
    } else {
        // A namespace has no dots, so that no two servers meet in one name.
        let name = format!("oooi.{own}.{}", account_name(server));
        metadata_elsewhere(server, &grant.namespace, name, S::ROLE)
    };
    binding(server, metadata, grant.reading.cluster_role())
}

fn binding<S: Server>(server: &S, metadata: ObjectMeta, role: String) -> RoleBinding {
    RoleBinding {
        metadata,
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".into(),
            kind: "ClusterRole".into(),
            name: role,
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".into(),
            name: account_name(server),
            namespace: server.namespace(),
            ..Subject::default()
        }]),
    }
}
