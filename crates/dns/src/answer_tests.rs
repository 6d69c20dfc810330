use super::*;
use crate::config::{Forward, Internal, Upstream, UpstreamPolicy};
use crate::names::Names;
use crate::view::Horizon;
use crate::wire::name::Name;
use crate::zone::tests::config;
use hickory_proto::op::{Message, ResponseCode};
use std::net::IpAddr;
use std::sync::Arc;

const VLAN: [u8; 4] = [10, 0, 0, 3];
const POD: [u8; 4] = [10, 128, 0, 3];
const NODE: [u8; 4] = [10, 0, 0, 20];
const STRANGER: [u8; 4] = [10, 9, 0, 20];

fn question(name: &str, kind: u16) -> Vec<u8> {
    let mut message = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    message.extend(Name::parse(name).unwrap().wire());
    message.extend(kind.to_be_bytes());
    message.extend([0, 1]);
    message
}

fn horizon(forwards: &[&str], internal: Option<Internal>) -> Horizon {
    let mut config = config(&[
        ("api.hub.example.com", "10.0.0.4"),
        ("*.apps.hub.example.com", "10.0.0.4"),
        ("ignition.mgmt.example.net", "10.0.0.4"),
    ]);
    config.entries[0].addresses.push([10, 0, 0, 5].into());
    config.internal = internal;
    config.forwards = forwards
        .iter()
        .map(|zone| Forward {
            zone: Name::parse(zone).unwrap(),
            upstreams: vec![Upstream::System],
            policy: UpstreamPolicy::Sequential,
        })
        .collect();
    Horizon::build(Arc::new(config), &Names::default(), None)
}

/// What a client gets: an answer that an independent parser read, or `forward N`, or the refusal.
fn ask(horizon: &Horizon, asked: [u8; 4], client: [u8; 4], name: &str, kind: u16) -> Result<Message, String> {
    let message = question(name, kind);
    let query = Query::parse(&message).ok().unwrap();
    let Ok(view) = horizon.view(IpAddr::from(asked), IpAddr::from(client)) else {
        return Err("refused: client".into());
    };
    match decide(&view, &query) {
        Decision::Own(zone, found) => {
            let mut out = [0; 512];
            let (_, length) = write(&mut out, 512, &query, (zone, found), false, 0);
            Ok(Message::from_vec(&out[..length]).unwrap())
        }
        Decision::Forward(index) => Err(format!("forward {index}")),
        Decision::Refuse(refusal) => Err(format!("refused: {refusal:?}")),
    }
}

#[test]
fn a_node_sees_the_gateway_and_a_stranger_sees_nothing() {
    let horizon = horizon(&[], None);
    let answer = ask(&horizon, VLAN, NODE, "api.hub.example.com", kind::A).unwrap();
    assert!(answer.metadata.authoritative);
    assert_eq!(answer.answers.len(), 2);
    assert_eq!(
        ask(&horizon, VLAN, STRANGER, "api.hub.example.com", kind::A),
        Err("refused: client".into())
    );
}

#[test]
fn pods_see_the_internal_service_or_are_only_forwarded() {
    let address = Internal::Address([172, 30, 0, 9].into());
    let with = horizon(&[], Some(address));
    let answer = ask(&with, POD, STRANGER, "x.apps.hub.example.com", kind::A).unwrap();
    assert_eq!(answer.answers[0].data.to_string(), "172.30.0.9");
    let without = horizon(&["."], None);
    assert_eq!(
        ask(&without, POD, STRANGER, "api.hub.example.com", kind::A),
        Err("forward 0".into())
    );
    let alone = horizon(&[], None);
    let refused = Err("refused: NoUpstream".into());
    assert_eq!(
        ask(&alone, POD, STRANGER, "api.hub.example.com", kind::A),
        refused
    );
}

#[test]
fn while_the_internal_service_is_unknown_its_names_fail_instead_of_lying() {
    let horizon = horizon(&[], Some(Internal::Service("hub-proxy.clusters.svc".into())));
    let answer = ask(&horizon, POD, STRANGER, "x.apps.hub.example.com", kind::A).unwrap();
    assert_eq!(answer.metadata.response_code, ResponseCode::ServFail);
    let other = ask(&horizon, POD, STRANGER, "ns.hub.example.com", kind::A).unwrap();
    assert_eq!(other.metadata.response_code, ResponseCode::NoError);
}

#[test]
fn an_existing_name_without_the_type_and_a_missing_name_both_carry_the_soa() {
    let horizon = horizon(&["."], None);
    let empty = ask(&horizon, VLAN, NODE, "api.hub.example.com", kind::AAAA).unwrap();
    assert_eq!(empty.metadata.response_code, ResponseCode::NoError);
    assert_eq!((empty.answers.len(), empty.authorities.len()), (0, 1));
    assert_eq!(empty.authorities[0].name.to_string(), "hub.example.com.");
    let missing = ask(&horizon, VLAN, NODE, "nothing.hub.example.com", kind::A).unwrap();
    assert_eq!(missing.metadata.response_code, ResponseCode::NXDomain);
    assert_eq!(missing.authorities.len(), 1);
    let foreign = ask(&horizon, VLAN, NODE, "ignition.mgmt.example.net", kind::AAAA).unwrap();
    assert_eq!(
        foreign.authorities[0].name.to_string(),
        "ignition.mgmt.example.net."
    );
    assert_eq!(
        ask(&horizon, VLAN, NODE, "other.mgmt.example.net", kind::A),
        Err("forward 0".into())
    );
}

#[test]
fn a_zone_forwarded_inside_the_own_domain_is_cut_out_of_it() {
    let horizon = horizon(&[".", "corp.hub.example.com", "hub.example.org"], None);
    let forward = |name: &str| ask(&horizon, VLAN, NODE, name, kind::A).unwrap_err();
    assert_eq!(forward("x.corp.hub.example.com"), "forward 1");
    assert_eq!(forward("corp.hub.example.com"), "forward 1");
    assert_eq!(forward("x.hub.example.org"), "forward 2");
    assert_eq!(forward("x.example.org"), "forward 0");
    let missing = ask(&horizon, VLAN, NODE, "x.hub.example.com", kind::A).unwrap();
    assert_eq!(missing.metadata.response_code, ResponseCode::NXDomain);
}

#[test]
fn the_closest_of_a_wildcard_and_a_forwarded_zone_answers() {
    let inner = horizon(&["ext.apps.hub.example.com"], None);
    let forward = |name: &str| ask(&inner, VLAN, NODE, name, kind::A).unwrap_err();
    assert_eq!(forward("ext.apps.hub.example.com"), "forward 0");
    assert_eq!(forward("x.ext.apps.hub.example.com"), "forward 0");
    assert!(ask(&inner, VLAN, NODE, "console.apps.hub.example.com", kind::A).is_ok());
    let same = horizon(&["apps.hub.example.com"], None);
    assert!(
        ask(&same, VLAN, NODE, "console.apps.hub.example.com", kind::A).is_ok(),
        "at the same cut own names come first"
    );
}

#[test]
fn an_address_of_the_vlan_that_the_manifest_does_not_name_any_more_is_not_for_pods() {
    let horizon = horizon(&[], Some(Internal::Address([172, 30, 0, 9].into())));
    let former = [10, 0, 0, 9];
    let answer = ask(&horizon, former, NODE, "x.apps.hub.example.com", kind::A).unwrap();
    assert_eq!(answer.answers[0].data.to_string(), "10.0.0.4");
    assert_eq!(
        ask(&horizon, former, STRANGER, "x.apps.hub.example.com", kind::A),
        Err("refused: client".into())
    );
}

#[test]
fn a_domain_that_is_forwarded_as_a_whole_keeps_its_static_names() {
    let horizon = horizon(&["hub.example.com"], None);
    assert!(ask(&horizon, VLAN, NODE, "api.hub.example.com", kind::A).is_ok());
    assert_eq!(
        ask(&horizon, VLAN, NODE, "db.hub.example.com", kind::A),
        Err("forward 0".into())
    );
}

#[test]
fn several_addresses_take_turns() {
    let horizon = horizon(&[], None);
    let message = question("api.hub.example.com", kind::A);
    let query = Query::parse(&message).ok().unwrap();
    let view = horizon.view(IpAddr::from(VLAN), IpAddr::from(NODE)).unwrap();
    let Decision::Own(zone, found) = decide(&view, &query) else {
        panic!("not ours")
    };
    let first = |turn| {
        let mut out = [0; 512];
        let (_, length) = write(&mut out, 512, &query, (zone, found), false, turn);
        Message::from_vec(&out[..length]).unwrap().answers[0]
            .data
            .to_string()
    };
    assert_eq!(
        [first(0), first(1), first(2)],
        ["10.0.0.4", "10.0.0.5", "10.0.0.4"]
    );
}

#[test]
fn any_gets_one_hinfo_and_the_apex_has_soa_and_ns() {
    let horizon = horizon(&[], None);
    let one = |name: &str, kind| {
        let answer = ask(&horizon, VLAN, NODE, name, kind).unwrap();
        assert_eq!(answer.answers.len(), 1);
        answer.answers[0].record_type().to_string()
    };
    assert_eq!(one("api.hub.example.com", kind::ANY), "HINFO");
    assert_eq!(one("hub.example.com", kind::SOA), "SOA");
    assert_eq!(one("hub.example.com", kind::NS), "NS");
    assert_eq!(one("0.0.10.in-addr.arpa", kind::SOA), "SOA");
    assert_eq!(one("5.0.0.10.in-addr.arpa", kind::PTR), "PTR");
}

#[test]
fn the_answer_to_any_for_a_foreign_name_is_kept_no_longer_than_others() {
    let message = question("www.example.org", kind::ANY);
    let query = Query::parse(&message).ok().unwrap();
    let ttl = |cap| {
        let mut out = [0; 512];
        let length = any(&mut out, 512, &query, cap);
        Message::from_vec(&out[..length]).unwrap().answers[0].ttl
    };
    assert_eq!([ttl(30), ttl(86_400)], [30, ANY_TTL]);
}

#[test]
fn a_question_without_recursion_is_answered_from_own_names_only() {
    let horizon = horizon(&["."], None);
    let view = horizon.view(IpAddr::from(VLAN), IpAddr::from(NODE)).unwrap();
    let mut message = question("www.example.org", kind::A);
    message[2] = 0;
    let query = Query::parse(&message).ok().unwrap();
    assert!(matches!(
        decide(&view, &query),
        Decision::Refuse(Refusal::NotRecursive)
    ));
}
