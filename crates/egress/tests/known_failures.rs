//! Failures that EgressIPAMs had before, each by its name.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod world;

use std::collections::BTreeMap;

use oooi_egress::{Claim, Used};
use world::*;

#[test]
fn fewer_addresses_than_networks_is_no_panic_and_the_missing_ones_are_allocated() {
    let layouts = [layout("x", &["10.0.0.0/24", "10.1.0.0/24", "10.2.0.0/24"])];
    let allocation = decide(&layouts, &[claim("a", "x", 1, "10.0.0.7")], &Used::default());
    assert_eq!(got(&allocation, "a"), "10.0.0.7,10.1.0.1,10.2.0.1");
}

#[test]
fn one_bad_namespace_stops_nobody_else() {
    let layouts = [layout("x", &["10.0.0.0/24"])];
    let claims = [claim("bad", "x", 1, "nonsense"), claim("good", "x", 2, "")];
    let allocation = decide(&layouts, &claims, &Used::default());
    assert_eq!(reason(&allocation, "bad"), "MalformedAddress");
    assert_eq!(got(&allocation, "good"), "10.0.0.1");
}

#[test]
fn an_exhausted_network_stops_nobody_who_has_addresses() {
    let layouts = [
        layout("x", &["10.0.0.0/24", "10.1.0.0/32"]),
        layout("y", &["10.2.0.0/24"]),
    ];
    let claims = [
        claim("has", "x", 1, ""),
        claim("some", "x", 2, "10.0.0.9"),
        claim("new", "x", 3, ""),
        claim("other", "y", 4, ""),
    ];
    let allocation = decide(&layouts, &claims, &Used::default());
    assert_eq!(got(&allocation, "has"), "10.0.0.1,10.1.0.0");
    assert_eq!(
        (got(&allocation, "some").as_str(), reason(&allocation, "some")),
        ("10.0.0.9", "NetworkExhausted")
    );
    assert_eq!(reason(&allocation, "new"), "NetworkExhausted");
    assert_eq!(got(&allocation, "new"), "", "nothing in halves");
    assert_eq!(
        allocation.usage["x"][0].used, 2,
        "what was chosen in vain is free again"
    );
    assert_eq!(got(&allocation, "other"), "10.2.0.1");
}

#[test]
fn the_last_free_address_is_issued() {
    let layouts = [layout("x", &["10.0.0.0/30"])];
    let claims = [claim("a", "x", 1, ""), claim("b", "x", 2, "")];
    let allocation = decide(&layouts, &claims, &Used::default());
    assert_eq!(
        (got(&allocation, "a"), got(&allocation, "b")),
        ("10.0.0.1".into(), "10.0.0.2".into())
    );
}

#[test]
fn host_bits_in_a_network_do_not_make_its_network_address_assignable() {
    let layout = layout("x", &["10.0.0.9/29"]);
    assert_eq!(layout.warnings.len(), 1);
    let claims: Vec<Claim> = (0..7).map(|n| claim(&format!("n{n}"), "x", n, "")).collect();
    let allocation = decide(&[layout], &claims, &Used::default());
    let all: Vec<String> = (0..6).map(|n| got(&allocation, &format!("n{n}"))).collect();
    assert_eq!(
        all,
        [
            "10.0.0.9",
            "10.0.0.10",
            "10.0.0.11",
            "10.0.0.12",
            "10.0.0.13",
            "10.0.0.14"
        ]
    );
    assert_eq!(reason(&allocation, "n6"), "NetworkExhausted");
}

#[test]
fn duplicates_that_people_supply_are_found_and_the_elder_keeps_the_address() {
    let layouts = [layout("x", &["10.0.0.0/24"]), layout("y", &["10.0.0.0/25"])];
    let claims = [
        claim("late", "y", 2, "10.0.0.5"),
        claim("early", "x", 1, "10.0.0.5"),
    ];
    let allocation = decide(&layouts, &claims, &Used::default());
    assert_eq!(got(&allocation, "early"), "10.0.0.5");
    assert_eq!(reason(&allocation, "late"), "DuplicateAddress");
    assert!(message(&allocation, "late").contains("namespace early"));
}

#[test]
fn who_has_an_address_in_force_keeps_it_when_an_older_namespace_names_it() {
    let layouts = [layout("x", &["10.0.0.0/24"])];
    let claims = [
        claim("old", "x", 1, "10.0.0.5"),
        claim("young", "x", 2, "10.0.0.5"),
    ];
    let held = BTreeMap::from([(ip("10.0.0.5"), "young".to_owned())]);
    let allocation = decide(
        &layouts,
        &claims,
        &Used {
            held,
            ..Used::default()
        },
    );
    assert_eq!(got(&allocation, "young"), "10.0.0.5");
    assert_eq!(reason(&allocation, "old"), "DuplicateAddress");
}

#[test]
fn addresses_of_other_egressipams_are_not_given_again() {
    let layouts = [layout("x", &["10.0.0.0/24"]), layout("y", &["10.0.0.0/24"])];
    let claims = [
        claim("a", "x", 1, ""),
        claim("b", "y", 2, ""),
        claim("c", "y", 3, "10.0.0.3"),
    ];
    let allocation = decide(&layouts, &claims, &Used::default());
    assert_eq!(
        (got(&allocation, "a"), got(&allocation, "b")),
        ("10.0.0.1".into(), "10.0.0.2".into())
    );
}

#[test]
fn a_namespace_that_moves_to_another_egressipam_gets_addresses_there() {
    let layouts = [layout("x", &["10.0.0.0/24"]), layout("y", &["10.1.0.0/24"])];
    let moved = Claim {
        allocated_by: Some("x".into()),
        ..claim("a", "y", 1, "10.0.0.1")
    };
    let allocation = decide(&layouts, std::slice::from_ref(&moved), &Used::default());
    assert_eq!(got(&allocation, "a"), "10.1.0.1");
    assert!(is_fresh(&allocation, "a"));
    let by_hand = Claim {
        allocated_by: None,
        ..moved
    };
    let allocation = decide(&layouts, &[by_hand], &Used::default());
    assert_eq!(
        reason(&allocation, "a"),
        "AddressOutsideNetwork",
        "what a person wrote is never changed"
    );
}
