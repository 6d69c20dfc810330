//! The controllers on a real API server with real controllers and garbage collection. Needs the testbed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod world;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Service, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use oooi_api::foreign::NetworkAttachmentDefinition;
use oooi_api::{DhcpServer, DnsServer, Infra, ProxyServer};
use serde_json::{Value, json};
use world::{World, said, says};

fn conditions(infra: &Infra) -> &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition] {
    infra.status.as_ref().map_or(&[], |status| &status.conditions)
}

fn networks(deployment: &Deployment) -> Value {
    let template = deployment
        .spec
        .as_ref()
        .unwrap()
        .template
        .metadata
        .as_ref()
        .unwrap();
    let text = &template.annotations.as_ref().unwrap()["k8s.v1.cni.cncf.io/networks"];
    serde_json::from_str(text).unwrap()
}

#[tokio::test]
async fn an_infra_becomes_servers_and_is_ready_when_they_serve() {
    let world = World::start("whole").await;
    world.network("vlan").await;
    world.apply(world.infra("x")).await;

    let dhcp: Deployment = world.wait("x-dhcp", "the DHCP Deployment", |_| true).await;
    assert_eq!(
        networks(&dhcp)[0]["ips"],
        json!(["10.20.0.2/20"]),
        "with the prefix length of the CIDR"
    );
    assert_eq!(
        networks(&dhcp)[0]["name"],
        "x-vlan",
        "the machines' network gives no addresses, its sibling does"
    );
    let strategy = dhcp.spec.as_ref().unwrap().strategy.as_ref().unwrap();
    assert_eq!(strategy.type_.as_deref(), Some("Recreate"));
    let sibling: NetworkAttachmentDefinition = world.wait("x-vlan", "the sibling", |_| true).await;
    assert!(
        sibling.spec.config.unwrap().contains(world.namespace.name()),
        "the same bridge"
    );

    world
        .wait::<PersistentVolumeClaim>("x-dhcp-dhcp-leases", "the volume", |_| true)
        .await;
    world
        .wait::<ServiceAccount>("x-dns-dns", "the account", |_| true)
        .await;
    world.wait::<Service>("x-proxy", "the Service", |_| true).await;
    let binding: RoleBinding = world.wait("x-proxy-proxy", "the binding", |_| true).await;
    assert_eq!(binding.role_ref.name, "oooi-proxy");
    let server: DnsServer = world.wait("x-dns", "the DNSServer", |_| true).await;
    let config: ConfigMap = world.wait("x-dns-dns-config", "the ConfigMap", |_| true).await;
    let manifest = config.data.unwrap().remove("server.yaml").unwrap();
    assert!(manifest.contains(&server.uid().unwrap()), "{manifest}");

    let not_ready = |infra: &Infra| says(conditions(infra), "Ready", "False", "Pending");
    let waiting: Infra = world.wait("x", "not to be ready yet", not_ready).await;
    let addresses = waiting.status.unwrap().addresses.unwrap();
    assert_eq!(
        (addresses.dhcp, addresses.dns),
        (vec!["10.20.0.2".into()], vec!["10.20.0.3".into()])
    );

    for (server, address) in [
        ("x-dhcp", "10.20.0.2"),
        ("x-dns", "10.20.0.3"),
        ("x-proxy", "10.20.0.4"),
    ] {
        let pod = world.run_pod(server, address).await;
        match server {
            "x-dhcp" => world.say::<DhcpServer>(server, &pod, true).await,
            "x-dns" => world.say::<DnsServer>(server, &pod, true).await,
            _ => world.say::<ProxyServer>(server, &pod, true).await,
        }
    }
    let ready = |infra: &Infra| says(conditions(infra), "Ready", "True", "AllReady");
    let infra: Infra = world.wait("x", "to be ready", ready).await;
    assert_eq!(
        infra.status.unwrap().observed_generation,
        infra.metadata.generation
    );
}

#[tokio::test]
async fn a_pod_at_the_wrong_address_and_a_refused_configuration_are_said() {
    let world = World::start("honest").await;
    world.network("vlan").await;
    world.apply(world.infra("x")).await;
    let pod = world.run_pod("x-dns", "10.20.0.99").await;
    let state = |server: &DnsServer, kind: &str| {
        let conditions = server.status.as_ref().map(|status| status.conditions.clone());
        said(&conditions.unwrap_or_default(), kind).map(|(_, reason, _)| reason)
    };
    let misplaced = |server: &DnsServer| state(server, "Available").as_deref() == Some("AddressMissing");
    world
        .wait::<DnsServer>("x-dns", "to miss its address", misplaced)
        .await;
    world.say::<DnsServer>("x-dns", &pod, false).await;
    let refused =
        |server: &DnsServer| state(server, "ConfigurationValid").as_deref() == Some("ConfigRejected");
    world.wait::<DnsServer>("x-dns", "to be refused", refused).await;
}

#[tokio::test]
async fn drift_is_put_back_and_a_component_that_is_disabled_goes() {
    let world = World::start("drift").await;
    world.network("vlan").await;
    world.apply(world.infra("x")).await;
    let first: Deployment = world.wait("x-dns", "the Deployment", |_| true).await;
    let deployments = world.api::<Deployment>();
    deployments
        .delete("x-dns", &DeleteParams::default())
        .await
        .unwrap();
    let again = |deployment: &Deployment| deployment.uid() != first.uid();
    world.wait("x-dns", "the Deployment again", again).await;

    let image = |deployment: &Deployment| {
        let pod = deployment.spec.clone().unwrap().template.spec.unwrap();
        pod.containers[0].image.clone().unwrap()
    };
    let meddle = json!({"spec": {"template": {"spec": {"containers": [{"name": "dns", "image": "other"}]}}}});
    let (params, patch) = (PatchParams::default(), Patch::Strategic(meddle));
    let changed = deployments.patch("x-dns", &params, &patch).await.unwrap();
    assert_eq!(image(&changed), "other");
    let mended = |deployment: &Deployment| image(deployment) == "example.com/oooi:test";
    world.wait("x-dns", "the image again", mended).await;

    let mut fewer = world.infra("x");
    fewer["spec"]["infraComponents"]["dns"]["enabled"] = json!(false);
    world.apply(fewer).await;
    world.wait_gone::<DnsServer>("x-dns").await;
    world.wait_gone::<Deployment>("x-dns").await;
    world
        .wait::<Deployment>("x-dhcp", "the others stay", |_| true)
        .await;

    world
        .api::<Infra>()
        .delete("x", &DeleteParams::default())
        .await
        .unwrap();
    world.wait_gone::<DhcpServer>("x-dhcp").await;
    world.wait_gone::<Deployment>("x-dhcp").await;
    world.wait_gone::<NetworkAttachmentDefinition>("x-vlan").await;
}

#[tokio::test]
async fn an_object_of_somebody_else_is_never_taken_over() {
    let world = World::start("foreign").await;
    world.network("vlan").await;
    let foreign = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x-dns-dns-config"}, "data": {"mine": "1"},
    });
    world.apply(foreign).await;
    world.apply(world.infra("x")).await;
    let refused = |infra: &Infra| says(conditions(infra), "DNSReady", "False", "ApplyFailed");
    let infra: Infra = world.wait("x", "to say what is in the way", refused).await;
    let (_, _, message) = said(conditions(&infra), "DNSReady").unwrap();
    assert!(message.contains("x-dns-dns-config"), "{message}");
    let kept: ConfigMap = world
        .wait("x-dns-dns-config", "the foreign object", |_| true)
        .await;
    assert_eq!(kept.data.unwrap().len(), 1);
    world
        .api::<ConfigMap>()
        .delete("x-dns-dns-config", &DeleteParams::default())
        .await
        .unwrap();
    world
        .wait::<Deployment>("x-dns", "to go on by itself", |_| true)
        .await;
}

#[tokio::test]
async fn a_missing_network_is_one_condition_and_one_event_and_mends_itself() {
    let world = World::start("network").await;
    world.apply(world.infra("x")).await;
    let missing = |infra: &Infra| {
        says(
            conditions(infra),
            "NetworkReady",
            "False",
            "NetworkAttachmentMissing",
        )
    };
    world.wait("x", "to miss its network", missing).await;
    let events = world.api::<Event>();
    let about = ListParams::default().fields("reason=NetworkAttachmentMissing");
    oooi_testkit::until("the event", world::LIMIT, async || {
        let list = events.list(&about).await.map_err(|error| error.to_string())?;
        if list.items.len() == 1 {
            Ok(())
        } else {
            Err(format!("{:?}", list.items))
        }
    })
    .await
    .unwrap();
    world.network("vlan").await;
    let found = |infra: &Infra| says(conditions(infra), "NetworkReady", "True", "SiblingApplied");
    world.wait("x", "to find its network", found).await;
}

#[tokio::test]
async fn of_two_infras_on_one_vlan_the_later_one_is_refused_with_the_name_of_the_other() {
    let world = World::start("overlap").await;
    world.network("vlan").await;
    let with_dns_at = |name: &str, address: &str| {
        let mut infra = world.infra(name);
        infra["spec"]["infraComponents"] = json!({
            "dns": {"serverIP": address, "baseDomain": "example.com", "clusterName": name},
        });
        infra
    };
    world.apply(with_dns_at("first", "10.20.0.9")).await;
    world.wait::<DnsServer>("first-dns", "the first", |_| true).await;
    world.apply(with_dns_at("second", "10.20.0.9")).await;
    let refused = |infra: &Infra| says(conditions(infra), "Ready", "False", "InvalidSpec");
    let second: Infra = world.wait("second", "to be refused", refused).await;
    let (_, _, message) = said(conditions(&second), "Ready").unwrap();
    assert!(message.contains("first"), "{message}");
    world
        .api::<Infra>()
        .delete("first", &DeleteParams::default())
        .await
        .unwrap();
    world
        .wait::<DnsServer>("second-dns", "the second, once the first is gone", |_| true)
        .await;
}

#[tokio::test]
async fn a_paused_infra_and_a_manager_that_lost_leadership_write_nothing() {
    let world = World::start("paused").await;
    world.network("vlan").await;
    let mut paused = world.infra("x");
    paused["metadata"]["annotations"] = json!({"hostedcluster.densityops.com/paused": "true"});
    world.apply(paused.clone()).await;
    let said_so = |infra: &Infra| says(conditions(infra), "Ready", "Unknown", "Paused");
    world.wait("x", "to say that it is paused", said_so).await;
    assert!(world.api::<DnsServer>().get_opt("x-dns").await.unwrap().is_none());

    paused["metadata"]["annotations"] = json!({"hostedcluster.densityops.com/paused": "false"});
    world.apply(paused).await;
    world.wait::<Deployment>("x-dns", "to go on", |_| true).await;
    world.lose_leadership();
    world
        .api::<Deployment>()
        .delete("x-dns", &DeleteParams::default())
        .await
        .unwrap();
    world.wait_gone::<Deployment>("x-dns").await;
    // A second manager, which leads, would have put it back long before this one has looked at a new resource.
    world.apply(world.infra("y")).await;
    let started = tokio::time::Instant::now();
    oooi_testkit::until("two seconds without a write", world::LIMIT, async || {
        let written = world
            .api::<Deployment>()
            .get_opt("x-dns")
            .await
            .unwrap()
            .is_some()
            || world.api::<DnsServer>().get_opt("y-dns").await.unwrap().is_some();
        assert!(!written, "written without leadership");
        if started.elapsed().as_secs() >= 2 {
            Ok(())
        } else {
            Err("not over yet")
        }
    })
    .await
    .unwrap();
}
