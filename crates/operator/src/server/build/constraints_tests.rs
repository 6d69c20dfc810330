//! The pods against SecurityContextConstraints, judged by the rules of OpenShift's admission.

use k8s_openapi::api::core::v1::{PodSpec, SecurityContext, Volume};
use oooi_api::foreign::SecurityContextConstraints;
use oooi_api::{DhcpServer, DnsServer, ProxyServer};
use serde_json::{Value, json};

use super::{Platform, Pods, build};
use crate::context::Images;
use crate::server::Server;

/// What OpenShift gives every account: `restricted-v2`.
const RESTRICTED: &str = "
apiVersion: security.openshift.io/v1
kind: SecurityContextConstraints
metadata: {name: restricted-v2}
allowPrivilegeEscalation: false
allowedCapabilities: [NET_BIND_SERVICE]
requiredDropCapabilities: [ALL]
runAsUser: {type: MustRunAsRange}
seLinuxContext: {type: MustRunAs}
fsGroup: {type: MustRunAs}
supplementalGroups: {type: RunAsAny}
seccompProfiles: [runtime/default]
volumes: [configMap, csi, downwardAPI, emptyDir, ephemeral, persistentVolumeClaim, projected, secret]
";

/// Kernel settings that Kubernetes counts as safe.
const SAFE_SYSCTLS: [&str; 1] = ["net.ipv4.ip_unprivileged_port_start"];

fn shipped(name: &str) -> SecurityContextConstraints {
    let text = include_str!("../../../../../deploy/kustomize/openshift/constraints.yaml");
    let wanted = format!("kind: SecurityContextConstraints\nmetadata:\n  name: {name}\n");
    let found = text.split("\n---\n").find(|document| document.contains(&wanted));
    serde_saphyr::from_str(found.unwrap()).unwrap()
}

fn restricted() -> SecurityContextConstraints {
    serde_saphyr::from_str(RESTRICTED).unwrap()
}

/// The pod of a server on OpenShift.
fn pod<S: Server>(kind: &str, spec: &Value) -> PodSpec {
    let server: S = serde_json::from_value(json!({
        "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": kind,
        "metadata": {"name": "x", "namespace": "clusters", "uid": "1"}, "spec": spec,
    }))
    .unwrap();
    let images = Images {
        oooi: "oooi".into(),
        envoy: Some("envoy".into()),
    };
    let mut mistakes = Vec::new();
    let wants = server.wants(&images, &mut mistakes);
    assert!(mistakes.is_empty(), "{mistakes:?}");
    let mut deployments = build(&server, &wants, Platform::OpenShift, &Pods::default()).deployments;
    deployments.remove(0).spec.unwrap().template.spec.unwrap()
}

fn dhcp_spec() -> Value {
    json!({
        "networkConfig": {"cidr": "192.168.100.0/24", "gateway": "192.168.100.1", "serverIP": "192.168.100.2",
            "networkAttachmentName": "vlan"},
        "leaseConfig": {"rangeStart": "192.168.100.10", "rangeEnd": "192.168.100.20"},
    })
}

fn dns_spec() -> Value {
    json!({
        "networkConfig": {"serverIP": "192.168.100.3", "proxyIP": "192.168.100.4", "networkAttachmentName": "vlan"},
        "hostedClusterDomain": "x.example.com",
    })
}

fn gateway_spec(engine: &str) -> Value {
    json!({
        "networkConfig": {"serverIP": "192.168.100.4/24", "networkAttachmentName": "vlan"},
        "backends": [], "engine": engine,
    })
}

fn dhcp() -> PodSpec {
    pod::<DhcpServer>("DHCPServer", &dhcp_spec())
}

fn dns() -> PodSpec {
    pod::<DnsServer>("DNSServer", &dns_spec())
}

fn gateway(engine: &str) -> PodSpec {
    pod::<ProxyServer>("ProxyServer", &gateway_spec(engine))
}

/// What constraints refuse of a pod. A user or group that a pod leaves open is chosen by admission.
fn refusals(constraints: &SecurityContextConstraints, pod: &PodSpec) -> Vec<String> {
    let scc = &constraints.spec;
    let mut refusals = Vec::new();
    let mut check = |allowed: bool, what: &str| {
        if !allowed {
            refusals.push(what.to_owned());
        }
    };
    let host = [pod.host_network, pod.host_pid, pod.host_ipc];
    check(
        host.iter().all(|asked| *asked != Some(true)),
        "the host's namespaces",
    );
    let whole = pod.security_context.clone().unwrap_or_default();
    check(whole.run_as_user.is_none(), "a user of its own");
    for sysctl in whole.sysctls.iter().flatten() {
        let safe = SAFE_SYSCTLS.contains(&sysctl.name.as_str());
        check(
            safe && !scc.forbidden_sysctls.contains(&sysctl.name),
            &sysctl.name,
        );
    }
    if let Some(group) = whole.fs_group {
        let ranges = scc.fs_group.iter().flat_map(|strategy| &strategy.ranges);
        let inside = ranges
            .into_iter()
            .any(|range| range.min <= Some(group) && Some(group) <= range.max);
        check(inside, "fsGroup");
    }
    let seccomp = whole.seccomp_profile.map(|profile| profile.type_);
    let allowed = scc
        .seccomp_profiles
        .iter()
        .any(|profile| profile == "runtime/default");
    check(seccomp.as_deref() == Some("RuntimeDefault") && allowed, "seccomp");
    for volume in pod.volumes.iter().flatten() {
        let kind = volume_kind(volume);
        check(scc.volumes.iter().any(|allowed| allowed == kind), kind);
    }
    let containers = pod.containers.iter().chain(pod.init_containers.iter().flatten());
    for container in containers {
        let SecurityContext {
            allow_privilege_escalation,
            capabilities,
            privileged,
            read_only_root_filesystem,
            run_as_user,
            ..
        } = container.security_context.clone().unwrap_or_default();
        check(
            privileged != Some(true) || scc.allow_privileged_container,
            "privileged",
        );
        check(run_as_user.is_none(), "a user of its own");
        check(
            allow_privilege_escalation == Some(false) || scc.allow_privilege_escalation != Some(false),
            "escalation",
        );
        check(
            read_only_root_filesystem == Some(true) || !scc.read_only_root_filesystem,
            "a writable root",
        );
        let capabilities = capabilities.unwrap_or_default();
        for added in capabilities.add.iter().flatten() {
            check(scc.allowed_capabilities.contains(added), added);
        }
        let dropped = capabilities.drop.unwrap_or_default();
        let required = &scc.required_drop_capabilities;
        check(
            required.iter().all(|one| dropped.contains(one)),
            "capabilities that it keeps",
        );
    }
    refusals
}

fn volume_kind(volume: &Volume) -> &'static str {
    match volume {
        Volume {
            config_map: Some(_), ..
        } => "configMap",
        Volume {
            empty_dir: Some(_), ..
        } => "emptyDir",
        Volume {
            persistent_volume_claim: Some(_),
            ..
        } => "persistentVolumeClaim",
        _ => "another kind of volume",
    }
}

#[test]
fn a_dhcp_server_runs_under_the_shipped_constraints_and_not_without_them() {
    assert_eq!(refusals(&shipped("oooi-dhcp"), &dhcp()), Vec::<String>::new());
    let missing = refusals(&restricted(), &dhcp());
    assert_eq!(missing, ["fsGroup", "escalation", "NET_RAW"], "what they are for");
}

#[test]
fn dns_servers_and_gateways_of_both_engines_need_no_constraints_of_their_own() {
    for pod in [dns(), gateway("Native"), gateway("Envoy")] {
        assert_eq!(refusals(&restricted(), &pod), Vec::<String>::new(), "{pod:?}");
    }
}

/// A server on a network that leaves routes to pods.
fn routed(mut spec: Value, via: &str) -> Value {
    spec["networkConfig"]["routeVia"] = json!(via);
    spec
}

#[test]
fn servers_that_route_by_source_run_under_the_constraints_for_that_and_not_without_them() {
    let via = "192.168.100.1";
    let servers = [
        pod::<DhcpServer>("DHCPServer", &routed(dhcp_spec(), via)),
        pod::<DnsServer>("DNSServer", &routed(dns_spec(), via)),
        pod::<ProxyServer>("ProxyServer", &routed(gateway_spec("Envoy"), via)),
    ];
    for pod in &servers {
        let first = pod.init_containers.as_ref().unwrap().first().unwrap();
        assert_eq!(
            first.args.as_ref().unwrap()[2..],
            ["--interface=net1", "--gateway=192.168.100.1"]
        );
        assert_eq!(
            refusals(&shipped("oooi-routes"), pod),
            Vec::<String>::new(),
            "{pod:?}"
        );
        assert!(refusals(&restricted(), pod).contains(&"NET_ADMIN".to_owned()));
        assert!(refusals(&shipped("oooi-dhcp"), pod).contains(&"NET_ADMIN".to_owned()));
    }
}

/// The last of the volumes is the token that every pod gets.
const SHIPPED: [(&str, &[&str], &[&str]); 2] = [
    (
        "oooi-dhcp",
        &["NET_RAW"],
        &["configMap", "persistentVolumeClaim", "projected"],
    ),
    (
        "oooi-routes",
        &["NET_RAW", "NET_ADMIN"],
        &["configMap", "emptyDir", "persistentVolumeClaim", "projected"],
    ),
];

#[test]
fn the_shipped_constraints_allow_nothing_that_no_pod_asks_for() {
    for (name, capabilities, volumes) in SHIPPED {
        allows_no_more(name, capabilities, volumes);
    }
}

fn allows_no_more(name: &str, capabilities: &[&str], volumes: &[&str]) {
    let shipped = shipped(name).spec;
    assert!(!shipped.allow_privileged_container && shipped.read_only_root_filesystem);
    assert!(!shipped.allow_host_network && !shipped.allow_host_pid && !shipped.allow_host_ipc);
    assert!(!shipped.allow_host_ports && !shipped.allow_host_dir_volume_plugin);
    assert_eq!(shipped.allowed_capabilities, capabilities);
    assert!(shipped.default_add_capabilities.is_empty());
    assert!(shipped.allowed_unsafe_sysctls.is_empty());
    assert!(
        shipped.users.is_empty() && shipped.groups.is_empty(),
        "only the manager binds it"
    );
    assert_eq!(shipped.volumes, volumes);
}
