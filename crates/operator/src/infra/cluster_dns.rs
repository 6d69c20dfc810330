//! The hosted cluster's zone in the resolvers of the management cluster, by OpenShift's DNS operator.
//!
//! Its list of forwarded zones belongs to everybody: one entry of it is ours, by its name. It is outside of the
//! Infra's namespace, so a finalizer keeps the Infra until the entry is gone.

use kube::ResourceExt;
use oooi_api::foreign::{ForwardPlugin, ForwardServer};
use oooi_api::{DnsServer, Infra};
use serde_json::json;

use super::status;
use crate::apply;
use crate::context::Context;
use crate::identity::FINALIZER;
use crate::unchanged::digest;

/// Keeps the entry of an Infra, or removes it where it is not wanted.
pub(super) async fn publish(
    ctx: &Context,
    infra: &Infra,
    dns: Option<&DnsServer>,
) -> Result<(), apply::Error> {
    if !is_wanted(infra) || dns.is_none() {
        return withdraw(ctx, infra).await;
    }
    ctx.writer.hold(infra, true).await?;
    let there_is_one = match dns.and_then(|dns| entry(infra, dns)) {
        Some(entry) => ctx.writer.forward(&name(infra), Some(&entry)).await?,
        // Its Service has no address yet; the change is seen.
        None if status::was_applied(infra) => true,
        None => ctx.writer.has_forwards().await?,
    };
    if !there_is_one && !status::was_applied(infra) {
        let message = "spec.infraComponents.dns.publishToClusterDNS: this cluster has no DNS operator of OpenShift: \
                       have its resolvers forward the zone by hand";
        ctx.writer.warn(infra, "NoClusterDNS", message).await;
    }
    Ok(())
}

/// Removes the entry of an Infra, and lets the Infra go. Nothing of its specification is needed.
pub(super) async fn withdraw(ctx: &Context, infra: &Infra) -> Result<(), apply::Error> {
    if infra.finalizers().iter().any(|name| name == FINALIZER) {
        ctx.writer.forward(&name(infra), None).await?;
        ctx.writer.hold(infra, false).await?;
    }
    Ok(())
}

/// Whether an Infra asks for it.
pub(crate) fn is_wanted(infra: &Infra) -> bool {
    let parts = infra.spec.infra_components.as_ref();
    let dns = parts.and_then(|parts| parts.dns.as_ref());
    dns.is_some_and(|dns| dns.enabled && dns.publish_to_cluster_dns == Some(true))
}

/// The name of an Infra's entry: as short as the name of a service may be (RFC 6335).
fn name(infra: &Infra) -> String {
    let whole = format!("{}/{}", infra.namespace().unwrap_or_default(), infra.name_any());
    let hash = digest(&json!(whole));
    format!("oooi-{}", &hash[..8])
}

/// The entry of an Infra, once its DNS server can be reached.
fn entry(infra: &Infra, dns: &DnsServer) -> Option<ForwardServer> {
    let address = dns.status.as_ref()?.service_cluster_ip.as_ref()?;
    let config = &dns.spec.network_config;
    Some(ForwardServer {
        name: Some(name(infra)),
        zones: vec![dns.spec.hosted_cluster_domain.clone()],
        forward_plugin: Some(ForwardPlugin {
            upstreams: vec![format!("{address}:{}", config.dns_port)],
            ..ForwardPlugin::default()
        }),
        ..ForwardServer::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn infra(name: &str, dns: serde_json::Value) -> Infra {
        serde_json::from_value(json!({
            "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "Infra",
            "metadata": {"name": name, "namespace": "clusters"},
            "spec": {
                "networkConfig": {
                    "cidr": "192.168.100.0/24", "gateway": "192.168.100.1", "networkAttachmentDefinition": "vlan",
                },
                "infraComponents": {"dns": dns},
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_zone_is_published_only_where_it_is_asked_for_and_served() {
        assert!(is_wanted(&infra("x", json!({"publishToClusterDNS": true}))));
        assert!(!is_wanted(&infra("x", json!({}))));
        assert!(!is_wanted(&infra(
            "x",
            json!({"publishToClusterDNS": true, "enabled": false})
        )));
    }

    #[test]
    fn names_of_entries_are_short_and_differ() {
        let (a, b) = (name(&infra("a", json!({}))), name(&infra("b", json!({}))));
        assert_ne!(a, b);
        assert!(a.len() <= 15 && a.starts_with("oooi-"), "{a}");
    }
}
