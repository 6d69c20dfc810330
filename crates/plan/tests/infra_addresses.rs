//! Who gets which address.

mod support;

use oooi_plan::infra::{Attachment, Neighbour};
use oooi_plan::{Known, plan_all};
use support::{DNS, addresses, infra, mistakes, planned, reasons};

const ALL: &str = "dhcp: {}, dns: {baseDomain: example.com}, proxy: {}";

#[test]
fn addresses_that_nobody_set_are_the_next_after_the_gateway() {
    for (network, expected) in [
        ("", "10.0.0.2; 10.0.0.3; 10.0.0.4; 10.0.0.5-10.0.0.246"),
        (
            "cidr: 10.0.0.0/24, gateway: 10.0.0.254",
            "10.0.0.1; 10.0.0.2; 10.0.0.3; 10.0.0.4-10.0.0.245",
        ),
        (
            "cidr: 10.0.0.0/24, gateway: 10.0.0.3",
            "10.0.0.1; 10.0.0.2; 10.0.0.4; 10.0.0.5-10.0.0.246",
        ),
        (
            "cidr: 10.0.0.0/8, gateway: 10.0.0.1",
            "10.0.0.2; 10.0.0.3; 10.0.0.4; 10.0.0.5-10.255.255.246",
        ),
        (
            "cidr: 10.0.0.0/27, gateway: 10.0.0.1",
            "10.0.0.2; 10.0.0.3; 10.0.0.4; 10.0.0.5-10.0.0.22",
        ),
        // Eight at the top would leave two of ten: half of them stays out instead.
        (
            "cidr: 10.0.0.0/28, gateway: 10.0.0.1",
            "10.0.0.2; 10.0.0.3; 10.0.0.4; 10.0.0.5-10.0.0.9",
        ),
        (
            "cidr: 10.0.0.0/29, gateway: 10.0.0.1",
            "10.0.0.2; 10.0.0.3; 10.0.0.4; 10.0.0.5-10.0.0.5",
        ),
    ] {
        let plan = planned(&infra(network, ALL), &Known::default());
        assert_eq!(addresses(&plan), expected, "{network}");
    }
}

#[test]
fn a_network_that_is_too_small_is_refused_by_who_goes_without() {
    let found = mistakes(
        &infra("cidr: 10.0.0.0/30, gateway: 10.0.0.1", ALL),
        &Known::default(),
    );
    let paths: Vec<&str> = found.iter().map(|mistake| mistake.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "spec.infraComponents.dns.serverIP",
            "spec.infraComponents.proxy.serverIP",
            "spec.infraComponents.dhcp"
        ]
    );
    assert!(found[0].message.contains("use a larger network"), "{}", found[0]);
}

#[test]
fn replicas_get_addresses_of_their_own_and_everybody_learns_of_them() {
    let plan = planned(
        &infra(
            "",
            "dhcp: {replicas: 2, leaseStorage: Kubernetes}, dns: {baseDomain: example.com, replicas: 3}, \
             proxy: {additionalServerIPs: [10.0.0.9]}",
        ),
        &Known::default(),
    );
    assert_eq!(
        addresses(&plan),
        "10.0.0.2 10.0.0.5; 10.0.0.3 10.0.0.6 10.0.0.7; 10.0.0.4 10.0.0.9; 10.0.0.10-10.0.0.246"
    );
    let dhcp = plan.dhcp.unwrap();
    assert_eq!(
        dhcp.network_config.dns_servers,
        ["10.0.0.3", "10.0.0.6", "10.0.0.7"]
    );
    assert_eq!(dhcp.replicas, Some(2));
    let dns = plan.dns.unwrap();
    let api = dns
        .static_entries
        .iter()
        .find(|e| e.hostname == "api.my-cluster.example.com")
        .unwrap();
    assert_eq!(
        (api.ip.as_str(), &*api.additional_ips),
        ("10.0.0.4", &["10.0.0.9".to_owned()][..])
    );
    assert_eq!(dns.network_config.additional_proxy_ips, ["10.0.0.9"]);
    assert_eq!(plan.proxy.unwrap().replicas, Some(2));
}

#[test]
fn an_address_that_was_chosen_never_moves() {
    let before = planned(&infra("", ALL), &Known::default());
    let known = Known::after(&before);
    // A gateway in the middle, a further replica, a reservation, a larger network: the old ones stay.
    for (network, components, expected) in [
        (
            "cidr: 10.0.0.0/23, gateway: 10.0.1.1",
            ALL,
            "10.0.0.2; 10.0.0.3; 10.0.0.4; 10.0.0.5-10.0.0.246",
        ),
        (
            "",
            "dhcp: {}, dns: {baseDomain: example.com, replicas: 3}, proxy: {replicas: 2}",
            "10.0.0.2; 10.0.0.3 10.0.0.247 10.0.0.249; 10.0.0.4 10.0.0.248; 10.0.0.5-10.0.0.246",
        ),
        (
            "",
            "dhcp: {reservations: [{mac: '02:00:00:00:00:01', address: 10.0.0.247}]}, \
             dns: {baseDomain: example.com, replicas: 2}, proxy: {}",
            "10.0.0.2; 10.0.0.3 10.0.0.248; 10.0.0.4; 10.0.0.5-10.0.0.246",
        ),
    ] {
        let plan = planned(&infra(network, components), &known);
        assert_eq!(addresses(&plan), expected);
        let again = planned(&infra(network, components), &Known::after(&plan));
        assert_eq!(again, plan);
    }
}

#[test]
fn what_is_written_wins_over_what_was_chosen_and_the_move_is_said() {
    let known = Known::after(&planned(&infra("", ALL), &Known::default()));
    let plan = planned(
        &infra(
            "",
            "dhcp: {}, dns: {baseDomain: example.com, serverIP: 10.0.0.100/24}, proxy: {}",
        ),
        &known,
    );
    // The widest stretch without 10.0.0.100, less the top eight; 10.0.0.3 is free again and part of nothing.
    assert_eq!(
        addresses(&plan),
        "10.0.0.2; 10.0.0.100; 10.0.0.4; 10.0.0.101-10.0.0.246"
    );
    assert!(reasons(&plan).contains(&"RangeMoved"), "{:?}", plan.warnings);

    let plan = planned(
        &infra(
            "",
            "dhcp: {serverIP: 10.0.0.3}, dns: {baseDomain: example.com}, proxy: {}",
        ),
        &known,
    );
    assert_eq!(
        addresses(&plan),
        "10.0.0.3; 10.0.0.2; 10.0.0.4; 10.0.0.5-10.0.0.246"
    );
    assert!(reasons(&plan).contains(&"AddressMoved"), "{:?}", plan.warnings);
}

#[test]
fn chosen_addresses_keep_clear_of_everything_that_is_written() {
    let plan = planned(
        &infra(
            "",
            "dhcp: {rangeStart: 10.0.0.2, rangeEnd: 10.0.0.9, exclusions: [10.0.0.10-10.0.0.11], \
             reservations: [{mac: '02:00:00:00:00:01', address: 10.0.0.12}]}, \
             dns: {baseDomain: example.com}, proxy: {publishedIPs: [10.0.0.13]}",
        ),
        &Known::default(),
    );
    assert_eq!(
        addresses(&plan),
        "10.0.0.14; 10.0.0.15; 10.0.0.16; 10.0.0.2-10.0.0.9"
    );
    assert!(
        plan.dhcp.unwrap().network_config.routes.is_empty(),
        "a published address on the VLAN needs no route"
    );
}

#[test]
fn the_gateway_s_address_is_remembered_while_it_does_not_run() {
    let without = planned(&infra("", &format!("dhcp: {{}}, {DNS}")), &Known::default());
    assert_eq!(without.dns.as_ref().unwrap().network_config.proxy_ip, "10.0.0.4");
    assert!(reasons(&without).contains(&"NoGateway"));
    let with = planned(&infra("", ALL), &Known::after(&without));
    assert_eq!(
        addresses(&with),
        "10.0.0.2; 10.0.0.3; 10.0.0.4; 10.0.0.5-10.0.0.246"
    );
}

#[test]
fn a_neighbour_s_addresses_are_never_chosen_and_its_server_and_machines_are_left_alone() {
    let other = infra(
        "",
        "dhcp: {serverIP: 10.0.0.2, rangeStart: 10.0.0.100, rangeEnd: 10.0.0.254}, \
         dns: {baseDomain: example.net, serverIP: 10.0.0.3}, proxy: {serverIP: 10.0.0.4}",
    );
    let known = Known {
        neighbours: vec![Neighbour::new(&other, &Known::default(), true)],
        ..Known::default()
    };
    let plan = planned(&infra("", ALL), &known);
    assert_eq!(
        addresses(&plan),
        "10.0.0.5; 10.0.0.6; 10.0.0.7; 10.0.0.8-10.0.0.91"
    );
    let dhcp = plan.dhcp.unwrap();
    assert_eq!(
        serde_json::to_value(dhcp.lease_config.unknown_clients).unwrap(),
        "Ignore"
    );
    assert_eq!(dhcp.network_config.known_servers, ["10.0.0.2"], "no stranger");
}

#[test]
fn overlap_with_who_was_first_is_refused_with_its_name_and_warned_of_otherwise() {
    let other = planned(&infra("", ALL), &Known::default());
    let ours = infra(
        "",
        "dhcp: {serverIP: 10.0.0.3, rangeStart: 10.0.0.200, rangeEnd: 10.0.0.254}, dns: {baseDomain: example.com, \
         serverIP: 10.0.0.198}, proxy: {serverIP: 10.0.0.199}",
    );
    let known = |first| Known {
        neighbours: vec![Neighbour::new(&infra("", ALL), &Known::after(&other), first)],
        ..Known::default()
    };
    let found: Vec<String> = mistakes(&ours, &known(true))
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        found,
        [
            "spec.infraComponents.dhcp.serverIP: 10.0.0.3 of the DHCP server is used on the same VLAN by the DNS \
             server of Infra clusters/my-cluster: choose other addresses here or there",
            "spec.infraComponents.dns.serverIP: 10.0.0.198 of the DNS server is used on the same VLAN by the DHCP \
             range of Infra clusters/my-cluster: choose other addresses here or there",
            "spec.infraComponents.proxy.serverIP: 10.0.0.199 of the gateway is used on the same VLAN by the DHCP \
             range of Infra clusters/my-cluster: choose other addresses here or there",
            "spec.infraComponents.dhcp.rangeStart: 10.0.0.200-10.0.0.246 of the DHCP range is used on the same VLAN \
             by the DHCP range of Infra clusters/my-cluster: choose other addresses here or there",
        ]
    );
    let warned = planned(&ours, &known(false));
    assert_eq!(
        reasons(&warned)
            .iter()
            .filter(|reason| **reason == "AddressOverlap")
            .count(),
        4
    );
}

#[test]
fn a_full_vlan_names_who_fills_it() {
    let other = infra("", "dhcp: {rangeStart: 10.0.0.5, rangeEnd: 10.0.0.254}");
    let known = Known {
        neighbours: vec![Neighbour::new(&other, &Known::default(), true)],
        ..Known::default()
    };
    let found = mistakes(&infra("", ALL), &known);
    assert_eq!(found[0].path, "spec.infraComponents.dhcp");
    assert!(
        found[0].message.contains("beside clusters/my-cluster"),
        "{}",
        found[0]
    );
}

#[test]
fn pods_use_the_attachment_that_was_made_for_them() {
    let known = Known {
        attachment: Some(Attachment {
            namespace: "clusters".into(),
            name: "my-cluster-vlan".into(),
        }),
        ..Known::default()
    };
    let plan = planned(&infra("networkAttachmentNamespace: default", ALL), &known);
    let proxy = plan.proxy.unwrap().network_config;
    assert_eq!(
        (proxy.attachment(), proxy.attachment_namespace()),
        (Some("my-cluster-vlan"), Some("clusters"))
    );
    let plan = planned(
        &infra("networkAttachmentNamespace: default", ALL),
        &Known::default(),
    );
    let dns = plan.dns.unwrap().network_config;
    assert_eq!(dns.network_attachment_name.as_deref(), Some("vlan"));
    assert_eq!(dns.network_attachment_namespace.as_deref(), Some("default"));
}

#[test]
fn infras_of_one_file_are_neighbours_if_they_name_the_same_network() {
    let named = |name: &str, network: &str, components: &str| {
        let mut infra = infra(network, components);
        infra.metadata.name = Some(name.into());
        infra
    };
    let ranged = |first: u8, last: u8| {
        format!(
            "dhcp: {{rangeStart: 10.0.0.{first}, rangeEnd: 10.0.0.{last}}}, dns: {{baseDomain: example.com}}, proxy: {{}}"
        )
    };
    let plans = plan_all(&[
        named("a", "", &ranged(100, 149)),
        named("b", "", &ranged(150, 199)),
        named("c", "", &ranged(140, 160)),
        named(
            "elsewhere",
            "networkAttachmentNamespace: other",
            &ranged(100, 199),
        ),
    ]);
    let texts: Vec<String> = plans.iter().flatten().map(addresses).collect();
    assert_eq!(
        texts,
        [
            "10.0.0.2; 10.0.0.3; 10.0.0.4; 10.0.0.100-10.0.0.149",
            "10.0.0.5; 10.0.0.6; 10.0.0.7; 10.0.0.150-10.0.0.199",
            "10.0.0.2; 10.0.0.3; 10.0.0.4; 10.0.0.100-10.0.0.199",
        ]
    );
    let ignores = |at: usize| {
        plans[at]
            .as_ref()
            .unwrap()
            .dhcp
            .as_ref()
            .unwrap()
            .lease_config
            .unknown_clients
            .is_some()
    };
    assert_eq!((ignores(0), ignores(1), ignores(3)), (true, true, false));
    let refused: Vec<String> = plans[2]
        .as_ref()
        .unwrap_err()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(refused.len(), 2, "{refused:#?}");
    assert!(
        refused[0].contains("10.0.0.140-10.0.0.149") && refused[0].contains("Infra clusters/a"),
        "{}",
        refused[0]
    );
    assert!(
        refused[1].contains("10.0.0.150-10.0.0.160") && refused[1].contains("Infra clusters/b"),
        "{}",
        refused[1]
    );
}
