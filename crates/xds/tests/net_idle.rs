//! Thousands of idle connections through Envoy: all of them stay, and all of them still work.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../proxy/tests/battery/mod.rs"]
mod battery;
mod harness;

use std::net::SocketAddr;

use battery::world::World;
use battery::{Engine, backends, in_time};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Two descriptors each, here as in Envoy, of the 20,000 that a process may have.
const IDLE: usize = 9_000;

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
}
