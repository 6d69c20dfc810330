//! What a plan consists of.

use oooi_api::dhcp_server::DhcpServerSpec;
use oooi_api::dns_server::DnsServerSpec;
use oooi_api::infra::InfraAddresses;
use oooi_api::proxy_server::ProxyServerSpec;
use serde::Serialize;

use crate::mistake::Warning;

/// The servers of one Infra. One that does not run is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Components {
    /// The DHCP server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhcp: Option<DhcpServerSpec>,
    /// The DNS server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<DnsServerSpec>,
    /// The gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyServerSpec>,
    /// What works, but not as one might expect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

impl Components {
    /// Who has which address, in the form of an Infra's status.
    pub fn addresses(&self) -> InfraAddresses {
        let all = |first: &str, others: &[String]| {
            let bare = first.split('/').next().unwrap_or_default().to_owned();
            std::iter::once(bare).chain(others.iter().cloned()).collect()
        };
        let dhcp = self.dhcp.as_ref();
        let dns = self.dns.as_ref().map(|dns| &dns.network_config);
        let proxy = self.proxy.as_ref().map(|proxy| &proxy.network_config);
        InfraAddresses {
            dhcp: dhcp
                .map(|dhcp| &dhcp.network_config)
                .map(|net| all(&net.server_ip, &net.additional_server_ips))
                .unwrap_or_default(),
            dns: dns
                .map(|net| all(&net.server_ip, &net.additional_server_ips))
                .unwrap_or_default(),
            proxy: proxy
                .map(|net| all(&net.server_ip, &net.additional_server_ips))
                .unwrap_or_default(),
            dhcp_range: dhcp
                .map(|dhcp| &dhcp.lease_config)
                .map(|lease| format!("{}-{}", lease.range_start, lease.range_end)),
        }
    }
}
