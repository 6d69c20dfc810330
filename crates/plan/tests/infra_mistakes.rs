//! Every mistake is found, at its field, with its remedy; and several of them at once.

mod support;

use oooi_plan::Known;
use support::{infra, mistakes, only, planned, reasons};

fn table(network: impl Fn(&str) -> (String, String), cases: &[(&str, &str, &str)]) {
    for (text, path, says) in cases {
        let (network, components) = network(text);
        let (found, message) = only(&network, &components);
        assert_eq!(&found, path, "{text}: {message}");
        assert!(message.contains(says), "{text}: {message}");
    }
}

#[test]
fn a_network_that_cannot_be_served_is_refused() {
    let components = "dhcp: {}, dns: {baseDomain: example.com}, proxy: {}";
    table(
        |network| (network.to_owned(), components.to_owned()),
        &[
            (
                "cidr: 10.0.0.0, gateway: 10.0.0.1",
                "spec.networkConfig.cidr",
                "write one such as",
            ),
            (
                "cidr: 'fd00::/64', gateway: 10.0.0.1",
                "spec.networkConfig.cidr",
                "not an IPv4 network",
            ),
            (
                "cidr: 10.0.0.0/31, gateway: 10.0.0.1",
                "spec.networkConfig.cidr",
                "from /8 to /30",
            ),
            (
                "cidr: 10.0.0.0/7, gateway: 10.0.0.1",
                "spec.networkConfig.cidr",
                "from /8 to /30",
            ),
            (
                "cidr: 10.0.0.0/24, gateway: router",
                "spec.networkConfig.gateway",
                "not an IPv4 address",
            ),
            (
                "cidr: 10.0.0.0/24, gateway: 10.0.1.1",
                "spec.networkConfig.gateway",
                "outside 10.0.0.0/24",
            ),
            (
                "cidr: 10.0.0.0/24, gateway: 10.0.0.0",
                "spec.networkConfig.gateway",
                "network or the broadcast",
            ),
            (
                "cidr: 10.0.0.0/24, gateway: 10.0.0.255",
                "spec.networkConfig.gateway",
                "10.0.0.1-10.0.0.254",
            ),
            ("mtu: 100", "spec.networkConfig.mtu", "576 to 65535"),
            (
                "ntpServers: [10.0.0.1, ntp.example.com]",
                "spec.networkConfig.ntpServers[1]",
                "not an IPv4",
            ),
            (
                "ntpServers: [10.0.0.1, 10.0.0.1]",
                "spec.networkConfig.ntpServers[1]",
                "twice",
            ),
            (
                "searchDomains: ['a b']",
                "spec.networkConfig.searchDomains[0]",
                "no DNS name has",
            ),
            (
                "searchDomains: ['*.example.com']",
                "spec.networkConfig.searchDomains[0]",
                "without `*`",
            ),
            (
                "dnsServers: [dns.example.com]",
                "spec.networkConfig.dnsServers[0]",
                "is not a resolver",
            ),
            (
                "dnsServers: ['10.0.0.53:0']",
                "spec.networkConfig.dnsServers[0]",
                "is not a resolver",
            ),
            (
                "dnsServers: ['10.0.0.53:65536']",
                "spec.networkConfig.dnsServers[0]",
                "is not a resolver",
            ),
            (
                "dnsServers: ['10.0.0.53#name']",
                "spec.networkConfig.dnsServers[0]",
                "is not a resolver",
            ),
            (
                "dnsServers: ['tls://10.0.0.53#a b']",
                "spec.networkConfig.dnsServers[0]",
                "is not a resolver",
            ),
            (
                "dnsServers: [10.0.0.3]",
                "spec.networkConfig.dnsServers[0]",
                "is the DNS server itself",
            ),
            (
                "routes: [{destination: 10.9.0.0, gateway: 10.0.0.9}]",
                "spec.networkConfig.routes[0].destination",
                "not a network",
            ),
            (
                "routes: [{destination: 0.0.0.0/0, gateway: 10.0.0.9}]",
                "spec.networkConfig.routes[0].destination",
                "networkConfig.gateway",
            ),
            (
                "routes: [{destination: 10.0.0.0/24, gateway: 10.0.0.9}]",
                "spec.networkConfig.routes[0].destination",
                "themselves",
            ),
            (
                "routes: [{destination: 10.9.0.0/16, gateway: 10.9.0.1}]",
                "spec.networkConfig.routes[0].gateway",
                "outside 10.0.0.0/24",
            ),
            (
                "routes: [{destination: 10.9.0.0/16, gateway: 10.0.0.9}, {destination: 10.9.1.1/16, gateway: 10.0.0.8}]",
                "spec.networkConfig.routes[1].destination",
                "already",
            ),
        ],
    );
}

#[test]
fn a_server_s_address_is_its_own_and_on_the_network() {
    let dns = "spec.infraComponents.dns";
    let at = |field: &str| format!("{dns}.{field}");
    for (fields, path, says) in [
        ("serverIP: ten", at("serverIP"), "not an IPv4 address"),
        (
            "serverIP: 10.0.0.9/16",
            at("serverIP"),
            "write 10.0.0.9, or 10.0.0.9/24",
        ),
        ("serverIP: 10.0.0.9/x", at("serverIP"), "no prefix length"),
        ("serverIP: 10.1.0.9", at("serverIP"), "outside"),
        ("serverIP: 10.0.0.255", at("serverIP"), "broadcast"),
        (
            "serverIP: 10.0.0.1",
            at("serverIP"),
            "the VLAN's gateway's already (spec.networkConfig.gateway)",
        ),
        (
            "serverIP: 10.0.0.8",
            at("serverIP"),
            "the DHCP server's already (spec.infraComponents.dhcp.serverIP)",
        ),
        (
            "serverIP: 10.0.0.150",
            at("serverIP"),
            "inside the DHCP range 10.0.0.100-10.0.0.200",
        ),
        (
            "additionalServerIPs: [10.0.0.8]",
            at("additionalServerIPs[0]"),
            "the DHCP server's already",
        ),
        (
            "serverIP: 10.0.0.9, additionalServerIPs: [10.0.0.9]",
            at("additionalServerIPs[0]"),
            "the DNS server's already",
        ),
        (
            "replicas: 1, additionalServerIPs: [10.0.0.9]",
            at("additionalServerIPs"),
            "set replicas to 2",
        ),
        ("replicas: 6", at("replicas"), "1 to 5"),
        ("replicas: -1", at("replicas"), "1 to 5"),
    ] {
        let components = format!(
            "dhcp: {{serverIP: 10.0.0.8, rangeStart: 10.0.0.100, rangeEnd: 10.0.0.200}}, \
             dns: {{baseDomain: example.com, {fields}}}, proxy: {{}}"
        );
        let (found, message) = only("", &components);
        assert_eq!(found, path, "{fields}: {message}");
        assert!(message.contains(says), "{fields}: {message}");
    }
}

#[test]
fn what_a_dhcp_server_cannot_do_is_refused() {
    let at = |field: &str| format!("spec.infraComponents.dhcp{field}");
    let one = "mac: '02:00:00:00:00:01', address: 10.0.0.50";
    for (fields, path, says) in [
        ("rangeStart: 10.0.0.9".to_owned(), at(""), "rangeEnd is missing"),
        ("rangeEnd: 10.0.0.9".to_owned(), at(""), "rangeStart is missing"),
        ("rangeStart: 10.0.0.90, rangeEnd: 10.0.0.80".to_owned(), at(".rangeEnd"), "swap them"),
        ("rangeStart: 10.0.0.0, rangeEnd: 10.0.0.80".to_owned(), at(".rangeStart"), "network or the broadcast"),
        ("rangeStart: 10.0.0.9, rangeEnd: 10.0.1.80".to_owned(), at(".rangeEnd"), "outside"),
        ("leaseTime: 5s".to_owned(), at(".leaseTime"), "at least 10s"),
        ("leaseTime: 9000h".to_owned(), at(".leaseTime"), "at most 8760h"),
        ("leaseTime: soon".to_owned(), at(".leaseTime"), "not a duration"),
        ("replicas: 2".to_owned(), at(".leaseStorage"), "set leaseStorage to Kubernetes"),
        ("exclusions: [10.0.0.9-10.0.0.8]".to_owned(), at(".exclusions[0]"), "swap them"),
        ("exclusions: [10.0.1.1]".to_owned(), at(".exclusions[0]"), "not inside"),
        ("exclusions: [x]".to_owned(), at(".exclusions[0]"), "write one address"),
        (
            "rangeStart: 10.0.0.50, rangeEnd: 10.0.0.59, exclusions: [10.0.0.40-10.0.0.55, 10.0.0.56-10.0.0.60]".to_owned(),
            at(".exclusions"),
            "nothing is left",
        ),
        (format!("reservations: [{{{one}}}, {{clientId: '01:02', address: 10.0.0.50}}]"), at(".reservations[1].address"), "reservations[0] already"),
        (format!("reservations: [{{{one}}}, {{mac: 02-00-00-00-00-01, address: 10.0.0.51}}]"), at(".reservations[1].mac"), "reservations[0] already"),
        (
            "reservations: [{mac: '02:00:00:00:00:01', address: 10.0.0.50, hostname: A}, {mac: '02:00:00:00:00:02', address: 10.0.0.51, hostname: a}]".to_owned(),
            at(".reservations[1].hostname"),
            "host name a stands",
        ),
        ("reservations: [{mac: '02:00', address: 10.0.0.50}]".to_owned(), at(".reservations[0].mac"), "not a hardware address"),
        ("reservations: [{clientId: '0', address: 10.0.0.50}]".to_owned(), at(".reservations[0].clientId"), "two bytes"),
        ("reservations: [{address: 10.0.0.50}]".to_owned(), at(".reservations[0]"), "give one of them"),
        ("reservations: [{mac: '02:00:00:00:00:01', address: 10.1.0.50}]".to_owned(), at(".reservations[0].address"), "outside"),
        ("reservations: [{mac: '02:00:00:00:00:01', address: 10.0.0.1}]".to_owned(), at(".reservations[0].address"), "gateway"),
        ("serverIP: 10.0.0.2, reservations: [{mac: '02:00:00:00:00:01', address: 10.0.0.2}]".to_owned(), at(".reservations[0].address"), "of a server"),
        (format!("exclusions: [10.0.0.50], reservations: [{{{one}}}]"), at(".reservations[0].address"), "is excluded"),
        ("options: [{code: 3, value: 10.0.0.9}]".to_owned(), at(".options[0].code"), "write networkConfig.gateway"),
        ("options: [{code: 6, value: 10.0.0.9}]".to_owned(), at(".options[0].code"), "DNS server"),
        ("options: [{code: 121, value: '0x00'}]".to_owned(), at(".options[0].code"), "write networkConfig.routes"),
        ("options: [{code: 0, value: x}]".to_owned(), at(".options[0].code"), "1 to 254"),
        ("options: [{code: 53, value: x}]".to_owned(), at(".options[0].code"), "the protocol itself"),
        ("options: [{code: 66, value: a}, {code: 66, value: b}]".to_owned(), at(".options[1].code"), "join"),
        ("options: [{code: 66, value: ' '}]".to_owned(), at(".options[0].value"), "no value"),
    ] {
        let (found, message) = only("", &format!("dhcp: {{{fields}}}, dns: {{baseDomain: example.com}}, proxy: {{}}"));
        assert_eq!(found, path, "{fields}: {message}");
        assert!(message.contains(says), "{fields}: {message}");
    }
}

#[test]
fn what_a_dns_server_cannot_do_is_refused() {
    let at = |field: &str| format!("spec.infraComponents.dns{field}");
    for (fields, path, says) in [
        ("", at(".baseDomain"), "set baseDomain"),
        (
            "baseDomain: 10.0.0.1, clusterName: ''",
            at(".baseDomain"),
            "is an address",
        ),
        (
            "baseDomain: example..com",
            at(".baseDomain"),
            "part that is empty",
        ),
        (
            "baseDomain: example.com, cacheTTL: soon",
            at(".cacheTTL"),
            "not a duration",
        ),
        (
            "baseDomain: example.com, staticEntries: [{hostname: 'a..b', ip: 10.0.0.9}]",
            at(".staticEntries[0].hostname"),
            "part that is empty",
        ),
        (
            "baseDomain: example.com, staticEntries: [{hostname: a.b, ip: x}]",
            at(".staticEntries[0].ip"),
            "not an IPv4 address",
        ),
        (
            "baseDomain: example.com, staticEntries: [{hostname: a.b, ip: 10.0.0.9, additionalIPs: [x]}]",
            at(".staticEntries[0].additionalIPs[0]"),
            "not an IPv4 address",
        ),
        (
            "baseDomain: example.com, forwardZones: [{zone: corp, upstreams: []}]",
            at(".forwardZones[0].upstreams"),
            "at least one",
        ),
        (
            "baseDomain: example.com, forwardZones: [{zone: x.my-cluster.example.com, upstreams: [10.1.0.53]}]",
            at(".forwardZones[0].zone"),
            "answers itself",
        ),
        (
            "baseDomain: example.com, forwardZones: [{zone: corp, upstreams: [10.1.0.53]}, {zone: Corp, upstreams: [10.1.0.53]}]",
            at(".forwardZones[1].zone"),
            "twice",
        ),
        (
            "baseDomain: example.com, serverIP: 10.0.0.9, forwardZones: [{zone: corp, upstreams: ['10.0.0.9:53']}]",
            at(".forwardZones[0].upstreams[0]"),
            "the DNS server itself",
        ),
    ] {
        let (found, message) = only("", &format!("dhcp: {{}}, dns: {{{fields}}}, proxy: {{}}"));
        assert_eq!(found, path, "{fields}: {message}");
        assert!(message.contains(says), "{fields}: {message}");
    }
}

#[test]
fn all_mistakes_come_at_once_and_name_the_fields_as_the_manifest_does() {
    let found = mistakes(
        &infra(
            "cidr: 10.0.0.0/33, gateway: x, mtu: 1",
            "dhcp: {serverIP: y, leaseTime: z, replicas: 9}, dns: {cacheTTL: q}, proxy: {idleTimeout: w}",
        ),
        &Known::default(),
    );
    let paths: Vec<&str> = found.iter().map(|mistake| mistake.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "spec.networkConfig.cidr",
            "spec.networkConfig.gateway",
            "spec.networkConfig.mtu",
            "spec.infraComponents.dns.baseDomain",
            "spec.infraComponents.dhcp.replicas",
            "spec.infraComponents.dhcp.serverIP",
            "spec.infraComponents.dhcp.leaseTime",
            "spec.infraComponents.dns.cacheTTL",
            "spec.infraComponents.proxy.idleTimeout",
        ]
    );
}

#[test]
fn what_works_but_not_as_expected_is_a_warning() {
    for (network, components, reason) in [
        ("", "dns: {baseDomain: example.com}, proxy: {}", "NoUpstream"),
        ("dnsServers: [system]", "dhcp: {}", "NoResolver"),
        ("", "dns: {baseDomain: example.com}", "NoGateway"),
        ("", "dns: {baseDomain: example.com}, proxy: {}", "AppsNotServed"),
        ("", "dhcp: {enabled: false}", "NothingRuns"),
        (
            "cidr: 10.0.0.7/24, gateway: 10.0.0.1",
            "dhcp: {}",
            "HostBitsIgnored",
        ),
        (
            "",
            "dhcp: {image: 'quay.io/cldmnky/oooi:latest'}",
            "DefaultImageIgnored",
        ),
        (
            "",
            "dhcp: {image: 'ghcr.io/cldmnky/hyperdhcp:latest'}",
            "DefaultImageIgnored",
        ),
        (
            "",
            "dhcp: {}, dns: {baseDomain: example.com}, proxy: {replicas: 2, publishedIPs: [203.0.113.1]}",
            "PublishedThroughOneGateway",
        ),
    ] {
        let plan = planned(&infra(network, components), &Known::default());
        assert!(
            reasons(&plan).contains(&reason),
            "{components}: {:?}",
            plan.warnings
        );
    }
}

#[test]
fn a_name_that_no_service_can_have_is_a_mistake() {
    let mut infra = infra("", support::DNS);
    infra.metadata.name = Some("4u".into());
    let found = mistakes(&infra, &Known::default());
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].path, "metadata.name");
    assert!(
        found[0].message.contains("begins with a digit"),
        "{}",
        found[0].message
    );
}
