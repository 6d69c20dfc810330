//! What a server's pods may do: the ClusterRole of their kind, in their own namespace.
//!
//! The manager may only bind these roles. It holds none of what they grant.

use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use kube::ResourceExt;

use super::{account_name, metadata};
use crate::server::Server;

pub(super) fn build<S: Server>(server: &S) -> RoleBinding {
    RoleBinding {
        metadata: metadata(server, account_name(server)),
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".into(),
            kind: "ClusterRole".into(),
            name: format!("oooi-{}", S::ROLE.word()),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".into(),
            name: account_name(server),
            namespace: server.namespace(),
            ..Subject::default()
        }]),
    }
}
