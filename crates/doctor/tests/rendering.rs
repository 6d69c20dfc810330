//! What people see: the screen of `oooi status`, and the tree of `oooi doctor`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kube::ResourceExt;
use oooi_api::EgressIpam;
use oooi_doctor::diagnose;
use oooi_doctor::egress::{self, EgressStatus};
use oooi_doctor::inventory::Inventory;
use oooi_doctor::report::{Check, Report};
use oooi_doctor::status::{Status, overview};
use oooi_doctor::style::Style;
use oooi_plan::{Components, Known};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-11-16T00:00:00Z"})
}

fn pod(component: &str, address: &str, ready: bool, attached: bool) -> Value {
    let networks = json!([{"name": "x-vlan", "ips": [format!("{address}/24")]}]).to_string();
    let status = if attached {
        json!([{"name": "clusters/x-vlan", "ips": [address]}])
    } else {
        json!([])
    };
    json!({
        "metadata": {
            "name": format!("x-{component}-1"), "namespace": "clusters",
            "labels": {"app.kubernetes.io/component": component},
            "annotations": {
                "k8s.v1.cni.cncf.io/networks": networks,
                "k8s.v1.cni.cncf.io/network-status": status.to_string(),
            },
        },
        "status": {"conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
    })
}

fn slice(service: &str, ready: bool) -> Value {
    json!({
        "metadata": {
            "name": service, "namespace": "clusters-x", "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}],
    })
}

const SERVICES: [&str; 4] = [
    "kube-apiserver",
    "oauth-openshift",
    "ignition-server-proxy",
    "konnectivity-server",
];

/// An Infra that is well.
fn healthy() -> (Inventory, Components) {
    let infra = object(json!({
        "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "Infra",
        "metadata": {"name": "x", "namespace": "clusters"},
        "spec": {
            "networkConfig": {
                "cidr": "192.168.100.0/24", "gateway": "192.168.100.1", "networkAttachmentDefinition": "vlan100",
            },
            "infraComponents": {
                "dhcp": {"serverIP": "192.168.100.2", "rangeStart": "192.168.100.100", "rangeEnd": "192.168.100.200"},
                "dns": {"serverIP": "192.168.100.3", "baseDomain": "example.com", "clusterName": "x"},
                "proxy": {"serverIP": "192.168.100.4", "controlPlaneNamespace": "clusters-x"},
            },
        },
        "status": {"conditions": [condition("Ready", "True", "AllReady", "all servers are ready")]},
    }));
    let components = oooi_plan::plan(&infra, &Known::default()).unwrap();
    let (dhcp, dns, proxy) = (
        components.dhcp.clone(),
        components.dns.clone(),
        components.proxy.clone(),
    );
    let server = |kind: &str, spec: Value, counts: Value| {
        let name = kind.trim_end_matches("Server").to_lowercase();
        json!({
            "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": kind,
            "metadata": {"name": format!("x-{name}"), "namespace": "clusters"},
            "spec": spec,
            "status": {
                "conditions": [condition("Ready", "True", "DeploymentReady", "it runs")],
                "servers": [{"pod": format!("x-{name}-1"), "accepted": true, "counts": counts}],
            },
        })
    };
    let lease = |address: &str, expires: &str| {
        object(json!({
            "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "DHCPLease",
            "metadata": {"name": format!("x-dhcp-{}", address.replace('.', "-"))},
            "spec": {
                "server": "x-dhcp", "address": address, "mac": "02:00:00:00:00:01", "hostname": "worker",
                "state": "Bound", "granted": "2026-11-16T00:00:00Z", "expires": expires,
            },
        }))
    };
    let inventory = Inventory {
        dhcp: object(server(
            "DHCPServer",
            json!(dhcp),
            json!({"leases": 2, "pool": 101}),
        )),
        dns: object(server("DNSServer", json!(dns), json!({}))),
        proxy: object(server("ProxyServer", json!(proxy), json!({"backends": 5}))),
        attachment: object(json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": "vlan100", "namespace": "clusters"},
            "spec": {"config": json!({"cniVersion": "0.3.1", "type": "bridge", "bridge": "br1", "vlan": 100}).to_string()},
        })),
        pods: vec![
            object(pod("dhcp", "192.168.100.2", true, true)),
            object(pod("dns", "192.168.100.3", true, true)),
            object(pod("proxy", "192.168.100.4", true, true)),
        ],
        leases: vec![
            lease("192.168.100.101", "2026-11-16T01:00:00Z"),
            lease("192.168.100.100", "2026-11-16T03:00:00Z"),
        ],
        slices: SERVICES
            .iter()
            .map(|service| object(slice(service, true)))
            .collect(),
        policies: vec![
            object(json!({
                "metadata": {"name": "openshift-ingress", "namespace": "clusters-x"}, "spec": {"podSelector": {}},
            })),
            object(json!({"metadata": {"name": "oooi-clusters-x-ignition", "namespace": "clusters-x"}})),
        ],
        infra,
    };
    (inventory, components)
}

fn status((inventory, components): &(Inventory, Components)) -> Status {
    Status::of(inventory, components, "2026-11-16T02:00:00Z".parse().unwrap())
}

fn report((inventory, components): &(Inventory, Components)) -> Report {
    Report::new(diagnose::cluster::diagnose(inventory, components))
}

/// What the doctor names first after something was broken.
fn cause(break_it: impl FnOnce(&mut Inventory)) -> &'static str {
    let mut world = healthy();
    break_it(&mut world.0);
    report(&world)
        .cause
        .map_or("nothing", |finding| finding.diagnosis.id)
}

#[test]
fn a_healthy_infra_fits_on_a_screen() {
    let status = status(&healthy());
    assert!(!status.needs_attention());
    insta::assert_snapshot!(status.screen(Style::default()));
}

/// Something is wrong in every part.
fn unwell() -> (Inventory, Components) {
    let mut world = healthy();
    world.0.attachment = None;
    world.0.pods.remove(2);
    world.0.slices[0] = object(slice("kube-apiserver", false));
    let status_of_dns = world.0.dns.as_mut().unwrap().status.as_mut().unwrap();
    status_of_dns.servers[0].accepted = false;
    status_of_dns.servers[0].message = Some("spec.staticEntries[0]: is not an address".into());
    status_of_dns.conditions = vec![object(condition(
        "Ready",
        "False",
        "ConfigRefused",
        "mend spec.staticEntries[0]",
    ))];
    world
}

#[test]
fn what_is_not_well_stands_out() {
    let status = status(&unwell());
    assert!(status.needs_attention());
    insta::assert_snapshot!(status.screen(Style::default()));
}

/// A terminal of eighty columns with colours.
const TERMINAL: Style = Style {
    colours: true,
    width: Some(80),
};

/// The longest line as a terminal shows it.
fn longest_line(text: &str) -> usize {
    let plain = [
        "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m",
    ]
    .iter()
    .fold(text.to_owned(), |text, code| text.replace(code, ""));
    plain
        .lines()
        .map(|line| line.chars().count())
        .max()
        .unwrap_or_default()
}

#[test]
fn a_terminal_gets_colours_and_lines_that_fit() {
    let screen = status(&unwell()).screen(TERMINAL);
    assert!(longest_line(&screen) <= 80, "{screen}");
    insta::assert_snapshot!("a_status_screen_on_a_terminal", screen);
    let tree = report(&unwell()).text(TERMINAL);
    assert!(longest_line(&tree) <= 80, "{tree}");
    insta::assert_snapshot!("a_tree_of_checks_on_a_terminal", tree);
}

#[test]
fn a_lease_that_runs_out_changes_the_screen_at_that_moment() {
    let status = status(&healthy());
    let at = |text: &str| text.parse().unwrap();
    assert_eq!(
        status.next_expiry(at("2026-11-16T00:30:00Z")),
        Some(at("2026-11-16T01:00:00Z"))
    );
    assert_eq!(
        status.next_expiry(at("2026-11-16T01:00:00Z")),
        Some(at("2026-11-16T03:00:00Z"))
    );
    assert_eq!(status.next_expiry(at("2026-11-16T03:00:00Z")), None);
}

#[test]
fn several_infras_are_a_line_each() {
    let (inventory, _) = healthy();
    let mut other = inventory.infra.clone();
    other.metadata.name = Some("another-cluster".into());
    other.status = None;
    assert_eq!(other.name_any(), "another-cluster");
    insta::assert_snapshot!(overview(&[inventory.infra, other], Style::default()));
}

#[test]
fn a_healthy_cluster_is_a_short_tree() {
    insta::assert_snapshot!(report(&healthy()).text(Style::default()));
}

#[test]
fn the_first_cause_is_on_top_of_the_tree() {
    let mut world = healthy();
    world.0.pods[0] = object(pod("dhcp", "192.168.100.2", true, false));
    world.0.slices.remove(1);
    let mut checks = diagnose::cluster::diagnose(&world.0, &world.1);
    checks.push(Check::skipped("DNS", "this machine has no address"));
    insta::assert_snapshot!(Report::new(checks).text(Style::default()));
}

#[test]
fn each_thing_that_breaks_in_a_cluster_has_its_diagnosis() {
    assert_eq!(cause(|_| {}), "nothing");
    assert_eq!(
        cause(|inventory| inventory.attachment = None),
        "network-attachment-missing"
    );
    assert_eq!(
        cause(|inventory| drop(inventory.pods.remove(1))),
        "server-missing"
    );
    assert_eq!(
        cause(|inventory| inventory.pods[1] = object(pod("dns", "192.168.100.3", false, true))),
        "pod-not-ready"
    );
    assert_eq!(
        cause(|inventory| inventory.pods[1] = object(pod("dns", "192.168.100.3", true, false))),
        "pod-without-vlan"
    );
    let mut homeless = pod("dns", "192.168.100.3", false, false);
    homeless["status"]["conditions"] = json!([
        {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"},
    ]);
    assert_eq!(
        cause(|inventory| inventory.pods[1] = object(homeless)),
        "pod-not-ready",
        "nothing attaches a pod that has no node"
    );
    assert_eq!(
        cause(|inventory| drop(inventory.policies.remove(1))),
        "network-policy-missing"
    );
    assert_eq!(
        cause(|inventory| inventory.policies.clear()),
        "nothing",
        "a namespace without policies is open"
    );
    assert_eq!(
        cause(|inventory| inventory.slices[0] = object(slice("kube-apiserver", false))),
        "backend-without-endpoints"
    );
    let refused = || object(condition("Ready", "False", "Paused", "remove the annotation"));
    assert_eq!(
        cause(|inventory| inventory.infra.status.as_mut().unwrap().conditions = vec![refused()]),
        "infra-not-ready"
    );
}

#[test]
fn every_diagnosis_has_a_test_that_breaks_that_thing() {
    let tests = [
        include_str!("rendering.rs"),
        include_str!("../../cli/tests/net_doctor.rs"),
    ];
    let untested: Vec<&str> = oooi_doctor::diagnosis::ALL
        .iter()
        .map(|diagnosis| diagnosis.id)
        .filter(|id| !tests.iter().any(|text| text.contains(&format!("\"{id}\""))))
        .collect();
    assert!(
        untested.is_empty(),
        "no test expects {untested:?}: break that thing in crates/cli/tests/net_doctor.rs"
    );
}

fn egress_ipam(name: &str, status: Value) -> EgressIpam {
    object(json!({
        "apiVersion": "redhatcop.redhat.io/v1alpha1", "kind": "EgressIPAM", "metadata": {"name": name},
        "spec": {
            "topologyLabel": "topology.kubernetes.io/zone",
            "cidrAssignments": [
                {"CIDR": "10.0.128.0/20", "labelValue": "zone-a"}, {"CIDR": "10.0.144.0/30", "labelValue": "zone-b"},
            ],
        },
        "status": status,
    }))
}

fn full_egress_ipam() -> EgressIpam {
    let lacking = "1 of 3 namespaces lack addresses: shop (NetworkExhausted)";
    egress_ipam(
        "production",
        json!({
            "namespaces": 3,
            "cidrs": [
                {"CIDR": "10.0.128.0/20", "total": 4094, "used": 3, "free": 4091},
                {"CIDR": "10.0.144.0/30", "total": 2, "used": 2, "free": 0},
            ],
            "failingNamespaces": [{
                "name": "shop", "reason": "NetworkExhausted",
                "message": "10.0.144.0/30 has no free address: add a network, or free one",
            }],
            "conditions": [
                condition("Ready", "False", "NetworkExhausted", lacking),
                condition("NamespacesAssigned", "False", "NetworkExhausted", lacking),
                condition("NodesEligible", "True", "NodesFound", "every network has a node"),
            ],
        }),
    )
}

#[test]
fn an_egressipam_shows_how_full_it_is_and_who_lacks_an_address() {
    let status = EgressStatus::of(&full_egress_ipam());
    assert!(status.needs_attention());
    insta::assert_snapshot!(status.screen(Style::default()));
    let screen = status.screen(TERMINAL);
    assert!(longest_line(&screen) <= 80, "{screen}");
}

#[test]
fn an_egressipam_that_nobody_looked_at_says_so() {
    let status = EgressStatus::of(&egress_ipam("new", Value::Null));
    assert!(status.needs_attention());
    insta::assert_snapshot!(status.screen(Style::default()));
}

#[test]
fn several_egressipams_are_a_line_each() {
    let all = [full_egress_ipam(), egress_ipam("new", Value::Null)];
    insta::assert_snapshot!(egress::overview(&all, Style::default()));
}
