//! EgressIPAMs on OpenShift SDN in AWS: a real API server, and moto as EC2 behind a layer of faults. Needs the testbed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod egress;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use egress::cut::{Cloud, Cut, story};
use egress::ec2::{Ec2, Machine, set};
use egress::sdn::{PLACED, host, namespace, places};
use egress::{ASKS, GIVEN, LIMIT, Scene};
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use oooi_api::EgressIpam;
use oooi_api::foreign::{HostSubnet, NetNamespace};
use oooi_operator::egress_ipam::Network;
use oooi_testkit::until;
use serde_json::json;

/// A cluster in AWS, with one subnet and one machine a node.
struct World {
    scene: Scene,
    ec2: Ec2,
    subnet: String,
    machines: BTreeMap<String, Machine>,
}

impl World {
    /// Nodes of zone `a` in 10.0.0.0/24, and no controller yet.
    async fn with(nodes: &[&str], type_: &str) -> World {
        let mut scene = Scene::empty(Some(Network::OpenShiftSdn)).await;
        let ec2 = Ec2::start().await;
        scene
            .platform(json!({"type": "AWS", "aws": {"region": "eu-north-1"}}))
            .await;
        let keys = json!({"aws_access_key_id": "AKID", "aws_secret_access_key": "hidden-key"});
        scene.credentials(Some(keys)).await;
        scene.cloud.namespace = Some("oooi-system".into());
        scene.cloud.environment.ec2 = Some(ec2.url.clone());
        // Nothing is there: a machine that is not one of EC2 has no role.
        scene.cloud.environment.metadata = Some("http://127.0.0.1:1".into());
        let subnet = ec2.subnet("10.0.0.0/24").await;
        let mut world = World {
            scene,
            ec2,
            subnet,
            machines: BTreeMap::new(),
        };
        for (index, name) in nodes.iter().enumerate() {
            let address = format!("10.0.0.{}", 250 - index);
            let machine = world.ec2.machine(&world.subnet, type_, &address).await;
            host(&world.scene, name, "a", &address).await;
            let id = format!("aws:///eu-north-1a/{}", machine.id);
            let fields = json!({"spec": {"providerID": id}});
            world.scene.change::<Node>(name, fields).await;
            world.machines.insert((*name).to_owned(), machine);
        }
        world.scene.ipam("x", &["10.0.0.0/24=a"]).await;
        world
    }

    async fn started(nodes: &[&str]) -> World {
        let mut world = World::with(nodes, "m6i.large").await;
        world.scene.start().await;
        world
    }

    /// What each machine has, each address on one machine and no more.
    async fn on_machines(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for (node, machine) in &self.machines {
            for address in machine.addresses().await {
                let before = all.insert(address.clone(), node.clone());
                assert_eq!(before, None, "{address} is on two machines");
            }
        }
        all
    }

    /// Where every address is, if machines, nodes and records say the same.
    async fn agreed(&self) -> Result<BTreeMap<String, String>, String> {
        let machines = self.on_machines().await;
        let nodes = places(&self.scene).await;
        let mut records = BTreeMap::new();
        for node in self
            .scene
            .api::<Node>()
            .list(&ListParams::default())
            .await
            .unwrap()
        {
            for address in node
                .annotations()
                .get(PLACED)
                .iter()
                .flat_map(|text| text.split(','))
            {
                records.insert(address.to_owned(), node.name_any());
            }
        }
        if machines == nodes && machines == records {
            Ok(machines)
        } else {
            Err(format!(
                "machines {machines:?}, nodes {nodes:?}, records {records:?}"
            ))
        }
    }

    /// Waits until machines, nodes and records say the same, of these addresses and no others.
    async fn wait_settled(&self, addresses: &[&str]) -> BTreeMap<String, String> {
        let wanted = set(addresses);
        until("machines, nodes and records to agree", LIMIT, async || {
            let on = self.agreed().await?;
            let found: BTreeSet<String> = on.keys().cloned().collect();
            if found == wanted {
                Ok(on)
            } else {
                Err(format!("{on:?}"))
            }
        })
        .await
        .unwrap()
    }

    async fn ready(&self) {
        self.scene.wait_says("x", "CloudInSync", "True", "InSync").await;
        self.scene.wait_says("x", "Ready", "True", "AllReady").await;
    }
}

#[tokio::test]
async fn addresses_are_on_machines_and_nothing_is_asked_while_nothing_changes() {
    let world = World::started(&["n1", "n2"]).await;
    // The cloud keeps 10.0.0.1 to 10.0.0.3 for itself.
    namespace(&world.scene, "aa", 1, "x", "").await;
    namespace(&world.scene, "ab", 2, "x", "").await;
    let on = world.wait_settled(&["10.0.0.4", "10.0.0.5"]).await;
    assert_ne!(on["10.0.0.4"], on["10.0.0.5"], "evenly");
    world.ready().await;
    let writes = world.ec2.layer().writes();
    assert!(writes <= 2, "one call a machine, not {writes}");

    let calls = world.ec2.layer().calls.len();
    for round in 0..3 {
        let fields = json!({"metadata": {"labels": {"round": round.to_string()}}});
        world.scene.change::<Node>("n1", fields).await;
        world.scene.ready("n1", true).await;
        tokio::time::sleep(Duration::from_millis(300)).await; // a pass goes by, and leaves no trace to wait for
    }
    assert_eq!(world.ec2.layer().calls.len(), calls, "nothing changed");

    world.scene.delete::<EgressIpam>("x").await;
    world.scene.wait_gone::<EgressIpam>("x").await;
    world.wait_settled(&[]).await;
}

#[tokio::test]
async fn foreign_secondary_addresses_stay_and_are_not_given_again() {
    let mut world = World::with(&["n1"], "m6i.large").await;
    let n1 = world.machines["n1"].clone();
    world.ec2.put(&n1, "10.0.0.4").await;
    world.ec2.stranger(&world.subnet, "10.0.0.5").await;
    world.scene.start().await;
    namespace(&world.scene, "aa", 1, "x", "").await;
    world.scene.wait_given("aa", "10.0.0.6").await;
    world.ready().await;
    assert_eq!(n1.addresses().await, set(&["10.0.0.4", "10.0.0.6"]));
    // Whoever names the address of a stranger is told whose it is.
    namespace(&world.scene, "ab", 2, "x", "10.0.0.5").await;
    world.scene.wait_event("ab", "AddressInUse", "a database").await;
    world.scene.delete::<EgressIpam>("x").await;
    world.scene.wait_gone::<EgressIpam>("x").await;
    assert_eq!(n1.addresses().await, set(&["10.0.0.4"]), "only ours is gone");
}

#[tokio::test]
async fn secondary_addresses_that_a_namespace_names_are_adopted_where_they_are() {
    let mut world = World::with(&["n1", "n2"], "m6i.large").await;
    world.ec2.put(&world.machines["n2"], "10.0.0.77").await;
    namespace(&world.scene, "old", 1, "x", "10.0.0.77").await;
    world.scene.start().await;
    let on = world.wait_settled(&["10.0.0.77"]).await;
    assert_eq!(on["10.0.0.77"], "n2", "it did not move");
    assert_eq!(world.ec2.layer().writes(), 0, "it was there");
    world.scene.annotate("old", ASKS, None).await;
    world.wait_settled(&[]).await;
}

#[tokio::test]
async fn placement_respects_capacity() {
    let mut world = World::with(&["n1", "n2"], "t2.micro").await; // two addresses an interface, its own included
    world.scene.start().await;
    for (id, name) in ["aa", "ab", "ac"].into_iter().enumerate() {
        namespace(&world.scene, name, id as u32 + 1, "x", "").await;
        world.scene.wait_given(name, &format!("10.0.0.{}", id + 4)).await;
    }
    let ipam = world
        .scene
        .wait_says("x", "NamespacesAssigned", "False", "Pending")
        .await;
    let failing = ipam.status.unwrap().failing_namespaces;
    assert!(
        failing[0].message.contains("every node for 10.0.0.6 is full"),
        "{failing:?}"
    );
    world
        .scene
        .wait_event("ac", "NotPlaced", "every node for 10.0.0.6 is full")
        .await;
    world.wait_settled(&["10.0.0.4", "10.0.0.5"]).await;
}

#[tokio::test]
async fn a_limit_that_nobody_knew_of_stops_one_address_and_no_other() {
    let world = World::started(&["n1"]).await;
    world.ec2.layer().limit = Some(1);
    namespace(&world.scene, "aa", 1, "x", "10.0.0.40").await;
    namespace(&world.scene, "ab", 2, "x", "10.0.0.41").await;
    world
        .scene
        .wait_says("x", "CloudInSync", "False", "CloudRefused")
        .await;
    world
        .scene
        .wait_event("n1", "CloudRefused", "PrivateIpAddressLimitExceeded")
        .await;
    world
        .scene
        .wait_event("ab", "CloudRefused", "10.0.0.41 on node n1")
        .await;
    until("one of them to be there", LIMIT, async || {
        let on = world.machines["n1"].addresses().await;
        if on.len() == 1 {
            Ok(())
        } else {
            Err(format!("{on:?}"))
        }
    })
    .await
    .unwrap();
    world.ec2.layer().limit = None;
    world.wait_settled(&["10.0.0.40", "10.0.0.41"]).await;
    world.ready().await;
}

#[tokio::test]
async fn a_node_that_fails_passes_its_addresses_on_and_nobody_else_moves() {
    let world = World::started(&["n1", "n2", "n3"]).await;
    for (id, name) in ["aa", "ab", "ac"].into_iter().enumerate() {
        namespace(&world.scene, name, id as u32 + 1, "x", "").await;
    }
    let all = ["10.0.0.4", "10.0.0.5", "10.0.0.6"];
    let before = world.wait_settled(&all).await;
    world.scene.ready("n1", false).await;
    until("n1 to be empty", LIMIT, async || {
        let on = world.on_machines().await;
        if on.len() == 3 && on.values().all(|node| node != "n1") {
            Ok(())
        } else {
            Err(format!("{on:?}"))
        }
    })
    .await
    .unwrap();
    let after = world.wait_settled(&all).await;
    for (address, node) in &after {
        assert!(
            before[address] == *node || before[address] == "n1",
            "{address} moved for nothing"
        );
    }
}

#[tokio::test]
async fn calls_that_are_put_off_or_whose_answers_are_lost_leave_nothing_double() {
    let world = World::started(&["n1", "n2"]).await;
    namespace(&world.scene, "aa", 1, "x", "").await;
    world.wait_settled(&["10.0.0.4"]).await;
    {
        let mut layer = world.ec2.layer();
        layer.throttle = 3;
        layer.lose = 1;
    }
    namespace(&world.scene, "ab", 2, "x", "").await;
    world.wait_settled(&["10.0.0.4", "10.0.0.5"]).await;
    world.ec2.layer().lose = 1;
    world.scene.annotate("aa", ASKS, None).await;
    world.wait_settled(&["10.0.0.5"]).await;
    world.ready().await;
    let layer = world.ec2.layer();
    assert_eq!((layer.throttle, layer.lose), (0, 0), "it was really so");
    assert_eq!(
        layer.count("UnassignPrivateIpAddresses"),
        1,
        "what was done is not done again"
    );
}

#[tokio::test]
async fn a_lookup_of_used_addresses_that_fails_gives_nobody_an_address() {
    let world = World::started(&["n1"]).await;
    namespace(&world.scene, "aa", 1, "x", "").await;
    world.wait_settled(&["10.0.0.4"]).await;
    world.ec2.layer().broken = Some("DescribeNetworkInterfaces");
    namespace(&world.scene, "ab", 2, "x", "").await;
    world
        .scene
        .wait_says("x", "CloudInSync", "False", "CloudDenied")
        .await;
    let ab = world.scene.api::<Namespace>().get("ab").await.unwrap();
    assert_eq!(ab.annotations().get(GIVEN), None);
    assert_eq!(
        world.machines["n1"].addresses().await,
        set(&["10.0.0.4"]),
        "what is there stays"
    );
    world.ec2.layer().broken = None;
    world.wait_settled(&["10.0.0.4", "10.0.0.5"]).await;
}

#[tokio::test]
async fn missing_credentials_are_told_by_their_keys_and_no_value_is_shown_anywhere() {
    let mut world = World::with(&["n1"], "m6i.large").await;
    let incomplete = json!({"aws_access_key_id": "hidden-id", "other": "hidden-other"});
    world.scene.credentials(Some(incomplete)).await;
    namespace(&world.scene, "aa", 1, "x", "").await;
    world.scene.start().await;
    let ipam = world
        .scene
        .wait_says("x", "CloudInSync", "False", "CredentialsMissing")
        .await;
    assert!(format!("{ipam:?}").contains("aws_secret_access_key"));
    assert!(!format!("{ipam:?}").contains("hidden"));
    world
        .scene
        .wait_event("x", "CredentialsMissing", "aws_secret_access_key")
        .await;
    let events = Api::<Event>::all(world.scene.client.clone());
    let events = events.list(&ListParams::default()).await.unwrap();
    assert!(!format!("{events:?}").contains("hidden"));
    assert!(world.ec2.layer().calls.is_empty(), "nobody was asked");
    // They are seen as soon as they are there.
    let keys = json!({"aws_access_key_id": "AKID", "aws_secret_access_key": "k"});
    world.scene.credentials(Some(keys)).await;
    world.wait_settled(&["10.0.0.4"]).await;
    // Deletion ends also without them, once nothing is left to undo.
    world.scene.annotate("aa", ASKS, None).await;
    world.wait_settled(&[]).await;
    world.scene.credentials(None).await;
    world.scene.delete::<EgressIpam>("x").await;
    world.scene.wait_gone::<EgressIpam>("x").await;
}

#[tokio::test]
async fn a_node_without_a_cloud_id_is_told_and_the_others_go_on() {
    let mut world = World::with(&["n1"], "m6i.large").await;
    host(&world.scene, "n2", "a", "10.0.0.240").await;
    namespace(&world.scene, "aa", 1, "x", "").await;
    namespace(&world.scene, "ab", 2, "x", "").await;
    world.scene.start().await;
    let on = world.wait_settled(&["10.0.0.4", "10.0.0.5"]).await;
    assert!(on.values().all(|node| node == "n1"), "{on:?}");
    world
        .scene
        .wait_says("x", "CloudInSync", "False", "NodeWithoutMachine")
        .await;
    world
        .scene
        .wait_event("n2", "NodeWithoutMachine", "spec.providerID is not set")
        .await;
}

#[tokio::test]
async fn deletion_without_the_cloud_undoes_the_rest_and_tells_what_is_left_until_the_cloud_is_back() {
    let mut world = World::started(&["n1"]).await;
    namespace(&world.scene, "aa", 1, "x", "").await;
    world.wait_settled(&["10.0.0.4"]).await;
    world.ready().await;
    world.scene.stop();
    world.ec2.layer().broken = Some("DescribeInstances");
    world.scene.delete::<EgressIpam>("x").await;
    world.scene.start().await;
    let x = world
        .scene
        .wait_says("x", "Ready", "False", "CleanupFailed")
        .await;
    let said = format!("{x:?}");
    assert!(
        said.contains("10.0.0.4 on node n1") && said.contains("DescribeInstances"),
        "{said}"
    );
    let aa = world.scene.api::<NetNamespace>().get("aa").await.unwrap();
    assert!(aa.spec.egress_ips.is_empty(), "for this no cloud is needed");
    let aa = world.scene.api::<Namespace>().get("aa").await.unwrap();
    assert_eq!(aa.annotations().get(GIVEN), None, "nor for this");
    assert_eq!(
        world.machines["n1"].addresses().await,
        set(&["10.0.0.4"]),
        "it is known to be ours still"
    );
    world.ec2.layer().broken = None;
    world.scene.wait_gone::<EgressIpam>("x").await;
    world.wait_settled(&[]).await;
}

#[tokio::test]
async fn what_an_egressipam_that_is_gone_left_on_machines_goes_as_soon_as_the_cloud_lets_it() {
    let mut world = World::started(&["n1"]).await;
    namespace(&world.scene, "aa", 1, "x", "").await;
    world.wait_settled(&["10.0.0.4"]).await;
    world.scene.stop();
    world.ec2.layer().broken = Some("UnassignPrivateIpAddresses");
    world.scene.delete::<EgressIpam>("x").await;
    let by_force = json!({"metadata": {"finalizers": null}});
    world.scene.change::<EgressIpam>("x", by_force).await;
    world.scene.wait_gone::<EgressIpam>("x").await;
    world.scene.start().await;
    world
        .scene
        .wait_event("n1", "CloudDenied", "10.0.0.4 on node n1")
        .await;
    // Nothing changes in the cluster from now on.
    world.ec2.layer().broken = None;
    world.wait_settled(&[]).await;
}

/// EC2, with the node of each machine.
struct Machines<'a>(&'a Ec2, &'a BTreeMap<String, Machine>);

impl Cloud for Machines<'_> {
    fn cut(&self, cut: &Cut) {
        self.0.layer().cut = Some(cut.clone());
    }

    async fn carried(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for (node, machine) in self.1 {
            let on = machine.addresses().await;
            all.extend(on.into_iter().map(|address| (address, node.clone())));
        }
        all
    }
}

#[tokio::test]
async fn wherever_it_is_cut_off_the_next_one_leaks_nothing_and_doubles_nothing() {
    let mut world = World::with(&["n1", "n2"], "m6i.large").await;
    world.scene.delete::<EgressIpam>("x").await;
    let machines = Machines(&world.ec2, &world.machines);
    story(&mut world.scene, &machines, &["10.0.0.0/24=a"], &[1, 3]).await;
}

#[tokio::test]
async fn several_networks_and_namespaces_that_leave_are_undone_on_their_machines() {
    let world = World::started(&["n1", "n2"]).await;
    world.scene.ipam("y", &["10.0.0.128/28=a"]).await;
    namespace(&world.scene, "aa", 1, "x", "").await;
    namespace(&world.scene, "ab", 2, "y", "").await;
    world.wait_settled(&["10.0.0.4", "10.0.0.132"]).await;
    world.scene.delete::<EgressIpam>("y").await;
    world.scene.wait_gone::<EgressIpam>("y").await;
    world.wait_settled(&["10.0.0.4"]).await;
    let one = world.scene.api::<NetNamespace>().get("ab").await.unwrap();
    assert!(one.spec.egress_ips.is_empty());
    for host in world
        .scene
        .api::<HostSubnet>()
        .list(&ListParams::default())
        .await
        .unwrap()
    {
        assert!(
            host.spec.egress_cidrs.is_empty(),
            "a cloud's addresses are placed here, one by one"
        );
    }
}
