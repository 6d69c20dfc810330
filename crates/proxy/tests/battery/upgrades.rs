//! Connections that live long: upgrades as `kubectl exec` and consoles make them, and watches that are silent.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::backends::{self, Identity};
use super::clients::dial;
use super::world::World;
use super::{Engine, in_time};

/// Longer than the gateway takes for a hello (10 s) or an attempt to connect (5 s): a limit of these that outlives its
/// purpose would end the connection. `OOOI_QUIET_SECONDS` waits for as long as the peers' own limits are, such as 600
/// for nginx or 3600 for Envoy.
fn quiet() -> Duration {
    let given = std::env::var("OOOI_QUIET_SECONDS").ok();
    Duration::from_secs(given.map_or(12, |seconds| seconds.parse().unwrap()))
}

type Http = BufReader<TlsStream<TcpStream>>;

/// Sends a request and reads the head of its answer.
async fn request(identity: &Identity, at: SocketAddr, head: &str) -> (Http, Vec<String>) {
    let mut stream = BufReader::new(dial(identity, at, "api.demo.test").await.unwrap());
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        in_time("the head of the answer", stream.read_line(&mut line))
            .await
            .unwrap();
        match line.trim_end() {
            "" => return (stream, lines),
            line => lines.push(line.to_owned()),
        }
    }
}

async fn echoes(stream: &mut Http, bytes: &[u8]) {
    stream.write_all(bytes).await.unwrap();
    let mut echo = vec![0; bytes.len()];
    in_time("an echo", stream.read_exact(&mut echo)).await.unwrap();
    assert_eq!(echo, bytes);
}

pub async fn upgraded_connections_and_watches_outlive_a_long_silence(engine: &impl Engine) {
    let quiet = quiet();
    let identity = Identity::new(&["api.demo.test"]);
    let api = backends::http(&identity, quiet).await;
    let mut world = World::default();
    world.publish("api", "api.demo.test", 8443, &[api.address]);
    engine.apply(world.snapshot()).await;
    let at = SocketAddr::new(engine.ip(), 8443);

    let mut upgraded = Vec::new();
    for protocol in ["websocket", "SPDY/3.1"] {
        let head = format!(
            "GET /api/v1/namespaces/demo/pods/web/exec HTTP/1.1\r\nHost: api.demo.test\r\n\
             Connection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n"
        );
        let (mut stream, answer) = request(&identity, at, &head).await;
        assert!(answer[0].starts_with("HTTP/1.1 101"), "{answer:?}");
        assert!(answer.contains(&format!("Upgrade: {protocol}")), "{answer:?}");
        echoes(&mut stream, b"\x81\x85\x01\x02\x03\x04ifmhn").await;
        upgraded.push(stream);
    }
    let head = "GET /api/v1/pods?watch=true HTTP/1.1\r\nHost: api.demo.test\r\n\r\n";
    let (mut watch, answer) = request(&identity, at, head).await;
    assert!(answer[0].starts_with("HTTP/1.1 200"), "{answer:?}");
    let began = Instant::now();
    let mut event = String::new();
    watch.read_line(&mut event).await.unwrap();
    assert_eq!(event, "ADDED\n");
    event.clear();
    tokio::time::timeout(quiet * 2, watch.read_line(&mut event))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(event, "MODIFIED\n");
    assert!(
        began.elapsed() > quiet * 9 / 10,
        "it was silent for {:?}",
        began.elapsed()
    );
    for stream in &mut upgraded {
        echoes(stream, b"after a long silence").await;
        echoes(stream, &backends::pattern(60_000)).await;
    }
}
