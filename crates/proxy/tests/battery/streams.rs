//! What happens to the bytes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::backends::{self, Identity, pattern};
use super::clients::Conversation;
use super::world::World;
use super::{Engine, in_time};

async fn plain(engine: &impl Engine, backend: &backends::Backend) -> SocketAddr {
    let mut world = World::default();
    world.publish("plain", "*", 8080, &[backend.address]);
    engine.apply(world.snapshot()).await;
    SocketAddr::new(engine.ip(), 8080)
}

pub async fn a_half_close_is_passed_on_in_both_directions(engine: &impl Engine) {
    let counter = backends::counter().await;
    let at = plain(engine, &counter).await;
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.write_all(&[7; 100_000]).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    in_time(
        "an answer after the client's end",
        stream.read_to_string(&mut answer),
    )
    .await
    .unwrap();
    assert_eq!(answer, "100000");

    let source = backends::source(100_000).await;
    let at = plain(engine, &source).await;
    let mut stream = TcpStream::connect(at).await.unwrap();
    let mut heard = Vec::new();
    in_time("the backend's end", stream.read_to_end(&mut heard))
        .await
        .unwrap();
    assert_eq!(heard.len(), 100_000);
    stream
        .write_all(b"the other direction is still open")
        .await
        .unwrap();
}

pub async fn bulk_arrives_whole_in_both_directions(engine: &impl Engine) {
    let echo = backends::echo().await;
    let at = plain(engine, &echo).await;
    let bytes = pattern(32 << 20);
    let stream = TcpStream::connect(at).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let sent = bytes.clone();
    let sender = tokio::spawn(async move {
        for piece in sent.chunks(300_001) {
            writer.write_all(piece).await.unwrap();
        }
        writer.shutdown().await.unwrap();
    });
    let mut heard = Vec::with_capacity(bytes.len());
    in_time("32 MiB there and back", reader.read_to_end(&mut heard))
        .await
        .unwrap();
    sender.await.unwrap();
    assert!(
        heard == bytes,
        "{} of {} bytes, or another order",
        heard.len(),
        bytes.len()
    );
}

pub async fn a_slow_reader_holds_its_sender_back(engine: &impl Engine) {
    let echo = backends::echo().await;
    let at = plain(engine, &echo).await;
    let stream = TcpStream::connect(at).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    // Nobody reads: what is sent piles up in a bounded number of buffers, and then sending stops.
    let mut sent = 0;
    let piece = pattern(1 << 16);
    while let Ok(written) = tokio::time::timeout(Duration::from_millis(500), writer.write(&piece)).await {
        sent += written.unwrap();
        assert!(sent < 256 << 20, "nothing holds the sender back");
    }
    let mut heard = 0;
    let mut buffer = vec![0; 1 << 16];
    while heard < sent {
        heard += in_time("what was held", reader.read(&mut buffer)).await.unwrap();
    }
    writer.write_all(b"on").await.unwrap();
    let mut two = [0; 2];
    in_time("an echo after the pause", reader.read_exact(&mut two))
        .await
        .unwrap();
    assert_eq!(&two, b"on");
}

pub async fn a_silent_connection_ends_and_a_used_one_stays(engine: &impl Engine) {
    let echo = backends::echo().await;
    let mut world = World {
        idle_timeout: Some("2s"),
        ..World::default()
    };
    world.publish("plain", "*", 8080, &[echo.address]);
    engine.apply(world.snapshot()).await;
    let at = SocketAddr::new(engine.ip(), 8080);
    let mut used = TcpStream::connect(at).await.unwrap();
    let mut silent = TcpStream::connect(at).await.unwrap();
    for stream in [&mut used, &mut silent] {
        stream.write_all(b"a").await.unwrap();
        in_time("an echo", stream.read_u8()).await.unwrap();
    }
    let start = Instant::now();
    let mut tick = tokio::time::interval(Duration::from_millis(500));
    let mut byte = [0; 1];
    let ended = loop {
        tokio::select! {
            _ = tick.tick() => {
                used.write_all(b"b").await.unwrap();
                in_time("an echo", used.read_u8()).await.unwrap();
            }
            read = silent.read(&mut byte) => {
                assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
                break start.elapsed();
            }
        }
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "the silent connection goes on"
        );
    };
    assert!(ended > Duration::from_millis(1900), "ended after {ended:?}");
    used.write_all(b"c").await.unwrap();
    assert_eq!(in_time("an echo", used.read_u8()).await.unwrap(), b'c');
}

pub async fn a_backend_that_dies_ends_its_connections(engine: &impl Engine) {
    let echo = backends::echo().await;
    let at = plain(engine, &echo).await;
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.write_all(b"a").await.unwrap();
    in_time("an echo", stream.read_u8()).await.unwrap();
    drop(echo);
    let mut byte = [0; 1];
    let read = in_time("the end", stream.read(&mut byte)).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

pub async fn a_backend_that_dies_in_the_middle_of_bulk_leaves_a_stream_that_is_short_and_ends(
    engine: &impl Engine,
) {
    let echo = backends::echo().await;
    let at = plain(engine, &echo).await;
    let (mut reader, mut writer) = TcpStream::connect(at).await.unwrap().into_split();
    let sent = tokio::spawn(async move {
        let piece = pattern(1 << 20);
        let mut sent = 0;
        // Until the gateway breaks off: more than all buffers on the way hold.
        while let Ok(count) = writer.write(&piece).await {
            sent += count;
        }
        sent
    });
    let mut buffer = vec![0; 1 << 16];
    let mut heard = 0;
    while heard < 4 << 20 {
        heard += in_time("bulk", reader.read(&mut buffer)).await.unwrap();
    }
    drop(echo);
    while let Ok(count @ 1..) = in_time("the end", reader.read(&mut buffer)).await {
        heard += count;
    }
    drop(reader);
    let sent = in_time("the sender to notice", sent).await.unwrap();
    assert!(heard < sent, "{heard} of {sent} bytes came back");
}

pub async fn many_streams_keep_to_themselves(engine: &impl Engine) {
    let identity = Identity::new(&["a.demo.test", "b.demo.test"]);
    let a = backends::tls("a", &identity).await;
    let b = backends::tls("b", &identity).await;
    let mut world = World::default();
    world
        .publish("a", "a.demo.test", 8443, &[a.address])
        .publish("b", "b.demo.test", 8443, &[b.address]);
    engine.apply(world.snapshot()).await;
    let at = SocketAddr::new(engine.ip(), 8443);
    let mut open = Vec::new();
    for index in 0..100 {
        let backend = ["a", "b"][index % 2];
        let name = format!("{backend}.demo.test");
        open.push((backend, Conversation::start(&identity, at, &name).await.unwrap()));
    }
    for round in 0..3 {
        for (index, (backend, conversation)) in open.iter_mut().enumerate() {
            assert_eq!(conversation.backend, *backend);
            conversation.say(&format!("{round} {index}")).await.unwrap();
        }
    }
}
