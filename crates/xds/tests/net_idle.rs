//! Thousands of idle connections through Envoy, as many as it may have: all of them stay and still work, and one more
//! is turned away and counted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../proxy/tests/battery/mod.rs"]
mod battery;
mod harness;

use std::net::SocketAddr;
use std::time::Duration;

use battery::world::World;
use battery::{Engine, backends, in_time};
use oooi_xds::envoy_stats;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// As many as Envoy takes here. Two descriptors each, here as in Envoy, of the 20,000 that a process may have.
const IDLE: usize = harness::CONNECTIONS;

async fn echo(stream: &mut TcpStream) -> Option<u8> {
    stream.write_u8(b'x').await.ok()?;
    in_time("an echo", stream.read_u8()).await.ok()
}

#[tokio::test]
async fn nine_thousand_idle_connections_are_held() {
    let hard = getrlimit(Resource::Nofile).maximum;
    let all = Rlimit {
        current: hard,
        maximum: hard,
    };
    // Envoy inherits it.
    setrlimit(Resource::Nofile, all).unwrap();
    let envoy = harness::Envoy::start().await;
    let backend = backends::echo().await;
    let mut world = World::default();
    world.publish("plain", "*", 8080, &[backend.address]);
    envoy.apply(world.snapshot()).await;
    let at = SocketAddr::new(envoy.ip(), 8080);
    let mut open = Vec::with_capacity(IDLE);
    for number in 0..IDLE {
        let mut stream = TcpStream::connect(at).await.unwrap();
        assert_eq!(echo(&mut stream).await, Some(b'x'), "connection {number}");
        open.push(stream);
    }
    for (number, stream) in open.iter_mut().enumerate() {
        assert_eq!(echo(stream).await, Some(b'x'), "connection {number} was lost");
    }
    let mut further = TcpStream::connect(at).await.unwrap();
    assert_eq!(echo(&mut further).await, None, "one more is turned away");
    let line = "oooi_proxy_resets_total{reason=\"connection_limit\"} 1";
    in_time("the count", async {
        while !envoy_stats::translate(&envoy.admin.statistics().await.unwrap())
            .lines()
            .any(|have| have == line)
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(echo(&mut open[0]).await, Some(b'x'), "those that were there stay");
    open.truncate(IDLE / 2);
    in_time("room for new ones", async {
        loop {
            let mut stream = TcpStream::connect(at).await.unwrap();
            if echo(&mut stream).await.is_some() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}
