//! The pod of a server: its container with the least that it needs, and Envoy beside it where that is the data plane.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction,
    LocalObjectReference, ObjectFieldSelector, PersistentVolumeClaimVolumeSource, PodSecurityContext,
    PodSpec, Probe as PodProbe, SeccompProfile, SecurityContext, Sysctl, Toleration,
    TopologySpreadConstraint, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use super::{METRICS_PORT, Platform, Pods, account_name, claim_name, config_map, config_map_name, envoy};
use crate::identity::labels;
use crate::server::{Probe, Server, Wants};

/// The interface on the VLAN.
pub(crate) const INTERFACE: &str = "net1";
/// The pod's own address, in arguments.
pub(crate) const POD_IP: &str = "$(POD_IP)";

const CONFIG: &str = "/etc/oooi";
const STATE: &str = "/var/lib/oooi";

/// The volume of leases.
pub(crate) const LEASES: &str = "leases";
/// So many seconds a pod has to end that nobody stands in for. It serves no new connection meanwhile, and a changed one
/// that takes its place waits for it.
const ALONE: i64 = 5;
/// So many it has where others stand in for it, as Kubernetes gives every pod.
const USUAL: i64 = 30;
/// The image's user, whose group may write what it mounts.
pub(super) const USER: i64 = 65532;

/// How many seconds a server of so many replicas may take to end: a little less than its pod has.
pub(crate) fn time_to_end(replicas: usize) -> i64 {
    if replicas == 1 { ALONE - 1 } else { USUAL - 5 }
}

pub(super) fn build<S: Server>(server: &S, wants: &Wants, platform: Platform, pods: &Pods) -> PodSpec {
    let mut containers = vec![container(server, wants)];
    containers.extend(
        wants
            .envoy
            .as_ref()
            .map(|data_plane| envoy::container(data_plane, platform)),
    );
    let bootstrap = wants
        .envoy
        .as_ref()
        .map(|data_plane| envoy::init_container(server, wants, data_plane));
    let routes = wants.route_via.as_ref().map(|gateway| routes(wants, gateway));
    let first: Vec<Container> = routes.into_iter().chain(bootstrap).collect();
    PodSpec {
        service_account_name: Some(account_name(server)),
        priority_class_name: pods.priority_class.clone(),
        image_pull_secrets: pull_secrets(pods),
        containers,
        init_containers: (!first.is_empty()).then_some(first),
        volumes: Some(volumes(server, wants)),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            fs_group: wants.claim.as_ref().map(|_| USER),
            seccomp_profile: Some(runtime_default()),
            // Ports below 1024 need no capability then.
            sysctls: Some(vec![Sysctl {
                name: "net.ipv4.ip_unprivileged_port_start".into(),
                value: "0".into(),
            }]),
            ..PodSecurityContext::default()
        }),
        termination_grace_period_seconds: (wants.addresses.len() == 1).then_some(ALONE), // else as usual
        tolerations: Some(["not-ready", "unreachable"].map(leave_soon).to_vec()),
        topology_spread_constraints: (wants.addresses.len() > 1).then(|| {
            vec![TopologySpreadConstraint {
                max_skew: 1,
                topology_key: "kubernetes.io/hostname".into(),
                when_unsatisfiable: "ScheduleAnyway".into(),
                label_selector: Some(LabelSelector {
                    match_labels: Some(labels(&server.name_any(), Some(S::ROLE))),
                    ..LabelSelector::default()
                }),
                ..TopologySpreadConstraint::default()
            }]
        }),
        ..PodSpec::default()
    }
}

fn pull_secrets(pods: &Pods) -> Option<Vec<LocalObjectReference>> {
    // One that is named twice would be refused.
    let secrets: BTreeSet<&String> = pods.pull_secrets.iter().collect();
    let secrets: Vec<_> = secrets
        .into_iter()
        .map(|name| LocalObjectReference { name: name.clone() })
        .collect();
    (!secrets.is_empty()).then_some(secrets)
}

fn container<S: Server>(server: &S, wants: &Wants) -> Container {
    Container {
        name: S::ROLE.word().into(),
        image: Some(wants.image.clone()),
        args: Some(arguments(server, wants)),
        env: Some(vec![
            from_field("POD_IP", "status.podIP"),
            from_field("POD_NAME", "metadata.name"),
        ]),
        ports: Some(vec![ContainerPort {
            name: Some("metrics".into()),
            container_port: METRICS_PORT,
            protocol: Some("TCP".into()),
            ..ContainerPort::default()
        }]),
        // A busy node answers late; only what is stuck for a minute is killed, since that costs its connections.
        liveness_probe: Some(PodProbe {
            period_seconds: Some(10),
            failure_threshold: Some(6),
            ..probe(wants.liveness)
        }),
        readiness_probe: Some(probe(wants.readiness)),
        resources: wants.resources.clone(),
        security_context: Some(security(wants.raw_sockets.then_some("NET_RAW"))),
        volume_mounts: Some(mounts(wants)),
        ..Container::default()
    }
}

/// Lets answers to clients beyond the VLAN leave by it.
fn routes(wants: &Wants, gateway: &str) -> Container {
    Container {
        name: "route".into(),
        image: Some(wants.image.clone()),
        args: Some(vec![
            "route".into(),
            "--log-format=json".into(),
            format!("--interface={INTERFACE}"),
            format!("--gateway={gateway}"),
        ]),
        security_context: Some(security(Some("NET_ADMIN"))),
        ..Container::default()
    }
}

/// The subcommand, where its resource is, and what is its own.
fn arguments<S: Server>(server: &S, wants: &Wants) -> Vec<String> {
    let mut arguments = vec![
        S::ROLE.word().to_owned(),
        "--log-format=json".to_owned(),
        format!("--filename={CONFIG}/{}", config_map::FILE),
        format!("--namespace={}", server.namespace().unwrap_or_default()),
        format!("--name={}", server.name_any()),
        format!("--metrics-bind-address={POD_IP}:{METRICS_PORT}"),
    ];
    arguments.extend(wants.arguments.iter().cloned());
    arguments
}

/// Without a capability nothing is added and nothing can be gained. With one, the process gets it by the capability of its
/// file, which `allowPrivilegeEscalation: false` would forbid.
pub(super) fn security(capability: Option<&str>) -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(capability.is_some()),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".into()]),
            add: capability.map(|capability| vec![capability.into()]),
        }),
        ..SecurityContext::default()
    }
}

fn runtime_default() -> SeccompProfile {
    SeccompProfile {
        type_: "RuntimeDefault".into(),
        ..SeccompProfile::default()
    }
}

/// A node that is gone is left after half a minute, since nobody else has its address.
fn leave_soon(what: &str) -> Toleration {
    Toleration {
        key: Some(format!("node.kubernetes.io/{what}")),
        operator: Some("Exists".into()),
        effect: Some("NoExecute".into()),
        toleration_seconds: Some(30),
        ..Toleration::default()
    }
}

fn from_field(name: &str, path: &str) -> EnvVar {
    EnvVar {
        name: name.into(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: path.into(),
                ..ObjectFieldSelector::default()
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    }
}

fn probe(page: Probe) -> PodProbe {
    PodProbe {
        http_get: Some(HTTPGetAction {
            path: Some(page.path.into()),
            port: IntOrString::Int(page.port),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(2),
        timeout_seconds: Some(5),
        ..PodProbe::default()
    }
}

fn volumes<S: Server>(server: &S, wants: &Wants) -> Vec<Volume> {
    let mut volumes = vec![Volume {
        name: "config".into(),
        config_map: Some(ConfigMapVolumeSource {
            name: config_map_name(server),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    }];
    if wants.claim.is_some() {
        volumes.push(Volume {
            name: LEASES.into(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: claim_name(server),
                ..PersistentVolumeClaimVolumeSource::default()
            }),
            ..Volume::default()
        });
    }
    if wants.envoy.is_some() {
        volumes.push(envoy::volume());
    }
    volumes
}

fn mounts(wants: &Wants) -> Vec<VolumeMount> {
    let mut mounts = vec![VolumeMount {
        name: "config".into(),
        mount_path: CONFIG.into(),
        read_only: Some(true),
        ..VolumeMount::default()
    }];
    if wants.claim.is_some() {
        mounts.push(VolumeMount {
            name: LEASES.into(),
            mount_path: STATE.into(),
            ..VolumeMount::default()
        });
    }
    mounts
}

#[cfg(test)]
mod tests {
    use oooi_api::DnsServer;
    use serde_json::json;

    use super::*;
    use crate::context::Images;

    #[test]
    fn pods_have_the_priority_and_the_pull_secrets_of_the_manager_or_none() {
        let server: DnsServer = serde_json::from_value(json!({
            "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "DNSServer",
            "metadata": {"name": "x", "namespace": "clusters", "uid": "1"},
            "spec": {
                "networkConfig": {"serverIP": "10.0.0.3", "proxyIP": "10.0.0.4", "networkAttachmentName": "vlan"},
                "hostedClusterDomain": "x.example.com",
            },
        }))
        .unwrap();
        let images = Images {
            oooi: "oooi".into(),
            envoy: None,
        };
        let wants = server.wants(&images, &mut Vec::new());
        let of = |pods: &Pods| json!(build(&server, &wants, Platform::Kubernetes, pods));
        let pod = of(&Pods {
            priority_class: Some("infrastructure".into()),
            pull_secrets: vec!["a".into(), "b".into()],
        });
        assert_eq!(pod["priorityClassName"], "infrastructure");
        assert_eq!(pod["imagePullSecrets"], json!([{"name": "a"}, {"name": "b"}]));
        let plain = of(&Pods::default());
        assert!(plain["priorityClassName"].is_null() && plain["imagePullSecrets"].is_null());
    }
}
