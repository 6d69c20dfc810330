//! The same questions to this server, to knot and to unbound: codes, flags and sections agree.
//!
//! Where they do not, the table says how and why. knot serves the same names from a zone file; unbound
//! forwards to the same knot as this server does.

#![allow(clippy::expect_used, reason = "helpers of tests fail by panicking")]

mod support;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::Message;
use hickory_proto::rr::RecordType;
use support::process::{Process, dig, kdig, knot, unbound};
use support::{NODE, exchange, own_address, question, start};

const OWN_ZONE: &str = "
$ORIGIN hub.example.com.
$TTL 30
@ SOA ns hostmaster 1 3600 600 86400 30
@ NS ns
ns A 127.0.1.3
api A 127.0.1.4
*.apps A 127.0.1.4
nas A 127.0.1.9
";

const FOREIGN_ZONE: &str = "
$ORIGIN example.org.
$TTL 300
@ SOA ns hostmaster 1 3600 600 86400 60
@ NS ns
@ MX 10 mail
@ TXT \"v=spf1 -all\"
ns A 192.0.2.53
www A 192.0.2.1
www A 192.0.2.2
www AAAA 2001:db8::1
alias CNAME www
chain CNAME alias
lost CNAME nothing
mail A 192.0.2.25
_ldap._tcp SRV 0 5 389 mail
*.wild A 192.0.2.9
sub NS ns.elsewhere
";

/// What can be compared of an answer: code, flags, answer and authority sections in any order.
fn shape(wire: Option<&[u8]>) -> String {
    let Some(wire) = wire else { return "silence".into() };
    // What stands behind the header of a FORMERR is of no use to anybody, and some repeat the malformed part.
    if wire[3] & 15 == 1 {
        return "FORMERR".into();
    }
    let message = Message::from_vec(wire).expect("an answer can be read");
    let meta = &message.metadata;
    let flags = [
        (meta.authoritative, "aa"),
        (meta.truncation, "tc"),
        (meta.recursion_desired, "rd"),
        (meta.recursion_available, "ra"),
        (meta.authentic_data, "ad"),
        (meta.checking_disabled, "cd"),
        (message.edns.is_some(), "edns"),
    ];
    let flags: Vec<&str> = flags
        .iter()
        .filter(|(set, _)| *set)
        .map(|(_, name)| *name)
        .collect();
    let section = |records: &[hickory_proto::rr::Record]| {
        let mut texts: Vec<String> = records
            .iter()
            .map(|record| {
                let data = if record.record_type() == RecordType::SOA {
                    String::new()
                } else {
                    record.data.to_string()
                };
                format!("{} {} {data}", record.name.to_lowercase(), record.record_type())
            })
            .collect();
        texts.sort();
        texts.join(", ")
    };
    format!(
        "{:?} [{}] answer [{}] authority [{}]",
        u16::from(meta.response_code),
        flags.join(" "),
        section(&message.answers),
        section(&message.authorities)
    )
}

/// A question as octets, changed at will.
fn octets(name: &str, kind: RecordType, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut wire = question(name, kind).to_vec().expect("a question can be written");
    change(&mut wire);
    wire
}

/// Compares all questions and shows every difference at once.
async fn compare(
    (ours, from): (SocketAddr, std::net::Ipv4Addr),
    peer: SocketAddr,
    questions: Vec<(String, Vec<u8>)>,
    expected: &[(&str, &str)],
) {
    let mut differences = Vec::new();
    for (label, wire) in questions {
        let patience = Duration::from_millis(1500);
        let (mine, theirs) = tokio::join!(
            exchange(from, ours, &wire, patience),
            exchange(from, peer, &wire, patience)
        );
        let (mine, theirs) = (shape(mine.as_deref()), shape(theirs.as_deref()));
        let known = expected.iter().find(|(known, _)| *known == label);
        if mine != theirs && known.is_none() {
            differences.push(format!("{label}:\n  ours  {mine}\n  theirs {theirs}"));
        }
        if mine == theirs && known.is_some() {
            differences.push(format!("{label}: agrees, though it is listed as a difference"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn messages(names: &[&str]) -> Vec<(String, Vec<u8>)> {
    let kinds = [
        RecordType::A,
        RecordType::AAAA,
        RecordType::CNAME,
        RecordType::MX,
        RecordType::TXT,
        RecordType::SRV,
        RecordType::NS,
        RecordType::SOA,
        RecordType::PTR,
        RecordType::HTTPS,
        RecordType::Unknown(65_280),
    ];
    let each = |name: &&str| kinds.map(|kind| (format!("{name} {kind}"), octets(name, kind, |_| {})));
    names.iter().flat_map(each).collect()
}

/// Messages that are not quite questions.
fn strange(name: &str) -> Vec<(String, Vec<u8>)> {
    let a = RecordType::A;
    let end_of_name = 12 + name.len() + 1;
    let mut list: Vec<(String, Vec<u8>)> = vec![
        ("no recursion".into(), octets(name, a, |wire| wire[2] = 0)),
        (
            "checking disabled".into(),
            octets(name, a, |wire| wire[3] |= 0x10),
        ),
        ("an answer".into(), octets(name, a, |wire| wire[2] |= 0x80)),
        ("no header".into(), octets(name, a, |wire| wire.truncate(11))),
        ("only a header".into(), octets(name, a, |wire| wire.truncate(12))),
        ("half a name".into(), octets(name, a, |wire| wire.truncate(15))),
        (
            "no class".into(),
            octets(name, a, |wire| wire.truncate(end_of_name + 2)),
        ),
        ("no questions".into(), octets(name, a, |wire| wire[5] = 0)),
        ("two questions".into(), octets(name, a, |wire| wire[5] = 2)),
        (
            "octets behind the end".into(),
            octets(name, a, |wire| wire.extend([1, 2, 3])),
        ),
        ("a missing record".into(), octets(name, a, |wire| wire[11] = 2)),
        (
            "a pointer to itself".into(),
            octets(name, a, |wire| wire[12..14].copy_from_slice(&[0xc0, 12])),
        ),
        ("STATUS".into(), octets(name, a, |wire| wire[2] |= 2 << 3)),
        (
            "class CHAOS".into(),
            octets(name, a, |wire| wire[end_of_name + 3] = 3),
        ),
        (
            "EDNS version 1".into(),
            octets(name, a, |wire| wire[end_of_name + 4 + 6] = 1),
        ),
        (
            "DNSSEC wanted".into(),
            octets(name, a, |wire| wire[end_of_name + 4 + 7] = 0x80),
        ),
        ("a transfer by UDP".into(), octets(name, RecordType::AXFR, |_| {})),
    ];
    list.push((
        "no EDNS".into(),
        octets(name, a, |wire| {
            wire.truncate(end_of_name + 4);
            wire[11] = 0;
        }),
    ));
    list
}

fn peer_address(last: u8) -> SocketAddr {
    SocketAddr::new(own_address(last), 5300)
}

#[tokio::test(flavor = "multi_thread")]
async fn own_names_are_answered_as_knot_answers_them() {
    let peer = knot(peer_address(1), "hub.example.com", OWN_ZONE);
    let server = start(|_| {}).await;
    let mut questions = messages(&[
        "hub.example.com.",
        "api.hub.example.com.",
        "API.hub.Example.com.",
        "apps.hub.example.com.",
        "x.apps.hub.example.com.",
        "deep.x.apps.hub.example.com.",
        "missing.hub.example.com.",
        "below.api.hub.example.com.",
        "www.example.org.",
    ]);
    questions.extend(strange("api.hub.example.com."));
    compare((server.vlan, NODE), peer.address, questions, OWN_DIFFERENCES).await;
    server.stop().await;
}

/// What we do otherwise than knot, each with its reason.
const OWN_DIFFERENCES: &[(&str, &str)] = &[
    (
        "checking disabled",
        "RFC 4035, 3.2.2: the bit is copied; unbound does so, too",
    ),
    (
        "only a header",
        "RFC 1035, 4.1.1: FORMERR, as unbound; knot is silent",
    ),
    ("half a name", "the same"),
    ("no class", "the same"),
    ("no questions", "the same"),
    ("two questions", "RFC 9619: FORMERR, as unbound; knot is silent"),
    (
        "a pointer to itself",
        "RFC 1035, 4.1.1: FORMERR, as unbound; knot is silent",
    ),
    (
        "STATUS",
        "of a message of a kind that we do not know nothing but the header is read, so there is no OPT",
    ),
    (
        "a transfer by UDP",
        "REFUSED as by TCP, and as unbound; knot says NOTIMP by UDP",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn forwarded_names_are_answered_as_unbound_answers_them() {
    let authority = knot(peer_address(2), "example.org", FOREIGN_ZONE);
    let forward = format!(
        "forward-zone:\n  name: \".\"\n  forward-addr: {}@{}",
        authority.address.ip(),
        authority.address.port()
    );
    let peer: Process = unbound(peer_address(3), "  minimal-responses: yes", &forward);
    let text = authority.address.to_string();
    let server = start(|spec| spec.upstream_dns = vec![text]).await;
    let mut questions = messages(&[
        "example.org.",
        "www.example.org.",
        "alias.example.org.",
        "chain.example.org.",
        "lost.example.org.",
        "nothing.example.org.",
        "any.wild.example.org.",
        "_ldap._tcp.example.org.",
    ]);
    questions.extend(strange("www.example.org."));
    compare(
        (server.vlan, NODE),
        peer.address,
        questions,
        FORWARDED_DIFFERENCES,
    )
    .await;
    server.stop().await;
}

/// What we do otherwise than unbound, each with its reason.
const FORWARDED_DIFFERENCES: &[(&str, &str)] = &[
    (
        "octets behind the end",
        "malformed, as for knot; unbound reads over them",
    ),
    (
        "STATUS",
        "of a message of a kind that we do not know nothing but the header is read, so there is no OPT",
    ),
    (
        "class CHAOS",
        "what is refused for every client does not say whether this one could recurse",
    ),
    ("EDNS version 1", "the same"),
];

#[tokio::test(flavor = "multi_thread")]
async fn unbound_and_knot_serve_as_real_upstreams() {
    let authority = knot(peer_address(4), "example.org", FOREIGN_ZONE);
    let local =
        "  local-zone: \"corp.example.\" static\n  local-data: \"git.corp.example. 120 A 192.0.2.77\"";
    let resolver = unbound(peer_address(5), local, "");
    let (one, two) = (authority.address.to_string(), resolver.address.to_string());
    let server = start(|spec| {
        spec.upstream_dns = vec![one];
        spec.forward_zones = vec![oooi_api::dns_server::ForwardZone {
            zone: "corp.example".into(),
            upstreams: vec![two],
            policy: None,
        }];
    })
    .await;
    let vlan = server.vlan;
    let checks = move || {
        let node: IpAddr = NODE.into();
        let short = |name: &str, kind: &str| {
            let text = dig(node, vlan, &["+short", name, kind]);
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(short("www.example.org", "A"), ["192.0.2.1", "192.0.2.2"]);
        assert_eq!(
            short("chain.example.org", "AAAA"),
            ["2001:db8::1", "alias.example.org.", "www.example.org."]
        );
        assert_eq!(short("git.corp.example", "A"), ["192.0.2.77"]);
        assert_eq!(short("example.org", "MX"), ["10 mail.example.org."]);
        for transport in ["+tcp", "+notcp"] {
            let missing = kdig(node, vlan, &[transport, "no.example.org", "A"]);
            assert!(
                missing.contains("status: NXDOMAIN") && missing.contains("SOA"),
                "{missing}"
            );
            let denied = kdig(node, vlan, &[transport, "no.corp.example", "A"]);
            assert!(denied.contains("status: NXDOMAIN"), "{denied}");
        }
    };
    tokio::task::spawn_blocking(checks)
        .await
        .expect("the checks pass");
    assert!(server.metric("oooi_dns_cache_hits_total") > 0.0);
    server.stop().await;
}
