//! Objects that the operator of the Go version left. Needs the testbed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod world;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service, ServiceAccount};
use kube::ResourceExt;
use kube::api::ListParams;
use oooi_api::{DhcpServer, DnsServer, Infra};
use serde_json::{Value, json};
use world::World;

fn is_labelled<K: ResourceExt>(object: &K) -> bool {
    object
        .labels()
        .get("app.kubernetes.io/managed-by")
        .is_some_and(|manager| manager == "oooi")
}

/// An object with a controller, as that operator made them: without labels of ours.
fn owned(mut object: Value, kind: &str, owner: &str, uid: Option<String>) -> Value {
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": kind, "name": owner, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    }]);
    object
}

#[tokio::test]
async fn objects_of_the_go_version_are_taken_over_and_no_lease_is_lost() {
    let mut world = World::bare("takeover").await;
    world.network("vlan").await;
    world.apply(world.infra("x")).await;
    let infra = world.api::<Infra>().get("x").await.unwrap();
    let server = |kind: &str, spec: Value| json!({"apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": kind, "metadata": {}, "spec": spec});
    let mut dns = server(
        "DNSServer",
        json!({
            "networkConfig": {
                "serverIP": "10.20.0.33", "proxyIP": "10.20.0.34", "secondaryNetworkCIDR": "10.20.0.0/20",
                "networkAttachmentName": "vlan",
            },
            "hostedClusterDomain": "x.example.com",
            "image": "quay.io/cldmnky/oooi:latest",
        }),
    );
    dns["metadata"]["name"] = json!("x-dns");
    world.apply(owned(dns, "Infra", "x", infra.uid())).await;
    let mut dhcp = server(
        "DHCPServer",
        json!({
            "networkConfig": {
                "cidr": "10.20.0.0/20", "gateway": "10.20.0.1", "serverIP": "10.20.0.32",
                "networkAttachmentName": "vlan",
            },
            "leaseConfig": {"rangeStart": "10.20.0.50", "rangeEnd": "10.20.0.99", "leaseTime": "1h"},
        }),
    );
    dhcp["metadata"]["name"] = json!("x-dhcp");
    world.apply(owned(dhcp, "Infra", "x", infra.uid())).await;

    let dns = world.api::<DnsServer>().get("x-dns").await.unwrap();
    let dhcp = world.api::<DhcpServer>().get("x-dhcp").await.unwrap();
    let labels = json!({"app": "dns-server", "dnsserver": "x-dns"});
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "x-dns-dns"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x-dns-dns-config"}, "data": {"Corefile": "."}}),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "x-dns"},
            "spec": {"selector": labels, "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]},
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x-dns"},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "coredns", "image": "example.com/old"}]},
                },
            },
        }),
    ] {
        world.apply(owned(object, "DNSServer", "x-dns", dns.uid())).await;
    }
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "x-dhcp-dhcp-leases"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "25Mi"}}},
    });
    world
        .apply(owned(claim, "DHCPServer", "x-dhcp", dhcp.uid()))
        .await;
    let old: Deployment = world.wait("x-dns", "the old Deployment", |_| true).await;
    let claim: PersistentVolumeClaim = world.wait("x-dhcp-dhcp-leases", "the old claim", |_| true).await;

    world.begin().await;
    let after: DnsServer = world
        .wait("x-dns", "the server to be ours", is_labelled::<DnsServer>)
        .await;
    assert_eq!(after.uid(), dns.uid(), "the same resource");
    assert_eq!(
        after.spec.network_config.server_ip, "10.20.0.33/20",
        "its address never moves"
    );
    let replaced = |deployment: &Deployment| deployment.uid() != old.uid() && is_labelled(deployment);
    let new: Deployment = world
        .wait("x-dns", "the Deployment to be replaced", replaced)
        .await;
    let containers = new.spec.unwrap().template.spec.unwrap().containers;
    assert_eq!(containers.len(), 1, "nothing of the old one is in it");
    assert_eq!(
        containers[0].image.as_deref(),
        Some("example.com/oooi:test"),
        "the old default is no choice"
    );
    let leftover = ListParams::default().labels("dnsserver=x-dns");
    let pods = world.api::<Pod>().list(&leftover).await.unwrap();
    assert!(pods.items.is_empty(), "the old pod was gone before");

    let kept = |kept: &PersistentVolumeClaim| is_labelled(kept) && kept.uid() == claim.uid();
    let kept: PersistentVolumeClaim = world
        .wait("x-dhcp-dhcp-leases", "the claim to be kept", kept)
        .await;
    let request = kept
        .spec
        .unwrap()
        .resources
        .unwrap()
        .requests
        .unwrap()
        .remove("storage")
        .unwrap();
    assert_eq!(request.0, "25Mi");
    world
        .wait::<Service>("x-dns", "the Service to be ours", is_labelled::<Service>)
        .await;
    world
        .wait::<ServiceAccount>(
            "x-dns-dns",
            "the account to be ours",
            is_labelled::<ServiceAccount>,
        )
        .await;
    world
        .wait::<ConfigMap>(
            "x-dns-dns-config",
            "the ConfigMap to be ours",
            is_labelled::<ConfigMap>,
        )
        .await;
    world
        .wait::<Deployment>("x-dhcp", "the DHCP server to run", |_| true)
        .await;
}
