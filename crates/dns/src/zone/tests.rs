use super::*;
use crate::config::{Config, Entry, Source};
use crate::names::Names;
use std::net::IpAddr;

pub(crate) fn config(entries: &[(&str, &str)]) -> Config {
    Config {
        domain: Name::parse("hub.example.com").unwrap(),
        servers: vec![Ipv4Addr::new(10, 0, 0, 3)],
        port: 53,
        network: "10.0.0.0/24".parse().unwrap(),
        gateways: vec![Ipv4Addr::new(10, 0, 0, 4)],
        internal: None,
        entries: entries
            .iter()
            .map(|(name, address)| Entry {
                name: Name::parse(name).unwrap(),
                addresses: vec![address.parse().unwrap()],
            })
            .collect(),
        forwards: vec![],
        cache_ttl: 30,
        source: Source::default(),
    }
}

fn zone(entries: &[(&str, &str)]) -> Zone {
    Zone::build(&config(entries), &Names::default(), Translation::None)
}

/// The addresses of a name; `None`: not ours, an empty list: it exists without any.
fn addresses(zone: &Zone, name: &str) -> Option<Result<Vec<Ipv4Addr>, &'static str>> {
    let name = Name::parse(name).unwrap();
    zone.find(name.wire())
        .map(|found| found.node.map(|node| node.v4.clone()).ok_or("no such name"))
}

const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 4);

#[test]
fn an_exact_name_wins_over_the_wildcard_and_keeps_it_away_from_what_is_below() {
    let zone = zone(&[
        ("*.apps.hub.example.com", "10.0.0.4"),
        ("oauth-openshift.apps.hub.example.com", "10.0.0.5"),
    ]);
    assert_eq!(
        addresses(&zone, "console.apps.hub.example.com"),
        Some(Ok(vec![GATEWAY]))
    );
    assert_eq!(
        addresses(&zone, "a.b.apps.hub.example.com"),
        Some(Ok(vec![GATEWAY]))
    );
    let exact = Ipv4Addr::new(10, 0, 0, 5);
    assert_eq!(
        addresses(&zone, "oauth-openshift.apps.hub.example.com"),
        Some(Ok(vec![exact]))
    );
    assert_eq!(
        addresses(&zone, "x.oauth-openshift.apps.hub.example.com"),
        Some(Err("no such name"))
    );
    assert_eq!(
        addresses(&zone, "apps.hub.example.com"),
        Some(Ok(vec![])),
        "it exists for those below it"
    );
}

#[test]
fn a_missing_name_is_denied_inside_the_domain_and_left_to_others_outside() {
    let zone = zone(&[("ignition.apps.mgmt.example.net", "10.0.0.4")]);
    assert_eq!(
        addresses(&zone, "nothing.hub.example.com"),
        Some(Err("no such name"))
    );
    assert_eq!(addresses(&zone, "hub.example.com"), Some(Ok(vec![])));
    assert_eq!(
        addresses(&zone, "ignition.apps.mgmt.example.net"),
        Some(Ok(vec![GATEWAY]))
    );
    assert_eq!(addresses(&zone, "other.apps.mgmt.example.net"), None);
    assert_eq!(
        addresses(&zone, "apps.mgmt.example.net"),
        None,
        "not ours, so it need not exist"
    );
    assert_eq!(addresses(&zone, "example.com"), None);
}

#[test]
fn a_wildcard_outside_the_domain_answers_too() {
    let zone = zone(&[("*.apps.other.net", "10.0.0.4")]);
    assert_eq!(addresses(&zone, "x.apps.other.net"), Some(Ok(vec![GATEWAY])));
    assert_eq!(addresses(&zone, "apps.other.net"), None);
}

#[test]
fn every_address_points_back_to_its_names_but_not_to_wildcards() {
    let zone = zone(&[
        ("api.hub.example.com", "10.0.0.4"),
        ("*.apps.hub.example.com", "10.0.0.4"),
        ("oauth.hub.example.com", "10.0.0.4"),
    ]);
    let reverse = Name::parse("4.0.0.10.in-addr.arpa").unwrap();
    let found = zone.find(reverse.wire()).unwrap();
    let names: Vec<String> = found
        .node
        .unwrap()
        .pointers
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(names, ["api.hub.example.com", "oauth.hub.example.com"]);
    assert_eq!(
        found.apex,
        Name::parse("0.0.10.in-addr.arpa").unwrap().wire().len()
    );
    assert_eq!(
        addresses(&zone, "9.0.0.10.in-addr.arpa"),
        Some(Err("no such name"))
    );
    assert_eq!(addresses(&zone, "4.0.1.10.in-addr.arpa"), None);
    assert_eq!(addresses(&zone, "0.0.10.in-addr.arpa"), Some(Ok(vec![])));
}

#[test]
fn the_reverse_share_of_a_network_follows_its_octets() {
    let apex = |name: &str, network: &str| {
        let name = Name::parse(name).unwrap();
        let length = reverse::apex(name.wire(), network.parse().unwrap())?;
        Some(crate::wire::name::Text(&name.wire()[name.wire().len() - length..]).to_string())
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        apex("1.15.0.10.in-addr.arpa", "10.0.0.0/20"),
        text("15.0.10.in-addr.arpa")
    );
    assert_eq!(apex("1.16.0.10.in-addr.arpa", "10.0.0.0/20"), None);
    assert_eq!(
        apex("1.2.0.10.in-addr.arpa", "10.0.0.0/16"),
        text("0.10.in-addr.arpa")
    );
    assert_eq!(
        apex("130.0.0.10.in-addr.arpa", "10.0.0.128/25"),
        text("0.0.10.in-addr.arpa")
    );
    assert_eq!(apex("1.0.0.10.in-addr.arpa", "10.0.0.128/25"), None);
    assert_eq!(
        apex("0.0.10.in-addr.arpa", "10.0.0.128/25"),
        None,
        "half of it is somebody else's"
    );
    assert_eq!(apex("0.10.in-addr.arpa", "10.0.0.0/20"), None);
    for odd in ["x.0.0.10.in-addr.arpa", "256.0.0.10.in-addr.arpa"] {
        assert_eq!(apex(odd, "10.0.0.128/25"), None);
        assert_eq!(apex(odd, "10.0.0.0/24"), text("0.0.10.in-addr.arpa"));
    }
}

#[test]
fn machines_are_served_below_the_domain_after_static_names() {
    let mut names = Names::default();
    names.add("worker-1", IpAddr::from([10, 0, 0, 20]));
    names.add("api", IpAddr::from([10, 0, 0, 66]));
    names.add("not a name", IpAddr::from([10, 0, 0, 67]));
    names.add("*", IpAddr::from([10, 0, 0, 68]));
    let zone = Zone::build(
        &config(&[("api.hub.example.com", "10.0.0.4")]),
        &names,
        Translation::None,
    );
    let worker = Ipv4Addr::new(10, 0, 0, 20);
    assert_eq!(
        addresses(&zone, "worker-1.hub.example.com"),
        Some(Ok(vec![worker]))
    );
    assert_eq!(addresses(&zone, "api.hub.example.com"), Some(Ok(vec![GATEWAY])));
    assert_eq!(
        addresses(&zone, "anything.hub.example.com"),
        Some(Err("no such name"))
    );
    let reverse = Name::parse("20.0.0.10.in-addr.arpa").unwrap();
    assert_eq!(zone.find(reverse.wire()).unwrap().node.unwrap().pointers.len(), 1);
}

#[test]
fn a_learnt_name_does_not_take_one_that_a_static_wildcard_stands_for() {
    let mut names = Names::default();
    names.add("console.apps", IpAddr::from([10, 0, 0, 66]));
    names.add("a.b.apps", IpAddr::from([10, 0, 0, 67]));
    let zone = Zone::build(
        &config(&[("*.apps.hub.example.com", "10.0.0.4")]),
        &names,
        Translation::None,
    );
    for name in ["console.apps", "a.b.apps", "x.b.apps"] {
        let name = format!("{name}.hub.example.com");
        assert_eq!(addresses(&zone, &name), Some(Ok(vec![GATEWAY])), "{name}");
    }
}

#[test]
fn for_pods_the_gateway_becomes_the_internal_service_and_other_addresses_stay() {
    let config = config(&[
        ("api.hub.example.com", "10.0.0.4"),
        ("nas.hub.example.com", "10.0.0.9"),
    ]);
    let internal = [IpAddr::from([172, 30, 0, 9])];
    let zone = Zone::build(&config, &Names::default(), Translation::To(&internal));
    assert_eq!(
        addresses(&zone, "api.hub.example.com"),
        Some(Ok(vec![Ipv4Addr::new(172, 30, 0, 9)]))
    );
    assert_eq!(
        addresses(&zone, "nas.hub.example.com"),
        Some(Ok(vec![Ipv4Addr::new(10, 0, 0, 9)]))
    );
    let pending = Zone::build(&config, &Names::default(), Translation::Pending);
    let api = Name::parse("api.hub.example.com").unwrap();
    assert!(pending.find(api.wire()).unwrap().node.unwrap().pending);
}
