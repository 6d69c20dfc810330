//! EgressIPAMs on OpenShift SDN in Azure: a real API server, and a stand-in for Azure. Needs the testbed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../cloud/tests/arm/mod.rs"]
mod arm;
mod egress;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use arm::Arm;
use egress::cut::{Cloud, Cut, story};
use egress::sdn::{host, namespace, places};
use egress::{LIMIT, Scene};
use k8s_openapi::api::core::v1::Node;
use oooi_api::EgressIpam;
use oooi_operator::egress_ipam::Network;
use oooi_testkit::until;
use serde_json::json;

const LOAD_BALANCER: &str = "egressip-ipam-operator.redhat-cop.io/azure-egress-load-balancer";

async fn two_machines() -> (Scene, Arm) {
    let mut scene = Scene::empty(Some(Network::OpenShiftSdn)).await;
    let machines = [("n1", "10.0.0.250"), ("n2", "10.0.0.249")];
    let arm = Arm::with(&machines).await;
    scene
        .platform(json!({"type": "Azure", "azure": {"resourceGroupName": "rg"}}))
        .await;
    let secret = arm::secret();
    let secret: BTreeMap<&str, &str> = secret
        .iter()
        .map(|(key, value)| (key.as_str(), std::str::from_utf8(value).unwrap()))
        .collect();
    scene.credentials(Some(json!(secret))).await;
    scene.cloud.namespace = Some("oooi-system".into());
    scene.cloud.environment.authority = Some(arm.url.clone());
    scene.cloud.environment.resource_manager = Some(arm.url.clone());
    for (name, address) in machines {
        host(&scene, name, "a", address).await;
        let fields = json!({"spec": {"providerID": Arm::provider_id(name)}});
        scene.change::<Node>(name, fields).await;
    }
    scene.ipam("x", &["10.0.0.0/24=a"]).await;
    (scene, arm)
}

/// Waits until interfaces and nodes say the same, of these addresses and no others.
async fn wait_settled(scene: &Scene, arm: &Arm, addresses: &[&str]) -> BTreeMap<String, String> {
    until("interfaces and nodes to agree", LIMIT, async || {
        let mut on = BTreeMap::new();
        for machine in ["n1", "n2"] {
            let further = arm.azure().on(machine);
            on.extend(further.into_iter().map(|address| (address, machine.to_owned())));
        }
        let found: BTreeSet<&str> = on.keys().map(String::as_str).collect();
        let nodes = places(scene).await;
        if found == addresses.iter().copied().collect() && on == nodes {
            Ok(on)
        } else {
            Err(format!("interfaces {on:?}, nodes {nodes:?}"))
        }
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn an_interface_is_written_once_a_change_and_not_at_all_without_one() {
    let (mut scene, arm) = two_machines().await;
    scene.start().await;
    namespace(&scene, "za", 1, "x", "").await;
    namespace(&scene, "zb", 2, "x", "").await;
    let all = ["10.0.0.4", "10.0.0.5"];
    let on = wait_settled(&scene, &arm, &all).await;
    scene.wait_says("x", "Ready", "True", "AllReady").await;
    assert_eq!(arm.azure().puts(), 2, "one a machine");
    assert_eq!(
        arm.azure().pools(&on["10.0.0.4"], "10.0.0.4"),
        1,
        "as the machine's own address"
    );
    let calls = arm.azure().calls.len();
    for round in 0..3 {
        let fields = json!({"metadata": {"labels": {"round": round.to_string()}}});
        scene.change::<Node>("n1", fields).await;
        tokio::time::sleep(Duration::from_millis(300)).await; // a pass goes by, and leaves no trace to wait for
    }
    assert_eq!(arm.azure().calls.len(), calls, "nothing changed");

    arm.azure().throttle = 2;
    arm.azure().lose = 1;
    scene.ready("n1", false).await;
    until("n1 to be empty", LIMIT, async || {
        match arm.azure().on("n1").len() {
            0 => Ok(()),
            left => Err(format!("{left} are left")),
        }
    })
    .await
    .unwrap();
    wait_settled(&scene, &arm, &all).await;
    scene.delete::<EgressIpam>("x").await;
    scene.wait_gone::<EgressIpam>("x").await;
    wait_settled(&scene, &arm, &[]).await;
}

#[tokio::test]
async fn a_pool_with_outbound_rules_is_told_and_none_joins_no_pool() {
    let (mut scene, arm) = two_machines().await;
    arm.azure().outbound_rule = true;
    scene.start().await;
    namespace(&scene, "za", 1, "x", "").await;
    let refused = scene.wait_says("x", "CloudInSync", "False", "CloudRefused").await;
    assert!(format!("{refused:?}").contains("azure-egress-load-balancer: none"));
    let fields = json!({"metadata": {"annotations": {LOAD_BALANCER: "none"}}});
    scene.change::<EgressIpam>("x", fields).await;
    let on = wait_settled(&scene, &arm, &["10.0.0.4"]).await;
    assert_eq!(arm.azure().pools(&on["10.0.0.4"], "10.0.0.4"), 0);
    scene.wait_says("x", "Ready", "True", "AllReady").await;
}

#[tokio::test]
async fn a_machine_of_a_scale_set_is_told_and_the_others_go_on() {
    let (mut scene, arm) = two_machines().await;
    host(&scene, "n3", "a", "10.0.0.248").await;
    let id = "azure:///subscriptions/sub/resourceGroups/RG/providers/Microsoft.Compute/virtualMachineScaleSets/w/virtualMachines/3";
    let fields = json!({"spec": {"providerID": id}});
    scene.change::<Node>("n3", fields).await;
    scene.start().await;
    namespace(&scene, "za", 1, "x", "").await;
    wait_settled(&scene, &arm, &["10.0.0.4"]).await;
    let told = scene
        .wait_says("x", "CloudInSync", "False", "NodeInScaleSet")
        .await;
    assert!(format!("{told:?}").contains("let the nodeSelector pass it over"));
    scene
        .wait_event("n3", "NodeInScaleSet", "one of a scale set")
        .await;
}

/// Azure, with machines that are called as their nodes.
impl Cloud for Arm {
    fn cut(&self, cut: &Cut) {
        let cut = cut.clone();
        // Between an answer and the end of its operation there are calls that change nothing; they are ends as well.
        let counts = |call: &str| call.starts_with("PUT") || call.starts_with("GET op-");
        self.azure().gate = Some(Box::new(move |call| cut.passes(counts(call))));
    }

    async fn carried(&self) -> Vec<(String, String)> {
        let azure = self.azure();
        let on = |node: &'static str| {
            azure
                .on(node)
                .into_iter()
                .map(|address| (address, node.to_owned()))
        };
        ["n1", "n2"].into_iter().flat_map(on).collect()
    }
}

#[tokio::test]
async fn wherever_it_is_cut_off_the_next_one_leaks_nothing_and_doubles_nothing() {
    let (mut scene, arm) = two_machines().await;
    scene.delete::<EgressIpam>("x").await;
    story(&mut scene, &arm, &["10.0.0.0/24=a"], &[1, 3]).await;
}
