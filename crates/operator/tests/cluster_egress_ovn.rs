//! EgressIPAMs on OVN-Kubernetes, on a real API server. Needs the testbed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod egress;

use std::collections::BTreeSet;

use egress::cut::{NoCloud, story};
use egress::{ASKS, GIVEN, Scene, ipam};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::ResourceExt;
use oooi_api::EgressIpam;
use oooi_api::foreign::EgressIP;
use oooi_operator::apply::Writer;
use oooi_operator::lease::Term;
use serde_json::json;

const ASSIGNABLE: &str = "k8s.ovn.org/egress-assignable";

fn is_labelled(node: &Node) -> bool {
    node.labels().contains_key(ASSIGNABLE)
}

/// Two zones with a node each, and an EgressIPAM with a network in each.
async fn two_zones(scene: &Scene) {
    scene.node("n1", "a", "10.0.0.250/24").await;
    scene.node("n2", "b", "10.1.0.250/24").await;
    scene.ipam("x", &["10.0.0.0/24=a", "10.1.0.0/24=b"]).await;
}

#[tokio::test]
async fn a_namespace_that_asks_gets_addresses_and_nodes_that_carry_them() {
    let scene = Scene::ovn().await;
    two_zones(&scene).await;
    scene.node("n3", "elsewhere", "10.9.0.250/24").await;
    scene.namespace("shop", "x", "").await;
    scene.namespace("given", "x", "10.0.0.77,10.1.0.78").await;

    scene.wait_given("shop", "10.0.0.1,10.1.0.1").await;
    let egress_ip: EgressIP = scene
        .wait("oooi-x-shop", "both placed", |one: &EgressIP| {
            one.status.as_ref().is_some_and(|status| status.items.len() == 2)
        })
        .await;
    let selector = egress_ip.spec.namespace_selector.match_labels.unwrap();
    assert_eq!(selector["kubernetes.io/metadata.name"], "shop");
    assert_eq!(egress_ip.metadata.owner_references.unwrap()[0].kind, "EgressIPAM");
    let kept: EgressIP = scene.wait("oooi-x-given", "the given ones", |_| true).await;
    assert_eq!(kept.spec.egress_ips, ["10.0.0.77", "10.1.0.78"]);

    scene.wait_says("x", "Ready", "True", "AllReady").await;
    // Without network, broadcast and the node's own.
    let counted = scene
        .wait("x", "two of 253 used in each network", |one: &EgressIpam| {
            let counts = one.status.iter().flat_map(|status| &status.cidrs);
            let counts: Vec<_> = counts.map(|cidr| (cidr.total, cidr.used, cidr.free)).collect();
            counts == [(253, 2, 251), (253, 2, 251)]
        })
        .await;
    let status = counted.status.unwrap();
    assert_eq!(status.namespaces, Some(2));
    assert!(
        !is_labelled(&scene.api::<Node>().get("n3").await.unwrap()),
        "of no zone that is asked for"
    );
}

#[tokio::test]
async fn what_is_wrong_with_one_namespace_is_told_there_and_stops_nobody() {
    let scene = Scene::ovn().await;
    two_zones(&scene).await;
    scene.namespace("spaces", "x", "10.0.0.5, 10.1.0.5").await;
    scene.namespace("lost", "nobody", "").await;
    scene.namespace("taken", "x", "10.0.0.250,10.1.0.9").await;
    scene.namespace("good", "x", "").await;
    scene
        .wait::<EgressIP>("oooi-x-good", "the good one", |_| true)
        .await;
    scene.wait_event("spaces", "SpacesInList", "no spaces").await;
    scene.wait_event("lost", "UnknownEgressIPAM", "nobody").await;
    scene.wait_event("taken", "AddressOfNode", "n1").await;
    scene
        .wait_says("x", "NamespacesAssigned", "False", "SpacesInList")
        .await;
    let names = |one: &EgressIpam| -> Vec<String> {
        let failing = one.status.iter().flat_map(|status| &status.failing_namespaces);
        failing.map(|failing| failing.name.clone()).collect()
    };
    let told = |one: &EgressIpam| names(one) == ["spaces", "taken"];
    scene.wait("x", "the two that fail to be listed", told).await;

    scene.annotate("spaces", GIVEN, Some("10.0.0.5,10.1.0.5")).await;
    scene.annotate("taken", GIVEN, None).await;
    scene
        .wait::<EgressIP>("oooi-x-spaces", "the mended one", |one| {
            one.spec.egress_ips[0] == "10.0.0.5"
        })
        .await;
    let mended = scene.wait_says("x", "Ready", "True", "AllReady").await;
    assert!(mended.status.unwrap().failing_namespaces.is_empty());
}

#[tokio::test]
async fn a_network_that_is_added_and_an_edited_list_are_carried_out() {
    let scene = Scene::ovn().await;
    two_zones(&scene).await;
    scene.node("n3", "c", "10.2.0.250/24").await;
    scene.namespace("shop", "x", "").await;
    scene.wait_given("shop", "10.0.0.1,10.1.0.1").await;
    scene
        .ipam("x", &["10.0.0.0/24=a", "10.2.0.0/24=c", "10.1.0.0/24=b"])
        .await;
    scene.wait_given("shop", "10.0.0.1,10.2.0.1,10.1.0.1").await;
    scene
        .annotate("shop", GIVEN, Some("10.0.0.40,10.2.0.40,10.1.0.40"))
        .await;
    let edited = |one: &EgressIP| one.spec.egress_ips == ["10.0.0.40", "10.2.0.40", "10.1.0.40"];
    scene.wait("oooi-x-shop", "the edited list", edited).await;
}

#[tokio::test]
async fn what_happened_while_nobody_ran_is_mended_at_the_next_start() {
    let mut scene = Scene::ovn().await;
    two_zones(&scene).await;
    scene.node("n3", "c", "10.2.0.250/24").await;
    scene.ipam("y", &["10.2.0.0/24=c"]).await;
    for name in ["leaves", "moves", "dies", "stays"] {
        scene.namespace(name, "x", "").await;
        scene
            .wait::<EgressIP>(&format!("oooi-x-{name}"), "its addresses", |_| true)
            .await;
    }
    let stays = scene.api::<Namespace>().get("stays").await.unwrap().annotations()[GIVEN].clone();
    scene.stop();
    scene.annotate("leaves", ASKS, None).await;
    scene.annotate("moves", ASKS, Some("y")).await;
    scene.delete::<Namespace>("dies").await;
    scene.wait_gone::<Namespace>("dies").await;
    scene.delete::<Node>("n2").await;
    scene.start().await;

    scene.wait_gone::<EgressIP>("oooi-x-leaves").await;
    scene.wait_gone::<EgressIP>("oooi-x-dies").await;
    scene.wait_given("moves", "10.2.0.1").await;
    scene.wait_gone::<EgressIP>("oooi-x-moves").await;
    scene
        .wait::<EgressIP>("oooi-y-moves", "its new address", |one| {
            one.spec.egress_ips == ["10.2.0.1"]
        })
        .await;
    let left: Namespace = scene
        .wait("leaves", "no list", |one: &Namespace| {
            !one.annotations().contains_key(GIVEN)
        })
        .await;
    assert!(
        left.annotations()
            .keys()
            .all(|key| !key.starts_with("egressip-ipam")),
        "{left:?}"
    );
    scene.wait_given("stays", &stays).await;
    scene
        .wait_says("x", "NodesEligible", "False", "NoEligibleNode")
        .await;
}

#[tokio::test]
async fn nodes_are_labelled_as_their_own_labels_change_and_a_label_of_others_stays() {
    let scene = Scene::ovn().await;
    two_zones(&scene).await;
    scene.node("theirs", "elsewhere", "10.9.0.250/24").await;
    scene
        .change::<Node>("theirs", json!({"metadata": {"labels": {ASSIGNABLE: ""}}}))
        .await;
    scene.wait::<Node>("n1", "the label", is_labelled).await;
    scene
        .change::<Node>("n1", json!({"metadata": {"labels": {"zone": "gone"}}}))
        .await;
    scene
        .wait::<Node>("n1", "no label", |node| !is_labelled(node))
        .await;
    scene
        .wait_says("x", "NodesEligible", "False", "NoEligibleNode")
        .await;
    scene
        .change::<Node>("theirs", json!({"metadata": {"labels": {"zone": "a"}}}))
        .await;
    scene
        .change::<Node>("n1", json!({"metadata": {"labels": {"zone": "a"}}}))
        .await;
    scene.wait::<Node>("n1", "the label again", is_labelled).await;
    scene
        .change::<Node>("n1", json!({"metadata": {"labels": {ASSIGNABLE: null}}}))
        .await;
    scene
        .wait::<Node>("n1", "the label that somebody took", is_labelled)
        .await;
    scene.delete::<EgressIpam>("x").await;
    scene.wait_gone::<EgressIpam>("x").await;
    assert!(!is_labelled(&scene.api::<Node>().get("n1").await.unwrap()));
    assert!(
        is_labelled(&scene.api::<Node>().get("theirs").await.unwrap()),
        "it was there before us"
    );
}

#[tokio::test]
async fn a_node_that_is_not_ready_is_told_and_its_addresses_go_where_ovn_puts_them() {
    let scene = Scene::ovn().await;
    scene.node("n1", "a", "10.0.0.250/24").await;
    scene.node("n2", "a", "10.0.0.251/24").await;
    scene.ipam("x", &["10.0.0.0/24=a"]).await;
    scene.namespace("shop", "x", "").await;
    let on = |one: &EgressIP| {
        one.status
            .as_ref()
            .and_then(|status| Some(status.items.first()?.node.clone()))
    };
    let placed = scene
        .wait("oooi-x-shop", "a node", |one: &EgressIP| on(one).is_some())
        .await;
    let first = on(&placed).unwrap();
    scene.wait_says("x", "Ready", "True", "AllReady").await;
    scene.ready(&first, false).await;
    scene
        .wait("oooi-x-shop", "the other node", |one: &EgressIP| {
            on(one).is_some_and(|node| node != first)
        })
        .await;
    let other = if first == "n1" { "n2" } else { "n1" };
    scene.ready(other, false).await;
    scene
        .wait_says("x", "NodesEligible", "False", "NoEligibleNode")
        .await;
    scene
        .wait_says("x", "NamespacesAssigned", "False", "Pending")
        .await;
    scene.ready(&first, true).await;
    scene.wait_says("x", "Ready", "True", "AllReady").await;
}

#[tokio::test]
async fn deletion_undoes_what_we_did_leaves_what_people_did_and_ends_with_a_broken_specification_too() {
    let scene = Scene::ovn().await;
    two_zones(&scene).await;
    scene.namespace("ours", "x", "").await;
    scene.namespace("theirs", "x", "10.0.0.77,10.1.0.78").await;
    scene.wait_says("x", "Ready", "True", "AllReady").await;
    let mut broken = ipam("x", &[]);
    broken["metadata"]["finalizers"] = json!(["egressipam-controller"]);
    scene
        .cluster
        .kubectl_with_input(&["replace", "-f", "-"], &broken.to_string())
        .await
        .unwrap();
    scene.wait_says("x", "Ready", "False", "InvalidSpec").await;
    assert!(
        scene
            .api::<EgressIP>()
            .get_opt("oooi-x-ours")
            .await
            .unwrap()
            .is_some(),
        "what is in force stays"
    );

    scene.delete::<EgressIpam>("x").await;
    scene.wait_gone::<EgressIpam>("x").await;
    scene.wait_gone::<EgressIP>("oooi-x-ours").await;
    let ours = scene.api::<Namespace>().get("ours").await.unwrap();
    assert!(!ours.annotations().contains_key(GIVEN), "{ours:?}");
    let theirs = scene.api::<Namespace>().get("theirs").await.unwrap();
    assert_eq!(
        theirs.annotations()[GIVEN],
        "10.0.0.77,10.1.0.78",
        "what a person wrote stays"
    );
    assert!(!is_labelled(&scene.api::<Node>().get("n1").await.unwrap()));
}

#[tokio::test]
async fn no_two_of_many_namespaces_get_the_same_address_whenever_the_controller_is_ended() {
    let mut scene = Scene::ovn().await;
    two_zones(&scene).await;
    let mut manifests: Vec<serde_json::Value> = Vec::new();
    for n in 0..60 {
        manifests.push(json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": format!("many-{n}"), "annotations": {ASKS: "x"}},
        }));
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": manifests}).to_string();
    let applying = scene.cluster.apply(&list);
    tokio::pin!(applying);
    // Ended again and again, at whatever it does just then.
    let mut ended = 0;
    loop {
        tokio::select! {
            done = &mut applying => { done.unwrap(); break; }
            () = tokio::time::sleep(std::time::Duration::from_millis(70)) => {
                scene.controller_again().await;
                ended += 1;
            }
        }
    }
    assert!(ended > 0, "it was ended at least once");
    scene
        .wait("x", "all of them", |one: &EgressIpam| {
            one.status.as_ref().is_some_and(|status| {
                status.namespaces == Some(60)
                    && status.failing_namespaces.is_empty()
                    && status.cidrs[0].used == 60
            })
        })
        .await;
    let mut seen = BTreeSet::new();
    for n in 0..60 {
        let namespace = scene.api::<Namespace>().get(&format!("many-{n}")).await.unwrap();
        for address in namespace.annotations()[GIVEN].split(',') {
            assert!(seen.insert(address.to_owned()), "{address} twice");
        }
        let egress_ip = scene
            .api::<EgressIP>()
            .get(&format!("oooi-x-many-{n}"))
            .await
            .unwrap();
        assert_eq!(
            egress_ip.spec.egress_ips.join(","),
            namespace.annotations()[GIVEN]
        );
    }
}

#[tokio::test]
async fn wherever_it_is_cut_off_the_next_one_leaks_nothing_and_doubles_nothing() {
    let mut scene = Scene::ovn().await;
    scene.stop();
    scene.node("n1", "a", "10.0.0.250/24").await;
    scene.node("n2", "a", "10.0.0.251/24").await;
    scene.node("n3", "b", "10.1.0.250/24").await;
    story(&mut scene, &NoCloud, &["10.0.0.0/24=a", "10.1.0.0/24=b"], &[1, 3]).await;
}

#[tokio::test]
async fn a_write_to_a_namespace_that_changed_since_it_was_seen_is_refused() {
    let scene = Scene::empty(None).await;
    scene.namespace("raced", "x", "").await;
    let seen = scene.api::<Namespace>().get("raced").await.unwrap();
    scene.annotate("raced", GIVEN, Some("10.0.0.9")).await;
    let (_leads, leading) = tokio::sync::watch::channel(Term::Unlimited);
    let writer = Writer::new(scene.client.clone(), "oooi-test", leading);
    let fields = json!({"metadata": {"annotations": {GIVEN: "10.0.0.1"}}});
    let error = writer
        .change_as_seen::<Namespace>(&seen, fields)
        .await
        .unwrap_err();
    assert!(error.is_outdated(), "{error}");
    scene.wait_given("raced", "10.0.0.9").await;
}

#[tokio::test]
async fn addresses_of_other_egressips_are_passed_over_overlaps_are_told_and_a_pause_holds() {
    let scene = Scene::ovn().await;
    scene.node("n1", "a", "10.0.0.250/24").await;
    scene
        .apply(json!({
            "apiVersion": "k8s.ovn.org/v1", "kind": "EgressIP", "metadata": {"name": "theirs"},
            "spec": {"egressIPs": ["10.0.0.1"], "namespaceSelector": {"matchLabels": {"team": "theirs"}}},
        }))
        .await;
    scene.ipam("x", &["10.0.0.0/24=a"]).await;
    scene.ipam("y", &["10.0.0.0/25=a"]).await;
    scene.namespace("shop", "x", "").await;
    scene.wait_given("shop", "10.0.0.2").await;
    scene.wait_event("x", "CheckSpecification", "overlap").await;
    scene.namespace("wants", "y", "10.0.0.2").await;
    scene
        .wait_event("wants", "DuplicateAddress", "namespace shop")
        .await;
    scene.namespace("greedy", "y", "10.0.0.1").await;
    scene
        .wait_event("greedy", "AddressInUse", "EgressIP theirs")
        .await;

    let paused = json!({"metadata": {"annotations": {"hostedcluster.densityops.com/paused": "true"}}});
    scene.change::<EgressIpam>("x", paused).await;
    scene.wait_says("x", "Ready", "Unknown", "Paused").await;
    scene.annotate("shop", ASKS, None).await;
    scene.namespace("after", "y", "").await; // a later pass than the one that saw the change above
    scene
        .wait::<EgressIP>("oooi-y-after", "the other EgressIPAM", |_| true)
        .await;
    assert!(
        scene
            .api::<EgressIP>()
            .get_opt("oooi-x-shop")
            .await
            .unwrap()
            .is_some(),
        "nothing is written"
    );
    assert!(scene.api::<EgressIP>().get_opt("theirs").await.unwrap().is_some());
}
