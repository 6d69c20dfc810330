//! Two views at once, on loopback, asked by an own client and by dig and kdig.

#![allow(clippy::expect_used, reason = "helpers of tests fail by panicking")]

mod support;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use oooi_dns::{Names, Options};
use support::process::{dig, kdig};
use support::{
    Client, NODE, POD, STRANGER, ask, data, exchange, question, start, start_with, try_ask, until,
};

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

/// Set where the test runs in a mount namespace, with the file of hosts that it may change.
const HOSTS: &str = "OOOI_TEST_HOSTS";

#[tokio::test(flavor = "multi_thread")]
async fn a_service_whose_address_changes_is_followed() {
    let Ok(hosts) = std::env::var(HOSTS) else {
        return in_a_mount_namespace("a_service_whose_address_changes_is_followed");
    };
    let server =
        start(|spec| spec.network_config.internal_proxy_ip = Some("proxy.clusters.svc".into())).await;
    for address in ["172.30.0.71", "172.30.0.72"] {
        std::fs::write(&hosts, format!("{address} proxy.clusters.svc\n")).expect("a file");
        let begun = std::time::Instant::now();
        while data(&server.pod("api.hub.example.com.", RecordType::A).await) != [address] {
            assert!(begun.elapsed().as_secs() < 30, "{address} is not served");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    server.stop().await;
}

/// Runs a test of this program again where `/etc/hosts` is a file of its own, so that nothing of the host changes.
fn in_a_mount_namespace(test: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let hosts = folder.path().join("hosts");
    std::fs::write(&hosts, "").expect("a file");
    let mut command = std::process::Command::new("unshare");
    command
        .args([
            "-m",
            "sh",
            "-c",
            "mount --bind \"$OOOI_TEST_HOSTS\" /etc/hosts && exec \"$@\"",
            "sh",
        ])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", test])
        .env(HOSTS, &hosts);
    let output = support::process::run("util-linux", &mut command);
    assert!(output.contains("1 passed"), "{output}");
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
    let (mut answered, mut cut, mut silent) = (0u64, 0, 0);
    let begun = std::time::Instant::now();
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
    // Each question comes by a socket of its own, so by any core; together they answer as often as one would.
    let most = 6 + begun.elapsed().as_secs();
    assert!((5..=most).contains(&answered), "{answered} of 30 were answered");
    assert!(cut > 3 && silent > 3, "{cut} were cut and {silent} dropped");
    let cut_short = b"\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03ap";
    let mut refused = 0;
    let begun = std::time::Instant::now();
    for _ in 0..10 {
        let answer = exchange(NODE, server.vlan, cut_short, Duration::from_millis(50)).await;
        refused += u64::from(answer.is_some());
    }
    assert!(
        refused <= 1 + begun.elapsed().as_secs(),
        "{refused} malformed questions of 10 were answered"
    );
    let asked = question("api.hub.example.com.", RecordType::A);
    let other = ask(Ipv4Addr::new(127, 0, 1, 21), server.vlan, &asked).await;
    assert_eq!(data(&other), ["127.0.1.4"]);
    assert!(server.metric("oooi_dns_rate_limited_total") >= f64::from(cut + silent));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_take_turns_for_a_client_that_asks_for_both_families() {
    let server = start(|spec| spec.static_entries[0].additional_ips = vec!["127.0.1.5".into()]).await;
    let client = Client::at(NODE).await;
    let mut first = Vec::new();
    for _ in 0..4 {
        let answer = client
            .ask(server.vlan, "api.hub.example.com.", RecordType::A)
            .await;
        first.push(data(&answer)[0].clone());
        client
            .ask(server.vlan, "api.hub.example.com.", RecordType::AAAA)
            .await;
    }
    assert!(
        first[0] != first[1] && first[0] == first[2] && first[1] == first[3],
        "{first:?}"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_change_while_it_runs_and_those_that_stay_lose_no_question() {
    let server = start(|_| {}).await;
    let (vlan, pods) = (server.vlan, server.pods);
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let ended = Arc::clone(&done);
    let asking = tokio::spawn(async move {
        let mut answered = 0;
        while !ended.load(std::sync::atomic::Ordering::SeqCst) {
            let question = question("api.hub.example.com.", RecordType::A);
            try_ask(NODE, vlan, &question).await.expect("no question is lost");
            answered += 1;
        }
        answered
    });
    let new = "127.0.1.3:0".parse().expect("an address");
    for _ in 0..20 {
        let opened = server
            .addresses
            .replace(&[vlan, new], &[])
            .expect("it can be bound")[0];
        let answer = ask(NODE, opened, &question("api.hub.example.com.", RecordType::A)).await;
        assert_eq!(data(&answer), ["127.0.1.4"]);
        assert_eq!(
            server
                .addresses
                .replace(&[vlan], &[pods])
                .expect("it can be bound"),
            [pods]
        );
        until("the new one is closed", || {
            std::net::UdpSocket::bind(opened).is_ok()
        })
        .await;
        let answer = server.pod("api.hub.example.com.", RecordType::A).await;
        assert_eq!(data(&answer), ["172.30.0.9"]);
    }
    let taken = std::net::TcpListener::bind("127.0.1.3:0").expect("an address");
    let taken = taken.local_addr().map(|at| (taken, at)).expect("its address");
    assert!(server.addresses.replace(&[taken.1], &[]).is_err());
    until("the addresses are reported", || {
        server
            .report
            .latest()
            .is_some_and(|state| state.addresses == [vlan.to_string(), pods.to_string()])
    })
    .await;
    done.store(true, std::sync::atomic::Ordering::SeqCst);
    assert!(asking.await.expect("every question was answered") > 20);
    server.stop().await;
}
