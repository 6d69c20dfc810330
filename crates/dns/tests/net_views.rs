//! Two views at once, on loopback, asked by an own client and by dig and kdig.

mod support;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use oooi_dns::{Names, Options};
use support::process::{dig, kdig};
use support::{NODE, POD, STRANGER, ask, data, exchange, question, start, start_with, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_a_pod_and_a_stranger_see_different_things() {
    let server = start(|_| {}).await;
    assert_eq!(
        data(&server.node("api.hub.example.com.", RecordType::A).await),
        ["127.0.1.4"]
    );
    assert_eq!(
        data(&server.node("console.apps.hub.example.com.", RecordType::A).await),
        ["127.0.1.4"]
    );
    assert_eq!(
        data(&server.pod("api.hub.example.com.", RecordType::A).await),
        ["172.30.0.9"]
    );
    assert_eq!(
        data(&server.pod("nas.hub.example.com.", RecordType::A).await),
        ["127.0.1.9"]
    );
    let stranger = ask(
        STRANGER,
        server.vlan,
        &question("api.hub.example.com.", RecordType::A),
    )
    .await;
    assert_eq!(stranger.metadata.response_code, ResponseCode::Refused);
    let external = server.node("www.example.org.", RecordType::A).await;
    assert_eq!(
        external.metadata.response_code,
        ResponseCode::Refused,
        "an air-gapped site forwards nothing"
    );
    assert!(
        server
            .report
            .events()
            .iter()
            .any(|event| event.reason == "NoUpstream")
    );
    assert!(server.metric("oooi_dns_queries_total") >= 6.0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dig_and_kdig_read_the_answers_by_udp_and_tcp() {
    let server = start(|_| {}).await;
    let (vlan, pods) = (server.vlan, server.pods);
    let checks = move || {
        for transport in ["+notcp", "+tcp"] {
            let node = dig(
                NODE.into(),
                vlan,
                &[transport, "+short", "api.hub.example.com", "A"],
            );
            assert_eq!(node.trim(), "127.0.1.4");
            let pod = kdig(
                POD.into(),
                pods,
                &[transport, "+short", "x.apps.hub.example.com", "A"],
            );
            assert_eq!(pod.trim(), "172.30.0.9");
        }
        let reverse = dig(NODE.into(), vlan, &["+short", "-x", "127.0.1.9"]);
        assert_eq!(reverse.trim(), "nas.hub.example.com.");
        let missing = dig(NODE.into(), vlan, &["nothing.hub.example.com", "A"]);
        assert!(
            missing.contains("status: NXDOMAIN") && missing.contains("flags: qr aa rd;"),
            "{missing}"
        );
        assert!(
            missing.contains("SOA") && !missing.contains("WARNING: Message parser"),
            "{missing}"
        );
        let refused = dig(STRANGER.into(), vlan, &["api.hub.example.com", "A"]);
        assert!(
            refused.contains("status: REFUSED") && refused.contains("EDE: 18"),
            "{refused}"
        );
        let spelt = dig(NODE.into(), vlan, &["aPi.HuB.example.com", "A"]);
        assert!(spelt.contains("aPi.HuB.example.com."), "{spelt}");
        let version = dig(
            NODE.into(),
            vlan,
            &["+edns=7", "+noednsneg", "api.hub.example.com", "A"],
        );
        assert!(version.contains("BADVERS"), "{version}");
    };
    tokio::task::spawn_blocking(checks)
        .await
        .expect("the checks pass");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_and_new_configurations_are_served_within_a_second() {
    let server = start(|_| {}).await;
    let missing = server.node("worker-1.hub.example.com.", RecordType::A).await;
    assert_eq!(missing.metadata.response_code, ResponseCode::NXDomain);
    let mut names = Names::default();
    names.add("worker-1", IpAddr::from([127, 0, 1, 33]));
    let begun = std::time::Instant::now();
    server.names.send_replace(Arc::new(names));
    while data(&server.node("worker-1.hub.example.com.", RecordType::A).await) != ["127.0.1.33"] {
        assert!(
            begun.elapsed().as_secs() < 1,
            "a new name took more than a second"
        );
    }
    let begun = std::time::Instant::now();
    server.reconfigure(|spec| spec.static_entries[0].ip = "127.0.1.77".into());
    while data(&server.node("api.hub.example.com.", RecordType::A).await) != ["127.0.1.77"] {
        assert!(
            begun.elapsed().as_secs() < 1,
            "a new address took more than a second"
        );
    }
    let pointer = server.node("33.1.0.127.in-addr.arpa.", RecordType::PTR).await;
    assert_eq!(data(&pointer), ["worker-1.hub.example.com."]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_name_is_resolved_and_its_names_fail_until_then() {
    let server = start(|spec| spec.network_config.internal_proxy_ip = Some("localhost".into())).await;
    let mut answer = server.pod("api.hub.example.com.", RecordType::A).await;
    let begun = std::time::Instant::now();
    while answer.metadata.response_code == ResponseCode::ServFail && begun.elapsed().as_secs() < 5 {
        answer = server.pod("api.hub.example.com.", RecordType::A).await;
    }
    assert_eq!(data(&answer), ["127.0.0.1"]);
    server.reconfigure(|spec| spec.network_config.internal_proxy_ip = Some("no-such-host.invalid".into()));
    let mut codes = Vec::new();
    while codes.last() != Some(&ResponseCode::ServFail) && codes.len() < 1000 {
        codes.push(
            server
                .pod("api.hub.example.com.", RecordType::A)
                .await
                .metadata
                .response_code,
        );
    }
    assert_eq!(
        codes.last(),
        Some(&ResponseCode::ServFail),
        "an unknown service's names fail"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_messages_are_counted_and_answered_by_the_rfc() {
    let server = start(|_| {}).await;
    let send = |wire: &'static [u8]| {
        support::exchange(NODE, server.vlan, wire, std::time::Duration::from_millis(500))
    };
    assert_eq!(send(b"\x00\x01\x01").await, None, "no header, no answer");
    assert_eq!(
        send(b"\x00\x01\x81\x00\x00\x01\x00\x00\x00\x00\x00\x00").await,
        None,
        "an answer gets no answer"
    );
    let cut = send(b"\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03ap")
        .await
        .expect("an answer");
    assert_eq!(
        cut, b"\x00\x07\x81\x01\x00\x00\x00\x00\x00\x00\x00\x00",
        "FORMERR"
    );
    let looped = b"\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01";
    assert_eq!(
        send(looped).await.expect("an answer")[3] & 15,
        1,
        "a pointer to itself"
    );
    let update = b"\x00\x07\x28\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x06\x00\x01";
    assert_eq!(
        send(update).await.expect("an answer")[3] & 15,
        4,
        "UPDATE is not implemented"
    );
    until("all are counted", || {
        server.metric("oooi_dns_malformed_total") == 3.0
    })
    .await;
    assert_eq!(server.metric("oooi_dns_silent_total"), 2.0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_too_long_for_udp_is_cut_and_dig_fetches_it_by_tcp() {
    let server = start(|spec| {
        spec.static_entries[0].additional_ips = (10..110).map(|last| format!("127.0.1.{last}")).collect();
    })
    .await;
    let vlan = server.vlan;
    let checks = move || {
        let cut = dig(NODE.into(), vlan, &["+ignore", "api.hub.example.com", "A"]);
        assert!(
            cut.contains("flags: qr aa tc rd;") && cut.contains("ANSWER: 0"),
            "{cut}"
        );
        let whole = dig(NODE.into(), vlan, &["+short", "api.hub.example.com", "A"]);
        assert_eq!(whole.lines().filter(|line| line.starts_with("127.")).count(), 101);
    };
    tokio::task::spawn_blocking(checks)
        .await
        .expect("the checks pass");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_over_its_rate_is_sent_to_tcp_or_nowhere_and_others_are_served() {
    let rate_limit = Some(oooi_dns::server::RateLimit { rate: 1, burst: 5 });
    let server = start_with(
        Options {
            rate_limit,
            ..Options::default()
        },
        |_| {},
    )
    .await;
    let (mut answered, mut cut, mut silent) = (0, 0, 0);
    for _ in 0..30 {
        let wire = question("api.hub.example.com.", RecordType::A)
            .to_vec()
            .expect("a question can be written");
        match exchange(NODE, server.vlan, &wire, Duration::from_millis(50)).await {
            Some(answer) if answer[2] & 2 != 0 => cut += 1,
            Some(_) => answered += 1,
            None => silent += 1,
        }
    }
    // Each of the two cores counts for itself, and a slow run may earn some more.
    assert!((5..=16).contains(&answered), "{answered} of 30 were answered");
    assert!(cut > 3 && silent > 3, "{cut} were cut and {silent} dropped");
    let asked = question("api.hub.example.com.", RecordType::A);
    let other = ask(Ipv4Addr::new(127, 0, 1, 21), server.vlan, &asked).await;
    assert_eq!(data(&other), ["127.0.1.4"]);
    assert!(server.metric("oooi_dns_rate_limited_total") >= f64::from(cut + silent));
    server.stop().await;
}
