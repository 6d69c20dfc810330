//! What others do to objects of ours, and what a manager finds when it comes back, on a real API server. Needs the
//! testbed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod hypershift;
mod world;

use http::Request;
use hypershift::{cluster, strategies};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::client::Body;
use kube::{Client, ResourceExt};
use oooi_api::foreign::HostedCluster;
use oooi_api::{DhcpServer, DnsServer, Infra, ProxyServer};
use oooi_testkit::{rights, until};
use serde_json::{Value, json};
use world::{LIMIT, World, says};

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

/// A client of the manager to which nobody ever answers what leases there are.
async fn without_leases(world: &World) -> Client {
    let (inner, _) = rights::client_of(world.cluster, "oooi-system", "oooi-manager")
        .await
        .unwrap();
    let service = tower::service_fn(move |request: Request<Body>| {
        let inner = inner.clone();
        async move {
            if request.uri().path().contains("/dhcpleases") {
                std::future::pending::<()>().await;
            }
            inner.send(request).await
        }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn what_cannot_be_listed_is_said_and_holds_up_nobody_else() {
    let mut world = World::bare("unlisted").await;
    world.network("vlan").await;
    let client = without_leases(&world).await;
    world.manage(client);
    let mut routed = world.infra("routed");
    routed["spec"]["infraComponents"]["proxy"]["apps"] = json!({"httpsPort": 30443});
    world.apply(routed).await;
    let unknown = |infra: &Infra| {
        let conditions = infra.status.as_ref().map_or(&[][..], |status| &status.conditions);
        says(conditions, "Ready", "False", "NotObserved")
    };
    world.wait("routed", "to say what is not known", unknown).await;
    world.apply(world.infra("plain")).await;
    world
        .wait::<ProxyServer>("plain-proxy", "another on the same VLAN", |_| true)
        .await;
}
