//! EgressIPAMs on OpenShift SDN, on a real API server with the vendor's definitions. Needs the testbed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod egress;

use std::collections::BTreeMap;

use egress::cut::{NoCloud, story};
use egress::sdn::{PLACED, has, host, namespace, net_namespace, places, wait_places};
use egress::{ASKS, GIVEN, Scene};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::ResourceExt;
use oooi_api::EgressIpam;
use oooi_api::foreign::{HostSubnet, NetNamespace};
use oooi_operator::egress_ipam::Network;
use serde_json::json;

/// Two nodes of zone `a`, and one of zone `b`.
async fn three_nodes(scene: &Scene) {
    host(scene, "n1", "a", "10.0.0.250").await;
    host(scene, "n2", "a", "10.0.0.251").await;
    host(scene, "n3", "b", "10.1.0.250").await;
}

async fn two_zones() -> Scene {
    let mut scene = Scene::empty(Some(Network::OpenShiftSdn)).await;
    three_nodes(&scene).await;
    scene.ipam("x", &["10.0.0.0/24=a", "10.1.0.0/24=b"]).await;
    scene.start().await;
    scene
}

#[tokio::test]
async fn addresses_of_several_networks_are_put_on_nodes_evenly_and_recorded_there() {
    let scene = two_zones().await;
    namespace(&scene, "sa", 1, "x", "").await;
    namespace(&scene, "sb", 2, "x", "").await;
    scene
        .wait("sa", "its addresses", |one: &NetNamespace| {
            has(one, &["10.0.0.1", "10.1.0.1"])
        })
        .await;
    scene
        .wait("sb", "its addresses", |one: &NetNamespace| {
            has(one, &["10.0.0.2", "10.1.0.2"])
        })
        .await;
    wait_places(&scene, "one on each node of zone a", |on| {
        on.len() == 4 && on["10.0.0.1"] != on["10.0.0.2"] && on["10.1.0.1"] == "n3" && on["10.1.0.2"] == "n3"
    })
    .await;
    scene.wait_says("x", "Ready", "True", "AllReady").await;
    let node = scene.api::<Node>().get("n3").await.unwrap();
    assert_eq!(node.annotations()[PLACED], "10.1.0.1,10.1.0.2");
}

#[tokio::test]
async fn a_node_that_fails_loses_its_addresses_and_nobody_else_moves() {
    let scene = two_zones().await;
    for (id, name) in ["sa", "sb", "sc", "sd"].into_iter().enumerate() {
        namespace(&scene, name, id as u32 + 1, "x", "").await;
    }
    wait_places(&scene, "all placed", |on| on.len() == 8).await;
    scene.wait_says("x", "Ready", "True", "AllReady").await;
    let before = places(&scene).await;
    scene.ready("n1", false).await;
    wait_places(&scene, "n1 emptied", |on| {
        on.len() == 8 && on.values().all(|node| node != "n1")
    })
    .await;
    for (address, node) in places(&scene).await {
        assert!(
            node == before[&address] || before[&address] == "n1",
            "{address} moved for nothing"
        );
    }
    scene.delete::<Node>("n3").await;
    scene
        .wait_says("x", "NodesEligible", "False", "NoEligibleNode")
        .await;
}

#[tokio::test]
async fn one_network_is_handed_to_the_sdn_as_a_whole() {
    let mut scene = Scene::empty(Some(Network::OpenShiftSdn)).await;
    host(&scene, "n1", "a", "10.0.0.250").await;
    scene.ipam("x", &["10.0.0.0/24=a"]).await;
    scene.start().await;
    namespace(&scene, "sa", 1, "x", "").await;
    scene
        .wait("n1", "the network", |one: &HostSubnet| {
            one.spec.egress_cidrs == ["10.0.0.0/24"]
        })
        .await;
    scene
        .wait("sa", "its address", |one: &NetNamespace| has(one, &["10.0.0.1"]))
        .await;
    // The SDN puts the address there; a second network takes that over.
    scene
        .change::<HostSubnet>("n1", json!({"egressIPs": ["10.0.0.1"]}))
        .await;
    host(&scene, "n2", "b", "10.1.0.250").await;
    scene.ipam("x", &["10.0.0.0/24=a", "10.1.0.0/24=b"]).await;
    scene
        .wait("n1", "no network any more", |one: &HostSubnet| {
            one.spec.egress_cidrs.is_empty() && one.spec.egress_ips == ["10.0.0.1"]
        })
        .await;
    scene
        .wait("n2", "the second address", |one: &HostSubnet| {
            one.spec.egress_ips == ["10.1.0.1"]
        })
        .await;
}

#[tokio::test]
async fn what_others_put_on_nodes_and_namespaces_stays_and_is_not_given_again() {
    let scene = two_zones().await;
    scene
        .change::<HostSubnet>("n3", json!({"egressIPs": ["10.1.0.1"]}))
        .await;
    net_namespace(&scene, "theirs", 9).await;
    scene
        .change::<NetNamespace>("theirs", json!({"egressIPs": ["10.0.0.1"]}))
        .await;
    scene.wait_says("x", "Ready", "True", "AllReady").await;
    namespace(&scene, "sa", 1, "x", "").await;
    scene.wait_given("sa", "10.0.0.2,10.1.0.2").await;
    scene
        .wait("n3", "both", |one: &HostSubnet| {
            one.spec.egress_ips == ["10.1.0.1", "10.1.0.2"]
        })
        .await;
    scene.delete::<EgressIpam>("x").await;
    scene.wait_gone::<EgressIpam>("x").await;
    let host = scene.api::<HostSubnet>().get("n3").await.unwrap();
    assert_eq!(host.spec.egress_ips, ["10.1.0.1"], "only ours is gone");
    let theirs = scene.api::<NetNamespace>().get("theirs").await.unwrap();
    assert!(has(&theirs, &["10.0.0.1"]));
    assert!(has(&scene.api::<NetNamespace>().get("sa").await.unwrap(), &[]));
    assert!(
        !scene
            .api::<Node>()
            .get("n3")
            .await
            .unwrap()
            .annotations()
            .contains_key(PLACED)
    );
}

#[tokio::test]
async fn addresses_that_an_earlier_operator_placed_are_adopted_where_they_are() {
    let mut scene = Scene::empty(Some(Network::OpenShiftSdn)).await;
    three_nodes(&scene).await;
    scene
        .change::<HostSubnet>("n2", json!({"egressIPs": ["10.0.0.77"]}))
        .await;
    scene
        .change::<HostSubnet>("n3", json!({"egressIPs": ["10.1.0.78"]}))
        .await;
    scene.ipam("x", &["10.0.0.0/24=a", "10.1.0.0/24=b"]).await;
    namespace(&scene, "old", 1, "x", "10.0.0.77,10.1.0.78").await;
    scene
        .change::<NetNamespace>("old", json!({"egressIPs": ["10.0.0.77", "10.1.0.78"]}))
        .await;
    scene.start().await;
    scene.wait_says("x", "Ready", "True", "AllReady").await;
    assert_eq!(places(&scene).await["10.0.0.77"], "n2", "it did not move");
    scene
        .wait("n2", "the record", |node: &Node| {
            node.annotations().get(PLACED).is_some_and(|t| t == "10.0.0.77")
        })
        .await;
    scene.annotate("old", ASKS, None).await;
    wait_places(&scene, "nothing any more", BTreeMap::is_empty).await;
}

#[tokio::test]
async fn a_missing_netnamespace_stops_nobody_and_opting_out_frees_the_address() {
    let scene = two_zones().await;
    scene.namespace("without", "x", "").await;
    namespace(&scene, "sa", 1, "x", "").await;
    scene
        .wait::<NetNamespace>("sa", "its addresses", |one| one.spec.egress_ips.len() == 2)
        .await;
    scene.wait_event("without", "ApplyFailed", "NetNamespace").await;
    net_namespace(&scene, "without", 2).await;
    scene
        .wait::<NetNamespace>("without", "its addresses", |one| one.spec.egress_ips.len() == 2)
        .await;
    scene.wait_says("x", "Ready", "True", "AllReady").await;
    scene.annotate("sa", ASKS, None).await;
    scene
        .wait::<NetNamespace>("sa", "no addresses", |one| one.spec.egress_ips.is_empty())
        .await;
    wait_places(&scene, "two addresses", |on| on.len() == 2).await;
    scene
        .wait::<Namespace>("sa", "no list", |one| !one.annotations().contains_key(GIVEN))
        .await;
}

#[tokio::test]
async fn wherever_it_is_cut_off_the_next_one_leaks_nothing_and_doubles_nothing() {
    let mut scene = Scene::empty(Some(Network::OpenShiftSdn)).await;
    three_nodes(&scene).await;
    story(&mut scene, &NoCloud, &["10.0.0.0/24=a", "10.1.0.0/24=b"], &[1, 3]).await;
}

#[tokio::test]
async fn an_egressipam_that_comes_after_its_namespaces_warns_none_of_them() {
    let mut scene = Scene::empty(Some(Network::OpenShiftSdn)).await;
    host(&scene, "n1", "a", "10.0.0.250").await;
    host(&scene, "n3", "b", "10.1.0.250").await;
    namespace(&scene, "asked-early", 1, "late", "").await;
    scene.ipam("late", &["10.0.0.0/24=a", "10.1.0.0/24=b"]).await;
    scene.start().await;
    scene.wait_says("late", "Ready", "True", "AllReady").await;
    scene
        .wait("asked-early", "its addresses", |one: &NetNamespace| {
            has(one, &["10.0.0.1", "10.1.0.1"])
        })
        .await;
    let events = kube::Api::<k8s_openapi::api::events::v1::Event>::all(scene.client.clone());
    let events = events.list(&kube::api::ListParams::default()).await.unwrap();
    let wrong = |event: &&k8s_openapi::api::events::v1::Event| {
        let about = event.regarding.as_ref().and_then(|about| about.name.as_deref());
        about == Some("asked-early") && event.reason.as_deref() == Some("EgressIPAMNotCarriedOut")
    };
    assert_eq!(events.iter().find(wrong), None);
}
