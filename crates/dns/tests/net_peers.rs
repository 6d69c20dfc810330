//! The same questions to this server, to knot and to unbound: codes, flags and sections agree.
//!
//! Where they do not, the table says how and why. knot serves the same names from a zone file; unbound
//! forwards to the same knot as this server does.

#![allow(clippy::expect_used, reason = "helpers of tests fail by panicking")]

mod support;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::Message;
use hickory_proto::rr::RecordType;
use support::process::{Process, dig, kdig, knot, unbound};
use support::{NODE, POD, exchange, own_address, question, start};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

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

const REVERSE_ZONE: &str = "
$ORIGIN 1.0.127.in-addr.arpa.
$TTL 30
@ SOA ns.hub.example.com. hostmaster.hub.example.com. 1 3600 600 86400 30
@ NS ns.hub.example.com.
3 PTR ns.hub.example.com.
4 PTR api.hub.example.com.
9 PTR nas.hub.example.com.
";

/// The own zone as pods see it: the gateway is the internal service.
fn zone_of_pods() -> String {
    OWN_ZONE.replace("127.0.1.4", "172.30.0.9")
}

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

/// How questions travel.
#[derive(Clone, Copy)]
enum By {
    Datagram,
    Connection,
}

/// Sends octets over a connection of their own; nothing where it ends without an answer.
async fn by_tcp(from: Ipv4Addr, to: SocketAddr, wire: &[u8]) -> Option<Vec<u8>> {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((from, 0).into()).expect("a client's address");
    let mut stream = socket.connect(to).await.ok()?;
    let frame = [&(wire.len() as u16).to_be_bytes()[..], wire].concat();
    stream.write_all(&frame).await.ok()?;
    let answer = async {
        let length = stream.read_u16().await.ok()?;
        let mut answer = vec![0; usize::from(length)];
        stream.read_exact(&mut answer).await.ok()?;
        Some(answer)
    };
    tokio::time::timeout(Duration::from_millis(1500), answer)
        .await
        .ok()?
}

/// The same question to both; how they answer.
async fn ask_both(
    (ours, from): (SocketAddr, Ipv4Addr),
    peer: SocketAddr,
    wire: &[u8],
    by: By,
) -> (String, String) {
    let patience = Duration::from_millis(1500);
    let (mine, theirs) = match by {
        By::Datagram => tokio::join!(
            exchange(from, ours, wire, patience),
            exchange(from, peer, wire, patience)
        ),
        By::Connection => tokio::join!(by_tcp(from, ours, wire), by_tcp(from, peer, wire)),
    };
    (shape(mine.as_deref()), shape(theirs.as_deref()))
}

/// A question as octets, changed at will.
fn octets(name: &str, kind: RecordType, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut wire = question(name, kind).to_vec().expect("a question can be written");
    change(&mut wire);
    wire
}

/// Compares all questions and shows every difference at once. What is expected to differ is one question, or all
/// for a name.
async fn compare(
    ours: (SocketAddr, Ipv4Addr),
    peer: SocketAddr,
    by: By,
    questions: Vec<(String, Vec<u8>)>,
    expected: &[(&str, &str)],
) {
    let mut differences = Vec::new();
    for (label, wire) in questions {
        let (mine, theirs) = ask_both(ours, peer, &wire, by).await;
        let name = label.split(' ').next();
        let known = expected
            .iter()
            .find(|(known, _)| *known == label || Some(*known) == name);
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
        RecordType::ANY,
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

const OWN_ZONES: &[(&str, &str)] = &[
    ("hub.example.com", OWN_ZONE),
    ("1.0.127.in-addr.arpa", REVERSE_ZONE),
];

fn own_questions() -> Vec<(String, Vec<u8>)> {
    messages(&[
        "hub.example.com.",
        "api.hub.example.com.",
        "API.hub.Example.com.",
        "apps.hub.example.com.",
        "x.apps.hub.example.com.",
        "deep.x.apps.hub.example.com.",
        "missing.hub.example.com.",
        "below.api.hub.example.com.",
        "www.example.org.",
        "1.0.127.in-addr.arpa.",
        "4.1.0.127.in-addr.arpa.",
        "77.1.0.127.in-addr.arpa.",
        "x.4.1.0.127.in-addr.arpa.",
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn own_names_are_answered_as_knot_answers_them() {
    let peer = knot(peer_address(1), OWN_ZONES, false);
    let server = start(|_| {}).await;
    let mut questions = own_questions();
    questions.extend(strange("api.hub.example.com."));
    let expected = [OWN_DIFFERENCES, OWN_ANY].concat();
    compare(
        (server.vlan, NODE),
        peer.address,
        By::Datagram,
        questions,
        &expected,
    )
    .await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_names_are_answered_by_tcp_as_knot_answers_them() {
    let peer = knot(peer_address(6), OWN_ZONES, false);
    let server = start(|_| {}).await;
    compare(
        (server.vlan, NODE),
        peer.address,
        By::Connection,
        own_questions(),
        OWN_ANY,
    )
    .await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_answered_as_knot_answers_them_from_a_zone_with_the_internal_service() {
    let zone = zone_of_pods();
    let peer = knot(peer_address(7), &[("hub.example.com", &zone)], false);
    let server = start(|_| {}).await;
    let mut questions = own_questions();
    questions.retain(|(label, _)| !label.contains("arpa"));
    compare((server.pods, POD), peer.address, By::Datagram, questions, OWN_ANY).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_cut_as_knot_and_unbound_cut_it() {
    let many: Vec<String> = (10..110).map(|last| format!("127.0.1.{last}")).collect();
    let records: String = many.iter().map(|ip| format!("api A {ip}\n")).collect();
    let zone = format!("{OWN_ZONE}{records}");
    let text: String = (0..60)
        .map(|number| format!("big TXT \"{number:060}\"\n"))
        .collect();
    let foreign = format!("{FOREIGN_ZONE}{text}");
    let authority = knot(
        peer_address(8),
        &[("hub.example.com", &zone), ("example.org", &foreign)],
        false,
    );
    let forward = forward_to(&authority);
    let resolver = unbound(peer_address(9), "  minimal-responses: yes", &forward);
    let upstream = authority.address.to_string();
    let own = start(|spec| spec.static_entries[0].additional_ips = many).await;
    let forwarding = start(|spec| spec.upstream_dns = vec![upstream]).await;
    let plain = |name: &str, kind| {
        let end = 12 + name.len() + 1 + 4;
        octets(name, kind, |wire| {
            wire.truncate(end);
            wire[11] = 0;
        })
    };
    for (name, kind, server, peer) in [
        ("api.hub.example.com.", RecordType::A, &own, authority.address),
        ("big.example.org.", RecordType::TXT, &forwarding, resolver.address),
    ] {
        let questions = || {
            vec![
                (format!("{name} in 1232"), octets(name, kind, |_| {})),
                (format!("{name} in 512"), plain(name, kind)),
            ]
        };
        let (cut, _) = ask_both((server.vlan, NODE), peer, &questions()[0].1, By::Datagram).await;
        assert!(cut.contains("tc"), "nothing is cut: {cut}");
        compare((server.vlan, NODE), peer, By::Datagram, questions(), &[]).await;
        compare((server.vlan, NODE), peer, By::Connection, questions(), &[]).await;
    }
    own.stop().await;
    forwarding.stop().await;
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

fn forward_to(authority: &Process) -> String {
    format!(
        "forward-zone:\n  name: \".\"\n  forward-addr: {}@{}",
        authority.address.ip(),
        authority.address.port()
    )
}

fn forwarded_questions() -> Vec<(String, Vec<u8>)> {
    messages(&[
        "example.org.",
        "www.example.org.",
        "alias.example.org.",
        "chain.example.org.",
        "lost.example.org.",
        "nothing.example.org.",
        "any.wild.example.org.",
        "_ldap._tcp.example.org.",
        "sub.example.org.",
        "below.sub.example.org.",
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn forwarded_names_are_answered_as_unbound_answers_them() {
    let authority = knot(peer_address(2), &[("example.org", FOREIGN_ZONE)], false);
    let peer = unbound(
        peer_address(3),
        "  minimal-responses: yes",
        &forward_to(&authority),
    );
    let text = authority.address.to_string();
    let server = start(|spec| spec.upstream_dns = vec![text]).await;
    let mut questions = forwarded_questions();
    questions.extend(strange("www.example.org."));
    let ours = (server.vlan, NODE);
    let expected = [FORWARDED_DIFFERENCES, FORWARDED_ANY].concat();
    compare(ours, peer.address, By::Datagram, questions, &expected).await;
    compare(
        ours,
        peer.address,
        By::Connection,
        forwarded_questions(),
        &expected,
    )
    .await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_names_are_answered_as_unbound_answers_them() {
    let authority = knot(peer_address(10), &[("example.org", FOREIGN_ZONE)], true);
    let peer = unbound(
        peer_address(11),
        "  minimal-responses: yes",
        &forward_to(&authority),
    );
    let text = authority.address.to_string();
    let server = start(|spec| spec.upstream_dns = vec![text]).await;
    let names = [
        "example.org.",
        "www.example.org.",
        "chain.example.org.",
        "nothing.example.org.",
        "any.wild.example.org.",
    ];
    let kinds = [RecordType::A, RecordType::MX, RecordType::DNSKEY, RecordType::DS];
    let mut questions = Vec::new();
    for (name, kind) in names.iter().flat_map(|name| kinds.map(|kind| (*name, kind))) {
        let flags = 12 + name.len() + 1 + 4 + 7;
        for (what, dnssec_ok, checking_disabled) in [("DO", 0x80, 0), ("CD", 0, 0x10), ("DO CD", 0x80, 0x10)]
        {
            let wire = octets(name, kind, |wire| {
                wire[flags] = dnssec_ok;
                wire[3] |= checking_disabled;
            });
            questions.push((format!("{name} {kind} {what}"), wire));
        }
    }
    let ours = (server.vlan, NODE);
    for (label, proof) in [
        ("www.example.org. A DO", "RRSIG"),
        ("nothing.example.org. A DO", "NSEC"),
    ] {
        let (_, wire) = questions
            .iter()
            .find(|(known, _)| known == label)
            .expect("it is asked");
        let (answer, _) = ask_both(ours, peer.address, wire, By::Datagram).await;
        assert!(answer.contains(proof), "{label} comes without {proof}: {answer}");
    }
    compare(ours, peer.address, By::Datagram, questions, &[]).await;
    server.stop().await;
}

/// Where ANY for own names differs, for all the same reason.
const OWN_ANY: &[(&str, &str)] = &[
    (
        "hub.example.com. ANY",
        "RFC 8482, 4.2: one HINFO; the others give one set of records",
    ),
    ("api.hub.example.com. ANY", "the same"),
    ("API.hub.Example.com. ANY", "the same"),
    ("apps.hub.example.com. ANY", "the same"),
    ("x.apps.hub.example.com. ANY", "the same"),
    ("deep.x.apps.hub.example.com. ANY", "the same"),
    ("1.0.127.in-addr.arpa. ANY", "the same"),
    ("4.1.0.127.in-addr.arpa. ANY", "the same"),
];

/// The same for forwarded names.
const FORWARDED_ANY: &[(&str, &str)] = &[
    ("example.org. ANY", "the same"),
    ("www.example.org. ANY", "the same"),
    ("alias.example.org. ANY", "the same"),
    ("chain.example.org. ANY", "the same"),
    ("lost.example.org. ANY", "the same"),
    ("any.wild.example.org. ANY", "the same"),
    ("_ldap._tcp.example.org. ANY", "the same"),
    (
        "nothing.example.org. ANY",
        "no upstream is asked for it, so whether the name exists is not known",
    ),
];

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
    (
        "sub.example.org.",
        "a referral is no answer to a client, which does not follow it; unbound hands it on",
    ),
    ("below.sub.example.org.", "the same"),
];

#[tokio::test(flavor = "multi_thread")]
async fn unbound_and_knot_serve_as_real_upstreams() {
    let authority = knot(peer_address(4), &[("example.org", FOREIGN_ZONE)], false);
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
