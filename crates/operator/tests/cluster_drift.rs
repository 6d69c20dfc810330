//! What others do to objects of ours, and what a manager finds when it comes back, on a real API server. Needs the
//! testbed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod hypershift;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Method, Request};
use hypershift::{DERIVED, cluster, strategies, told};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Client, ResourceExt};
use oooi_api::foreign::HostedCluster;
use oooi_api::{DhcpServer, DnsServer, Infra, ProxyServer};
use oooi_testkit::{rights, until};
use serde_json::{Value, json};
use world::{LIMIT, World, said};

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

fn is_looked_at(infra: &Infra) -> bool {
    let observed = infra
        .status
        .as_ref()
        .and_then(|status| status.observed_generation);
    observed == infra.metadata.generation
}

fn ports(deployment: &Deployment) -> Vec<i32> {
    let pod = deployment.spec.clone().unwrap().template.spec.unwrap();
    let ports = pod.containers.into_iter().flat_map(|container| container.ports);
    ports.flatten().map(|port| port.container_port).collect()
}

#[tokio::test]
async fn what_somebody_adds_goes() {
    let world = World::start("added").await;
    world.network("vlan").await;
    world.apply(world.infra("x")).await;
    let resolvers = |server: &DhcpServer| server.spec.network_config.dns_servers.clone();
    let server: DhcpServer = world.wait("x-dhcp", "the DHCPServer", |_| true).await;
    let (ours, mut more) = (resolvers(&server), resolvers(&server));
    more.push("10.9.9.9".into());
    let meddle = Patch::Merge(json!({"spec": {"networkConfig": {"dnsServers": more}}}));
    let params = PatchParams::default();
    let changed = world
        .api::<DhcpServer>()
        .patch("x-dhcp", &params, &meddle)
        .await
        .unwrap();
    assert_eq!(resolvers(&changed), more);
    let mended = |server: &DhcpServer| resolvers(server) == ours;
    world.wait("x-dhcp", "the resolver to go", mended).await;

    let deployment: Deployment = world.wait("x-dns", "the Deployment", |_| true).await;
    let before = ports(&deployment);
    let meddle = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "dns", "ports": [{"containerPort": 9999}], "env": [{"name": "ADDED", "value": "1"}]},
    ]}}}});
    let meddle = Patch::Strategic(meddle);
    let changed = world
        .api::<Deployment>()
        .patch("x-dns", &params, &meddle)
        .await
        .unwrap();
    assert!(ports(&changed).contains(&9999));
    let mended = |deployment: &Deployment| {
        let whole = json!(deployment.spec).to_string();
        ports(deployment) == before && !whole.contains("ADDED")
    };
    world.wait("x-dns", "the port to go", mended).await;
}

#[tokio::test]
async fn an_object_that_lost_its_label_is_not_replaced_and_gets_it_back() {
    let world = World::start("label").await;
    world.network("vlan").await;
    world.apply(world.infra("x")).await;
    let before: Deployment = world.wait("x-dns", "the Deployment", |_| true).await;
    let meddle = Patch::Merge(json!({"metadata": {"labels": {MANAGED_BY: null}}}));
    let deployments = world.api::<Deployment>();
    let changed = deployments
        .patch("x-dns", &PatchParams::default(), &meddle)
        .await
        .unwrap();
    assert!(!changed.labels().contains_key(MANAGED_BY));
    let labelled = |deployment: &Deployment| deployment.labels().contains_key(MANAGED_BY);
    let after: Deployment = world.wait("x-dns", "the label again", labelled).await;
    assert_eq!(after.uid(), before.uid());
}

#[tokio::test]
async fn a_paused_component_is_left_as_it_is() {
    const PAUSED: &str = "hostedcluster.densityops.com/paused";
    let world = World::start("still").await;
    world.network("vlan").await;
    let mut infra = world.infra("x");
    world.apply(infra.clone()).await;
    world.wait::<DnsServer>("x-dns", "the DNSServer", |_| true).await;
    let pause = |value: Value| Patch::Merge(json!({"metadata": {"annotations": {PAUSED: value}}}));
    let (servers, params) = (world.api::<DnsServer>(), PatchParams::default());
    servers
        .patch("x-dns", &params, &pause(json!("true")))
        .await
        .unwrap();

    infra["spec"]["networkConfig"]["dnsServers"] = json!(["10.0.0.54"]);
    infra["spec"]["infraComponents"]["proxy"]["idleTimeout"] = json!("7h");
    world.apply(infra).await;
    // The gateway is written after the DNS server would have been.
    let newer = |server: &ProxyServer| server.spec.idle_timeout.as_deref() == Some("7h");
    world.wait("x-proxy", "the gateway to follow", newer).await;
    assert_eq!(
        servers.get("x-dns").await.unwrap().spec.upstream_dns,
        ["10.0.0.53"]
    );

    servers
        .patch("x-dns", &params, &pause(Value::Null))
        .await
        .unwrap();
    let follows = |server: &DnsServer| server.spec.upstream_dns == ["10.0.0.54"];
    world.wait("x-dns", "to go on", follows).await;
}

#[tokio::test]
async fn warnings_are_told_although_something_else_was_reported_before() {
    let world = World::start("warned").await;
    // Other tests may have left one.
    let gone = [
        "delete",
        "dnses.operator.openshift.io",
        "default",
        "--ignore-not-found",
    ];
    world.cluster.kubectl(&gone).await.unwrap();
    let mut infra = world.infra("x");
    infra["spec"]["networkConfig"]["dnsServers"] = json!([]);
    infra["spec"]["infraComponents"]["dns"]["publishToClusterDNS"] = json!(true);
    world.apply(infra).await;
    world.wait("x", "to miss its network", is_looked_at).await;
    world.network("vlan").await;
    for reason in ["NoUpstream", "NoClusterDNS"] {
        let about = ListParams::default().fields(&format!("reason={reason}"));
        until(&format!("the event {reason}"), LIMIT, async || {
            let list = world.api::<Event>().list(&about).await;
            match list.map_err(|error| error.to_string())?.items.len() {
                1 => Ok(()),
                other => Err(format!("{other} events")),
            }
        })
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn a_gateway_outlives_a_restart_after_which_its_hosted_cluster_is_not_heard_of() {
    let mut world = World::start("unheard").await;
    world.network("vlan").await;
    let mut infra = world.infra("mine");
    infra["spec"]["hostedClusterRef"] = json!({"name": "tenant"});
    world.apply(infra.clone()).await;
    let mut tenant = cluster("tenant", &strategies("nodeport"));
    tenant["metadata"]["annotations"] = json!({});
    world.apply(tenant).await;
    let before: ProxyServer = world.wait("mine-proxy", "the gateway", |_| true).await;

    let clusters = world.api::<HostedCluster>();
    clusters.delete("tenant", &DeleteParams::default()).await.unwrap();
    world.wait_gone::<HostedCluster>("tenant").await;
    world.begin().await;
    infra["spec"]["infraComponents"]["dhcp"]["leaseTime"] = json!("7h");
    world.apply(infra).await;
    let newer = |server: &DhcpServer| server.spec.lease_config.lease_time == "7h";
    world.wait("mine-dhcp", "the new manager to look", newer).await;
    world
        .wait("mine", "all of it to be looked at", is_looked_at)
        .await;
    let after = world.api::<ProxyServer>().get("mine-proxy").await.unwrap();
    assert_eq!(after.uid(), before.uid());
    assert_eq!(after.spec.backends, before.spec.backends);
}

/// A client of the manager to which nobody ever answers what there is of these kinds.
async fn unanswered(world: &World, kinds: &'static [&str]) -> Client {
    let (inner, _) = rights::client_of(world.cluster, "oooi-system", "oooi-manager")
        .await
        .unwrap();
    let service = tower::service_fn(move |request: Request<Body>| {
        let inner = inner.clone();
        async move {
            let path = request.uri().path();
            if kinds.iter().any(|kind| path.ends_with(&format!("/{kind}"))) {
                std::future::pending::<()>().await;
            }
            inner.send(request).await
        }
    });
    Client::new(service, "default")
}

/// Whether `Ready` says that something of this kind is not known.
fn lacks(conditions: &[Condition], kind: &str) -> bool {
    let ready = said(conditions, "Ready");
    ready.is_some_and(|(status, reason, message)| {
        (&*status, &*reason) == ("False", "NotObserved") && message.contains(kind)
    })
}

fn of_infra(infra: &Infra) -> &[Condition] {
    infra.status.as_ref().map_or(&[], |status| &status.conditions)
}

#[tokio::test]
async fn what_cannot_be_listed_is_said_and_holds_up_nobody_else() {
    let mut world = World::bare("unlisted").await;
    world.network("vlan").await;
    let client = unanswered(&world, &["dhcpleases", "nodepools", "pods"]).await;
    world.manage(client);
    // One more than are looked at at once.
    for number in 0..9 {
        let mut routed = world.infra(&format!("routed{number}"));
        routed["spec"]["networkConfig"]["cidr"] = json!(format!("10.3{number}.0.0/24"));
        routed["spec"]["networkConfig"]["gateway"] = json!(format!("10.3{number}.0.1"));
        routed["spec"]["infraComponents"]["proxy"]["apps"] = json!({"httpsPort": 30443});
        world.apply(routed).await;
    }
    world.apply(cluster("tenant", &strategies("route"))).await;
    let unknown = |infra: &Infra| lacks(of_infra(infra), "dhcpleases");
    for number in 0..9 {
        let name = format!("routed{number}");
        world.wait(&name, "to say what is not known", unknown).await;
    }
    world.apply(world.infra("plain")).await;
    world
        .wait::<ProxyServer>("plain-proxy", "another on the same VLAN", |_| true)
        .await;
    // Its pods are not known, and they are made all the same.
    let unknown = |server: &DnsServer| {
        let conditions = server
            .status
            .as_ref()
            .map_or(&[][..], |status| &status.conditions);
        lacks(conditions, "pods")
    };
    world.wait("plain-dns", "to say what is not known", unknown).await;
    world.wait::<Deployment>("plain-dns", "its pods", |_| true).await;
    let reported = told(&world, "tenant", "Unknown", "NotObserved").await;
    let (_, _, message) = said(&reported.status.conditions, DERIVED).unwrap();
    assert!(message.contains("nodepools"), "{message}");
}

#[tokio::test]
async fn a_network_is_not_said_to_be_missing_before_it_is_known_which_apis_there_are() {
    let mut world = World::bare("unserved").await;
    world.network("vlan").await;
    let client = unanswered(&world, &["apiservices"]).await;
    world.manage(client);
    world.apply(world.infra("x")).await;
    let infra: Infra = world
        .wait("x", "to be looked at", |infra| !of_infra(infra).is_empty())
        .await;
    assert!(lacks(of_infra(&infra), "apiservices"), "{:?}", of_infra(&infra));
}

#[tokio::test]
async fn what_cannot_be_read_is_said() {
    let mut world = World::bare("unread").await;
    world.network("vlan").await;
    let client = world.denied(|request| request.uri().path().ends_with("/dhcpservers/x-dhcp"));
    let client = client.await;
    world.manage(client);
    world.apply(world.infra("x")).await;
    let unknown = |infra: &Infra| lacks(of_infra(infra), "not allowed by this test");
    world.wait("x", "to say what cannot be read", unknown).await;
    world.begin().await;
    world.wait::<DhcpServer>("x-dhcp", "the servers", |_| true).await;
}

/// A client of the manager, behind whose back somebody makes a DHCPServer just when it found that there is none.
async fn outrun(world: &World) -> Client {
    let (inner, _) = rights::client_of(world.cluster, "oooi-system", "oooi-manager")
        .await
        .unwrap();
    let (servers, made) = (world.api::<DhcpServer>(), Arc::new(AtomicBool::new(false)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, servers, made) = (inner.clone(), servers.clone(), made.clone());
        async move {
            let is_asked =
                request.method() == Method::GET && request.uri().path().ends_with("/dhcpservers/x-dhcp");
            let answer = inner.send(request).await;
            if is_asked && !made.swap(true, Ordering::SeqCst) {
                let theirs = serde_json::from_value(json!({
                    "metadata": {"name": "x-dhcp"},
                    "spec": {
                        "networkConfig": {
                            "cidr": "10.9.0.0/24", "gateway": "10.9.0.1", "serverIP": "10.9.0.2",
                            "networkAttachmentName": "vlan",
                        },
                        "leaseConfig": {"rangeStart": "10.9.0.10", "rangeEnd": "10.9.0.20"},
                    },
                }));
                servers
                    .create(&PostParams::default(), &theirs.unwrap())
                    .await
                    .unwrap();
            }
            answer
        }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn what_somebody_makes_in_the_last_moment_is_not_taken_over() {
    let mut world = World::bare("moment").await;
    world.network("vlan").await;
    let client = outrun(&world).await;
    world.manage(client);
    world.apply(world.infra("x")).await;
    let refused = |infra: &Infra| {
        let ready = said(of_infra(infra), "Ready").unwrap_or_default();
        ready.1 == "ApplyFailed" && ready.2.contains("does not belong to this resource")
    };
    world.wait("x", "to say what is in the way", refused).await;
    let theirs = world.api::<DhcpServer>().get("x-dhcp").await.unwrap();
    assert_eq!(theirs.spec.network_config.server_ip, "10.9.0.2");
}

#[tokio::test]
async fn a_network_that_cannot_be_read_is_said_and_what_runs_goes_on_until_it_is_mended() {
    let world = World::start("unreadable").await;
    world.network("vlan").await;
    world.apply(world.infra("x")).await;
    let network = |infra: &Infra| said(of_infra(infra), "NetworkReady").unwrap_or_default();
    let found = |infra: &Infra| network(infra).0 == "True";
    world.wait("x", "its network", found).await;
    let before: Deployment = world.wait("x-dns", "the servers", |_| true).await;
    world.network_of("vlan", "{\"type\": \"bridge\",").await;
    let invalid = |infra: &Infra| network(infra).1 == "NetworkAttachmentInvalid";
    let infra: Infra = world.wait("x", "to say what is wrong", invalid).await;
    let (_, _, message) = network(&infra);
    assert!(
        message.contains("/vlan") && message.contains("not JSON"),
        "{message}"
    );
    let after = world.api::<Deployment>().get("x-dns").await.unwrap();
    assert_eq!(after.metadata.generation, before.metadata.generation);
    world.network("vlan").await;
    world.wait("x", "its network again", found).await;
}

/// The annotations that the pods of a server are to have.
fn of_pods(deployment: &Deployment) -> Value {
    let template = &deployment.spec.as_ref().unwrap().template;
    json!(template.metadata.as_ref().unwrap().annotations)
}

#[tokio::test]
async fn pods_are_replaced_when_their_network_becomes_another_one() {
    let world = World::start("moved").await;
    world.network("vlan").await;
    let mut infra = world.infra("x");
    world.apply(infra.clone()).await;
    let mut before: Deployment = world.wait("x-dns", "the servers", |_| true).await;
    let elsewhere = format!("{}-b", world.namespace.name());
    for edit in ["bridge", "gateway"] {
        if edit == "bridge" {
            world.network_on("vlan", &elsewhere).await;
        } else {
            infra["spec"]["networkConfig"]["gateway"] = json!("10.20.15.254");
            world.apply(infra.clone()).await;
        }
        for server in ["x-dhcp", "x-dns", "x-proxy"] {
            let old = of_pods(&before);
            let state = "hostedcluster.densityops.com/network-state";
            let moved = |deployment: &Deployment| of_pods(deployment)[state] != old[state];
            let what = format!("new pods of {server} after another {edit}");
            let now: Deployment = world.wait(server, &what, moved).await;
            if server == "x-proxy" {
                before = now;
            }
        }
    }
}

#[tokio::test]
async fn another_image_of_the_manager_or_of_a_server_is_rolled_out() {
    let mut world = World::start("newer").await;
    world.network("vlan").await;
    let mut infra = world.infra("x");
    world.apply(infra.clone()).await;
    let runs = |deployment: &Deployment, image: &str| {
        let pod = deployment.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
        pod.containers[0].image.as_deref() == Some(image)
    };
    let servers = ["x-dhcp", "x-dns", "x-proxy"];
    let first = world.image.clone();
    for server in servers {
        let old = |deployment: &Deployment| runs(deployment, &first);
        world.wait(server, "the image of the manager", old).await;
    }
    world.image = "example.com/oooi:next".into();
    world.pods.pull_secrets = vec!["registry".into()];
    world.begin().await;
    for server in servers {
        let new = |deployment: &Deployment| {
            runs(deployment, "example.com/oooi:next")
                && json!(deployment.spec).to_string().contains("registry")
        };
        world.wait(server, "the newer image and its secret", new).await;
    }
    infra["spec"]["infraComponents"]["dns"]["image"] = json!("example.com/mine:1");
    world.apply(infra).await;
    let mine = |deployment: &Deployment| runs(deployment, "example.com/mine:1");
    world.wait("x-dns", "the image that a person chose", mine).await;
}

#[tokio::test]
async fn two_managers_know_each_other_s_infras_on_one_vlan() {
    let first = World::start("left").await;
    let second = World::start("right").await;
    first.network("vlan").await;
    first.apply(first.infra("x")).await;
    let one: DhcpServer = first.wait("x-dhcp", "the first to choose", |_| true).await;
    let two: DnsServer = first.wait("x-dns", "the first to choose", |_| true).await;
    let three: ProxyServer = first.wait("x-proxy", "the first to choose", |_| true).await;
    second.network_on("vlan", first.namespace.name()).await;
    second.apply(second.infra("y")).await;
    let other: DhcpServer = second.wait("y-dhcp", "the second to choose", |_| true).await;
    let chosen = other.spec.network_config.server_ip;
    assert_ne!(chosen, one.spec.network_config.server_ip);
    assert_ne!(chosen, two.spec.network_config.server_ip);
    assert_ne!(chosen, three.spec.network_config.server_ip);
}
