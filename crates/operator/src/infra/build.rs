//! The components of an Infra as custom resources. Pure.

use kube::ResourceExt;
use oooi_api::{DhcpServer, DnsServer, Infra, ProxyServer};
use oooi_plan::Components;
use oooi_plan::object_name::object_name;

use crate::identity::{Role, metadata};

/// The components that an Infra wants; one that is absent is removed.
pub(super) struct Objects {
    /// The DHCP server.
    pub(super) dhcp: Option<DhcpServer>,
    /// The DNS server.
    pub(super) dns: Option<DnsServer>,
    /// The gateway.
    pub(super) proxy: Option<ProxyServer>,
}

/// The name of a component.
pub(super) fn component_name(infra: &Infra, role: Role) -> String {
    object_name(&infra.name_any(), role.word())
}

/// Wraps each planned specification in its resource.
pub(super) fn build(infra: &Infra, components: Components) -> Objects {
    let Components {
        dhcp,
        dns,
        proxy,
        warnings: _, // told as events
    } = components;
    let meta = |role| metadata(infra, component_name(infra, role), Some(role));
    Objects {
        dhcp: dhcp.map(|spec| DhcpServer {
            metadata: meta(Role::Dhcp),
            spec,
            status: None,
        }),
        dns: dns.map(|spec| DnsServer {
            metadata: meta(Role::Dns),
            spec,
            status: None,
        }),
        proxy: proxy.map(|spec| ProxyServer {
            metadata: meta(Role::Proxy),
            spec,
            status: None,
        }),
    }
}
