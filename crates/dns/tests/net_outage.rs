//! When upstreams are gone, far, encrypted, or only ask us in turn.

#![allow(clippy::expect_used, reason = "helpers of tests fail by panicking")]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;
use oooi_dns::Options;
use support::upstream::{Act, Rule, Upstream, address, serve_stream};
use support::{Client, NODE, data, start, start_with, until};

const A_TYPE: RecordType = RecordType::A;

#[tokio::test(flavor = "multi_thread")]
async fn an_old_answer_is_served_while_upstreams_are_gone() {
    let alive = Arc::new(AtomicBool::new(true));
    let says = Arc::clone(&alive);
    let upstream = Upstream::start(move |question, _| match says.load(Ordering::SeqCst) {
        true => Act::Reply(vec![address(question, 1, 1)]),
        false => Act::Nothing,
    })
    .await;
    let text = upstream.text();
    let server = start(|spec| spec.upstream_dns = vec![text]).await;
    assert_eq!(
        data(&server.node("www.example.org.", A_TYPE).await),
        ["192.0.2.1"]
    );
    alive.store(false, Ordering::SeqCst);
    let mut stale = server.node("www.example.org.", A_TYPE).await;
    let begun = Instant::now();
    while stale.answers[0].ttl != 30 {
        assert!(begun.elapsed() < Duration::from_secs(5), "no old answer came");
        stale = server.node("www.example.org.", A_TYPE).await;
    }
    assert_eq!(data(&stale), ["192.0.2.1"]);
    until("the first task has given up", || {
        server.metric("oooi_dns_in_flight") == 0.0
    })
    .await;
    let begun = Instant::now();
    server.node("www.example.org.", A_TYPE).await;
    assert!(
        begun.elapsed() < Duration::from_millis(500),
        "it rests: nobody is asked for half a minute"
    );
    let never = server.node("never.example.org.", A_TYPE).await;
    assert_eq!(never.metadata.response_code, ResponseCode::ServFail);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_answer_is_fetched_anew_before_it_ends() {
    let upstream = Upstream::start(|question, _| Act::Reply(vec![address(question, 10, 1)])).await;
    let text = upstream.text();
    let server = start(|spec| spec.upstream_dns = vec![text]).await;
    let begun = Instant::now();
    while upstream.asked() < 2 {
        let answer = server.node("hot.example.org.", A_TYPE).await;
        assert!(answer.answers[0].ttl > 0);
        assert!(
            begun.elapsed() < Duration::from_secs(14),
            "it was never fetched anew"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(server.metric("oooi_dns_prefetches_total"), 1.0);
    assert_eq!(
        server.metric("oooi_dns_cache_misses_total"),
        1.0,
        "no client ever waited again"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_asks_us_in_turn_is_found_and_left_out() {
    // Without an internal service pods' questions are only forwarded: to ourselves, here.
    let server = start(|spec| spec.network_config.internal_proxy_ip = None).await;
    let own = server.pods.to_string();
    server.reconfigure(|spec| {
        spec.network_config.internal_proxy_ip = None;
        spec.upstream_dns = vec![own];
    });
    until("the loop is found", || {
        server.metric("oooi_dns_upstream_up") == 0.0 && has_loop(&server, ".")
    })
    .await;
    let begun = Instant::now();
    let answer = server.pod("www.example.org.", A_TYPE).await;
    assert_eq!(answer.metadata.response_code, ResponseCode::Refused);
    assert!(begun.elapsed() < Duration::from_secs(1));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resolver_that_sends_only_our_own_domain_back_still_answers_the_rest() {
    // As in a cluster whose DNS forwards the hosted cluster's domain to us, and to which we forward.
    let server = start(|spec| spec.network_config.internal_proxy_ip = None).await;
    let back = format!(
        "forward-zone:\n  name: \"hub.example.com.\"\n  forward-addr: {}@{}",
        server.pods.ip(),
        server.pods.port()
    );
    let local = "  local-zone: \"example.org.\" static\n  local-data: \"www.example.org. 60 A 192.0.2.1\"\n  \
                 local-zone: \".\" static\n  local-zone: \"hub.example.com.\" transparent";
    let at = std::net::SocketAddr::new(support::own_address(54), 5300);
    let resolver = tokio::task::spawn_blocking(move || support::process::unbound(at, local, &back));
    let resolver = resolver.await.expect("unbound starts");
    let upstream = resolver.address.to_string();
    server.reconfigure(|spec| {
        spec.network_config.internal_proxy_ip = None;
        spec.upstream_dns = vec![upstream];
    });
    until("the loop is found", || has_loop(&server, "hub.example.com")).await;
    let begun = Instant::now();
    let own = server.pod("api.hub.example.com.", A_TYPE).await;
    assert_eq!(own.metadata.response_code, ResponseCode::Refused);
    assert!(begun.elapsed() < Duration::from_secs(1), "a loop costs no time");
    assert_eq!(data(&server.pod("www.example.org.", A_TYPE).await), ["192.0.2.1"]);
    assert_eq!(
        data(&server.node("api.hub.example.com.", A_TYPE).await),
        ["127.0.1.4"],
        "nodes see their own names"
    );
    server.stop().await;
}

/// Whether its one upstream is known to send questions for a zone back. Zones are looked at one by one.
fn has_loop(server: &support::Running, zone: &str) -> bool {
    let zone = format!("questions for {zone} back");
    server
        .report
        .latest()
        .is_some_and(|state| state.counts.get("upstreams") == Some(&1))
        && server
            .report
            .events()
            .iter()
            .any(|event| event.reason == "ForwardingLoop" && event.message.contains(&zone))
}

#[tokio::test(flavor = "multi_thread")]
async fn system_means_the_resolvers_of_the_host_and_follows_them() {
    let upstream = Upstream::start_at(
        std::net::SocketAddr::new(support::own_address(53), 53),
        |question, _| Act::Reply(vec![address(question, 0, 1)]),
    )
    .await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("resolv.conf");
    std::fs::write(&path, "search example\n").expect("a file");
    let options = Options {
        resolv_conf: path.clone(),
        ..Options::default()
    };
    let server = start_with(options, |spec| spec.upstream_dns = vec!["system".into()]).await;
    let none = server.node("www.example.org.", A_TYPE).await;
    assert_eq!(
        none.metadata.response_code,
        ResponseCode::Refused,
        "the host has no resolver"
    );
    std::fs::write(&path, format!("nameserver {}\n", upstream.address.ip())).expect("a file");
    let begun = Instant::now();
    while data(&server.node("www.example.org.", A_TYPE).await) != ["192.0.2.1"] {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "the new resolver is not used"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.stop().await;
}

/// An upstream over TLS that calls itself `dns.corp.example`, with a rule for each connection, and the options of a
/// server that trusts it.
async fn tls_upstream(
    rule_of: impl Fn(usize) -> Arc<Rule> + Send + 'static,
) -> (std::net::SocketAddr, Options, tokio::task::JoinHandle<()>) {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["dns.corp.example".into()]).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).expect("a key");
    let config = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            builder
                .with_no_client_auth()
                .with_single_cert(vec![cert.der().clone()], key)
        })
        .expect("a TLS server");
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.3.53:0")
        .await
        .expect("a listener");
    let at = listener.local_addr().expect("its address");
    let serve = tokio::spawn(async move {
        for number in 0.. {
            let (stream, _) = listener.accept().await.expect("a connection");
            if let Ok(stream) = acceptor.accept(stream).await {
                tokio::spawn(serve_stream(stream, rule_of(number)));
            }
        }
    });
    let mut roots = rustls::RootCertStore::empty();
    roots.add(cert.der().clone()).expect("an authority");
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let options = Options {
        tls: Some(Arc::new(client)),
        ..Options::default()
    };
    (at, options, serve)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_answers_nothing_any_more_is_replaced() {
    // The connection that carried the first question falls silent after its answer, as if a firewall had
    // forgotten it; every other one answers.
    let silent = Arc::new(OnceLock::new());
    let (at, options, serve) = tls_upstream(move |number| {
        let (silent, answered) = (Arc::clone(&silent), AtomicBool::new(false));
        Arc::new(move |question: &Message, _| {
            let falls_silent = *silent.get_or_init(|| number) == number;
            match falls_silent && answered.swap(true, Ordering::SeqCst) {
                true => Act::Nothing,
                false => Act::Reply(vec![address(question, 0, 1)]),
            }
        })
    })
    .await;
    let server = start_with(options, |spec| {
        spec.upstream_dns = vec![format!("tls://{at}#dns.corp.example")];
    })
    .await;
    let client = Client::at(NODE).await;
    let first = client.ask(server.vlan, "first.example.org.", A_TYPE).await;
    assert_eq!(data(&first), ["192.0.2.1"]);
    let begun = Instant::now();
    let mut number = 0;
    loop {
        number += 1;
        let answer = client
            .ask(server.vlan, &format!("n{number}.example.org."), A_TYPE)
            .await;
        if data(&answer) == ["192.0.2.1"] {
            break;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(15),
            "the silent connection is asked on and on"
        );
    }
    assert!(number > 1, "the connection did not fall silent");
    serve.abort();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tls_upstream_is_asked_and_one_with_another_name_is_not_trusted() {
    let (at, options, serve) =
        tls_upstream(|_| Arc::new(|question: &Message, _| Act::Reply(vec![address(question, 0, 1)]))).await;
    let server = start_with(options, |spec| {
        spec.upstream_dns = vec![format!("tls://{at}#dns.corp.example")];
    })
    .await;
    assert_eq!(
        data(&server.node("www.example.org.", A_TYPE).await),
        ["192.0.2.1"]
    );
    assert_eq!(
        data(&server.node("ftp.example.org.", A_TYPE).await),
        ["192.0.2.1"]
    );
    server.reconfigure(|spec| spec.upstream_dns = vec![format!("tls://{at}#other.example")]);
    let begun = Instant::now();
    let mut number = 0;
    loop {
        number += 1;
        let answer = server.node(&format!("x{number}.example.org."), A_TYPE).await;
        if answer.metadata.response_code == ResponseCode::ServFail {
            break;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "a certificate for another name is trusted"
        );
    }
    serve.abort();
    server.stop().await;
}
