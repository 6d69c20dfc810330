//! The gateway of an Infra.

use std::time::Duration;

use oooi_api::infra::ProxyComponent;
use oooi_api::proxy_server::{ProxyBackend, ProxyNetworkConfig, ProxyServerSpec};

use super::Subject;
use super::fields::{bounded, image};
use super::layout::Layout;
use crate::mistake::Notes;

const AT: &str = "spec.infraComponents.proxy";

/// The gateway's specification, if it runs and has anything to forward.
pub(super) fn plan(
    subject: &Subject<'_>,
    layout: Option<&Layout>,
    backends: Vec<ProxyBackend>,
    notes: &mut Notes,
) -> Option<ProxyServerSpec> {
    let ProxyComponent {
        enabled: true,
        server_ip: _,               // layout
        additional_server_ips: _,   // layout
        control_plane_namespace: _, // backends
        api_server_service: _,      // backends
        internal_proxy_service: _,  // dns
        backends: _,                // backends
        engine,
        idle_timeout,
        log_level,
        network_policy: _, // the operator's
        published_ips: _,  // layout
        apps,
        replicas: _, // layout
        resources,
        proxy_image,
        manager_image,
    } = subject.parts.proxy.as_ref()?
    else {
        return None;
    };
    if let Some(timeout) = idle_timeout {
        bounded(
            notes,
            &format!("{AT}.idleTimeout"),
            timeout,
            Duration::from_secs(1),
            "24h",
        );
    }
    for (field, port) in apps
        .iter()
        .flat_map(|apps| [("httpsPort", apps.https_port), ("httpPort", apps.http_port)])
    {
        if port.is_some_and(|port| !(1..=65535).contains(&port)) {
            notes.mistake(format!("{AT}.apps.{field}"), "this is not a port: use 1 to 65535");
        }
    }
    let proxy_image = image(notes, &format!("{AT}.proxyImage"), proxy_image.as_ref());
    let manager_image = image(notes, &format!("{AT}.managerImage"), manager_image.as_ref());
    let layout = layout?;
    if backends.is_empty() {
        notes.warning(
            "NothingPublished",
            format!("{AT}.backends"),
            "the gateway starts once the HostedCluster publishes a service: there is nothing to forward yet",
        );
        return None;
    }
    let (first, others) = layout.proxy.split_first()?;
    let (attachment, attachment_namespace) = subject.attachment();
    Some(ProxyServerSpec {
        network_config: ProxyNetworkConfig {
            server_ip: format!("{first}/{}", layout.cidr.prefix_len()),
            additional_server_ips: others.iter().map(ToString::to_string).collect(),
            network_attachment_name: attachment,
            network_attachment_namespace: attachment_namespace,
            route_via: subject.known.route_via.map(|gateway| gateway.to_string()),
            nad_name: None,
            nad_namespace: None,
            gateway: Some(layout.gateway.to_string()),
        },
        backends,
        engine: *engine,
        port: 443,
        xds_port: 18000,
        log_level: log_level.unwrap_or_default(),
        idle_timeout: idle_timeout.clone(),
        published_ips: layout.published.iter().map(ToString::to_string).collect(),
        apps: apps.clone(),
        proxy_image,
        manager_image,
        replicas: i32::try_from(layout.proxy.len()).ok().filter(|count| *count > 1),
        resources: resources.clone(),
    })
}
