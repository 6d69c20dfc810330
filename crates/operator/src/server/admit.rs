//! NetworkPolicies that admit a gateway to the pods that it forwards to. Pure.
//!
//! A policy isolates the pods that it selects from everybody whom no policy admits. So pods get one only where
//! somebody isolated them already, as HyperShift does with every pod of a control plane: else admitting the gateway
//! would shut out everyone else. One policy a Service, since each has pods and ports of its own.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::{Selector, SelectorExt};
use kube::{Resource, ResourceExt};
use oooi_plan::object_name::object_name;

use super::takeover::is_old_policy;
use super::{Server, Target};
use crate::identity::{self, labels, metadata_elsewhere};

/// The policies of a gateway in one namespace, which has these Services and these policies.
pub(super) fn policies<S: Server>(
    server: &S,
    targets: &[Target],
    services: &[Service],
    existing: &[NetworkPolicy],
) -> Vec<NetworkPolicy> {
    services
        .iter()
        .filter_map(|service| policy(server, targets, service, existing))
        .collect()
}

fn policy<S: Server>(
    server: &S,
    targets: &[Target],
    service: &Service,
    existing: &[NetworkPolicy],
) -> Option<NetworkPolicy> {
    let (namespace, name) = (service.namespace()?, service.name_any());
    // A Service without a selector has no pods: its endpoints are somewhere else, and no policy concerns them.
    let pods = service
        .spec
        .as_ref()?
        .selector
        .clone()
        .filter(|s| !s.is_empty())?;
    if !existing.iter().any(|policy| isolates(policy, &pods)) {
        return None;
    }
    let mut ports: Vec<NetworkPolicyPort> = Vec::new();
    for target in targets.iter().filter(|target| target.service == name) {
        if let Some(port) = port(service, &target.port).filter(|port| !ports.contains(port)) {
            ports.push(port);
        }
    }
    if ports.is_empty() {
        return None;
    }
    let own = server.namespace().unwrap_or_default();
    let gateway = NetworkPolicyPeer {
        namespace_selector: Some(matching(BTreeMap::from([(
            "kubernetes.io/metadata.name".to_owned(),
            own.clone(),
        )]))),
        pod_selector: Some(matching(labels(&server.name_any(), Some(S::ROLE)))),
        ip_block: None,
    };
    let policy_name = object_name(&format!("oooi-{own}-{}", infra_name(server)), &name);
    Some(NetworkPolicy {
        metadata: metadata_elsewhere(server, &namespace, policy_name, S::ROLE),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(matching(pods)),
            policy_types: Some(vec!["Ingress".into()]),
            ingress: Some(vec![NetworkPolicyIngressRule {
                from: Some(vec![gateway]),
                ports: Some(ports),
            }]),
            egress: None,
        }),
    })
}

/// What a server is known by to people: its Infra, else itself.
fn infra_name<S: Server>(server: &S) -> String {
    identity::controller(server.meta())
        .filter(|owner| owner.kind == "Infra")
        .map_or_else(|| server.name_any(), |owner| owner.name.clone())
}

/// Whether a policy of somebody else isolates pods. They are known by the labels that their Service selects.
fn isolates(policy: &NetworkPolicy, pods: &BTreeMap<String, String>) -> bool {
    let Some(spec) = &policy.spec else { return false };
    let types = spec.policy_types.as_deref().unwrap_or_default();
    let ingress = types.is_empty() || types.iter().any(|kind| kind == "Ingress");
    let selector = Selector::try_from(spec.pod_selector.clone().unwrap_or_default());
    // One that an earlier operator left is removed, and isolates nobody for long.
    let counts = !identity::is_labelled(policy.meta()) && !is_old_policy(policy);
    counts && ingress && selector.is_ok_and(|selector| selector.matches(pods))
}

/// The port of the pods behind a port of the Service, which policies are about.
fn port(service: &Service, wanted: &IntOrString) -> Option<NetworkPolicyPort> {
    let is_it = |port: &&ServicePort| match wanted {
        IntOrString::Int(number) => port.port == *number,
        IntOrString::String(text) => {
            port.name.as_ref() == Some(text) || text.parse::<i32>().is_ok_and(|number| port.port == number)
        }
    };
    let ports = service.spec.as_ref()?.ports.as_deref().unwrap_or_default();
    let found = ports.iter().find(is_it)?;
    Some(NetworkPolicyPort {
        port: Some(found.target_port.clone().unwrap_or(IntOrString::Int(found.port))),
        protocol: Some(found.protocol.clone().unwrap_or_else(|| "TCP".into())),
        end_port: None,
    })
}

fn matching(labels: BTreeMap<String, String>) -> LabelSelector {
    LabelSelector {
        match_labels: Some(labels),
        ..LabelSelector::default()
    }
}

#[cfg(test)]
mod tests {
    use oooi_api::ProxyServer;
    use serde_json::{Value, json};

    use super::*;

    fn server() -> ProxyServer {
        serde_json::from_value(json!({
            "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "ProxyServer",
            "metadata": {"name": "x-proxy", "namespace": "clusters", "uid": "1", "ownerReferences": [
                {"apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "Infra", "name": "x", "uid": "2",
                 "controller": true}]},
            "spec": {"networkConfig": {"serverIP": "192.168.100.4/24"}, "backends": []},
        }))
        .unwrap()
    }

    fn service(name: &str, ports: &Value) -> Service {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "clusters-x"},
            "spec": {"selector": {"app": name}, "ports": ports},
        }))
        .unwrap()
    }

    fn target(service: &str, port: IntOrString) -> Target {
        Target {
            namespace: "clusters-x".into(),
            service: service.into(),
            port,
        }
    }

    fn foreign(selector: &Value) -> NetworkPolicy {
        serde_json::from_value(json!({"metadata": {"name": "deny"}, "spec": {"podSelector": selector}}))
            .unwrap()
    }

    fn ignition() -> (Vec<Target>, Vec<Service>) {
        let ports = json!([{"name": "https", "port": 443, "targetPort": 8443}]);
        (
            vec![
                target("ignition", IntOrString::Int(443)),
                target("ignition", IntOrString::String("https".into())),
            ],
            vec![service("ignition", &ports)],
        )
    }

    #[test]
    fn isolated_pods_admit_the_gateway_to_their_own_port_and_nobody_else() {
        let (targets, services) = ignition();
        let made = policies(&server(), &targets, &services, &[foreign(&json!({}))]);
        assert_eq!(made.len(), 1);
        assert_eq!(made[0].name_any(), "oooi-clusters-x-ignition");
        let spec = serde_json::to_value(made[0].spec.as_ref().unwrap()).unwrap();
        assert_eq!(spec["podSelector"], json!({"matchLabels": {"app": "ignition"}}));
        assert_eq!(spec["policyTypes"], json!(["Ingress"]));
        let rules = spec["ingress"].as_array().unwrap();
        assert_eq!(
            rules[0]["ports"],
            json!([{"port": 8443, "protocol": "TCP"}]),
            "the pod's port, once"
        );
        let from = &rules[0]["from"][0];
        assert_eq!(
            from["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"],
            "clusters"
        );
        assert_eq!(
            from["podSelector"]["matchLabels"]["app.kubernetes.io/instance"],
            "x-proxy"
        );
    }

    #[test]
    fn pods_that_nobody_isolated_get_no_policy_since_it_would_isolate_them() {
        let (targets, services) = ignition();
        assert!(policies(&server(), &targets, &services, &[]).is_empty());
        let of_others = foreign(&json!({"matchLabels": {"app": "etcd"}}));
        assert!(policies(&server(), &targets, &services, &[of_others]).is_empty());
        let mut egress = foreign(&json!({}));
        egress.spec.as_mut().unwrap().policy_types = Some(vec!["Egress".into()]);
        assert!(policies(&server(), &targets, &services, &[egress]).is_empty());
        let own = policies(&server(), &targets, &services, &[foreign(&json!({}))]);
        assert!(
            policies(&server(), &targets, &services, &own).is_empty(),
            "our own policy alone is no reason to keep it"
        );
    }

    #[test]
    fn a_service_without_pods_of_its_own_or_without_the_port_needs_no_policy() {
        let (targets, mut services) = ignition();
        services[0].spec.as_mut().unwrap().selector = None;
        let deny = [foreign(&json!({}))];
        assert!(policies(&server(), &targets, &services, &deny).is_empty());
        let (_, services) = ignition();
        let other = [target("ignition", IntOrString::Int(22623))];
        assert!(policies(&server(), &other, &services, &deny).is_empty());
    }
}
