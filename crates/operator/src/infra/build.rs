//! The components of an Infra as custom resources. Pure.

use std::collections::BTreeMap;

use kube::ResourceExt;
use oooi_api::infra::NetworkPolicyMode;
use oooi_api::{DhcpServer, DnsServer, Infra, ProxyServer};
use oooi_plan::Components;
use oooi_plan::object_name::object_name;

use crate::identity::{MACHINE_NAMESPACE, NETWORK_POLICY, Role, metadata};

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
pub(super) fn build(infra: &Infra, components: Components, machine_namespace: &str) -> Objects {
    let Components {
        dhcp,
        dns,
        proxy,
        warnings: _, // told as events
    } = components;
    let meta = |role, note: Option<(&str, &str)>| {
        let mut metadata = metadata(infra, component_name(infra, role), Some(role));
        let notes = note.map(|(key, value)| BTreeMap::from([(key.to_owned(), value.to_owned())]));
        metadata.annotations = notes;
        metadata
    };
    let machines = Some((MACHINE_NAMESPACE, machine_namespace));
    let policies_of_others = infra
        .spec
        .infra_components
        .as_ref()
        .and_then(|parts| parts.proxy.as_ref()?.network_policy)
        .filter(|mode| *mode == NetworkPolicyMode::None)
        .map(|_| (NETWORK_POLICY, "None"));
    Objects {
        dhcp: dhcp.map(|spec| DhcpServer {
            metadata: meta(Role::Dhcp, machines),
            spec,
            status: None,
        }),
        dns: dns.map(|spec| DnsServer {
            metadata: meta(Role::Dns, machines),
            spec,
            status: None,
        }),
        proxy: proxy.map(|spec| ProxyServer {
            metadata: meta(Role::Proxy, policies_of_others),
            spec,
            status: None,
        }),
    }
}
