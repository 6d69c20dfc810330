//! The rights of the manager: a story in which it does everything that it ever does, so that a right that it is given
//! and never uses is found. Needs the testbed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod hypershift;
mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use hypershift::{annotate, cluster, pool, strategies};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use oooi_api::foreign::{DNS, NetworkAttachmentDefinition};
use oooi_api::{DhcpServer, DnsServer, Infra, ProxyServer};
use oooi_operator::lease::{Candidate, Term};
use oooi_operator::serving::access;
use oooi_operator::serving::admission;
use oooi_operator::serving::keeper::Keeper;
use oooi_operator::serving::tls;
use oooi_testkit::{rights, until};
use serde_json::{Value, json};
use tokio::sync::watch;
use world::{LIMIT, World, says};

/// Rights that no call of the manager needs, but another call: whoever makes a RoleBinding must be allowed to bind the
/// role.
const IMPLIED: [&str; 1] = ["bind rbac.authorization.k8s.io/clusterroles"];

async fn change(world: &World, infra: &str, spec: Value) {
    let patch = Patch::Merge(json!({"spec": spec}));
    world
        .api::<Infra>()
        .patch(infra, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

fn conditions(infra: &Infra) -> &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition] {
    infra.status.as_ref().map_or(&[], |status| &status.conditions)
}

/// A HostedCluster as the CLI makes it: its Infra comes, its load balancer is served, and both go.
async fn hosted_cluster(world: &World) {
    hypershift::router(world).await;
    let plane = hypershift::plane(world, "tenant").await;
    world.apply(pool(world, "tenant", &["vlan"])).await;
    world.apply(cluster("tenant", &strategies("cli"))).await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "kube-apiserver", "namespace": plane},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 6443}]},
    });
    world.cluster.apply(&service.to_string()).await.unwrap();
    let complete = |infra: &Infra| says(conditions(infra), "Derived", "True", "Complete");
    world
        .wait::<Infra>("tenant", "everything to be derived", complete)
        .await;
    annotate(world, "tenant", "infra", None).await;
    world.wait_gone::<ProxyServer>("tenant-proxy").await;
    hypershift::remove(world, &plane).await;
}

/// An Infra by hand, with everything that can be had and be given up again.
async fn infra(world: &World) {
    let isolated = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kube-apiserver"},
            "spec": {"selector": {"app": "kube-apiserver"}, "ports": [{"port": 6443, "targetPort": 6443}]}},
        {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "deny"},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}},
    ]});
    world.plane.apply(&isolated.to_string()).await.unwrap();
    let resolvers = json!({
        "apiVersion": "operator.openshift.io/v1", "kind": "DNS", "metadata": {"name": "default"}, "spec": {"servers": []},
    });
    world.cluster.apply(&resolvers.to_string()).await.unwrap();
    let mut infra = world.infra("x");
    infra["spec"]["infraComponents"]["dns"]["publishToClusterDNS"] = json!(true);
    infra["spec"]["infraComponents"]["dns"]["replicas"] = json!(2);
    infra["spec"]["infraComponents"]["proxy"]["apps"] = json!({"httpsPort": 30443});
    world.apply(infra).await;
    world
        .wait::<Deployment>("x-dns-r2", "the second replica", |_| true)
        .await;
    world
        .wait::<PodDisruptionBudget>("x-dns", "the budget", |_| true)
        .await;
    world
        .wait::<EndpointSlice>("x-apps", "the endpoints of applications", |_| true)
        .await;
    world
        .wait::<Deployment>("x-dhcp", "the DHCP server", |_| true)
        .await;
    let policies = Api::<NetworkPolicy>::namespaced(world.client.clone(), world.plane.name());
    let policy = format!("oooi-{}-x-kube-apiserver", world.namespace.name());
    until("the gateway to be admitted", LIMIT, async || {
        match policies.get_opt(&policy).await {
            Ok(Some(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    let zones = Api::<DNS>::all(world.client.clone());
    until("the zone to be forwarded", LIMIT, async || {
        let servers = zones
            .get("default")
            .await
            .map_err(|error| error.to_string())?
            .spec
            .servers;
        (!servers.is_empty()).then_some(()).ok_or("none".to_owned())
    })
    .await
    .unwrap();

    change(
        world,
        "x",
        json!({"infraComponents": {"dns": {"replicas": 1}, "proxy": {"apps": null}}}),
    )
    .await;
    world.wait_gone::<Deployment>("x-dns-r2").await;
    world.wait_gone::<PodDisruptionBudget>("x-dns").await;
    world.wait_gone::<EndpointSlice>("x-apps").await;
    world.wait_gone::<Service>("x-apps").await;
    let off = json!({"enabled": false});
    change(
        world,
        "x",
        json!({"infraComponents": {"dhcp": off, "dns": off, "proxy": off}}),
    )
    .await;
    world.wait_gone::<DhcpServer>("x-dhcp").await;
    world.wait_gone::<DnsServer>("x-dns").await;
    world.wait_gone::<ProxyServer>("x-proxy").await;
    // A network that pods can use themselves needs no sibling.
    let bridge =
        json!({"type": "bridge", "bridge": "b", "capabilities": {"ips": true}, "ipam": {"type": "static"}});
    let usable = json!({"cniVersion": "0.3.1", "plugins": [bridge, {"type": "sbr"}]});
    let network = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": "vlan"},
        "spec": {"config": usable.to_string()},
    });
    world.apply(network).await;
    world.wait_gone::<NetworkAttachmentDefinition>("x-vlan").await;
}

/// The same event twice: the second time it is counted and not made anew.
async fn events(world: &World) {
    let mut infra = world.infra("y");
    infra["spec"]["networkConfig"]["networkAttachmentDefinition"] = json!("late");
    world.apply(infra).await;
    let networks = world.api::<NetworkAttachmentDefinition>();
    for round in 0..2 {
        let missing = |infra: &Infra| {
            says(
                conditions(infra),
                "NetworkReady",
                "False",
                "NetworkAttachmentMissing",
            )
        };
        world
            .wait::<Infra>("y", "its network to be missing", missing)
            .await;
        if round == 0 {
            world.network("late").await;
            let found = |infra: &Infra| says(conditions(infra), "NetworkReady", "True", "SiblingApplied");
            world.wait::<Infra>("y", "its network to be found", found).await;
            networks.delete("late", &DeleteParams::default()).await.unwrap();
        }
    }
    let counted = world.calls.clone();
    until("the event to be counted", LIMIT, async || {
        let used = counted.used();
        used.contains("patch events.k8s.io/events")
            .then_some(())
            .ok_or("not yet")
    })
    .await
    .unwrap();
}

/// What a manager does besides: it leads, keeps its certificate, has it trusted, and asks who may read metrics.
async fn surroundings(world: &World) {
    const OWN: &str = "oooi-system";
    let client = rights::noted(world.cluster, OWN, "oooi-manager", &world.calls)
        .await
        .unwrap();
    let secrets = Api::<Secret>::namespaced(world.client.clone(), OWN);
    let _ = secrets
        .delete("oooi-manager-certificate", &DeleteParams::default())
        .await;
    let leases = Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(world.client.clone(), OWN);
    let _ = leases.delete("oooi-manager", &DeleteParams::default()).await;
    let hook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "oooi"},
        "webhooks": [{
            "name": "infras.hostedcluster.densityops.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Ignore", "clientConfig": {"url": "https://localhost:1/validate"},
            "namespaceSelector": {"matchLabels": {"nobody": "here"}},
            "rules": [{"apiGroups": ["hostedcluster.densityops.com"], "apiVersions": ["v1alpha1"],
                "operations": ["CREATE"], "resources": ["infras"]}],
        }],
    });
    world.cluster.apply(&hook.to_string()).await.unwrap();

    let candidate = Candidate {
        namespace: OWN.into(),
        name: "oooi-manager".into(),
        identity: "story".into(),
        term: Duration::from_secs(3),
    };
    let (leads, leading) = watch::channel(Term::Over);
    let leader = client.clone();
    let election = tokio::spawn(async move { candidate.lead(leader, &leads).await });
    let (serves, _served) = tls::channel();
    let keeper = Keeper::new(
        client.clone(),
        OWN.into(),
        vec!["localhost".into()],
        leading,
        serves,
        oooi_operator::metrics::Metrics::default(),
    );
    let keeping = tokio::spawn(async move { keeper.keep().await });
    let (_stores, follow) = admission::follow(client.clone());
    let following = tokio::spawn(follow);
    let token = world
        .cluster
        .kubectl(&["-n", world.namespace.name(), "create", "token", "default"])
        .await
        .unwrap();
    let refused = access::review(&client, Some(token.trim().to_owned()), "/metrics").await;
    assert!(refused.is_err(), "nobody allowed that account to read metrics");
    let used = world.calls.clone();
    until("everything to be used", LIMIT, async || {
        let wanted = [
            "update coordination.k8s.io/leases",
            "patch /secrets",
            "watch /secrets",
        ];
        let used = used.used();
        let trusted = used.contains("patch admissionregistration.k8s.io/validatingwebhookconfigurations");
        let missing: Vec<_> = wanted.iter().filter(|right| !used.contains(**right)).collect();
        if missing.is_empty() && trusted {
            Ok(())
        } else {
            Err(format!("{missing:?}, trusted: {trusted}"))
        }
    })
    .await
    .unwrap();
    election.abort();
    keeping.abort();
    following.abort();
    world
        .cluster
        .kubectl(&["delete", "validatingwebhookconfiguration", "oooi"])
        .await
        .unwrap();
}

#[tokio::test]
async fn every_right_of_the_manager_is_used_and_no_other_is_missed() {
    let world = World::start("rights").await;
    world.network("vlan").await;
    hosted_cluster(&world).await;
    infra(&world).await;
    events(&world).await;
    surroundings(&world).await;

    let cluster_role = Api::<ClusterRole>::all(world.client.clone())
        .get("oooi-manager")
        .await
        .unwrap();
    let role = Api::<Role>::namespaced(world.client.clone(), "oooi-system")
        .get("oooi-manager")
        .await
        .unwrap();
    let mut unused: BTreeSet<String> = rights::granted(&cluster_role.rules.unwrap());
    unused.extend(rights::granted(&role.rules.unwrap()));
    for right in world.calls.used() {
        unused.remove(&right);
    }
    for right in IMPLIED {
        assert!(unused.remove(right), "{right} is not granted");
    }
    assert!(unused.is_empty(), "the manager never uses {unused:#?}");
}

#[tokio::test]
async fn several_namespaces_are_watched_each_by_itself() {
    let mut world = World::bare("several").await;
    let (first, second) = (world.namespace.name().to_owned(), world.plane.name().to_owned());
    let client = rights::noted(world.cluster, "oooi-system", "oooi-manager", &world.calls)
        .await
        .unwrap();
    world.manage_namespaces(client, vec![first.clone(), second.clone()]);
    world.network("vlan").await;
    world.apply(world.infra("x")).await;
    world
        .wait::<Deployment>("x-dns", "the first namespace to be looked after", |_| true)
        .await;
    // A network of this namespace is out of reach for the other one.
    let mut other = world.infra("y");
    other["metadata"]["namespace"] = json!(second);
    world.cluster.apply(&other.to_string()).await.unwrap();
    let infras = Api::<Infra>::namespaced(world.client.clone(), &second);
    until(
        "the second namespace to be looked after",
        LIMIT,
        async || match infras.get("y").await {
            Ok(infra)
                if says(
                    conditions(&infra),
                    "NetworkReady",
                    "False",
                    "NetworkAttachmentMissing",
                ) =>
            {
                Ok(())
            }
            other => Err(format!("{other:?}")),
        },
    )
    .await
    .unwrap();
    let paths = world.calls.paths();
    for kind in [
        "infras",
        "dhcpservers",
        "dnsservers",
        "proxyservers",
        "dhcpleases",
    ] {
        let whole = format!("/apis/hostedcluster.densityops.com/v1alpha1/{kind}");
        // Infras of other managers may be on the same VLAN.
        let is_asked_for = paths.contains(&whole);
        assert_eq!(is_asked_for, kind == "infras", "{kind} of all namespaces");
        for namespace in [&first, &second] {
            let path = format!("/apis/hostedcluster.densityops.com/v1alpha1/namespaces/{namespace}/{kind}");
            assert!(paths.contains(&path), "{path}");
        }
    }
    infras.delete("y", &DeleteParams::default()).await.unwrap();
}
