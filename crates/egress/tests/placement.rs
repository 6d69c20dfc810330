//! Which node carries what.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use oooi_egress::{Groups, Lack, Unplaced, Wanted, place, preflight, shared_subnets};
use proptest::prelude::*;
use world::*;

fn address(n: usize) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0000 + u32::try_from(n).unwrap())
}

fn name(n: usize) -> String {
    format!("node-{n:03}")
}

fn group(nodes: impl IntoIterator<Item = usize>) -> BTreeSet<String> {
    nodes.into_iter().map(name).collect()
}

/// `count` addresses of one group, each of a namespace of its own.
fn wanted(count: usize) -> Vec<Wanted> {
    let one = |n| Wanted {
        address: address(n),
        namespace: format!("n{n}"),
        group: 0,
    };
    (0..count).map(one).collect()
}

fn loads(on: &BTreeMap<Ipv4Addr, String>) -> BTreeMap<String, usize> {
    let mut loads = BTreeMap::new();
    on.values()
        .for_each(|node| *loads.entry(node.clone()).or_default() += 1);
    loads
}

fn moves(before: &BTreeMap<Ipv4Addr, String>, after: &BTreeMap<Ipv4Addr, String>) -> usize {
    before
        .iter()
        .filter(|(address, node)| after.get(*address) != Some(*node))
        .count()
}

#[test]
fn addresses_are_spread_evenly_and_two_of_one_namespace_apart() {
    let mut all = wanted(3);
    all.extend((3..6).map(|n| Wanted {
        address: address(n),
        namespace: format!("n{}", n - 3),
        group: 1,
    }));
    let groups = vec![group(0..3), group(0..3)];
    let placement = place(&groups, &BTreeMap::new(), &all, &BTreeMap::new());
    assert!(loads(&placement.on).values().all(|load| *load == 2));
    for n in 0..3 {
        assert_ne!(
            placement.on[&address(n)],
            placement.on[&address(n + 3)],
            "{placement:?}"
        );
    }
}

#[test]
fn the_loss_of_one_node_moves_only_its_addresses() {
    let groups: Groups = vec![group(0..100)];
    let before = place(&groups, &BTreeMap::new(), &wanted(1500), &BTreeMap::new()).on;
    let lost = before.values().filter(|node| **node == name(7)).count();
    let left = vec![group((0..100).filter(|n| *n != 7))];
    let after = place(&left, &BTreeMap::new(), &wanted(1500), &before).on;
    assert_eq!((lost, moves(&before, &after)), (15, 15));
    assert_eq!(loads(&after).values().max(), Some(&16));
}

#[test]
fn a_node_that_joins_gets_its_share_and_no_more_is_moved() {
    let before = place(&vec![group(0..2)], &BTreeMap::new(), &wanted(9), &BTreeMap::new()).on;
    let after = place(&vec![group(0..3)], &BTreeMap::new(), &wanted(9), &before).on;
    assert_eq!(moves(&before, &after), 3);
    assert!(loads(&after).values().all(|load| *load == 3));
}

#[test]
fn capacity_is_respected_and_what_finds_no_room_is_told() {
    let room = BTreeMap::from([(name(0), 1), (name(1), 2)]);
    let placement = place(&vec![group(0..2)], &room, &wanted(4), &BTreeMap::new());
    assert_eq!(
        loads(&placement.on),
        room.iter().map(|(n, r)| (n.clone(), *r as usize)).collect()
    );
    assert_eq!(placement.unplaced, BTreeMap::from([(address(3), Unplaced::Full)]));
}

#[test]
fn without_a_healthy_node_an_address_stays_where_it_is() {
    let current = BTreeMap::from([(address(0), name(5))]);
    let placement = place(&vec![BTreeSet::new()], &BTreeMap::new(), &wanted(2), &current);
    assert_eq!(placement.on, current);
    assert_eq!(
        placement.unplaced.values().collect::<Vec<_>>(),
        [&Unplaced::NoNode; 2]
    );
}

#[test]
fn preflight_names_what_ovn_cannot_do() {
    let layout = layout(
        "x",
        &["10.0.0.0/24=a", "10.0.1.0/24=b", "10.9.0.0/24=c", "10.0.3.0/24=d"],
    );
    let mut full = node("n4", "d", "10.0.0.0/16");
    full.capacity = Some(2);
    let mut sick = node("n2", "b", "10.0.0.0/16");
    sick.healthy = false;
    let nodes = [
        node("n1", "a", "10.0.0.0/16"),
        sick,
        node("n3", "c", "10.0.0.0/16"),
        full,
    ];
    let lacks = preflight(&layout, &nodes, &[3, 3, 3, 3]);
    assert!(
        matches!(
            &lacks[..],
            [Lack::NoNode { value, .. }, Lack::NoSubnet { .. }, Lack::NoRoom { capacity: 2, needed: 3, .. },
             Lack::TooFewNodes { networks: 4, nodes: 3 }] if value == "b"
        ),
        "{lacks:?}"
    );
    let warnings = shared_subnets(&layout, &nodes);
    assert_eq!(
        warnings.len(),
        3,
        "a, b and d share the nodes' subnet: {warnings:?}"
    );
}

#[test]
fn nodes_that_tell_nothing_of_subnet_and_capacity_may_do() {
    let layout = layout("x", &["10.0.0.0/24=a"]);
    assert_eq!(preflight(&layout, &[node("n1", "a", "")], &[1000]), []);
}

#[test]
fn the_old_zone_label_falls_back_to_the_new_one() {
    let mut manifest = manifest("x", &["10.0.0.0/24=eu-1a"]);
    manifest["spec"]["topologyLabel"] = "failure-domain.beta.kubernetes.io/zone".into();
    let layout = layout_of(manifest);
    let mut node = node("n1", "a", "");
    assert!(!node.serves(&layout));
    node.labels
        .insert("topology.kubernetes.io/zone".into(), "eu-1a".into());
    assert!(node.serves(&layout));
    node.labels
        .insert("failure-domain.beta.kubernetes.io/zone".into(), "eu-1b".into());
    assert!(
        !node.serves(&layout),
        "where both are there the one that was asked for counts"
    );
}

/// The fewest moves that make `kept` even, when `total` addresses are on `kept.len()` nodes in the end.
fn fewest(mut kept: Vec<usize>, total: usize) -> usize {
    let (each, more) = (total / kept.len(), total % kept.len());
    kept.sort_unstable_by(|a, b| b.cmp(a));
    kept.iter()
        .enumerate()
        .map(|(n, load)| load.saturating_sub(each + usize::from(n < more)))
        .sum()
}

proptest! {
    #[test]
    fn a_group_is_even_after_the_fewest_moves(
        nodes in 1usize..9, count in 0usize..60, at in prop::collection::vec(prop::option::of(0usize..12), 60),
    ) {
        // Some addresses are on nodes of the group, some on others, some nowhere.
        let current: BTreeMap<Ipv4Addr, String> =
            (0..count).filter_map(|n| Some((address(n), name(at[n]?)))).collect();
        let placement = place(&vec![group(0..nodes)], &BTreeMap::new(), &wanted(count), &current);
        prop_assert_eq!(placement.on.len(), count);
        let after = loads(&placement.on);
        let load = |n: usize| after.get(&name(n)).copied().unwrap_or(0);
        let (low, high) = ((0..nodes).map(load).min().unwrap(), (0..nodes).map(load).max().unwrap());
        prop_assert!(high - low <= 1, "{:?}", after);
        let before = loads(&current);
        let kept: Vec<usize> = (0..nodes).map(|n| before.get(&name(n)).copied().unwrap_or(0)).collect();
        let stayed: BTreeMap<Ipv4Addr, String> =
            current.iter().filter(|(_, node)| group(0..nodes).contains(*node)).map(|(a, n)| (*a, n.clone())).collect();
        prop_assert_eq!(moves(&stayed, &placement.on), fewest(kept, count));
        prop_assert_eq!(&place(&vec![group(0..nodes)], &BTreeMap::new(), &wanted(count), &placement.on), &placement);
    }

    #[test]
    fn groups_that_share_nodes_respect_room_and_membership_and_come_to_rest(
        groups in prop::collection::vec(prop::collection::btree_set(0usize..6, 0..5), 1..4),
        room in prop::collection::btree_map(0usize..6, 0u32..8, 0..6),
        all in prop::collection::vec((0usize..4, 0usize..8, prop::option::of(0usize..8)), 0..40),
    ) {
        let groups: Groups = groups.into_iter().map(group).collect();
        let room: BTreeMap<String, u32> = room.into_iter().map(|(n, room)| (name(n), room)).collect();
        let wanted: Vec<Wanted> = all.iter().enumerate()
            .map(|(n, (group, namespace, _))| Wanted { address: address(n), namespace: format!("n{namespace}"), group: *group })
            .collect();
        let current: BTreeMap<Ipv4Addr, String> =
            all.iter().enumerate().filter_map(|(n, (_, _, at))| Some((address(n), name((*at)?)))).collect();
        let placement = place(&groups, &room, &wanted, &current);
        for one in wanted.iter().filter(|one| !placement.unplaced.contains_key(&one.address)) {
            prop_assert!(groups[one.group].contains(&placement.on[&one.address]));
        }
        let placed: BTreeMap<Ipv4Addr, String> = placement.on.iter()
            .filter(|(address, _)| !placement.unplaced.contains_key(*address)).map(|(a, n)| (*a, n.clone())).collect();
        for (node, load) in loads(&placed) {
            prop_assert!(room.get(&node).is_none_or(|room| load <= *room as usize), "{} is over its room", node);
        }
        prop_assert_eq!(place(&groups, &room, &wanted, &placement.on).on, placement.on);
    }
}
