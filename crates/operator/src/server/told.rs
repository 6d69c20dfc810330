//! What the statuses of the three kinds have in common.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use oooi_api::dhcp_server::DhcpServerStatus;
use oooi_api::dns_server::DnsServerStatus;
use oooi_api::proxy_server::ProxyServerStatus;
use oooi_api::report::ServerReport;
use serde::Serialize;

/// The status of a server.
pub trait Told: Serialize {
    /// What the operator says of it.
    fn conditions(&self) -> &[Condition];
    /// What its servers say of themselves.
    fn reports(&self) -> &[ServerReport];
}

macro_rules! told {
    ($($status:ty),+) => {$(
        impl Told for $status {
            fn conditions(&self) -> &[Condition] {
                &self.conditions
            }

            fn reports(&self) -> &[ServerReport] {
                &self.servers
            }
        }
    )+};
}

told!(DhcpServerStatus, DnsServerStatus, ProxyServerStatus);
