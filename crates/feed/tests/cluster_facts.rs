//! Endpoints, machines and names from a real API server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::api::{Patch, PatchParams};
use oooi_api::ProxyServer;
use oooi_dhcp::lease::State;
use oooi_dhcp::mac::Mac;
use oooi_dhcp::store::LeaseStore;
use oooi_dhcp::testing::battery::lease;
use oooi_dhcp::time::Timestamp;
use oooi_feed::leases::ClusterStore;
use oooi_feed::{endpoints, machines, names, servers};
use oooi_proxy::snapshot::Snapshot;
use serde_json::json;
use support::{Bed, LONG, timed};
use tokio::sync::watch;

fn proxy(namespace: &str, services: &[&str]) -> Arc<ProxyServer> {
    let backends: Vec<_> = services
        .iter()
        .map(|service| {
            json!({"name": service, "hostname": format!("{service}.example.com"), "port": 6443,
                "targetService": service, "targetNamespace": namespace, "targetPort": 6443, "protocol": "TCP"})
        })
        .collect();
    let resource = json!({
        "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "ProxyServer",
        "metadata": {"name": "tenant-proxy"},
        "spec": {"networkConfig": {"serverIP": "192.168.100.3"}, "backends": backends},
    });
    Arc::new(serde_json::from_value(resource).unwrap())
}

async fn serve(bed: &Bed, service: &str, pods: &[(&str, bool)]) {
    let endpoints: Vec<_> = pods
        .iter()
        .map(|(address, ready)| json!({"addresses": [address], "conditions": {"ready": ready}}))
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": service},
            "spec": {"ports": [{"name": "client", "port": 6443, "targetPort": 7443}]}},
        {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": format!("{service}-1"), "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4", "ports": [{"name": "client", "port": 7443}], "endpoints": endpoints},
    ]});
    bed.namespace.apply(&list.to_string()).await.unwrap();
}

fn addresses(snapshot: &Snapshot, backend: &str) -> Vec<String> {
    let cluster = snapshot.clusters.get(backend);
    cluster.map_or(Vec::new(), |cluster| {
        cluster.endpoints.iter().map(ToString::to_string).collect()
    })
}

async fn until(snapshots: &mut watch::Receiver<Arc<Snapshot>>, backend: &str, expected: &[&str]) -> Duration {
    let what = format!("{backend}: {expected:?}");
    let arrived = snapshots.wait_for(|snapshot| addresses(snapshot, backend) == expected);
    timed(&what, arrived).await.1
}

#[tokio::test]
async fn endpoints_follow_readiness_slices_and_the_resource() {
    let bed = Bed::new("endpoints").await;
    let namespace = bed.namespace.name();
    serve(&bed, "api", &[("10.1.0.1", true), ("10.1.0.2", true)]).await;
    let (resources, receiver) = watch::channel(proxy(namespace, &["api"]));
    let mut snapshots = endpoints::follow(bed.proxy.clone(), receiver, |resource| resource).await;
    let first = snapshots.borrow_and_update().clone();
    assert_eq!(
        addresses(&first, "api"),
        ["10.1.0.1:7443", "10.1.0.2:7443"],
        "at once"
    );

    serve(&bed, "api", &[("10.1.0.1", true), ("10.1.0.2", false)]).await;
    let took = until(&mut snapshots, "api", &["10.1.0.1:7443"]).await;
    assert!(took < Duration::from_secs(1), "{took:?}");

    // A second backend: what was there stays the same object.
    serve(&bed, "oauth", &[("10.1.0.3", true)]).await;
    let before = snapshots.borrow().clusters.get("api").unwrap().clone();
    resources.send_replace(proxy(namespace, &["api", "oauth"]));
    until(&mut snapshots, "oauth", &["10.1.0.3:7443"]).await;
    assert!(
        Arc::ptr_eq(&before, snapshots.borrow().clusters.get("api").unwrap()),
        "untouched"
    );

    let slices: Api<k8s_openapi::api::discovery::v1::EndpointSlice> =
        Api::namespaced(bed.client.clone(), namespace);
    slices.delete("oauth-1", &Default::default()).await.unwrap();
    until(&mut snapshots, "oauth", &[]).await;
    let problems = snapshots.borrow().problems.clone();
    assert!(
        problems.iter().any(|problem| &*problem.backend == "oauth"),
        "{problems:?}"
    );

    resources.send_replace(proxy(namespace, &["api"]));
    timed(
        "oauth is gone",
        snapshots.wait_for(|snapshot| !snapshot.clusters.contains_key("oauth")),
    )
    .await
    .0
    .unwrap();
}

#[tokio::test]
async fn endpoints_stay_while_the_api_server_is_away_and_follow_again_after() {
    let bed = Bed::new("cut").await;
    let (client, mut relay) = bed.cuttable().await;
    serve(&bed, "api", &[("10.1.0.1", true)]).await;
    let (_resources, receiver) = watch::channel(proxy(bed.namespace.name(), &["api"]));
    let mut snapshots = endpoints::follow(client, receiver, |resource| resource).await;
    until(&mut snapshots, "api", &["10.1.0.1:7443"]).await;
    relay.cut().await;
    serve(&bed, "api", &[("10.1.0.9", true)]).await;
    assert_eq!(addresses(&snapshots.borrow(), "api"), ["10.1.0.1:7443"]);
    relay.mend().await;
    let took = until(&mut snapshots, "api", &["10.1.0.9:7443"]).await;
    println!("followed again {took:?} after the API server came back");
}

#[tokio::test]
async fn machines_are_known_as_soon_as_their_kind_is_and_give_names_to_leases() {
    let bed = Bed::new("machines").await;
    let namespace = bed.namespace.name();
    let mut machines = machines::follow(bed.dhcp.clone(), Some(namespace));
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "virtualmachineinstances.kubevirt.io"},
        "spec": {
            "group": "kubevirt.io", "scope": "Namespaced",
            "names": {"plural": "virtualmachineinstances", "singular": "virtualmachineinstance",
                "kind": "VirtualMachineInstance", "listKind": "VirtualMachineInstanceList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    bed.cluster.apply(&definition.to_string()).await.unwrap();
    let machine = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "pool-x7"},
        "spec": {"domain": {"devices": {"interfaces": [{"name": "vlan", "macAddress": "02:00:00:00:00:01"}]}}},
    });
    oooi_testkit::until("the machine is stored", LONG, async || {
        bed.namespace
            .apply(&machine.to_string())
            .await
            .map_err(|error| error.to_string())
    })
    .await
    .unwrap();
    let mac = Mac([2, 0, 0, 0, 0, 1]);
    let known = machines.wait_for(|machines| machines.get(mac).is_some());
    let (known, took) = timed("the machine is known", known).await;
    assert_eq!(&*known.unwrap().get(mac).unwrap().name, "pool-x7");
    println!("known {took:?} after it was made");

    let mut names = names::follow(bed.dns.clone(), namespace, "tenant-dhcp", machines.clone());
    let mut store = ClusterStore::new(bed.dhcp.clone(), namespace, "tenant-dhcp", None);
    store.load().await.unwrap();
    let now = Timestamp::wall();
    let held = oooi_dhcp::lease::Lease {
        since: now,
        expires: now.after(Duration::from_secs(600)),
        ..lease(7, 1, State::Bound)
    };
    assert_eq!(store.commit(std::slice::from_ref(&held)).await.unwrap(), []);
    let named = names.wait_for(|names| names.hosts.contains_key("pool-x7"));
    let (named, took) = timed("the name", named).await;
    assert_eq!(
        named.unwrap().hosts["pool-x7"],
        [std::net::IpAddr::from(held.address)]
    );
    assert!(took < Duration::from_secs(1), "{took:?}");

    let api: Api<oooi_api::foreign::VirtualMachineInstance> = Api::namespaced(bed.client.clone(), namespace);
    let moved = json!({"metadata": {"labels": {"kubevirt.io/nodeName": "elsewhere"}}});
    api.patch("pool-x7", &PatchParams::default(), &Patch::Merge(moved))
        .await
        .unwrap();
    api.delete("pool-x7", &Default::default()).await.unwrap();
    let gone = machines.wait_for(|machines| machines.get(mac).is_none());
    assert!(timed("the machine is gone", gone).await.0.unwrap().complete);

    // Nothing has given the next one a hardware address, and its status is not there yet when it boots.
    let silent = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "pool-x8"},
        "spec": {
            "domain": {"devices": {"interfaces": [{"name": "vlan"}]}},
            "networks": [{"name": "vlan", "multus": {"networkName": "default/vlan100"}}],
        },
    });
    bed.namespace.apply(&silent.to_string()).await.unwrap();
    let uid = api.get("pool-x8").await.unwrap().metadata.uid;
    let attached =
        json!([{"name": "default/vlan100", "interface": "pod16477688c0e", "mac": "02:00:00:00:00:08"}]);
    let launcher = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "virt-launcher-pool-x8-lmv7q", "labels": {"kubevirt.io": "virt-launcher"},
            "annotations": {"k8s.v1.cni.cncf.io/network-status": attached.to_string()},
            "ownerReferences": [
                {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "pool-x8", "uid": uid, "controller": true},
            ],
        },
        "spec": {"containers": [{"name": "compute", "image": "localhost/none"}]},
    });
    bed.namespace.apply(&launcher.to_string()).await.unwrap();
    let mac = Mac([2, 0, 0, 0, 0, 8]);
    let known = machines.wait_for(|machines| machines.get(mac).is_some());
    let (known, took) = timed("the machine is known by its pod", known).await;
    assert_eq!(&*known.unwrap().get(mac).unwrap().name, "pool-x8");
    println!("known by its pod {took:?} after that was attached");
}

#[tokio::test]
async fn our_other_dhcp_servers_are_known_as_they_come_and_go() {
    let bed = Bed::new("servers").await;
    let namespace = bed.namespace.name();
    let (_machines, machines) = watch::channel(Arc::default());
    let mut index = servers::join(bed.client.clone(), namespace, machines);
    let server = json!({
        "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "DHCPServer", "metadata": {"name": "other-dhcp"},
        "spec": {
            "networkConfig": {"cidr": "192.168.100.0/24", "gateway": "192.168.100.1", "serverIP": "192.168.100.12",
                "additionalServerIPs": ["192.168.100.13"]},
            "leaseConfig": {"rangeStart": "192.168.100.100", "rangeEnd": "192.168.100.150", "storage": "Kubernetes"},
            "replicas": 2,
        },
    });
    bed.namespace.apply(&server.to_string()).await.unwrap();
    let known = |last: u8| std::net::Ipv4Addr::new(192, 168, 100, last);
    let there = index.wait_for(|index| index.servers.iter().eq(&[known(12), known(13)]));
    timed("both addresses", there).await.0.unwrap();
    let servers: Api<oooi_api::DhcpServer> = Api::namespaced(bed.client.clone(), namespace);
    servers.delete("other-dhcp", &Default::default()).await.unwrap();
    let gone = index.wait_for(|index| index.servers.is_empty());
    timed("they are gone", gone).await.0.unwrap();
}
