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
use kube::client::Body;
use oooi_testkit::{rights, until};
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

/// A HostedCluster from nothing, in a namespace of its own. The first manager is cut off; what the second leaves is
/// looked at.
async fn run(allowed: usize, reference: Option<&Snapshot>) -> (bool, Snapshot) {
    let mut world = World::bare(&format!("cut{allowed}")).await;
    world.network("vlan").await;
    let cut = Cut::after(allowed);
    let client = cut.client(&world).await;
    world.manage(client);
    world.apply(pool(&world, "tenant", &["vlan"])).await;
    let mut cluster = cluster("tenant", &strategies("route"));
    cluster["metadata"]["annotations"]["hostedcluster.densityops.com/proxy-engine"] = "native".into();
    world.apply(cluster).await;
    // Over, when it was cut off, or when it has nothing more to write.
    let mut last = (0, tokio::time::Instant::now());
    until("the first manager to be over", LIMIT, async || {
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
    let was_cut = cut.is_cut();
    let Some(reference) = reference else {
        return (was_cut, Snapshot::of(&world).await);
    };
    let second = Cut::after(usize::MAX);
    let client = second.client(&world).await;
    world.manage(client);
    let found = until(
        &format!("the same as without a cut after {allowed} writes"),
        LIMIT,
        async || {
            let now = Snapshot::of(&world).await;
            if now == *reference {
                Ok(now)
            } else {
                Err(reference.difference(&now))
            }
        },
    )
    .await
    .unwrap();
    (was_cut, found)
}

#[tokio::test]
async fn wherever_a_manager_is_cut_off_the_next_one_makes_the_same_of_it() {
    let (cut, reference) = run(usize::MAX, None).await;
    assert!(!cut);
    let mut allowed = 0;
    loop {
        let batch = allowed..allowed + AT_ONCE;
        allowed += AT_ONCE;
        let runs = join_all(batch.map(|allowed| run(allowed, Some(&reference)))).await;
        let complete = runs.iter().any(|(cut, _)| !cut);
        if complete {
            break; // that many writes are all there are
        }
    }
    println!("cut off after each of fewer than {allowed} writes");
}
