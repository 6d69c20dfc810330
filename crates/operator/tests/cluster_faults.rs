//! The manager is cut off between any two writes, and the next one goes on. Needs the testbed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod hypershift;
mod snapshot;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use http::{Method, Request};
use hypershift::{cluster, pool, strategies};
use kube::Client;
use kube::api::DeleteParams;
use kube::client::Body;
use oooi_api::Infra;
use oooi_testkit::{rights, until};
use serde_json::json;
use snapshot::Snapshot;
use world::{LIMIT, World};

/// How many managers are cut off at once.
const AT_ONCE: usize = 6;

/// A client of the manager that lets only so many writes through, and after them nothing at all.
#[derive(Clone)]
struct Cut {
    allowed: usize,
    writes: Arc<AtomicUsize>,
}

impl Cut {
    fn after(allowed: usize) -> Self {
        Cut {
            allowed,
            writes: Arc::default(),
        }
    }

    fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    /// Whether something was refused.
    fn is_cut(&self) -> bool {
        self.writes() > self.allowed
    }

    async fn client(&self, world: &World) -> Client {
        let (inner, _) = rights::client_of(world.cluster, "oooi-system", "oooi-manager")
            .await
            .unwrap();
        let cut = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (inner, cut) = (inner.clone(), cut.clone());
            async move {
                // The write that is one too many is lost, and the manager is as good as dead.
                if request.method() != Method::GET {
                    cut.writes.fetch_add(1, Ordering::SeqCst);
                }
                if cut.is_cut() {
                    return Err(kube::Error::Service("cut off".into()));
                }
                inner.send(request).await
            }
        });
        Client::new(service, "default")
    }
}

/// A control plane whose pods nobody may reach, where the gateway is to be admitted.
async fn control_plane(world: &World) -> String {
    let plane = hypershift::plane(world, "tenant").await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "kube-apiserver", "namespace": plane},
        "spec": {"selector": {"app": "kube-apiserver"}, "ports": [{"port": 6443}]},
    });
    let deny = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "deny", "namespace": plane},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
    });
    for object in [service, deny] {
        world.cluster.apply(&object.to_string()).await.unwrap();
    }
    plane
}

/// Waits until a manager is over: it was cut off, or has nothing more to write.
async fn is_over(cut: &Cut) {
    let mut last = (0, tokio::time::Instant::now());
    until("the manager to be over", LIMIT, async || {
        if last.0 != cut.writes() {
            last = (cut.writes(), tokio::time::Instant::now());
        }
        let idle = last.0 > 0 && last.1.elapsed() > Duration::from_secs(3);
        if cut.is_cut() || idle {
            Ok(())
        } else {
            Err(format!("{} writes", last.0))
        }
    })
    .await
    .unwrap();
}

/// Has the world looked after until it is as another one.
async fn becomes(world: &mut World, plane: &str, allowed: usize, reference: &Snapshot) {
    let client = Cut::after(usize::MAX).client(world).await;
    world.manage(client);
    until(
        &format!("the same as without a cut after {allowed} writes"),
        LIMIT,
        async || {
            let now = Snapshot::of(world, plane).await;
            if now == *reference {
                Ok(())
            } else {
                Err(reference.difference(&now))
            }
        },
    )
    .await
    .unwrap();
}

/// A HostedCluster and a DNS server of two replicas from nothing, in a namespace of their own. The first manager is cut
/// off; what the second leaves is looked at.
async fn come(allowed: usize, reference: Option<&Snapshot>) -> (bool, Snapshot) {
    let mut world = World::bare(&format!("cut{allowed}")).await;
    world.network("vlan").await;
    let other = format!("{}-b", world.namespace.name());
    world.network_on("other", &other).await;
    let plane = control_plane(&world).await;
    let cut = Cut::after(allowed);
    let client = cut.client(&world).await;
    world.manage(client);
    world.apply(pool(&world, "tenant", &["vlan"])).await;
    let mut cluster = cluster("tenant", &strategies("route"));
    cluster["metadata"]["annotations"]["hostedcluster.densityops.com/proxy-engine"] = "native".into();
    world.apply(cluster).await;
    let mut twice = world.infra("twice");
    twice["spec"]["networkConfig"]["networkAttachmentDefinition"] = "other".into();
    twice["spec"]["infraComponents"] = json!({
        "dns": {"baseDomain": "example.com", "clusterName": "twice", "replicas": 2},
    });
    world.apply(twice).await;
    is_over(&cut).await;
    if let Some(reference) = reference {
        becomes(&mut world, &plane, allowed, reference).await;
    }
    let found = Snapshot::of(&world, &plane).await;
    hypershift::remove(&world, &plane).await;
    (cut.is_cut(), found)
}

/// The same is there and goes; the manager is cut off while it does. What is left after the second one is looked at.
async fn go(allowed: usize) -> bool {
    let mut world = World::bare(&format!("end{allowed}")).await;
    world.network("vlan").await;
    let plane = control_plane(&world).await;
    let mut infra = world.infra("x");
    infra["spec"]["infraComponents"]["proxy"]["controlPlaneNamespace"] = plane.as_str().into();
    infra["spec"]["infraComponents"]["dns"]["replicas"] = 2.into();
    let before = Snapshot::of(&world, &plane).await;
    let first = Cut::after(usize::MAX);
    let client = first.client(&world).await;
    world.manage(client);
    world.apply(infra).await;
    is_over(&first).await;
    for kind in ["networkpolicies", "poddisruptionbudgets", "rolebindings"] {
        assert!(Snapshot::of(&world, &plane).await.has(kind), "{kind}");
    }
    let cut = Cut::after(allowed);
    let client = cut.client(&world).await;
    world.manage(client);
    let infras = world.api::<Infra>();
    infras.delete("x", &DeleteParams::default()).await.unwrap();
    is_over(&cut).await;
    becomes(&mut world, &plane, allowed, &before).await;
    hypershift::remove(&world, &plane).await;
    cut.is_cut()
}

/// Cuts managers off after every number of writes, until there are no more writes than that.
async fn everywhere(story: impl AsyncFn(usize) -> bool) {
    let mut allowed = 0;
    loop {
        let batch = allowed..allowed + AT_ONCE;
        allowed += AT_ONCE;
        let runs = join_all(batch.map(async |allowed| story(allowed).await)).await;
        if runs.contains(&false) {
            break;
        }
    }
    println!("cut off after each of fewer than {allowed} writes");
}

#[tokio::test]
async fn wherever_a_manager_is_cut_off_the_next_one_makes_the_same_of_it() {
    let (cut, reference) = come(usize::MAX, None).await;
    assert!(!cut);
    for kind in [
        "networkpolicies",
        "poddisruptionbudgets",
        "rolebindings of the control plane",
    ] {
        assert!(reference.has(kind), "{kind}");
    }
    everywhere(async |allowed| come(allowed, Some(&reference)).await.0).await;
}

#[tokio::test]
async fn wherever_a_manager_is_cut_off_while_servers_go_the_next_one_leaves_nothing_of_them() {
    everywhere(go).await;
}
