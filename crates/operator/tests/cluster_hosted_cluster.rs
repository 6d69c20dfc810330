//! HostedClusters on a real API server with real controllers and garbage collection. Needs the testbed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod hypershift;
mod world;

use hypershift::{
    DERIVED, Reported, annotate, cluster, conditions, events, infra_backends, pool, strategies, told,
};
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use oooi_api::foreign::{DNS, HostedCluster};
use oooi_api::{DhcpServer, Infra, ProxyServer};
use serde_json::{Value, json};
use world::{World, said, says};

fn is(infra: &Infra, status: &str, reason: &str) -> bool {
    says(conditions(infra), "Derived", status, reason)
}

#[tokio::test]
async fn with_the_defaults_of_the_cli_the_gateway_becomes_the_load_balancer() {
    let world = World::start("cli").await;
    world.network("vlan").await;
    hypershift::router(&world).await;
    let plane = hypershift::plane(&world, "tenant").await;
    world.apply(pool(&world, "tenant", &["vlan"])).await;
    world.apply(cluster("tenant", &strategies("cli"))).await;

    let waiting = |infra: &Infra| is(infra, "False", "EndpointPending");
    let infra: Infra = world.wait("tenant", "what is known to be served", waiting).await;
    let network = &infra.spec.network_config;
    assert_eq!(
        (network.cidr.as_str(), network.gateway.as_str()),
        ("192.168.100.0/24", "192.168.100.1")
    );
    let expected = [
        format!("ignition-server ignition-server-{plane}.apps.mgmt.example.net 443"),
        format!("konnectivity-server konnectivity-server-{plane}.apps.mgmt.example.net 443"),
        format!("oauth-openshift oauth-{plane}.apps.mgmt.example.net 443"),
    ];
    assert_eq!(infra_backends(&infra)[1..], expected);

    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "kube-apiserver", "namespace": plane},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 6443}]},
    });
    world.cluster.apply(&service.to_string()).await.unwrap();
    let infra: Infra = world
        .wait("tenant", "everything to be derived", |infra| {
            is(infra, "True", "Complete")
        })
        .await;
    let services = kube::Api::<Service>::namespaced(world.client.clone(), &plane);
    let status = services.get("kube-apiserver").await.unwrap().status.unwrap();
    let address = status.load_balancer.unwrap().ingress.unwrap()[0]
        .ip
        .clone()
        .unwrap();
    assert_eq!(address, "192.168.100.4");
    let addresses = infra.status.unwrap().addresses.unwrap();
    assert_eq!(addresses.proxy, [&*address], "the address of the gateway");
    let kept = |server: &ProxyServer| server.spec.network_config.server_ip == format!("{address}/24");
    world
        .wait("tenant-proxy", "the gateway at its address", kept)
        .await;

    // Without the Infra the address stays in the Service: a new Infra must take it up again.
    annotate(&world, "tenant", "infra", None).await;
    world.wait_gone::<ProxyServer>("tenant-proxy").await;
    annotate(&world, "tenant", "infra", Some("true")).await;
    world
        .wait("tenant-proxy", "the gateway at its address again", kept)
        .await;
    hypershift::remove(&world, &plane).await;
}

#[tokio::test]
async fn every_publishing_strategy_is_served_under_the_names_that_nodes_use() {
    let world = World::start("strategies").await;
    world.network("vlan").await;
    for (name, network, expected) in [
        (
            "route",
            "10.1.0.0/24",
            [
                "kube-apiserver api.route.example.com 443",
                "ignition-server ignition.route.example.com 443",
                "konnectivity-server konnectivity.route.example.com 443",
                "oauth-openshift oauth.route.example.com 443",
            ],
        ),
        (
            "loadbalancer",
            "10.2.0.0/24",
            [
                "kube-apiserver api.loadbalancer.example.com 6443",
                "ignition-server ignition.loadbalancer.example.com 443",
                "konnectivity-server konnectivity.loadbalancer.example.com 8091",
                "oauth-openshift oauth.loadbalancer.example.com 6443",
            ],
        ),
        (
            "nodeport",
            "10.3.0.0/24",
            [
                "kube-apiserver api.nodeport.example.com 30001",
                "ignition-server ignition.nodeport.example.com 30002",
                "konnectivity-server konnectivity.nodeport.example.com 30003",
                "oauth-openshift oauth.nodeport.example.com 30004",
            ],
        ),
    ] {
        world.apply(pool(&world, name, &["vlan"])).await;
        let mut cluster = cluster(name, &strategies(name));
        cluster["spec"]["networking"] = json!({"machineNetwork": [{"cidr": "fd00::/64"}, {"cidr": network}]});
        world.apply(cluster).await;
        let complete = |infra: &Infra| is(infra, "True", "Complete");
        let infra: Infra = world.wait(name, "everything to be derived", complete).await;
        assert_eq!(infra_backends(&infra), expected);
        assert_eq!(
            infra.spec.network_config.cidr, network,
            "of two machine networks that of IPv4"
        );
    }
}

#[tokio::test]
async fn what_cannot_be_derived_is_one_condition_and_one_event_that_say_what_to_annotate() {
    let world = World::start("refused").await;
    world.network("vlan").await;
    let spec = |field: &str, value: Value| {
        let mut cluster = cluster("x", &strategies("route"));
        cluster["spec"][field] = value;
        cluster
    };
    let networks = |cidr: &str| json!({"machineNetwork": [{"cidr": cidr}]});
    let secret = json!({"type": "KubeVirt", "kubevirt": {"credentials": {
        "infraNamespace": "there", "infraKubeConfigSecret": {"name": "s", "key": "kubeconfig"},
    }}});
    for (name, reason, says, mut cluster) in [
        ("none", "NoMachineNetwork", "/cidr", spec("networking", json!({}))),
        (
            "six",
            "OnlyIPv6",
            "/cidr",
            spec("networking", networks("fd00::/64")),
        ),
        (
            "away",
            "ExternalInfraUnsupported",
            "by hand",
            spec("platform", secret),
        ),
        (
            "aws",
            "PlatformUnsupported",
            "/infra",
            spec("platform", json!({"type": "AWS"})),
        ),
        (
            "nonet",
            "NoNetworkAttachment",
            "/network-attachment",
            spec("infraID", json!("x")),
        ),
    ] {
        cluster["metadata"]["name"] = json!(name);
        if name != "nonet" {
            world.apply(pool(&world, name, &["vlan"])).await;
        }
        world.apply(cluster).await;
        let message = events(&world, name, reason).await;
        assert!(message.contains(says), "{message}");
        let reported = told(&world, name, "False", reason).await;
        let (_, _, said) = said(&reported.status.conditions, DERIVED).unwrap();
        assert_eq!(said, message);
        assert!(
            world.api::<Infra>().get_opt(name).await.unwrap().is_none(),
            "{name}"
        );
    }
    // Once mended, it goes on by itself.
    annotate(&world, "none", "cidr", Some("10.7.0.0/24")).await;
    annotate(&world, "none", "gateway", Some("10.7.0.254")).await;
    annotate(&world, "none", "dns-servers", Some("10.0.0.53")).await;
    annotate(&world, "none", "dhcp-range", Some("10.7.0.100-10.7.0.199")).await;
    annotate(&world, "none", "proxy-engine", Some("native")).await;
    let all = |infra: &Infra| infra.spec.network_config.gateway == "10.7.0.254";
    let infra: Infra = world.wait("none", "the annotated Infra", all).await;
    let parts = infra.spec.infra_components.unwrap();
    assert_eq!(parts.dhcp.unwrap().range_start.as_deref(), Some("10.7.0.100"));
    told(&world, "none", "True", "Complete").await;
}

#[tokio::test]
async fn the_condition_on_a_hosted_cluster_is_beside_those_of_others_is_written_once_and_goes_with_the_annotation()
 {
    let mut world = World::start("condition").await;
    let mut silent = cluster("silent", &strategies("route"));
    silent["metadata"]["annotations"] = json!({"hostedcluster.densityops.com/paused": "true"});
    world.apply(silent).await;
    world.apply(cluster("tenant", &strategies("route"))).await;
    let first = told(&world, "tenant", "False", "NoNetworkAttachment").await;

    // HyperShift writes the whole status.
    let clusters = world.api::<HostedCluster>();
    let theirs = json!({
        "type": "Available", "status": "True", "reason": "AsExpected", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let ours = first.status.conditions.iter().find(|one| one.type_ == DERIVED);
    let whole = Patch::Merge(json!({"status": {"conditions": [ours, theirs]}}));
    clusters
        .patch_status("tenant", &PatchParams::default(), &whole)
        .await
        .unwrap();
    // Neither that nor another manager is a reason to say it again.
    world.begin().await;
    world.apply(cluster("witness", &strategies("route"))).await;
    let before: Reported = world.wait("tenant", "what HyperShift wrote", |_| true).await;
    told(&world, "witness", "False", "NoNetworkAttachment").await;
    let after: Reported = world.wait("tenant", "what HyperShift wrote", |_| true).await;
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    events(&world, "tenant", "NoNetworkAttachment").await; // one, and not two

    annotate(&world, "tenant", "paused", Some("true")).await;
    let paused = told(&world, "tenant", "Unknown", "Paused").await;
    assert!(
        says(&paused.status.conditions, "Available", "True", "AsExpected"),
        "{:?}",
        paused.status.conditions
    );
    annotate(&world, "tenant", "paused", None).await;
    told(&world, "tenant", "False", "NoNetworkAttachment").await;
    annotate(&world, "tenant", "infra", None).await;
    let gone = |cluster: &Reported| said(&cluster.status.conditions, DERIVED).is_none();
    let left: Reported = world.wait("tenant", "the condition to go", gone).await;
    assert!(says(&left.status.conditions, "Available", "True", "AsExpected"));
    let silent: Reported = world.wait("silent", "one that never asked", |_| true).await;
    assert!(silent.status.conditions.is_empty(), "{silent:?}");
}

#[tokio::test]
async fn an_infra_that_the_api_server_refuses_is_told_where_people_look() {
    let world = World::start("refused").await;
    world.network("vlan").await;
    world.apply(pool(&world, "tenant", &["vlan"])).await;
    let mut tenant = cluster("tenant", &strategies("nodeport"));
    world.apply(tenant.clone()).await;
    told(&world, "tenant", "True", "Complete").await;
    // The address of the network's gateway cannot be that of ours.
    let services = tenant["spec"]["services"].clone();
    tenant["spec"]["services"][0]["servicePublishingStrategy"]["nodePort"]["address"] =
        json!("192.168.100.1");
    world.apply(tenant.clone()).await;
    let reported = told(&world, "tenant", "False", "ApplyFailed").await;
    let (_, _, message) = said(&reported.status.conditions, DERIVED).unwrap();
    assert!(message.contains("cannot have the gateway's address"), "{message}");
    events(&world, "tenant", "ApplyFailed").await;
    let told_too = |infra: &Infra| is(infra, "False", "ApplyFailed");
    world
        .wait::<Infra>("tenant", "the Infra to say so", told_too)
        .await;
    tenant["spec"]["services"] = services;
    world.apply(tenant).await;
    told(&world, "tenant", "True", "Complete").await;
}

#[tokio::test]
async fn a_hosted_cluster_that_cannot_be_told_is_served_all_the_same() {
    let mut world = World::bare("untold").await;
    world.network("vlan").await;
    hypershift::router(&world).await;
    let plane = hypershift::plane(&world, "tenant").await;
    let client = world.denied(|request| {
        let path = request.uri().path();
        path.contains("/hostedclusters/") && path.ends_with("/status")
    });
    let client = client.await;
    world.manage(client);
    world.apply(pool(&world, "tenant", &["vlan"])).await;
    world.apply(cluster("tenant", &strategies("cli"))).await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "kube-apiserver", "namespace": plane},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 6443}]},
    });
    world.cluster.apply(&service.to_string()).await.unwrap();
    let complete = |infra: &Infra| is(infra, "True", "Complete");
    world
        .wait::<Infra>("tenant", "everything to be derived", complete)
        .await;
    let silent: Reported = world.wait("tenant", "what nobody wrote", |_| true).await;
    assert!(silent.status.conditions.is_empty(), "{silent:?}");
    hypershift::remove(&world, &plane).await;
}

#[tokio::test]
async fn what_cannot_be_derived_any_more_leaves_the_infra_as_it_is() {
    let world = World::start("later").await;
    world.network("vlan").await;
    world.apply(pool(&world, "tenant", &["vlan"])).await;
    world.apply(cluster("tenant", &strategies("route"))).await;
    let complete = |infra: &Infra| is(infra, "True", "Complete");
    let before: Infra = world.wait("tenant", "to be derived", complete).await;
    world.apply(pool(&world, "tenant", &["vlan", "other"])).await;
    let blocked = |infra: &Infra| is(infra, "False", "SeveralNetworks");
    let infra: Infra = world.wait("tenant", "to say what is wrong", blocked).await;
    assert_eq!(infra.spec, before.spec);
    let (_, _, message) = said(conditions(&infra), "Derived").unwrap();
    assert!(
        message.contains("hostedcluster.densityops.com/network-attachment"),
        "{message}"
    );
    events(&world, "tenant", "SeveralNetworks").await;
    annotate(&world, "tenant", "network-attachment", Some("vlan")).await;
    world
        .wait::<Infra>("tenant", "to be derived again", complete)
        .await;
}

#[tokio::test]
async fn a_hosted_cluster_keeps_its_servers_until_it_is_gone() {
    let world = World::start("leaving").await;
    world.network("vlan").await;
    world.apply(pool(&world, "tenant", &["vlan"])).await;
    let mut held = cluster("tenant", &strategies("route"));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    world.apply(held).await;
    world
        .wait::<DhcpServer>("tenant-dhcp", "the servers", |_| true)
        .await;

    let clusters = world.api::<HostedCluster>();
    clusters.delete("tenant", &DeleteParams::default()).await.unwrap();
    // Its pools go first, and a change wakes the controller while it is being deleted.
    let pools = world.api::<oooi_api::foreign::NodePool>();
    pools.delete("tenant", &DeleteParams::default()).await.unwrap();
    annotate(&world, "tenant", "infra", None).await;
    world.apply(cluster("witness", &strategies("route"))).await;
    events(&world, "witness", "NoNetworkAttachment").await; // by then the other change was looked at
    let infra = world.api::<Infra>().get("tenant").await.unwrap();
    assert!(infra.metadata.deletion_timestamp.is_none());

    let free = json!({"metadata": {"finalizers": null}});
    clusters
        .patch("tenant", &PatchParams::default(), &Patch::Merge(free))
        .await
        .unwrap();
    world.wait_gone::<HostedCluster>("tenant").await;
    world.wait_gone::<Infra>("tenant").await;
    world.wait_gone::<DhcpServer>("tenant-dhcp").await;
}

#[tokio::test]
async fn edits_of_a_person_stay_and_what_is_derived_is_put_back() {
    let world = World::start("edits").await;
    world.network("vlan").await;
    world.apply(pool(&world, "tenant", &["vlan"])).await;
    world.apply(cluster("tenant", &strategies("route"))).await;
    world
        .wait::<DhcpServer>("tenant-dhcp", "the servers", |_| true)
        .await;
    let edit = json!({"spec": {
        "networkConfig": {"mtu": 9000, "gateway": "192.168.100.9"},
        "infraComponents": {"dhcp": {"leaseTime": "24h"}, "dns": {"enabled": false}},
    }});
    let infras = world.api::<Infra>();
    infras
        .patch("tenant", &PatchParams::default(), &Patch::Merge(edit))
        .await
        .unwrap();
    let mended = |infra: &Infra| infra.spec.network_config.gateway == "192.168.100.1";
    world
        .wait::<Infra>("tenant", "the gateway as derived", mended)
        .await;
    annotate(&world, "tenant", "dns-servers", Some("10.0.0.53")).await;
    let changed = |infra: &Infra| infra.spec.network_config.dns_servers == ["10.0.0.53"];
    let infra: Infra = world
        .wait("tenant", "a change of the HostedCluster", changed)
        .await;
    assert_eq!(infra.spec.network_config.mtu, Some(9000));
    let parts = infra.spec.infra_components.unwrap();
    assert_eq!(parts.dhcp.unwrap().lease_time, "24h");
    assert!(!parts.dns.unwrap().enabled);
    annotate(&world, "tenant", "dns-servers", None).await;
    let dropped = |infra: &Infra| infra.spec.network_config.dns_servers.is_empty();
    world
        .wait::<Infra>("tenant", "what is no longer derived to go", dropped)
        .await;

    annotate(&world, "tenant", "paused", Some("true")).await;
    let paused = |infra: &Infra| is(infra, "Unknown", "Paused");
    world
        .wait::<Infra>("tenant", "to say that it is paused", paused)
        .await;
    annotate(&world, "tenant", "infra", None).await;
    annotate(&world, "tenant", "dns-servers", Some("10.0.0.54")).await;
    annotate(&world, "tenant", "infra", Some("true")).await;
    annotate(&world, "tenant", "paused", None).await;
    let resumed = |infra: &Infra| infra.spec.network_config.dns_servers == ["10.0.0.54"];
    let after: Infra = world.wait("tenant", "to go on", resumed).await;
    assert_eq!(after.uid(), infra.metadata.uid, "it was never removed");
}

#[tokio::test]
async fn an_infra_that_a_person_wrote_is_never_taken_over() {
    let world = World::start("byhand").await;
    world.network("vlan").await;
    world.apply(json!({
        "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "Infra", "metadata": {"name": "tenant"},
        "spec": {"networkConfig": {
            "cidr": "10.9.0.0/24", "gateway": "10.9.0.1", "networkAttachmentDefinition": "vlan",
        }},
    }))
    .await;
    world.apply(pool(&world, "tenant", &["vlan"])).await;
    world.apply(cluster("tenant", &strategies("route"))).await;
    let message = events(&world, "tenant", "InfraExists").await;
    assert!(message.contains("delete it"), "{message}");
    told(&world, "tenant", "False", "InfraExists").await;
    let infras = world.api::<Infra>();
    assert_eq!(
        infras.get("tenant").await.unwrap().spec.network_config.cidr,
        "10.9.0.0/24"
    );
    infras.delete("tenant", &DeleteParams::default()).await.unwrap();
    world
        .wait::<Infra>("tenant", "the derived one", |infra| is(infra, "True", "Complete"))
        .await;
}

#[tokio::test]
async fn of_two_hosted_clusters_with_the_same_addresses_the_later_one_is_refused_with_the_name_of_the_other()
{
    let world = World::start("twins").await;
    world.network("vlan").await;
    for name in ["first", "second"] {
        world.apply(pool(&world, name, &["vlan"])).await;
        world.apply(cluster(name, &strategies("route"))).await;
        annotate(&world, name, "dhcp-range", Some("192.168.100.50-192.168.100.99")).await;
        let seen = |infra: &Infra| {
            infra
                .status
                .as_ref()
                .is_some_and(|status| status.observed_generation.is_some())
        };
        world.wait::<Infra>(name, "to be looked at", seen).await;
    }
    let refused = |infra: &Infra| says(conditions(infra), "Ready", "False", "InvalidSpec");
    let second: Infra = world.wait("second", "to be refused", refused).await;
    let (_, _, message) = said(conditions(&second), "Ready").unwrap();
    assert!(message.contains("/first"), "{message}");
    annotate(
        &world,
        "second",
        "dhcp-range",
        Some("192.168.100.100-192.168.100.149"),
    )
    .await;
    let server: DhcpServer = world.wait("second-dhcp", "its servers", |_| true).await;
    let first: DhcpServer = world
        .wait("first-dhcp", "the servers of the first", |_| true)
        .await;
    assert_ne!(
        server.spec.network_config.server_ip,
        first.spec.network_config.server_ip
    );
}

#[tokio::test]
async fn an_infra_that_a_person_wrote_gets_its_backends_from_the_hosted_cluster_that_it_names() {
    let world = World::start("named").await;
    world.network("vlan").await;
    let mut infra = world.infra("mine");
    infra["spec"]["hostedClusterRef"] = json!({"name": "tenant"});
    world.apply(infra).await;
    let mut cluster = cluster("tenant", &strategies("nodeport"));
    cluster["metadata"]["annotations"] = json!({});
    world.apply(cluster).await;
    let told = |server: &ProxyServer| {
        let names = server
            .spec
            .backends
            .iter()
            .map(|backend| backend.hostname.as_str());
        names
            .collect::<Vec<_>>()
            .contains(&"konnectivity.nodeport.example.com")
    };
    world
        .wait("mine-proxy", "what the HostedCluster publishes", told)
        .await;
    assert!(
        world.api::<Infra>().get_opt("tenant").await.unwrap().is_none(),
        "nobody asked for one"
    );
}

#[tokio::test]
async fn a_zone_is_published_beside_those_of_others_and_withdrawn_with_its_infra() {
    let world = World::start("publish").await;
    world.network("vlan").await;
    let theirs = json!({
        "name": "theirs", "zones": ["corp.example.com"],
        "forwardPlugin": {"policy": "Sequential", "upstreams": ["10.9.9.9", "10.9.9.10:5353"]},
    });
    let resolvers = json!({
        "apiVersion": "operator.openshift.io/v1", "kind": "DNS", "metadata": {"name": "default"},
        "spec": {"servers": [theirs]},
    });
    world.cluster.apply(&resolvers.to_string()).await.unwrap();
    let mut infra = world.infra("x");
    infra["spec"]["infraComponents"]["dns"]["publishToClusterDNS"] = json!(true);
    world.apply(infra).await;
    let api = kube::Api::<DNS>::all(world.client.clone());
    let published = async |count: usize| {
        oooi_testkit::until("the forwarded zones", world::LIMIT, async || {
            let servers = api.get("default").await.unwrap().spec.servers;
            if servers.len() == count {
                Ok(servers)
            } else {
                Err(format!("{servers:?}"))
            }
        })
        .await
        .unwrap()
    };
    let servers = published(2).await;
    let service: Service = world.api().get("x-dns").await.unwrap();
    let address = service.spec.unwrap().cluster_ip.unwrap();
    assert_eq!(
        servers[0].forward_plugin.as_ref().unwrap().upstreams.len(),
        2,
        "another's entry is kept"
    );
    assert_eq!(servers[1].zones, ["x.example.com"]);
    assert_eq!(
        servers[1].forward_plugin.as_ref().unwrap().upstreams,
        [format!("{address}:53")]
    );

    let without = Patch::Merge(json!({"spec": {"servers": [theirs]}}));
    api.patch("default", &PatchParams::default(), &without)
        .await
        .unwrap();
    published(2).await; // put back
    world
        .api::<Infra>()
        .delete("x", &DeleteParams::default())
        .await
        .unwrap();
    published(1).await;
    world.wait_gone::<Infra>("x").await;
}
