//! The objects and the status of single servers, on a real API server. Needs the testbed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod world;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodSpec};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use oooi_api::{DhcpServer, Infra, ProxyServer};
use oooi_operator::context::Platform;
use oooi_testkit::until;
use serde_json::{Value, json};
use world::{LIMIT, World, said, says};

fn of_dhcp(server: &DhcpServer) -> &[Condition] {
    server.status.as_ref().map_or(&[], |status| &status.conditions)
}

fn of_proxy(server: &ProxyServer) -> &[Condition] {
    server.status.as_ref().map_or(&[], |status| &status.conditions)
}

fn pod_of(deployment: &Deployment) -> PodSpec {
    deployment.spec.clone().unwrap().template.spec.unwrap()
}

/// Says something in the name of a pod, as its server would.
async fn report(world: &World, server: &str, entry: Value) {
    let document = json!({
        "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "ProxyServer",
        "metadata": {"name": server}, "status": {"servers": [entry]},
    });
    let params = PatchParams::apply(entry["pod"].as_str().unwrap()).force();
    let api = world.api::<ProxyServer>();
    api.patch_status(server, &params, &Patch::Apply(document))
        .await
        .unwrap();
}

#[tokio::test]
async fn dns_and_gateway_with_envoy_pass_pod_security_restricted_and_dhcp_says_what_it_needs() {
    let world = World::start("restricted").await;
    let label = "pod-security.kubernetes.io/enforce=restricted";
    let name = world.namespace.name();
    world
        .cluster
        .kubectl(&["label", "namespace", name, label])
        .await
        .unwrap();
    world.network("vlan").await;
    let mut infra = world.infra("x");
    infra["spec"]["infraComponents"]["proxy"]["engine"] = json!("Envoy");
    infra["spec"]["infraComponents"]["proxy"]["resources"] = json!({"requests": {"cpu": "2"}});
    world.apply(infra).await;
    let gateway: Deployment = world.wait("x-proxy", "the gateway", |_| true).await;
    let pod = pod_of(&gateway);
    let names: Vec<&str> = pod
        .containers
        .iter()
        .map(|container| container.name.as_str())
        .collect();
    assert_eq!(names, ["proxy", "envoy"]);
    let envoy = &pod.containers[1];
    assert_eq!(envoy.image.as_deref(), Some("example.com/envoy:test"));
    assert!(
        envoy.resources.as_ref().unwrap().requests.is_some(),
        "they are the data plane's"
    );
    assert!(
        pod.containers[0]
            .resources
            .as_ref()
            .is_none_or(|own| own.requests.is_none())
    );
    let asked = envoy.security_context.as_ref().unwrap().run_as_user;
    assert_eq!(asked, Some(65532), "whichever user its image names");

    for server in ["x-dns", "x-proxy"] {
        let selector = ListParams::default().labels(&format!("app.kubernetes.io/instance={server}"));
        until(&format!("a pod of {server}"), LIMIT, async || {
            let pods = world.api::<Pod>().list(&selector).await.unwrap().items;
            if pods.is_empty() { Err("none") } else { Ok(()) }
        })
        .await
        .unwrap();
    }
    let refused = |server: &DhcpServer| says(of_dhcp(server), "Available", "False", "PodsRefused");
    let dhcp: DhcpServer = world.wait("x-dhcp", "to be refused", refused).await;
    let (_, _, message) = said(of_dhcp(&dhcp), "Available").unwrap();
    assert!(message.contains("enforce=privileged"), "{message}");
}

#[tokio::test]
async fn replicas_that_share_their_leases_have_no_volume_and_are_drained_one_at_a_time() {
    let world = World::start("replicas").await;
    world.network("vlan").await;
    let mut infra = world.infra("x");
    infra["spec"]["infraComponents"]["dhcp"] = json!({"leaseStorage": "Kubernetes", "replicas": 2});
    world.apply(infra.clone()).await;
    let second: Deployment = world.wait("x-dhcp-r2", "the second replica", |_| true).await;
    let arguments = pod_of(&second).containers[0].args.clone().unwrap();
    assert!(
        !arguments.iter().any(|argument| argument.contains("state-dir")),
        "{arguments:?}"
    );
    assert!(pod_of(&second).topology_spread_constraints.is_some());
    world
        .wait::<PodDisruptionBudget>("x-dhcp", "the budget", |_| true)
        .await;
    let volumes = world.api::<PersistentVolumeClaim>();
    assert!(volumes.get_opt("x-dhcp-dhcp-leases").await.unwrap().is_none());
    let budgets = world.api::<PodDisruptionBudget>();
    assert!(budgets.get_opt("x-dns").await.unwrap().is_none(), "one replica");

    infra["spec"]["infraComponents"]["dhcp"] = json!({"leaseStorage": "Kubernetes", "replicas": 1});
    world.apply(infra).await;
    world.wait_gone::<Deployment>("x-dhcp-r2").await;
    world.wait_gone::<PodDisruptionBudget>("x-dhcp").await;
}

#[tokio::test]
async fn of_two_replicas_one_is_changed_when_the_other_serves() {
    let world = World::start("turns").await;
    world.network("vlan").await;
    let mut infra = world.infra("x");
    infra["spec"]["infraComponents"]["dns"]["replicas"] = json!(2);
    world.apply(infra.clone()).await;
    let serves = |deployment: &Deployment| {
        let status = deployment.status.as_ref();
        status.is_some_and(|status| status.available_replicas == Some(1))
    };
    world.run_replica("x-dns", 1, "10.20.0.3").await;
    world.run_replica("x-dns", 2, "10.20.0.4").await;
    world.wait::<Deployment>("x-dns", "to serve", serves).await;
    world.wait::<Deployment>("x-dns-r2", "to serve", serves).await;

    infra["spec"]["infraComponents"]["dns"]["resources"] = json!({"requests": {"memory": "99Mi"}});
    world.apply(infra).await;
    let changed = |deployment: &Deployment| {
        let resources = pod_of(deployment).containers[0].resources.clone();
        let asked = resources.and_then(|resources| resources.requests?.get("memory").cloned());
        asked.is_some_and(|asked| asked.0 == "99Mi")
    };
    world.wait::<Deployment>("x-dns", "to be changed", changed).await;
    let stopped = |deployment: &Deployment| changed(deployment) && !serves(deployment);
    world.wait::<Deployment>("x-dns", "to be replaced", stopped).await;
    let second: Deployment = world.wait("x-dns-r2", "to be there", |_| true).await;
    assert!(
        !changed(&second) && serves(&second),
        "somebody has to answer: {second:?}"
    );

    world.run_replica("x-dns", 1, "10.20.0.3").await;
    world
        .wait::<Deployment>("x-dns-r2", "to be changed in its turn", changed)
        .await;
}

#[tokio::test]
async fn a_volume_that_cannot_come_is_said_with_its_class() {
    let world = World::start("volume").await;
    world.network("vlan").await;
    world
        .apply(json!({
            "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "DHCPServer", "metadata": {"name": "alone"},
            "spec": {
                "networkConfig": {"cidr": "10.20.0.0/20", "gateway": "10.20.0.1", "serverIP": "10.20.0.2",
                    "networkAttachmentName": "vlan"},
                "leaseConfig": {"rangeStart": "10.20.0.10", "rangeEnd": "10.20.0.20"},
                "storage": {"storageClassName": "nowhere"},
            },
        }))
        .await;
    let missing = |server: &DhcpServer| says(of_dhcp(server), "Available", "False", "StorageClassMissing");
    let server: DhcpServer = world.wait("alone", "to miss its class", missing).await;
    let (_, _, message) = said(of_dhcp(&server), "Available").unwrap();
    assert!(message.contains("StorageClass nowhere"), "{message}");

    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "nowhere"},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
    });
    world.cluster.apply(&class.to_string()).await.unwrap();
    world
        .wait::<DhcpServer>("alone", "its class to be found", |server| !missing(server))
        .await;
    world
        .cluster
        .kubectl(&["delete", "storageclass", "nowhere"])
        .await
        .unwrap();
}

#[tokio::test]
async fn clients_keep_their_addresses_when_leases_move_from_a_volume_to_kubernetes() {
    let world = World::start("moved").await;
    world.network("vlan").await;
    world.apply(world.infra("x")).await;
    let on_a_volume = |deployment: &Deployment| {
        let pod = deployment.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
        pod.volumes.iter().flatten().any(|volume| volume.name == "leases")
    };
    world.wait::<Deployment>("x-dhcp", "a volume", on_a_volume).await;
    let before: DhcpServer = world.api().get("x-dhcp").await.unwrap();
    assert_eq!(before.spec.lease_config.migration_grace, None);

    let moved = json!({"spec": {"infraComponents": {"dhcp": {"leaseStorage": "Kubernetes"}}}});
    world
        .api::<Infra>()
        .patch("x", &PatchParams::default(), &Patch::Merge(moved))
        .await
        .unwrap();
    world
        .wait::<Deployment>("x-dhcp", "no volume", |deployment| !on_a_volume(deployment))
        .await;
    let after: DhcpServer = world.api().get("x-dhcp").await.unwrap();
    let grace = after.spec.lease_config.migration_grace;
    let grace: jiff::Timestamp = grace.expect("a grace before the pods change").parse().unwrap();
    assert!(grace > jiff::Timestamp::now());
}

#[tokio::test]
async fn a_gateway_is_ready_with_endpoints_and_an_engine_that_took_them_and_forgets_pods_that_are_gone() {
    let world = World::start("gateway").await;
    world.network("vlan").await;
    world.apply(world.infra("x")).await;
    let pod = world.run_pod("x-proxy", "10.20.0.4").await;
    let server = world.api::<ProxyServer>().get("x-proxy").await.unwrap();
    let entry = |pod: &str, lacking: i64, refusals: i64, message: Option<&str>| {
        let mut entry = json!({
            "pod": pod, "uid": server.uid(), "generation": server.metadata.generation, "accepted": refusals == 0,
            "counts": {"backendsWithoutEndpoints": lacking, "engineRefusals": refusals},
        });
        if let Some(message) = message {
            entry["message"] = json!(message);
        }
        entry
    };
    let lack = "backend konnectivity-server: Service konnectivity-server has no endpoints";
    report(&world, "x-proxy", entry(&pod, 1, 0, Some(lack))).await;
    let lacking = |server: &ProxyServer| says(of_proxy(server), "EndpointsReady", "False", "NoEndpoints");
    let lacks: ProxyServer = world.wait("x-proxy", "to lack endpoints", lacking).await;
    let (_, _, message) = said(of_proxy(&lacks), "Ready").unwrap();
    assert!(message.contains("konnectivity-server"), "{message}");

    report(
        &world,
        "x-proxy",
        entry(&pod, 0, 1, Some("Envoy oooi refused the listeners")),
    )
    .await;
    let refused = |server: &ProxyServer| says(of_proxy(server), "EngineAccepted", "False", "EngineRefused");
    world
        .wait::<ProxyServer>("x-proxy", "to say that Envoy refused", refused)
        .await;

    report(
        &world,
        "x-proxy",
        entry("x-proxy-of-yesterday", 1, 1, Some("old")),
    )
    .await;
    report(&world, "x-proxy", entry(&pod, 0, 0, None)).await;
    let ready = |server: &ProxyServer| says(of_proxy(server), "Ready", "True", "DeploymentReady");
    let server: ProxyServer = world.wait("x-proxy", "to be ready", ready).await;
    let pods: Vec<String> = server
        .status
        .unwrap()
        .servers
        .into_iter()
        .map(|entry| entry.pod)
        .collect();
    assert_eq!(pods, [pod]);
}

#[tokio::test]
async fn on_openshift_only_the_account_of_dhcp_may_use_the_constraints() {
    let world = World::start_on("openshift", Platform::OpenShift).await;
    world.network("vlan").await;
    world.apply(world.infra("x")).await;
    let binding: RoleBinding = world.wait("x-dhcp-raw-sockets", "the binding", |_| true).await;
    assert_eq!(binding.role_ref.name, "oooi-raw-sockets");
    assert_eq!(binding.subjects.unwrap()[0].name, "x-dhcp-dhcp");
    world.wait::<Deployment>("x-proxy", "the gateway", |_| true).await;
    let bindings = world.api::<RoleBinding>();
    assert!(bindings.get_opt("x-proxy-raw-sockets").await.unwrap().is_none());
}
