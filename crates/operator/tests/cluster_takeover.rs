//! Objects that the operator of the Go version left. Needs the testbed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod world;

use std::path::Path;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use oooi_api::{DhcpServer, DnsServer, Infra, ProxyServer};
use oooi_testkit::{rights, until};
use serde_json::{Value, json};
use world::{LIMIT, World};

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

/// A server of that operator: its resource with an owner, and the Deployment that ran it.
async fn old_server(world: &World, kind: &str, name: &str, spec: Value) {
    let infra = world.api::<Infra>().get("x").await.unwrap();
    let resource = json!({
        "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    });
    world.apply(owned(resource, "Infra", "x", infra.uid())).await;
    let uid = match kind {
        "DHCPServer" => world.api::<DhcpServer>().get(name).await.unwrap().uid(),
        _ => world.api::<ProxyServer>().get(name).await.unwrap().uid(),
    };
    let labels = json!({"hostedcluster.densityops.com": name});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "old", "image": "example.com/old"}]},
            },
        },
    });
    world.apply(owned(deployment, kind, name, uid)).await;
}

/// A binding to constraints of OpenShift for these accounts.
fn constraints(world: &World, name: &str, constraints: &str, accounts: &[&str]) -> Value {
    let subject =
        |name: &&str| json!({"kind": "ServiceAccount", "name": name, "namespace": world.namespace.name()});
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": format!("system:openshift:scc:{constraints}")},
        "subjects": accounts.iter().map(subject).collect::<Vec<_>>(),
    })
}

/// The cluster-wide reader that a DHCP server had, for the account of a namespace.
fn reader(server: &str, namespace: &str) -> Value {
    let name = format!("{server}-kubevirt-reader");
    let metadata = json!({"name": name, "labels": {"app": server}});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata,
            "rules": [{"apiGroups": ["kubevirt.io"], "resources": ["virtualmachineinstances"],
                "verbs": ["get", "list", "watch"]}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": format!("{server}-dhcp"), "namespace": namespace}],
        },
    ]})
}

#[tokio::test]
async fn what_the_go_version_left_is_removed_and_clients_keep_their_addresses_for_one_lease_time() {
    let mut world = World::bare("leftover").await;
    let takeover = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kustomize/takeover");
    let granted = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "-k",
        takeover.to_str().unwrap(),
    ];
    world.cluster.kubectl(&granted).await.unwrap();
    world.network("vlan").await;
    world.apply(world.infra("x")).await;
    old_server(
        &world,
        "DHCPServer",
        "x-dhcp",
        json!({
            "networkConfig": {"cidr": "10.20.0.0/20", "gateway": "10.20.0.1", "serverIP": "10.20.0.32",
                "networkAttachmentName": "vlan"},
            "leaseConfig": {"rangeStart": "10.20.0.50", "rangeEnd": "10.20.0.99", "leaseTime": "1h"},
            "image": "ghcr.io/cldmnky/hyperdhcp:latest",
        }),
    )
    .await;
    old_server(
        &world,
        "ProxyServer",
        "x-proxy",
        json!({"networkConfig": {"serverIP": "10.20.0.34", "networkAttachmentName": "vlan"}, "backends": [{
            "name": "api", "hostname": "api.x.example.com", "port": 6443, "targetService": "kube-apiserver",
            "targetPort": 6443, "targetNamespace": world.plane.name()}]}),
    )
    .await;
    world
        .apply(constraints(
            &world,
            "x-dhcp-privileged-scc",
            "privileged",
            &["x-dhcp-dhcp"],
        ))
        .await;
    world
        .apply(constraints(
            &world,
            "x-proxy-anyuid-scc",
            "anyuid",
            &["x-proxy-proxy", "default"],
        ))
        .await;
    world
        .cluster
        .apply(&reader("x-dhcp", world.namespace.name()).to_string())
        .await
        .unwrap();
    world
        .cluster
        .apply(&reader("y-dhcp", world.namespace.name()).to_string())
        .await
        .unwrap();
    let admitted = json!({"hostedcluster.densityops.com/network-policy-group": "infrastructure"});
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "allow-infrastructure"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"namespaceSelector": {"matchLabels": admitted}}]}]},
    });
    world.plane.apply(&policy.to_string()).await.unwrap();
    let began = jiff::Timestamp::now();
    world.begin().await;

    let ours = |deployment: &Deployment| is_labelled(deployment);
    world
        .wait::<Deployment>("x-dhcp", "the DHCP server to be ours", ours)
        .await;
    world
        .wait::<Deployment>("x-proxy", "the gateway to be ours", ours)
        .await;
    let server = world.api::<DhcpServer>().get("x-dhcp").await.unwrap();
    let grace: jiff::Timestamp = server.spec.lease_config.migration_grace.unwrap().parse().unwrap();
    let length = grace.duration_since(began);
    assert!(
        (3600..4200).contains(&length.as_secs()),
        "one lease time and the changeover: {length:?}"
    );

    world.wait_gone::<RoleBinding>("x-dhcp-privileged-scc").await;
    world
        .api::<RoleBinding>()
        .get("x-proxy-anyuid-scc")
        .await
        .expect("it is also for others, so it is not proven to be that operator's");
    let policies = Api::<NetworkPolicy>::namespaced(world.client.clone(), world.plane.name());
    assert!(policies.get_opt("allow-infrastructure").await.unwrap().is_none());
    let roles = Api::<ClusterRole>::all(world.client.clone());
    let bindings = Api::<ClusterRoleBinding>::all(world.client.clone());
    assert!(roles.get_opt("x-dhcp-kubevirt-reader").await.unwrap().is_none());
    assert!(
        bindings
            .get_opt("x-dhcp-kubevirt-reader")
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        roles.get_opt("y-dhcp-kubevirt-reader").await.unwrap().is_some(),
        "of a server that is not there"
    );
    let other = [
        "delete",
        "clusterrole,clusterrolebinding",
        "y-dhcp-kubevirt-reader",
    ];
    world.cluster.kubectl(&other).await.unwrap();

    told(&world, "StoredImageIgnored").await;
}

/// Waits for an event of this reason, and gives what it says.
async fn told(world: &World, reason: &str) -> String {
    let events = world.api::<Event>();
    until(&format!("an event {reason}"), LIMIT, async || {
        let list = events
            .list(&ListParams::default())
            .await
            .map_err(|error| error.to_string())?;
        let of_it = |event: &Event| event.reason.as_deref() == Some(reason);
        let found = list.items.into_iter().find(of_it);
        found.and_then(|event| event.note).ok_or("none".to_owned())
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn what_the_manager_has_no_right_to_remove_is_named_in_an_event() {
    let mut world = World::bare("remains").await;
    // Of the shipped roles it has its own alone, and not the one that is bound for a takeover.
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": world.namespace.name()},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "oooi-manager"},
        "subjects": [{"kind": "ServiceAccount", "name": "manager", "namespace": world.namespace.name()}],
    });
    world.cluster.apply(&binding.to_string()).await.unwrap();
    let (client, calls) = rights::client_of(world.cluster, world.namespace.name(), "manager")
        .await
        .unwrap();
    world.network("vlan").await;
    world.apply(world.infra("x")).await;
    let spec = json!({
        "networkConfig": {"cidr": "10.20.0.0/20", "gateway": "10.20.0.1", "serverIP": "10.20.0.32",
            "networkAttachmentName": "vlan"},
        "leaseConfig": {"rangeStart": "10.20.0.50", "rangeEnd": "10.20.0.99", "leaseTime": "1h"},
    });
    old_server(&world, "DHCPServer", "x-dhcp", spec).await;
    world.manage(client);

    let said = told(&world, "LeftoverRemains").await;
    assert!(
        said.contains("kubectl delete clusterrole,clusterrolebinding x-dhcp-kubevirt-reader"),
        "{said}"
    );
    world
        .wait::<Deployment>("x-dhcp", "the server to be taken over all the same", is_labelled)
        .await;
    let forbidden = calls.forbidden();
    assert!(
        forbidden.iter().all(|call| call.contains("clusterrolebindings")),
        "it lacks nothing else: {forbidden:#?}"
    );
    let binding = ["delete", "clusterrolebinding", world.namespace.name()];
    world.cluster.kubectl(&binding).await.unwrap();
}
