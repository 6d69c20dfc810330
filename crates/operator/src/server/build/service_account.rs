//! The account that a server's pods run under.

use k8s_openapi::api::core::v1::ServiceAccount;

use super::{account_name, metadata};
use crate::server::Server;

pub(super) fn build<S: Server>(server: &S) -> ServiceAccount {
    ServiceAccount {
        metadata: metadata(server, account_name(server)),
        ..ServiceAccount::default()
    }
}
