//! What servers have in the namespace of a control plane: rights, and policies that admit them. Needs the testbed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod world;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use oooi_api::{DhcpServer, Infra, ProxyServer};
use oooi_testkit::until;
use serde_json::json;
use world::{LIMIT, World, says};

/// The parts of a control plane that matter here: Services, and nobody may reach any pod.
async fn fill_control_plane(world: &World) {
    let service = |name: &str, port: i32, target: i32| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"selector": {"app": name}, "ports": [{"port": port, "targetPort": target}]},
        })
    };
    let deny = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "deny"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
    });
    let items = [
        service("kube-apiserver", 6443, 6443),
        service("ignition-server-proxy", 443, 8443),
        deny,
    ];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    world.plane.apply(&list.to_string()).await.unwrap();
}

/// The names of our objects of a kind in the control plane.
async fn names_in_plane<K>(world: &World) -> Vec<String>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let api = Api::<K>::namespaced(world.client.clone(), world.plane.name());
    let ours = ListParams::default().labels("app.kubernetes.io/managed-by=oooi");
    let mut names: Vec<String> = api
        .list(&ours)
        .await
        .unwrap()
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    names.sort();
    names
}

async fn wait_for_names<K>(world: &World, wanted: &[String])
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    until(&format!("{wanted:?} in the control plane"), LIMIT, async || {
        let names = names_in_plane::<K>(world).await;
        if names == wanted {
            Ok(())
        } else {
            Err(format!("{names:?}"))
        }
    })
    .await
    .unwrap();
}

/// Whether the account of a server may do something, as the API server itself judges.
async fn may(world: &World, account: &str, verb: &str, resource: &str, namespace: &str) -> bool {
    let (group, resource) = resource.split_once('/').unwrap();
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!(
                "system:serviceaccount:{}:{account}",
                world.namespace.name()
            )),
            resource_attributes: Some(ResourceAttributes {
                group: Some(group.into()),
                resource: Some(resource.into()),
                verb: Some(verb.into()),
                namespace: Some(namespace.into()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let api = Api::<SubjectAccessReview>::all(world.client.clone());
    let answer = api.create(&PostParams::default(), &review).await.unwrap();
    answer.status.unwrap().allowed
}

fn conditions(server: &ProxyServer) -> &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition] {
    server.status.as_ref().map_or(&[], |status| &status.conditions)
}

#[tokio::test]
async fn servers_read_their_control_plane_and_are_admitted_to_it_and_leave_nothing_there() {
    let world = World::start("elsewhere").await;
    world.network("vlan").await;
    fill_control_plane(&world).await;
    world.apply(world.infra("x")).await;
    let own = world.namespace.name();
    let bindings =
        ["x-dhcp-dhcp", "x-dns-dns", "x-proxy-proxy"].map(|account| format!("oooi.{own}.{account}"));
    wait_for_names::<RoleBinding>(&world, &bindings).await;
    let policies =
        ["ignition-server-proxy", "kube-apiserver"].map(|service| format!("oooi-{own}-x-{service}"));
    wait_for_names::<NetworkPolicy>(&world, &policies).await;

    let (plane, services) = (world.plane.name(), "/services");
    let (slices, machines) = (
        "discovery.k8s.io/endpointslices",
        "kubevirt.io/virtualmachineinstances",
    );
    for verb in ["list", "watch"] {
        assert!(may(&world, "x-proxy-proxy", verb, services, plane).await);
        assert!(may(&world, "x-proxy-proxy", verb, slices, plane).await);
        assert!(may(&world, "x-dhcp-dhcp", verb, machines, plane).await);
        assert!(may(&world, "x-dns-dns", verb, machines, plane).await);
    }
    let leases = "hostedcluster.densityops.com/dhcpleases";
    assert!(may(&world, "x-dhcp-dhcp", "update", leases, own).await);
    for (account, verb, resource, namespace) in [
        ("x-proxy-proxy", "list", services, "default"),
        ("x-proxy-proxy", "list", "/secrets", plane),
        ("x-proxy-proxy", "list", machines, plane),
        ("x-dns-dns", "list", services, plane),
        ("x-dns-dns", "create", leases, own),
        ("x-dhcp-dhcp", "update", leases, plane),
    ] {
        assert!(
            !may(&world, account, verb, resource, namespace).await,
            "{account} may {verb} {resource}"
        );
    }

    // A policy that somebody removes comes back, and one whose Service is gone goes.
    let in_plane = Api::<NetworkPolicy>::namespaced(world.client.clone(), plane);
    in_plane
        .delete(&policies[1], &DeleteParams::default())
        .await
        .unwrap();
    wait_for_names::<NetworkPolicy>(&world, &policies).await;
    world
        .plane
        .kubectl(&["delete", "service", "ignition-server-proxy"])
        .await
        .unwrap();
    wait_for_names::<NetworkPolicy>(&world, &policies[1..]).await;

    world
        .api::<Infra>()
        .delete("x", &DeleteParams::default())
        .await
        .unwrap();
    world.wait_gone::<ProxyServer>("x-proxy").await;
    world.wait_gone::<DhcpServer>("x-dhcp").await;
    wait_for_names::<RoleBinding>(&world, &[]).await;
    wait_for_names::<NetworkPolicy>(&world, &[]).await;
}

#[tokio::test]
async fn pods_that_nobody_isolated_are_not_isolated_by_us() {
    let world = World::start("open").await;
    world.network("vlan").await;
    fill_control_plane(&world).await;
    world
        .plane
        .kubectl(&["delete", "networkpolicy", "deny"])
        .await
        .unwrap();
    world.apply(world.infra("x")).await;
    world
        .wait::<k8s_openapi::api::apps::v1::Deployment>("x-proxy", "the gateway", |_| true)
        .await;
    assert!(names_in_plane::<NetworkPolicy>(&world).await.is_empty());
    fill_control_plane(&world).await;
    until(
        "policies once there is a default deny",
        LIMIT,
        async || match names_in_plane::<NetworkPolicy>(&world).await.len() {
            2 => Ok(()),
            other => Err(other.to_string()),
        },
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn a_missing_control_plane_is_named_and_holds_up_neither_work_nor_deletion() {
    let world = World::start("missing").await;
    world.network("vlan").await;
    let mut infra = world.infra("x");
    let plane = format!("{}-x", world.namespace.name());
    infra["spec"]["infraComponents"]["proxy"]["controlPlaneNamespace"] = json!(plane);
    world.apply(infra).await;
    let named =
        |server: &ProxyServer| says(conditions(server), "EndpointsReady", "False", "NamespaceMissing");
    let server: ProxyServer = world.wait("x-proxy", "to miss its control plane", named).await;
    let message = &conditions(&server)
        .iter()
        .find(|c| c.type_ == "EndpointsReady")
        .unwrap()
        .message;
    assert!(message.contains(&plane), "{message}");
    world
        .wait::<k8s_openapi::api::apps::v1::Deployment>("x-proxy", "the gateway all the same", |_| true)
        .await;

    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": plane}});
    world.cluster.apply(&namespace.to_string()).await.unwrap();
    let found = |server: &ProxyServer| !named(server);
    world
        .wait::<ProxyServer>("x-proxy", "to find its control plane", found)
        .await;
    world
        .cluster
        .kubectl(&["delete", "namespace", &plane])
        .await
        .unwrap();
    world
        .wait::<ProxyServer>("x-proxy", "to miss it again", named)
        .await;
    world
        .api::<Infra>()
        .delete("x", &DeleteParams::default())
        .await
        .unwrap();
    world.wait_gone::<ProxyServer>("x-proxy").await;
    world.wait_gone::<DhcpServer>("x-dhcp").await;
}

#[tokio::test]
async fn a_deletion_does_not_hang_on_a_specification_that_became_wrong() {
    let world = World::start("broken").await;
    world.network("vlan").await;
    fill_control_plane(&world).await;
    world.apply(world.infra("x")).await;
    world
        .wait::<ProxyServer>("x-proxy", "to be held", |server| !server.finalizers().is_empty())
        .await;
    until("the binding", LIMIT, async || {
        let count = names_in_plane::<RoleBinding>(&world).await.len();
        if count == 3 {
            Ok(())
        } else {
            Err(count.to_string())
        }
    })
    .await
    .unwrap();
    // Paused, so that its Infra does not put it right again; and two replicas have no second address.
    let paused = json!({"metadata": {"annotations": {"hostedcluster.densityops.com/paused": "true"}}});
    let broken = json!({"spec": {"replicas": 2, "backends": [{
        "name": "other", "hostname": "a.example.com", "port": 443, "targetService": "a", "targetPort": 443,
        "targetNamespace": "nowhere"}]}});
    let params = PatchParams::default();
    world
        .api::<Infra>()
        .patch("x", &params, &Patch::Merge(paused))
        .await
        .unwrap();
    world
        .api::<ProxyServer>()
        .patch("x-proxy", &params, &Patch::Merge(broken))
        .await
        .unwrap();
    let rejected = |server: &ProxyServer| says(conditions(server), "Ready", "False", "InvalidSpec");
    world
        .wait::<ProxyServer>("x-proxy", "to be refused", rejected)
        .await;
    world
        .api::<ProxyServer>()
        .delete("x-proxy", &DeleteParams::default())
        .await
        .unwrap();
    world.wait_gone::<ProxyServer>("x-proxy").await;
    let left = names_in_plane::<RoleBinding>(&world).await;
    assert_eq!(left.len(), 2, "those of the others stay: {left:?}");
}
