//! Which connection goes where.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use super::backends::{self, Identity};
use super::clients::{curl, curl_address, is_refused, is_reset, openssl, program, who};
use super::world::World;
use super::{Engine, in_time};

const HELLO: &[u8] = include_bytes!("../hellos/openssl-tls13.bin"); // asks for api.demo.example.com
const NAMELESS: &[u8] = include_bytes!("../hellos/openssl-no-sni.bin");

pub async fn names_lead_to_their_backends(engine: &impl Engine) {
    let names = [
        "api.demo.test",
        "kubernetes.default.svc",
        "a.apps.demo.test",
        "b.c.apps.demo.test",
        "x.demo.test",
    ];
    let identity = Identity::new(&names);
    let api = backends::tls("api", &identity).await;
    let apps = backends::tls("apps", &identity).await;
    let rest = backends::tls("rest", &identity).await;
    let mut world = World::default();
    let alternates = json!({"alternateHostnames": ["kubernetes.default.svc"]});
    world
        .publish_with("api", "API.demo.test", 8443, &[api.address], alternates)
        .publish("apps", "*.apps.demo.test", 8443, &[apps.address])
        .publish("rest", "*.demo.test", 8443, &[rest.address]);
    engine.apply(world.snapshot()).await;
    let at = SocketAddr::new(engine.ip(), 8443);
    for (name, backend) in names.into_iter().zip(["api", "api", "apps", "apps", "rest"]) {
        assert_eq!(who(&identity, at, name).await.unwrap(), backend, "{name}");
    }
    assert!(
        who(&identity, at, "demo.test").await.is_err(),
        "a wildcard does not hold its own suffix"
    );
}

pub async fn curl_and_openssl_and_go_get_through(engine: &impl Engine) {
    let identity = Identity::new(&["api.demo.test", "oauth.demo.test"]);
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.pem");
    std::fs::write(&ca, &identity.pem).unwrap();
    let ca = ca.to_str().unwrap();
    let api = backends::tls("the-api", &identity).await;
    let oauth = backends::tls("the-oauth", &identity).await;
    let mut world = World::default();
    world
        .publish("kube-apiserver", "api.demo.test", 8443, &[api.address])
        .publish("oauth", "oauth.demo.test", 8443, &[oauth.address]);
    engine.apply(world.snapshot()).await;
    let at = SocketAddr::new(engine.ip(), 8443);

    assert_eq!(curl(ca, at, "api.demo.test").await, (true, "the-api".to_owned()));
    assert_eq!(
        curl(ca, at, "oauth.demo.test").await,
        (true, "the-oauth".to_owned())
    );
    assert!(!curl(ca, at, "other.demo.test").await.0);
    assert_eq!(
        curl_address(ca, at.ip(), 8443).await,
        (true, "the-api".to_owned()),
        "an address has no name"
    );
    for version in ["-tls1_2", "-tls1_3"] {
        let (_, said) = openssl(at, &[version, "-CAfile", ca, "-servername", "oauth.demo.test"]).await;
        assert!(
            said.contains("the-oauth") && said.contains("echo this"),
            "{version}: {said}"
        );
        let (_, said) = openssl(at, &[version, "-noservername"]).await;
        assert!(said.contains("the-api"), "{version}: {said}");
        let (done, said) = openssl(at, &[version, "-servername", "other.demo.test"]).await;
        assert!(!done && !said.contains("the-"), "{version}: {said}");
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../proxy/tests/battery/client.go");
    let client = directory.path().join("client");
    // With an empty cache Go's library is built too, which takes longer than any answer may.
    let built = tokio::process::Command::new("go")
        .args(["build", "-o"])
        .args([client.as_os_str(), source.as_ref()])
        .status();
    assert!(built.await.unwrap().success(), "the Go client cannot be built");
    let client = client.to_str().unwrap();
    for (name, backend) in [("oauth.demo.test", "the-oauth"), ("", "the-api")] {
        let (done, said) = program(&[client, &at.to_string(), name, ca], "").await;
        assert!(done && said.trim() == backend, "Go, {name:?}: {said}");
    }
}

pub async fn without_a_name_kube_apiserver_answers(engine: &impl Engine) {
    let echo = backends::echo().await;
    let mut world = World::default();
    world
        .publish("oauth", "oauth.demo.test", 8443, &[echo.address])
        .publish("ignition", "ignition.demo.test", 8443, &[echo.address])
        .publish("only", "only.demo.test", 8444, &[echo.address]);
    engine.apply(world.snapshot()).await;
    let (shared, alone) = (
        SocketAddr::new(engine.ip(), 8443),
        SocketAddr::new(engine.ip(), 8444),
    );
    assert!(is_refused(shared, NAMELESS).await);
    assert!(
        !is_refused_or_echoed(alone, NAMELESS).await,
        "the port's only backend answers"
    );
    world.publish("kube-apiserver", "api.demo.test", 8443, &[echo.address]);
    engine.apply(world.snapshot()).await;
    assert!(!is_refused_or_echoed(shared, NAMELESS).await);
}

/// Whether the bytes do not come back from an echoing backend.
async fn is_refused_or_echoed(address: SocketAddr, bytes: &[u8]) -> bool {
    echoed(address, &[bytes]).await.is_none_or(|echo| echo != bytes)
}

/// Sends the pieces one by one and reads as much back.
async fn echoed(address: SocketAddr, pieces: &[&[u8]]) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    for piece in pieces {
        stream.write_all(piece).await.ok()?;
        tokio::task::yield_now().await;
    }
    let mut echo = vec![0; pieces.iter().map(|piece| piece.len()).sum()];
    in_time("an echo", stream.read_exact(&mut echo)).await.ok()?;
    Some(echo)
}

pub async fn what_no_route_names_is_reset(engine: &impl Engine) {
    let echo = backends::echo().await;
    let mut world = World::default();
    world
        .publish("one", "one.demo.test", 8443, &[echo.address])
        .publish("two", "two.demo.test", 8443, &[echo.address]);
    // A port with an answer for hellos without a name has none for what is no hello at all.
    world.publish("kube-apiserver", "three.demo.test", 8443, &[echo.address]);
    engine.apply(world.snapshot()).await;
    let at = SocketAddr::new(engine.ip(), 8443);
    for (what, bytes) in [
        ("a name that no backend has", HELLO),
        ("HTTP", &b"GET / HTTP/1.1\r\nHost: one.demo.test\r\n\r\n"[..]),
        ("SSLv2", &[0x80, 0x2e, 1, 0, 2, 0, 0x15, 0, 0, 0, 0x10]),
        ("SSH", b"SSH-2.0-OpenSSH_9.2\r\n"),
    ] {
        assert!(is_reset(at, bytes).await, "{what}");
    }
}

pub async fn a_hello_is_read_however_it_is_split(engine: &impl Engine) {
    let echo = backends::echo().await;
    let mut world = World::default();
    world
        .publish("api", "api.demo.example.com", 8443, &[echo.address])
        .publish(
            "other",
            "other.demo.test",
            8443,
            &["127.0.0.1:1".parse().unwrap()],
        );
    engine.apply(world.snapshot()).await;
    let at = SocketAddr::new(engine.ip(), 8443);
    for cut in 1..HELLO.len() {
        let echo = echoed(at, &[&HELLO[..cut], &HELLO[cut..]]).await;
        assert_eq!(echo.as_deref(), Some(HELLO), "cut at {cut}");
    }
    let single: Vec<&[u8]> = HELLO.chunks(1).collect();
    assert_eq!(echoed(at, &single).await.as_deref(), Some(HELLO), "byte by byte");
    let large = include_bytes!("../hellos/go.bin");
    let halves: Vec<&[u8]> = large.chunks(1400).collect();
    assert_eq!(
        echoed(at, &halves).await.as_deref(),
        Some(&large[..]),
        "post-quantum, over two segments"
    );
    let mut two_records = HELLO[..5].to_vec();
    two_records[3..5].copy_from_slice(&100u16.to_be_bytes());
    two_records.extend_from_slice(&HELLO[5..105]);
    two_records.extend_from_slice(&[0x16, 3, 1]);
    two_records.extend_from_slice(&u16::try_from(HELLO.len() - 105).unwrap().to_be_bytes());
    two_records.extend_from_slice(&HELLO[105..]);
    assert_eq!(
        echoed(at, &[&two_records]).await,
        Some(two_records.clone()),
        "over two records"
    );
}

/// A hello of about 3 KB: key shares of two post-quantum groups, as clients send that do not want a second round.
fn post_quantum_hello(name: &str) -> Vec<u8> {
    fn sized(bytes: &[u8]) -> Vec<u8> {
        [&u16::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
    }
    fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &sized(data)].concat()
    }
    let share = |group: u16, length: usize| [&group.to_be_bytes()[..], &sized(&vec![0x5a; length])].concat();
    // X25519MLKEM768 and SecP384R1MLKEM1024.
    let shares = [share(0x11ec, 1216), share(0x11ed, 1665)].concat();
    let server_name = [&[0], &sized(name.as_bytes())[..]].concat();
    // The name comes last, so that nothing can be said before all of it is there.
    let extensions = [
        extension(0x002b, &[2, 3, 4]),
        extension(0x0033, &sized(&shares)),
        extension(0x0000, &sized(&server_name)),
    ]
    .concat();
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0],
        &sized(&[0x13, 1]),
        &[1, 0],
        &sized(&extensions),
    ]
    .concat();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let handshake = [&[1], &length[1..], &body[..]].concat();
    [&[0x16, 3, 1][..], &sized(&handshake)].concat()
}

pub async fn a_hello_of_three_segments_is_read(engine: &impl Engine) {
    let echo = backends::echo().await;
    let mut world = World::default();
    world
        .publish("api", "api.demo.test", 8443, &[echo.address])
        .publish(
            "other",
            "other.demo.test",
            8443,
            &["127.0.0.1:1".parse().unwrap()],
        );
    engine.apply(world.snapshot()).await;
    let at = SocketAddr::new(engine.ip(), 8443);
    let hello = post_quantum_hello("api.demo.test");
    assert!(hello.len() > 2900, "{} octets", hello.len());
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let segments: Vec<&[u8]> = hello.chunks(1200).collect();
    assert_eq!(segments.len(), 3);
    for segment in segments {
        stream.write_all(segment).await.unwrap();
        // A pause, so that each arrives by itself and the gateway wakes up for a part of a hello.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut heard = vec![0; hello.len()];
    in_time("the echo", stream.read_exact(&mut heard)).await.unwrap();
    assert!(heard == hello);
    let other = post_quantum_hello("unknown.demo.test");
    assert!(is_refused(at, &other).await);
}

pub async fn plain_tcp_is_passed_on_unread(engine: &impl Engine) {
    let greeter = backends::greeter("220 ready\n").await;
    let mut world = World::default();
    world.publish("plain", "*", 8080, &[greeter.address]);
    engine.apply(world.snapshot()).await;
    let mut stream = TcpStream::connect(SocketAddr::new(engine.ip(), 8080))
        .await
        .unwrap();
    let mut heard = [0; 10];
    in_time("a greeting", stream.read_exact(&mut heard))
        .await
        .unwrap();
    assert_eq!(&heard, b"220 ready\n", "the backend speaks first");
    stream.write_all(b"whatever").await.unwrap();
    let mut heard = [0; 8];
    in_time("an echo", stream.read_exact(&mut heard)).await.unwrap();
    assert_eq!(&heard, b"whatever");
}

pub async fn a_backend_that_wants_it_learns_the_client(engine: &impl Engine) {
    let echo = backends::echo().await;
    let mut world = World::default();
    world.publish_with(
        "api",
        "api.demo.example.com",
        8443,
        &[echo.address],
        json!({"proxyProtocol": "V2"}),
    );
    engine.apply(world.snapshot()).await;
    let at = SocketAddr::new(engine.ip(), 8443);
    let mut stream = TcpStream::connect(at).await.unwrap();
    let client = stream.local_addr().unwrap();
    stream.write_all(HELLO).await.unwrap();
    let mut heard = vec![0; 28 + HELLO.len()];
    in_time("header and hello", stream.read_exact(&mut heard))
        .await
        .unwrap();
    assert_eq!(heard[..28], oooi_proxy::proxy_protocol::header(client, at));
    assert_eq!(&heard[28..], HELLO);
}

pub async fn datagrams_are_relayed_by_session(engine: &impl Engine) {
    let one = backends::udp("one").await;
    let two = backends::udp("two").await;
    let mut world = World::default();
    world.publish_with(
        "udp",
        "udp.demo.test",
        8053,
        &[one.address, two.address],
        json!({"protocol": "UDP"}),
    );
    engine.apply(world.snapshot()).await;
    let at = SocketAddr::new(engine.ip(), 8053);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..8 {
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.connect(at).await.unwrap();
        let mut answers = Vec::new();
        for word in ["first", "second", "third"] {
            client.send(word.as_bytes()).await.unwrap();
            let mut buffer = [0; 100];
            let count = in_time("a datagram", client.recv(&mut buffer)).await.unwrap();
            let answer = String::from_utf8_lossy(&buffer[..count]).into_owned();
            assert!(answer.ends_with(word), "{answer}");
            answers.push(answer.split(':').next().unwrap().to_owned());
        }
        assert!(
            answers.iter().all(|backend| *backend == answers[0]),
            "a session stays: {answers:?}"
        );
        seen.insert(answers[0].clone());
    }
    assert_eq!(seen.len(), 2, "sessions are spread");
}
