//! The components of an Infra as custom resources. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use oooi_api::infra::NetworkPolicyMode;
use oooi_api::{DhcpServer, DnsServer, Infra, ProxyServer};
use oooi_plan::Components;
use oooi_plan::infra::Apps;
use oooi_plan::object_name::object_name;

use crate::identity::{self, MACHINE_NAMESPACE, NETWORK_POLICY, NETWORK_STATE, Role};

/// The components that an Infra wants; one that is absent is removed.
pub(super) struct Objects {
    /// The DHCP server.
    pub(super) dhcp: Option<DhcpServer>,
    /// The DNS server.
    pub(super) dns: Option<DnsServer>,
    /// The gateway.
    pub(super) proxy: Option<ProxyServer>,
    /// The router of the hosted cluster on its nodes.
    pub(super) apps: Option<Router>,
}

/// The Service that `*.apps` leads to, and the nodes behind it.
pub(super) struct Router {
    pub(super) service: Service,
    pub(super) slices: Vec<EndpointSlice>,
}

/// The name of a component.
pub(super) fn component_name(infra: &Infra, role: Role) -> String {
    object_name(&infra.name_any(), role.word())
}

/// Wraps each planned specification in its resource.
pub(super) fn build(
    infra: &Infra,
    components: Components,
    machine_namespace: &str,
    network_state: &str,
    nodes: &BTreeSet<Ipv4Addr>,
) -> Objects {
    let apps = Apps::of(infra, &components).map(|apps| router(infra, &apps, nodes));
    let Components {
        dhcp,
        dns,
        proxy,
        warnings: _, // told as events
    } = components;
    let meta = |role, note: Option<(&str, &str)>| {
        let mut metadata = identity::metadata(infra, component_name(infra, role), Some(role));
        let notes = note.into_iter().chain([(NETWORK_STATE, network_state)]);
        let notes: BTreeMap<String, String> = notes
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        metadata.annotations = Some(notes);
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
        apps,
    }
}

fn router(infra: &Infra, apps: &Apps, nodes: &BTreeSet<Ipv4Addr>) -> Router {
    let ours = |metadata: &mut ObjectMeta| {
        let mut own = identity::metadata(infra, metadata.name.take().unwrap_or_default(), None);
        own.labels
            .get_or_insert_default()
            .extend(metadata.labels.take().unwrap_or_default());
        *metadata = own;
    };
    let (mut service, mut slices) = (apps.service(), apps.slices(nodes));
    ours(&mut service.metadata);
    slices.iter_mut().for_each(|slice| ours(&mut slice.metadata));
    Router { service, slices }
}
