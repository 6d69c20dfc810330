//! `oooi doctor` in the lab: one thing is broken at a time, and the doctor names it. Needs root.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod ward;

use std::time::{Duration, SystemTime};

use oooi_api::dns_server::DnsStaticEntry;
use oooi_net::Network;
use oooi_standalone::lab::control_plane::Backend;
use ward::Ward;

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_healthy_site_has_no_findings_and_no_lease_is_left() {
    let ward = Ward::new();
    let servers = ward.start();
    ward.site.start_control_plane().unwrap();
    let report = ward.doctor(&[]);
    assert_eq!((report.code, report.state()), (0, "ok"), "{}", report.document);
    assert!(report.document["cause"].is_null());
    let left = ward.addresses();
    assert!(left.is_empty(), "{left:?} is still on the interface");
    servers.stop();
    let leases = ward.leases();
    assert!(leases.iter().all(|state| state != "bound"), "{leases:?}");
}

#[test]
fn without_an_infra_the_lease_tells_what_to_look_at() {
    let ward = Ward::new();
    let _servers = ward.start();
    ward.site.start_control_plane().unwrap();
    let report = ward.doctor_without_infra();
    // A site without upstreams is worth a look where no Infra says that it is meant.
    assert_eq!(
        (report.code, report.cause()),
        (3, "dns-no-upstream"),
        "{}",
        report.document
    );
    assert!(
        report.text().contains("api.lab.example.com:6443"),
        "{}",
        report.document
    );
}

#[test]
fn an_interface_that_is_not_there_is_named_with_those_that_are() {
    let ward = Ward::new();
    let report = ward.doctor(&["--interface", "eth7"]);
    assert_eq!((report.code, report.cause()), (1, "link-missing"));
    assert!(report.text().contains("there is: eth0"), "{}", report.document);
}

#[test]
fn an_interface_that_is_down() {
    let ward = Ward::new();
    ward.node
        .run(async || Network::open().unwrap().set_down("eth0").await.unwrap())
        .unwrap();
    assert_eq!(ward.doctor(&[]).cause(), "link-down");
}

#[test]
fn a_cable_that_is_not_plugged_in() {
    let ward = Ward::new();
    let vlan = &ward.site.topology.vlan;
    vlan.run(async || Network::open().unwrap().set_down("node").await.unwrap())
        .unwrap();
    assert_eq!(ward.doctor(&[]).cause(), "link-no-carrier");
}

#[test]
fn no_dhcp_server() {
    let ward = Ward::new();
    let report = ward.doctor(&[]);
    assert_eq!(report.cause(), "dhcp-silent", "{}", report.document);
    assert!(report.found("address-missing"));
}

#[test]
fn a_rogue_dhcp_server_is_named_beside_the_right_one() {
    let ward = Ward::new();
    let _servers = ward.start();
    ward.site.start_control_plane().unwrap();
    let _rogue = ward.rogue();
    let report = ward.doctor(&[]);
    assert_eq!(report.cause(), "dhcp-rogue", "{}", report.document);
    assert!(report.text().contains("192.168.100.9"), "{}", report.document);
    let report = ward.doctor_without_infra();
    assert!(report.found("dhcp-several"), "{}", report.document);
}

#[test]
fn an_offer_of_another_network_and_options_that_are_missing_or_wrong() {
    let ward = Ward::new();
    let _servers = ward.start();
    let manifest = ward
        .manifest()
        .replace("gateway: 192.168.100.1", "gateway: 192.168.100.254");
    let report = ward.doctor_of(&manifest);
    assert_eq!(report.cause(), "dhcp-option-wrong", "{}", report.document);
    assert!(
        report
            .text()
            .contains("router (option 3) 192.168.100.1, not 192.168.100.254"),
        "{}",
        report.document
    );

    let manifest = ward
        .manifest()
        .replace("    gateway:", "    ntpServers: [192.168.100.1]\n    gateway:");
    let report = ward.doctor_of(&manifest);
    assert_eq!(report.cause(), "dhcp-option-missing", "{}", report.document);
    assert!(
        report.text().contains("time servers (option 42)"),
        "{}",
        report.document
    );

    let manifest = ward
        .manifest()
        .replace("0/24", "0/26")
        .replace("100.100\n", "100.10\n")
        .replace("100.200\n", "100.20\n");
    let report = ward.doctor_of(&manifest);
    assert_eq!(report.cause(), "dhcp-address-wrong", "{}", report.document);
}

#[test]
fn a_server_that_offers_and_does_not_give() {
    let ward = Ward::new();
    ward.offer_only();
    let report = ward.doctor(&[]);
    assert_eq!(report.cause(), "dhcp-refused", "{}", report.document);
}

#[test]
fn large_packets_that_vanish() {
    let ward = Ward::new();
    let _servers = ward.start();
    ward.site.start_control_plane().unwrap();
    let vlan = &ward.site.topology.vlan;
    vlan.run(async || Network::open().unwrap().set_mtu("node", 1400).await.unwrap())
        .unwrap();
    let report = ward.doctor(&[]);
    assert_eq!(report.cause(), "mtu-blackhole", "{}", report.document);
    assert!(report.text().contains("1404 bytes pass"), "{}", report.document);
}

#[test]
fn a_resolver_that_is_not_there() {
    let ward = Ward::new();
    let _servers = ward.start();
    ward.site.start_control_plane().unwrap();
    ward.take_address("192.168.100.3".parse().unwrap());
    let report = ward.doctor(&[]);
    assert_eq!(report.cause(), "dns-silent", "{}", report.document);
    assert!(report.text().contains("192.168.100.3"), "{}", report.document);
}

#[test]
fn a_name_that_the_server_does_not_have_and_one_that_leads_elsewhere() {
    let ward = Ward::new();
    ward.change(|infra| {
        let entry = DnsStaticEntry {
            hostname: "registry.lab.example.com".into(),
            ip: "192.168.100.77".into(),
            additional_ips: Vec::new(),
        };
        infra
            .spec
            .infra_components
            .as_mut()
            .unwrap()
            .dns
            .as_mut()
            .unwrap()
            .static_entries
            .push(entry);
    });
    let _servers = ward.start();
    ward.site.start_control_plane().unwrap();
    let with = |entry: &str| {
        ward.manifest().replace(
            "      clusterName: lab\n",
            &format!("      clusterName: lab\n      staticEntries: [{entry}]\n"),
        )
    };
    let report = ward.doctor_of(&with("{hostname: registry.lab.example.com, ip: 192.168.100.50}"));
    assert_eq!(report.cause(), "dns-wrong-view", "{}", report.document);
    assert!(
        report.text().contains("says 192.168.100.77, not 192.168.100.50"),
        "{}",
        report.document
    );
    let report = ward.doctor_of(&with("{hostname: other.lab.example.com, ip: 192.168.100.50}"));
    assert_eq!(report.cause(), "dns-name-missing", "{}", report.document);
}

#[test]
fn a_resolver_that_takes_the_node_for_a_stranger() {
    let ward = Ward::new();
    let _servers = ward.start_with_dns_elsewhere();
    ward.answer_dns(5);
    let report = ward.doctor(&[]);
    assert!(report.found("dns-refused"), "{}", report.document);
}

#[test]
fn a_resolver_that_fails() {
    let ward = Ward::new();
    let _servers = ward.start_with_dns_elsewhere();
    ward.answer_dns(2);
    let report = ward.doctor(&[]);
    assert!(report.found("dns-broken"), "{}", report.document);
}

#[test]
fn upstreams_that_do_not_answer() {
    let ward = Ward::new();
    let upstream =
        |manifest: String| manifest.replace("    gateway:", "    dnsServers: [10.244.0.99]\n    gateway:");
    ward.change(|infra| infra.spec.network_config.dns_servers = vec!["10.244.0.99".into()]);
    let _servers = ward.start();
    ward.site.start_control_plane().unwrap();
    let report = ward.doctor_of(&upstream(ward.manifest()));
    assert_eq!(
        (report.code, report.cause()),
        (3, "dns-upstream-dead"),
        "{}",
        report.document
    );
}

#[test]
fn a_gateway_that_is_not_there_does_not_listen_or_is_not_routed_to() {
    let ward = Ward::new();
    let _servers = ward.start();
    ward.site.start_control_plane().unwrap();
    ward.take_address("192.168.100.4".parse().unwrap());
    let report = ward.doctor(&[]);
    assert_eq!(report.cause(), "tcp-silent", "{}", report.document);

    let _stranger = ward.stranger("192.168.100.4/24");
    let report = ward.doctor(&[]);
    assert_eq!(report.cause(), "tcp-refused", "{}", report.document);

    // The node has an address of its own, from which nothing leads anywhere.
    ward.put_node_address("10.9.9.9/32");
    let report = ward.doctor(&[]);
    assert!(report.found("no-route"), "{}", report.document);
}

#[test]
fn a_service_without_a_pod_is_reset_and_one_that_hangs_is_silent() {
    let ward = Ward::new();
    let _servers = ward.start();
    for stand_in in &ward.site.control_plane {
        match &*stand_in.service {
            // Nobody listens there.
            "oauth-openshift" => {}
            "konnectivity-server" => ward.plain(stand_in, b""),
            _ => ward.site.start_stand_in(stand_in, &stand_in.service).unwrap(),
        }
    }
    let report = ward.doctor(&[]);
    assert!(
        report.found("tls-reset") && report.found("tls-silent"),
        "{}",
        report.document
    );
}

#[test]
fn a_service_that_does_not_speak_tls() {
    let ward = Ward::new();
    let _servers = ward.start();
    ward.start_all_but("oauth-openshift", |stand_in| {
        ward.plain(stand_in, b"220 hello\r\n");
    });
    assert_eq!(ward.doctor(&[]).cause(), "tls-broken");
}

#[test]
fn certificates_for_other_names_over_not_begun_and_for_another_use() {
    let now = SystemTime::now();
    type Break = Box<dyn Fn(&mut Backend)>;
    let cases: [(&str, Break); 4] = [
        (
            "certificate-names",
            Box::new(|backend| backend.names = vec!["other.example.com".into()]),
        ),
        (
            "certificate-expired",
            Box::new(move |backend| backend.valid = Some((now - 2 * HOUR, now - HOUR))),
        ),
        (
            "certificate-not-yet-valid",
            Box::new(move |backend| backend.valid = Some((now + HOUR, now + 2 * HOUR))),
        ),
        (
            "certificate-broken",
            Box::new(|backend| backend.for_clients = true),
        ),
    ];
    for (wanted, break_it) in cases {
        let ward = Ward::new();
        let _servers = ward.start();
        ward.start_all_but("kube-apiserver", |stand_in| ward.broken(stand_in, &break_it));
        let report = ward.doctor(&[]);
        assert_eq!(report.cause(), wanted, "{}", report.document);
    }
}

#[test]
fn a_clock_that_is_wrong_is_named_instead_of_the_certificate() {
    let ward = Ward::new();
    let _servers = ward.start();
    let now = SystemTime::now();
    // The control plane lives an hour and a half later: its certificates are not valid yet by this machine's clock.
    ward.start_all_but("kube-apiserver", |stand_in| {
        ward.broken(stand_in, |backend| {
            backend.valid = Some((now + HOUR, now + 4 * HOUR));
            backend.clock = HOUR + HOUR / 2;
        });
    });
    let report = ward.doctor(&[]);
    assert_eq!(report.cause(), "clock-wrong", "{}", report.document);
    assert!(!report.found("certificate-not-yet-valid"), "{}", report.document);
}

#[test]
fn a_certificate_of_another_authority() {
    let ward = Ward::new();
    let _servers = ward.start();
    ward.site.start_control_plane().unwrap();
    let other = ward.file(
        "other.pem",
        &oooi_standalone::lab::control_plane::Authority::new()
            .unwrap()
            .pem(),
    );
    let own = ward.file("own.pem", &ward.site.authority.pem());
    assert_eq!(ward.doctor(&["--ca", &own]).code, 0);
    assert_eq!(ward.doctor(&["--ca", &other]).cause(), "certificate-issuer");
}

#[test]
fn an_api_server_and_an_ignition_server_that_fail() {
    for (service, wanted) in [
        ("kube-apiserver", "api-answer"),
        ("ignition-server-proxy", "ignition-answer"),
    ] {
        let ward = Ward::new();
        let _servers = ward.start();
        ward.start_all_but(service, |stand_in| {
            ward.broken(stand_in, |backend| backend.status = 503);
        });
        let report = ward.doctor(&[]);
        assert_eq!(report.cause(), wanted, "{}", report.document);
        assert!(report.text().contains("answers 503"), "{}", report.document);
    }
}
