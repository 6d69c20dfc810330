//! Applications of a hosted cluster, through the node ports of its own router. Needs the testbed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::client::Body;
use kube::{Api, Client, ResourceExt};
use oooi_api::foreign::VirtualMachineInstance;
use oooi_api::{DhcpLease, Infra, ProxyServer};
use oooi_proxy::assemble::Assembler;
use oooi_testkit::until;
use serde_json::{Value, json};
use tokio::sync::Notify;
use world::{LIMIT, World, says};

/// A machine of the hosted cluster, with the address that its guest says.
fn machine(name: &str, address: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": name},
        "spec": {"domain": {}, "networks": [{"name": "vlan", "multus": {"networkName": "vlan"}}]},
        "status": {"phase": "Running", "interfaces": [{"name": "vlan", "ipAddress": address}]},
    })
}

fn lease(address: &str, expires: jiff::Timestamp) -> Value {
    json!({
        "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "DHCPLease",
        "metadata": {"name": format!("x-dhcp-{}", address.replace('.', "-"))},
        "spec": {
            "server": "x-dhcp", "address": address, "mac": "02:00:00:00:00:09", "machine": true,
            "granted": "2026-01-01T00:00:00Z", "expires": expires.to_string(),
        },
    })
}

/// Where a gateway that runs from these very objects sends `*.apps`.
async fn endpoints(world: &World) -> Result<Vec<String>, String> {
    let failed = |error: kube::Error| error.to_string();
    let server = world.api::<ProxyServer>().get("x-proxy").await.map_err(failed)?;
    let service = world.api::<Service>().get("x-apps").await.map_err(failed)?;
    let slice = world.api::<EndpointSlice>().get("x-apps").await.map_err(failed)?;
    let mut gateway = Assembler::default();
    gateway.set_spec(&server.spec);
    gateway.set_service(&service);
    gateway.set_slice(&slice);
    let snapshot = gateway.snapshot();
    let apps = snapshot.clusters.get("apps-https").ok_or("no such backend")?;
    Ok(apps.endpoints.iter().map(ToString::to_string).collect())
}

async fn wait_for(world: &World, wanted: &[&str]) {
    until(
        &format!("*.apps to lead to {wanted:?}"),
        LIMIT,
        async || match endpoints(world).await? {
            found if found == wanted => Ok(()),
            other => Err(format!("{other:?}")),
        },
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn applications_are_reached_at_the_nodes_that_there_are() {
    let world = World::start("apps").await;
    world.network("vlan").await;
    let mut infra = world.infra("x");
    infra["spec"]["infraComponents"]["proxy"]["apps"] = json!({"httpsPort": 30443, "httpPort": 30080});
    world
        .plane
        .apply(&machine("first", "10.20.1.7").to_string())
        .await
        .unwrap();
    // Of a machine in another namespace nobody here knows anything.
    world.apply(machine("stranger", "10.20.1.99")).await;
    world.apply(infra).await;
    wait_for(&world, &["10.20.1.7:30443"]).await;
    let names = world
        .api::<ProxyServer>()
        .get("x-proxy")
        .await
        .unwrap()
        .spec
        .backends;
    assert!(
        names
            .iter()
            .any(|backend| backend.hostname == "*.apps.x.example.com")
    );

    // KubeVirt learns an address late; a lease says it at once, for as long as it lasts.
    let soon = jiff::Timestamp::now() + Duration::from_secs(15);
    world.apply(lease("10.20.1.8", soon)).await;
    wait_for(&world, &["10.20.1.7:30443", "10.20.1.8:30443"]).await;
    wait_for(&world, &["10.20.1.7:30443"]).await;
    world
        .plane
        .apply(&machine("second", "10.20.1.6").to_string())
        .await
        .unwrap();
    wait_for(&world, &["10.20.1.6:30443", "10.20.1.7:30443"]).await;
    Api::<VirtualMachineInstance>::namespaced(world.client.clone(), world.plane.name())
        .delete("first", &DeleteParams::default())
        .await
        .unwrap();
    wait_for(&world, &["10.20.1.6:30443"]).await;

    // What somebody changes or removes comes back; what is no more asked for goes.
    let stolen = json!({"endpoints": [{"addresses": ["10.20.1.250"]}]});
    world
        .api::<EndpointSlice>()
        .patch("x-apps", &PatchParams::default(), &Patch::Merge(stolen))
        .await
        .unwrap();
    wait_for(&world, &["10.20.1.6:30443"]).await;
    world
        .api::<Service>()
        .delete("x-apps", &DeleteParams::default())
        .await
        .unwrap();
    wait_for(&world, &["10.20.1.6:30443"]).await;
    let without = json!({"spec": {"infraComponents": {"proxy": {"apps": null}}}});
    world
        .api::<Infra>()
        .patch("x", &PatchParams::default(), &Patch::Merge(without))
        .await
        .unwrap();
    world.wait_gone::<Service>("x-apps").await;
    world.wait_gone::<EndpointSlice>("x-apps").await;
}

#[tokio::test]
async fn applications_that_nobody_serves_are_said_of_a_gateway_that_is_ready_all_the_same() {
    let world = World::start("noapps").await;
    world.network("vlan").await;
    world.apply(world.infra("x")).await;
    let pod = world.run_pod("x-proxy", "10.20.0.4").await;
    world.say::<ProxyServer>("x-proxy", &pod, true).await;
    let told = |infra: &Infra| {
        let conditions = infra.status.as_ref().map_or(&[][..], |status| &status.conditions);
        says(conditions, "ProxyReady", "True", "AppsNotServed")
    };
    world
        .wait::<Infra>("x", "to say that applications are not served", told)
        .await;
}

#[tokio::test]
async fn a_manager_that_starts_anew_drops_no_node() {
    let mut world = World::start("again").await;
    world.network("vlan").await;
    let mut infra = world.infra("x");
    infra["spec"]["infraComponents"]["proxy"]["apps"] = json!({"httpsPort": 30443});
    world
        .plane
        .apply(&machine("first", "10.20.1.7").to_string())
        .await
        .unwrap();
    let later = jiff::Timestamp::now() + Duration::from_secs(600);
    world.apply(lease("10.20.1.8", later)).await;
    world.apply(infra).await;
    wait_for(&world, &["10.20.1.7:30443", "10.20.1.8:30443"]).await;
    let before = world.api::<EndpointSlice>().get("x-apps").await.unwrap();
    world.begin().await;
    // The new one has looked at the Infra once it took up a change of it.
    let without_dns = json!({"spec": {"infraComponents": {"dns": {"enabled": false}}}});
    world
        .api::<Infra>()
        .patch("x", &PatchParams::default(), &Patch::Merge(without_dns))
        .await
        .unwrap();
    world.wait_gone::<oooi_api::DnsServer>("x-dns").await;
    let after = world.api::<EndpointSlice>().get("x-apps").await.unwrap();
    assert_eq!(
        after.resource_version(),
        before.resource_version(),
        "nothing was written"
    );
    let leases = world.api::<DhcpLease>();
    leases
        .delete("x-dhcp-10-20-1-8", &DeleteParams::default())
        .await
        .unwrap();
    wait_for(&world, &["10.20.1.7:30443"]).await;
}

#[tokio::test]
async fn the_only_machine_that_goes_while_nobody_watches_is_missed_once_the_watch_begins_anew() {
    let mut world = World::bare("deaf").await;
    world.network("vlan").await;
    let mut infra = world.infra("x");
    infra["spec"]["infraComponents"]["proxy"]["apps"] = json!({"httpsPort": 30443});
    world
        .plane
        .apply(&machine("only", "10.20.1.7").to_string())
        .await
        .unwrap();
    world.apply(infra).await;
    let expire = Arc::new(Notify::new());
    let client = deaf_to_machines(world.client.clone(), expire.clone());
    world.manage(client);
    wait_for(&world, &["10.20.1.7:30443"]).await;
    Api::<VirtualMachineInstance>::namespaced(world.client.clone(), world.plane.name())
        .delete("only", &DeleteParams::default())
        .await
        .unwrap();
    expire.notify_one();
    wait_for(&world, &[]).await;
}

/// A client whose first watch of machines hears nothing, until it is told that it must begin anew.
fn deaf_to_machines(inner: Client, expire: Arc<Notify>) -> Client {
    let is_first = Arc::new(AtomicBool::new(true));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (inner, expire, is_first) = (inner.clone(), expire.clone(), is_first.clone());
        async move {
            let uri = request.uri();
            let is_it = uri.path().ends_with("/virtualmachineinstances")
                && uri.query().is_some_and(|query| query.contains("watch="));
            if !is_it || !is_first.swap(false, Ordering::SeqCst) {
                return inner.send(request).await;
            }
            expire.notified().await;
            let gone = json!({"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410});
            let line = json!({"type": "ERROR", "object": gone}).to_string();
            Ok(http::Response::new(Body::from(line.into_bytes())))
        }
    });
    Client::new(service, "default")
}
