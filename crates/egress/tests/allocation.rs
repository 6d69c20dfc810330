//! What namespaces get.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use oooi_egress::{Claim, Layout, Mistake, Used, Warning, allocate, overlaps, read};
use proptest::prelude::*;
use serde_json::json;
use world::*;

#[test]
fn the_lowest_free_address_of_each_network_is_given_and_the_same_question_has_the_same_answer() {
    let layouts = [layout("x", &["10.0.0.0/24", "10.1.0.0/24"])];
    let claims = [claim("b", "x", 2, ""), claim("a", "x", 1, "")];
    let first = decide(&layouts, &claims, &Used::default());
    assert_eq!(
        (got(&first, "a"), got(&first, "b")),
        ("10.0.0.1,10.1.0.1".into(), "10.0.0.2,10.1.0.2".into())
    );
    let turned = [claims[1].clone(), claims[0].clone()];
    assert_eq!(decide(&layouts, &turned, &Used::default()), first);
}

#[test]
fn a_random_address_is_any_free_one() {
    let mut manifest = manifest("x", &["10.0.0.0/29"]);
    manifest["spec"]["allocationPolicy"] = json!("Random");
    let layouts = [layout_of(manifest)];
    let claims = [claim("a", "x", 1, ""), claim("b", "x", 2, "")];
    let drawn = allocate(
        &layouts,
        &BTreeSet::new(),
        &claims,
        &Used::default(),
        &mut |count| count - 1,
    );
    assert_eq!(
        (got(&drawn, "a"), got(&drawn, "b")),
        ("10.0.0.6".into(), "10.0.0.5".into())
    );
}

#[test]
fn given_addresses_are_honoured_and_never_change() {
    let layouts = [layout("x", &["10.0.0.0/24", "10.1.0.0/24"])];
    let claims = [claim("a", "x", 1, "10.0.0.77,10.1.0.9")];
    let allocation = decide(&layouts, &claims, &Used::default());
    assert_eq!(got(&allocation, "a"), "10.0.0.77,10.1.0.9");
    assert!(!is_fresh(&allocation, "a"), "nothing is written");
}

#[test]
fn a_network_that_is_added_anywhere_keeps_the_addresses_that_are_there() {
    for networks in [["10.0.0.0/24", "10.1.0.0/24"], ["10.1.0.0/24", "10.0.0.0/24"]] {
        let layouts = [layout("x", &networks)];
        let allocation = decide(&layouts, &[claim("a", "x", 1, "10.0.0.77")], &Used::default());
        let addresses = got(&allocation, "a");
        assert!(
            addresses.contains("10.0.0.77") && addresses.contains("10.1.0.1"),
            "{addresses}"
        );
        assert!(is_fresh(&allocation, "a"));
    }
}

#[test]
fn a_reserved_address_is_never_allocated_and_whoever_names_it_has_it() {
    let mut manifest = manifest("x", &["10.0.0.0/30"]);
    manifest["spec"]["cidrAssignments"][0]["reservedIPs"] = json!(["10.0.0.1"]);
    let layouts = [layout_of(manifest)];
    let claims = [
        claim("a", "x", 1, ""),
        claim("b", "x", 2, ""),
        claim("c", "x", 3, "10.0.0.1"),
    ];
    let allocation = decide(&layouts, &claims, &Used::default());
    assert_eq!(got(&allocation, "a"), "10.0.0.2");
    assert_eq!(reason(&allocation, "b"), "NetworkExhausted");
    assert_eq!(got(&allocation, "c"), "10.0.0.1");
}

#[test]
fn a_reserved_address_outside_its_network_is_a_warning() {
    let mut manifest = manifest("x", &["192.169.0.0/24"]);
    manifest["spec"]["cidrAssignments"][0]["reservedIPs"] = json!(["192.159.0.5", "x"]);
    let layout = layout_of(manifest);
    assert!(matches!(
        layout.warnings[..],
        [
            Warning::ReservedOutside { .. },
            Warning::ReservedUnreadable { .. }
        ]
    ));
}

#[test]
fn all_mistakes_of_an_egressipam_are_told_at_once() {
    let mut manifest = manifest("x", &["10.0.0.0/24", "10.0.0.7/24", "nonsense"]);
    manifest["spec"]["nodeSelector"] = json!({"matchExpressions": [{"key": "a", "operator": "Near"}]});
    let mistakes = read(&serde_json::from_value(manifest).unwrap()).unwrap_err();
    assert!(
        matches!(
            mistakes[..],
            [
                Mistake::Twice { index: 1, .. },
                Mistake::Cidr { index: 2, .. },
                Mistake::Selector(_)
            ]
        ),
        "{mistakes:?}"
    );
    let empty = read(&serde_json::from_value(world::manifest("x", &[])).unwrap()).unwrap_err();
    assert_eq!(empty, [Mistake::NoNetwork]);
}

#[test]
fn networks_that_overlap_are_named_once_also_across_egressipams() {
    let all = [
        layout("x", &["10.0.0.0/24", "10.0.0.0/25"]),
        layout("y", &["10.0.0.128/25"]),
    ];
    let of_x: Vec<String> = overlaps(&all[0], &all).iter().map(ToString::to_string).collect();
    assert_eq!(of_x.len(), 2, "{of_x:?}");
    assert!(of_x[1].contains("EgressIPAM y"), "{of_x:?}");
    assert_eq!(overlaps(&all[1], &all).len(), 1);
}

#[test]
fn bad_lists_are_told_apart_and_stop_nobody_else() {
    let layouts = [layout("x", &["10.0.0.0/24", "10.1.0.0/24"])];
    let hosts = BTreeMap::from([(ip("10.0.0.10"), "node-a".to_owned())]);
    let foreign = BTreeMap::from([(ip("10.0.0.11"), "EgressIP other".to_owned())]);
    let used = Used {
        hosts,
        foreign,
        ..Used::default()
    };
    let bad = [
        ("10.0.0.1, 10.1.0.1", "SpacesInList"),
        ("10.0.0.1,x", "MalformedAddress"),
        ("10.0.0.1,10.1.0.1,10.2.0.1", "TooManyAddresses"),
        ("10.1.0.1,10.0.0.1", "AddressOutsideNetwork"),
        ("10.9.0.1", "AddressOutsideNetwork"),
        ("10.0.0.255,10.1.0.1", "AddressUnusable"),
        ("10.0.0.10", "AddressOfNode"),
        ("10.0.0.11", "AddressInUse"),
    ];
    let mut claims: Vec<Claim> = bad
        .iter()
        .enumerate()
        .map(|(n, (given, _))| claim(&format!("bad-{n}"), "x", n as i64, given))
        .collect();
    claims.push(claim("lost", "nobody", 50, ""));
    claims.push(claim("good", "x", 99, ""));
    let allocation = decide(&layouts, &claims, &used);
    for (n, (given, expected)) in bad.iter().enumerate() {
        let name = format!("bad-{n}");
        assert_eq!(
            reason(&allocation, &name),
            *expected,
            "{given}: {}",
            message(&allocation, &name)
        );
    }
    assert_eq!(reason(&allocation, "lost"), "UnknownEgressIPAM");
    assert_eq!(
        got(&allocation, "good"),
        "10.0.0.2,10.1.0.2",
        "what stands in a wrong list is nobody else's"
    );
}

#[test]
fn the_usage_of_a_network_counts_what_is_given_and_what_is_left() {
    let layouts = [layout("x", &["10.0.0.0/29"])];
    let hosts = BTreeMap::from([(ip("10.0.0.6"), "node-a".to_owned())]);
    let used = Used {
        hosts,
        kept_by_cloud: 3,
        ..Used::default()
    };
    let allocation = decide(&layouts, &[claim("a", "x", 1, "")], &used);
    assert_eq!(
        got(&allocation, "a"),
        "10.0.0.4",
        "the cloud keeps the first three"
    );
    let usage = allocation.usage["x"][0];
    assert_eq!((usage.used, usage.free), (1, 1));
}

#[test]
fn a_namespace_that_is_being_deleted_keeps_what_it_has_and_gets_nothing() {
    let layouts = [layout("x", &["10.0.0.0/30"])];
    let leaving = Claim {
        leaving: true,
        ..claim("a", "x", 1, "")
    };
    let allocation = decide(&layouts, &[leaving, claim("b", "x", 2, "")], &Used::default());
    assert_eq!(
        (got(&allocation, "a"), got(&allocation, "b")),
        (String::new(), "10.0.0.1".into())
    );
}

#[test]
fn an_address_that_is_in_force_for_another_is_not_allocated() {
    let layouts = [layout("x", &["10.0.0.0/30"])];
    let held = BTreeMap::from([(ip("10.0.0.1"), "gone".to_owned())]);
    let allocation = decide(
        &layouts,
        &[claim("a", "x", 1, "")],
        &Used {
            held,
            ..Used::default()
        },
    );
    assert_eq!(got(&allocation, "a"), "10.0.0.2");
}

/// Up to three EgressIPAMs whose small networks may overlap, and namespaces that ask and name at random.
fn scene() -> impl Strategy<Value = (Vec<Layout>, Vec<Claim>, Used)> {
    let network = (0u8..4, 27u8..=31).prop_map(|(block, prefix)| format!("10.0.{block}.0/{prefix}"));
    let networks = prop::collection::btree_set(network, 1..4).prop_filter("no network twice", |all| {
        let masked: BTreeSet<_> = all.iter().collect();
        masked.len() == all.len()
    });
    let reserved = prop::collection::vec((0u8..4, 0u8..32), 0..4);
    let layouts = prop::collection::vec((networks, reserved), 1..4).prop_map(|all| {
        let layouts = all.into_iter().enumerate().map(|(index, (networks, reserved))| {
            let names: Vec<&str> = networks.iter().map(String::as_str).collect();
            let mut manifest = manifest(&format!("x{index}"), &names);
            let reserved: BTreeSet<String> = reserved.iter().map(|(b, h)| format!("10.0.{b}.{h}")).collect();
            for assignment in manifest["spec"]["cidrAssignments"].as_array_mut().unwrap() {
                assignment["reservedIPs"] = json!(reserved);
            }
            layout_of(manifest)
        });
        layouts.collect::<Vec<_>>()
    });
    let given = prop::option::weighted(0.3, prop::collection::vec((0u8..4, 0u8..32), 1..4));
    let claims = prop::collection::vec((0usize..4, given, 0i64..5), 0..60).prop_map(|all| {
        let claims = all.into_iter().enumerate().map(|(n, (ipam, given, created))| {
            let given = given.unwrap_or_default();
            let given: Vec<String> = given.iter().map(|(b, h)| format!("10.0.{b}.{h}")).collect();
            claim(&format!("n{n}"), &format!("x{ipam}"), created, &given.join(","))
        });
        claims.collect::<Vec<_>>()
    });
    let addresses = || prop::collection::btree_map((0u8..4, 0u8..32), "[a-c]", 0..6);
    let used =
        (addresses(), addresses(), prop::sample::select(vec![0u32, 3])).prop_map(|(hosts, held, kept)| {
            let plain = |all: BTreeMap<(u8, u8), String>, prefix: &str| -> BTreeMap<Ipv4Addr, String> {
                all.into_iter()
                    .map(|((b, h), n)| (Ipv4Addr::new(10, 0, b, h), format!("{prefix}{n}")))
                    .collect()
            };
            Used {
                hosts: plain(hosts, "node-"),
                held: plain(held, "n"),
                kept_by_cloud: kept,
                ..Used::default()
            }
        });
    (layouts, claims, used)
}

proptest! {
    #[test]
    fn no_address_is_given_twice_or_outside_its_network_and_nothing_reserved_or_used_is_allocated(
        (layouts, claims, used) in scene(),
    ) {
        let allocation = decide(&layouts, &claims, &used);
        let mut seen = BTreeMap::new();
        for claim in &claims {
            let outcome = &allocation.outcomes[&claim.namespace];
            let given: Vec<Ipv4Addr> =
                claim.given.iter().flat_map(|list| list.split(',')).filter_map(|text| text.parse().ok()).collect();
            let Some(addresses) = outcome.addresses() else { continue };
            let layout = layouts.iter().find(|layout| layout.name == claim.ipam).unwrap();
            for address in addresses {
                prop_assert_eq!(seen.insert(*address, &claim.namespace), None, "{} twice", address);
                let inside = layout.networks.iter().filter(|network| network.hosts().contains(*address));
                prop_assert!(inside.count() > 0, "{} outside", address);
                if !given.contains(address) {
                    let reserved = layouts.iter().flat_map(|l| &l.networks).any(|n| n.reserved.contains(*address));
                    prop_assert!(!reserved, "{} is reserved", address);
                    prop_assert!(!used.hosts.contains_key(address), "{} is a node's", address);
                    prop_assert!(!used.held.contains_key(address), "{} is in force", address);
                }
            }
            for address in &given {
                prop_assert!(addresses.contains(address), "{} was given", address);
            }
            if outcome.problem().is_none() {
                prop_assert_eq!(addresses.len(), layout.networks.len());
            }
        }
    }

    #[test]
    fn what_was_decided_is_decided_again_and_the_order_of_claims_is_no_matter((layouts, claims, used) in scene()) {
        let first = decide(&layouts, &claims, &used);
        let mut turned = claims.clone();
        turned.reverse();
        prop_assert_eq!(&decide(&layouts, &turned, &used), &first);
        // Once written, nothing is fresh any more and nobody's addresses change.
        let written: Vec<Claim> = claims.iter().map(|claim| {
            let given = got(&first, &claim.namespace);
            let well = first.outcomes[&claim.namespace].problem().is_none();
            Claim { given: if well && !given.is_empty() { Some(given) } else { claim.given.clone() }, ..claim.clone() }
        }).collect();
        let second = decide(&layouts, &written, &used);
        for (namespace, outcome) in &first.outcomes {
            if outcome.problem().is_none() {
                prop_assert_eq!(got(&second, namespace), got(&first, namespace));
                prop_assert!(!is_fresh(&second, namespace));
            }
        }
    }

    #[test]
    fn no_text_in_an_annotation_is_a_panic(text in ".{0,60}") {
        let layouts = [layout("x", &["10.0.0.0/24"])];
        decide(&layouts, &[claim("a", "x", 1, &text)], &Used::default());
    }
}
