//! What holds for every Infra that can be planned.

#![allow(clippy::unwrap_used)] // helpers of tests

mod support;

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use oooi_api::Infra;
use oooi_ipam::{Range, Set, hosts};
use oooi_plan::infra::Neighbour;
use oooi_plan::{Components, Known, plan};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use serde_json::{Value, json};

/// A component with some replicas and perhaps an address of its own.
fn component() -> impl Strategy<Value = (Option<u8>, u8, bool)> {
    (prop::option::of(0u8..=255), 1u8..=5, prop::bool::weighted(0.9))
}

/// An Infra that need not be sound: offsets may collide or lie outside.
fn infra() -> impl Strategy<Value = Infra> {
    (
        any::<u32>(),
        8u8..=30,
        0u32..40,
        [component(), component(), component()],
        prop::option::of((0u32..300, 0u32..300)),
        prop::collection::vec(0u32..300, 0..4),
        prop::collection::vec((0u32..300, 0u32..20), 0..3),
        prop::collection::vec(any::<u32>(), 0..2),
    )
        .prop_map(|(bits, prefix, gateway, parts, range, reserved, excluded, published)| {
            let network = Ipv4Net::new(bits.into(), prefix).unwrap().trunc();
            let at = |offset: u32| Ipv4Addr::from(u32::from(network.network()).saturating_add(offset)).to_string();
            let part = |index: usize, mut fields: Value| {
                let (address, replicas, enabled) = parts[index];
                fields["enabled"] = enabled.into();
                fields["replicas"] = replicas.into();
                if let Some(offset) = address {
                    fields["serverIP"] = at(offset.into()).into();
                }
                fields
            };
            let mut dhcp = json!({
                "leaseStorage": "Kubernetes",
                "reservations": reserved.iter().enumerate().map(|(n, offset)| json!({
                    "mac": format!("02:00:00:00:00:{n:02x}"), "address": at(*offset)})).collect::<Vec<_>>(),
                "exclusions": excluded.iter().map(|(first, length)| format!("{}-{}", at(*first), at(first + length)))
                    .collect::<Vec<_>>(),
            });
            if let Some((first, length)) = range {
                dhcp["rangeStart"] = at(first).into();
                dhcp["rangeEnd"] = at(first + length).into();
            }
            let published: Vec<String> = published.iter().map(|bits| Ipv4Addr::from(*bits).to_string()).collect();
            serde_json::from_value(json!({
                "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "Infra",
                "metadata": {"name": "a", "namespace": "clusters"},
                "spec": {
                    "networkConfig": {"cidr": network, "gateway": at(gateway), "networkAttachmentDefinition": "vlan"},
                    "infraComponents": {
                        "dhcp": part(0, dhcp),
                        "dns": part(1, json!({"baseDomain": "example.com"})),
                        "proxy": part(2, json!({"publishedIPs": published})),
                    },
                },
            }))
            .unwrap()
        })
}

/// Every address of a server, in no order.
fn servers(components: &Components) -> Vec<Ipv4Addr> {
    let all = components.addresses();
    let texts = all.dhcp.iter().chain(&all.dns).chain(&all.proxy);
    texts.map(|text| text.parse().unwrap()).collect()
}

fn range(components: &Components) -> Option<Range> {
    components
        .addresses()
        .dhcp_range
        .map(|text| text.parse().unwrap())
}

/// The properties below say nothing about an Infra that is refused, so enough must be accepted.
#[test]
fn enough_of_the_generated_infras_can_be_planned() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = infra();
    let sound = (0..400).filter(|_| {
        let infra = strategy.new_tree(&mut runner).unwrap().current();
        plan(&infra, &Known::default()).is_ok()
    });
    let sound = sound.count();
    assert!(sound >= 100, "only {sound} of 400");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_planned_is_free_of_overlap_and_stays(infra in infra()) {
        let components = match plan(&infra, &Known::default()) {
            Ok(components) => components,
            Err(mistakes) => {
                prop_assert!(!mistakes.is_empty());
                for mistake in mistakes {
                    prop_assert!(mistake.path.starts_with("spec."), "{mistake}");
                }
                return Ok(());
            }
        };
        let network: Ipv4Net = infra.spec.network_config.cidr.parse().unwrap();
        let gateway: Ipv4Addr = infra.spec.network_config.gateway.parse().unwrap();
        let mut taken = Set::from_iter([gateway]);
        for address in servers(&components) {
            prop_assert!(hosts(network).contains(address), "{address} is outside {network}");
            prop_assert!(!taken.contains(address), "{address} is there twice");
            taken.insert(address);
        }
        if let Some(range) = range(&components) {
            prop_assert!(hosts(network).covers(range), "{range} is outside {network}");
            prop_assert_eq!(taken.overlap(range), None, "a server is in the range");
        }
        prop_assert_eq!(support::refused_by_servers(&components), Vec::<String>::new());
        let again = plan(&infra, &Known::after(&components));
        prop_assert_eq!(again, Ok(components), "it changes when it is planned again");
    }

    #[test]
    fn neighbours_never_share_an_address(first in infra(), mut second in infra()) {
        let Ok(there) = plan(&first, &Known::default()) else { return Ok(()) };
        second.spec.network_config = first.spec.network_config.clone();
        second.metadata.name = Some("b".into());
        let known = Known {
            neighbours: vec![Neighbour::new(&first, &Known::after(&there), true)],
            ..Known::default()
        };
        let Ok(here) = plan(&second, &known) else { return Ok(()) };
        let occupied = |components: &Components| -> Set {
            servers(components).into_iter().map(Range::from).chain(range(components)).collect()
        };
        let there = occupied(&there);
        for range in occupied(&here).ranges() {
            prop_assert_eq!(there.overlap(range), None);
        }
    }
}
