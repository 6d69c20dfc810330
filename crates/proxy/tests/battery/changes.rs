//! What an update does, and what it leaves alone.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::backends::{self, Identity};
use super::clients::{Conversation, is_refused, who};
use super::world::World;
use super::{Engine, in_time};

pub async fn an_established_connection_survives_every_change_of_names(engine: &impl Engine) {
    let identity = Identity::new(&["api.demo.test", "new.demo.test"]);
    let api = backends::tls("api", &identity).await;
    let next = backends::tls("next", &identity).await;
    let mut world = World::default();
    world
        .publish("api", "api.demo.test", 8443, &[api.address])
        .publish("b", "b.demo.test", 8443, &[api.address]);
    engine.apply(world.snapshot()).await;
    let at = SocketAddr::new(engine.ip(), 8443);
    let mut conversation = Conversation::start(&identity, at, "api.demo.test").await.unwrap();
    // Its name gets a sister, a neighbour goes, its endpoints move, its name goes.
    let more = serde_json::json!({"alternateHostnames": ["new.demo.test"]});
    world.publish_with("api", "api.demo.test", 8443, &[api.address], more);
    engine.apply(world.snapshot()).await;
    conversation.say("a name was added").await.unwrap();
    assert_eq!(who(&identity, at, "new.demo.test").await.unwrap(), "api");
    world.withdraw("b");
    engine.apply(world.snapshot()).await;
    conversation.say("a neighbour went").await.unwrap();
    world.endpoints("api", &[next.address]);
    engine.apply(world.snapshot()).await;
    conversation
        .say("its endpoint is not in the list any more")
        .await
        .unwrap();
    assert_eq!(who(&identity, at, "api.demo.test").await.unwrap(), "next");
    world.publish("api", "new.demo.test", 8443, &[next.address]);
    engine.apply(world.snapshot()).await;
    conversation.say("its name went").await.unwrap();
    assert!(who(&identity, at, "api.demo.test").await.is_err());
}

pub async fn an_established_connection_survives_another_connect_timeout(engine: &impl Engine) {
    let identity = Identity::new(&["api.demo.test"]);
    let api = backends::tls("api", &identity).await;
    let mut world = World::default();
    let seconds = |count: u32| serde_json::json!({"timeoutSeconds": count});
    world.publish_with("api", "api.demo.test", 8443, &[api.address], seconds(30));
    engine.apply(world.snapshot()).await;
    let at = SocketAddr::new(engine.ip(), 8443);
    let mut conversation = Conversation::start(&identity, at, "api.demo.test").await.unwrap();
    for count in [7, 60] {
        world.publish_with("api", "api.demo.test", 8443, &[api.address], seconds(count));
        engine.apply(world.snapshot()).await;
        assert_eq!(who(&identity, at, "api.demo.test").await.unwrap(), "api");
        conversation.say("the timeout is another").await.unwrap();
    }
}

pub async fn ports_come_and_go(engine: &impl Engine) {
    let echo = backends::echo().await;
    let mut world = World::default();
    world.publish("one", "*", 8081, &[echo.address]);
    engine.apply(world.snapshot()).await;
    let (first, second) = (
        SocketAddr::new(engine.ip(), 8081),
        SocketAddr::new(engine.ip(), 8082),
    );
    assert!(TcpStream::connect(second).await.is_err());
    let mut old = TcpStream::connect(first).await.unwrap();
    old.write_all(b"a").await.unwrap();
    in_time("an echo", old.read_u8()).await.unwrap();
    world.publish("two", "*", 8082, &[echo.address]);
    engine.apply(world.snapshot()).await;
    let mut new = TcpStream::connect(second).await.unwrap();
    new.write_all(b"b").await.unwrap();
    in_time("an echo", new.read_u8()).await.unwrap();
    world.withdraw("one");
    engine.apply(world.snapshot()).await;
    in_time("the port to close", async {
        while TcpStream::connect(first).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    old.write_all(b"c").await.unwrap();
    assert_eq!(
        in_time("an echo on a port that is gone", old.read_u8())
            .await
            .unwrap(),
        b'c'
    );
}

pub async fn a_dead_endpoint_costs_no_connection(engine: &impl Engine) {
    let identity = Identity::new(&["api.demo.test"]);
    let alive = backends::tls("alive", &identity).await;
    let dead = backends::tls("dead", &identity).await;
    let mut world = World::default();
    world.publish("api", "api.demo.test", 8443, &[alive.address, dead.address]);
    engine.apply(world.snapshot()).await;
    let at = SocketAddr::new(engine.ip(), 8443);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..20 {
        seen.insert(who(&identity, at, "api.demo.test").await.unwrap());
    }
    assert_eq!(seen.len(), 2, "connections are spread over the endpoints");
    drop(dead);
    for attempt in 0..40 {
        assert_eq!(
            who(&identity, at, "api.demo.test").await.unwrap(),
            "alive",
            "connection {attempt}"
        );
    }
}

pub async fn without_endpoints_connections_are_reset_until_some_come(engine: &impl Engine) {
    let identity = Identity::new(&["api.demo.test"]);
    let api = backends::tls("api", &identity).await;
    let mut world = World::default();
    world.publish("api", "api.demo.test", 8443, &[]);
    engine.apply(world.snapshot()).await;
    let at = SocketAddr::new(engine.ip(), 8443);
    assert!(is_refused(at, include_bytes!("../hellos/openssl-no-sni.bin")).await);
    world.endpoints("api", &[api.address]);
    engine.apply(world.snapshot()).await;
    assert_eq!(who(&identity, at, "api.demo.test").await.unwrap(), "api");
    world.endpoints("api", &[]);
    engine.apply(world.snapshot()).await;
    assert!(who(&identity, at, "api.demo.test").await.is_err());
}

pub async fn a_thousand_changes_under_load_fail_no_connection(engine: &impl Engine) {
    let identity = Arc::new(Identity::new(&["api.demo.test"]));
    let one = backends::tls("one", &identity).await;
    let two = backends::tls("two", &identity).await;
    let mut world = World::default();
    world.publish("api", "api.demo.test", 8443, &[one.address]);
    engine.apply(world.snapshot()).await;
    let at = SocketAddr::new(engine.ip(), 8443);
    let mut old = Conversation::start(&identity, at, "api.demo.test").await.unwrap();
    let running = Arc::new(AtomicBool::new(true));
    let made = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (identity, running, made) = (identity.clone(), running.clone(), made.clone());
            tokio::spawn(async move {
                while running.load(Ordering::Relaxed) {
                    who(&identity, at, "api.demo.test").await?;
                    made.fetch_add(1, Ordering::Relaxed);
                }
                std::io::Result::Ok(())
            })
        })
        .collect();
    for change in 0..1000 {
        let endpoints = [[one.address, two.address], [two.address, one.address]][change % 2];
        world.endpoints("api", &endpoints[..1 + change / 2 % 2]);
        match change % 4 {
            0 => world.publish(
                "extra",
                &format!("extra-{change}.demo.test"),
                8443,
                &[one.address],
            ),
            2 => world.withdraw("extra"),
            _ => &mut world,
        };
        engine.apply(world.snapshot()).await;
    }
    let enough = async {
        while made.load(Ordering::Relaxed) < 50 {
            tokio::task::yield_now().await;
        }
    };
    in_time("some connections", enough).await;
    running.store(false, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap().unwrap();
    }
    old.say("still here").await.unwrap();
}
