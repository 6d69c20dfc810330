//! A server of an earlier operator becomes ours: its pods are replaced, its clients keep what they have, and what it
//! needed and we do not is removed.
//!
//! The Deployment goes last. Whoever is interrupted before that finds it again and begins anew.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding, RoleRef, Subject};
use kube::ResourceExt;

use super::build::account_name;
use super::{Error, Server, ServerContext};
use crate::apply::{self, Writer};
use crate::identity::Role;

/// The suffixes of RoleBindings to constraints of OpenShift, and those constraints.
const CONSTRAINTS: [(&str, &str); 2] = [("privileged-scc", "privileged"), ("anyuid-scc", "anyuid")];

/// The policy that admitted whole namespaces to a control plane.
const POLICY: &str = "allow-infrastructure";

/// The label of the namespaces that it admitted. Nobody but that operator knows it.
const ADMITTED: (&str, &str) = (
    "hostedcluster.densityops.com/network-policy-group",
    "infrastructure",
);

/// Takes over what Deployments of an earlier operator ran. They are made anew once those and their pods are gone.
pub(super) async fn take_over<S: Server>(
    ctx: &ServerContext,
    server: &S,
    deployments: &[Deployment],
) -> Result<(), Error> {
    let writer = &ctx.common.writer;
    if let Some(fields) = server.on_takeover(ctx.common.now()) {
        writer.set_fields(server, fields).await?;
    }
    let left = remove_leftovers(writer, server).await?;
    let mut replaced = false;
    for deployment in deployments {
        replaced |= writer.replace(deployment).await?;
    }
    if let Some(left) = left.filter(|_| replaced) {
        writer.warn(server, "LeftoverRemains", &left).await;
    }
    Ok(())
}

/// Removes what nothing uses any more. What the manager has no right to is named.
async fn remove_leftovers<S: Server>(writer: &Writer, server: &S) -> Result<Option<String>, apply::Error> {
    let (namespace, name) = (server.namespace().unwrap_or_default(), server.name_any());
    let account = account_name(server);
    for (suffix, constraints) in CONSTRAINTS {
        let role = format!("system:openshift:scc:{constraints}");
        let proven = |binding: &RoleBinding| {
            grants(&binding.role_ref, &role) && is_only_for(binding.subjects.as_deref(), &namespace, &account)
        };
        writer
            .remove_leftover(&namespace, &format!("{name}-{suffix}"), proven)
            .await?;
    }
    if S::ROLE == Role::Proxy && !server.is_admitted_by_others() {
        let mut namespaces: Vec<String> = server
            .targets()
            .into_iter()
            .map(|target| target.namespace)
            .collect();
        namespaces.sort();
        namespaces.dedup();
        for namespace in namespaces {
            writer.remove_leftover(&namespace, POLICY, is_old_policy).await?;
        }
    }
    if S::ROLE != Role::Dhcp {
        return Ok(None);
    }
    let reader = format!("{name}-kubevirt-reader");
    match remove_reader(writer, &reader, &name, &namespace, &account).await {
        Ok(()) => Ok(None),
        Err(error) if error.is_forbidden() => Ok(Some(format!(
            "an earlier operator may have left the ClusterRole and the ClusterRoleBinding {reader}, and the manager has \
             no right to them: delete them by kubectl delete clusterrole,clusterrolebinding {reader}"
        ))),
        Err(error) => Err(error),
    }
}

/// The role goes before its binding: the binding is what proves that both are of this server.
async fn remove_reader(
    writer: &Writer,
    reader: &str,
    server: &str,
    namespace: &str,
    account: &str,
) -> Result<(), apply::Error> {
    let Some(binding) = writer.find_leftover::<ClusterRoleBinding>(reader).await? else {
        return Ok(());
    };
    if !grants(&binding.role_ref, reader) || !is_only_for(binding.subjects.as_deref(), namespace, account) {
        return Ok(());
    }
    let role = writer.find_leftover::<ClusterRole>(reader).await?;
    if let Some(role) = role.filter(|role| is_old_reader(role, server)) {
        writer.remove_found(&role).await?;
    }
    writer.remove_found(&binding).await
}

fn grants(reference: &RoleRef, role: &str) -> bool {
    reference.kind == "ClusterRole" && reference.name == role
}

/// Whether a binding is for this account and nobody else.
fn is_only_for(subjects: Option<&[Subject]>, namespace: &str, account: &str) -> bool {
    let is_it = |subject: &Subject| {
        subject.kind == "ServiceAccount"
            && subject.name == account
            && subject.namespace.as_deref() == Some(namespace)
    };
    subjects.is_some_and(|subjects| !subjects.is_empty() && subjects.iter().all(is_it))
}

/// Whether a role lets a server of this name read virtual machines, and nothing else.
fn is_old_reader(role: &ClusterRole, server: &str) -> bool {
    let reads = ["get", "list", "watch"];
    let rules = role.rules.as_deref().unwrap_or_default();
    let only_machines = rules.iter().all(|rule| {
        rule.api_groups.as_deref() == Some(&["kubevirt.io".to_owned()])
            && rule.resources.as_deref() == Some(&["virtualmachineinstances".to_owned()])
            && rule.verbs.iter().all(|verb| reads.contains(&verb.as_str()))
    });
    role.labels().get("app").is_some_and(|app| app == server) && !rules.is_empty() && only_machines
}

/// Whether a policy admits the namespaces that the earlier operator labelled, and nobody else.
pub(super) fn is_old_policy(policy: &NetworkPolicy) -> bool {
    let (key, value) = ADMITTED;
    let rules = policy.spec.as_ref().and_then(|spec| spec.ingress.as_deref());
    let mut peers = rules
        .unwrap_or_default()
        .iter()
        .flat_map(|rule| rule.from.as_deref().unwrap_or_default());
    let (peer, more) = (peers.next(), peers.next().is_some());
    policy.name_any() == POLICY
        && !more
        && peer.is_some_and(|peer| {
            let labels = peer
                .namespace_selector
                .as_ref()
                .and_then(|one| one.match_labels.as_ref());
            labels.is_some_and(|labels| labels.len() == 1 && labels.get(key).is_some_and(|own| own == value))
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn subject(name: &str, namespace: &str) -> Subject {
        Subject {
            kind: "ServiceAccount".into(),
            name: name.into(),
            namespace: Some(namespace.into()),
            ..Subject::default()
        }
    }

    #[test]
    fn a_binding_is_proven_by_granting_to_the_server_s_account_and_nobody_else() {
        let own = subject("x-dhcp-dhcp", "clusters");
        let proven = |subjects: &[Subject]| is_only_for(Some(subjects), "clusters", "x-dhcp-dhcp");
        assert!(proven(std::slice::from_ref(&own)));
        assert!(!proven(&[own, subject("default", "clusters")]));
        assert!(!proven(&[subject("x-dhcp-dhcp", "other")]));
        assert!(!proven(&[]));
        assert!(!is_only_for(None, "clusters", "x-dhcp-dhcp"));
    }

    #[test]
    fn a_role_is_proven_by_its_label_and_by_reading_machines_alone() {
        let role = |app: &str, verbs: Value| -> ClusterRole {
            serde_json::from_value(json!({
                "metadata": {"name": "x-dhcp-kubevirt-reader", "labels": {"app": app}},
                "rules": [{"apiGroups": ["kubevirt.io"], "resources": ["virtualmachineinstances"], "verbs": verbs}],
            }))
            .unwrap()
        };
        assert!(is_old_reader(
            &role("x-dhcp", json!(["get", "list", "watch"])),
            "x-dhcp"
        ));
        assert!(!is_old_reader(
            &role("x-dhcp", json!(["get", "delete"])),
            "x-dhcp"
        ));
        assert!(!is_old_reader(&role("y-dhcp", json!(["get"])), "x-dhcp"));
    }

    #[test]
    fn a_policy_is_proven_by_the_label_that_it_admits() {
        let policy = |name: &str, ingress: Value| -> NetworkPolicy {
            let spec = json!({"podSelector": {}, "ingress": ingress});
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
        };
        let from = |labels: Value| json!({"namespaceSelector": {"matchLabels": labels}});
        let old = from(json!({ADMITTED.0: ADMITTED.1}));
        assert!(is_old_policy(&policy(POLICY, json!([{"from": [old]}]))));
        assert!(!is_old_policy(&policy("mine", json!([{"from": [old]}]))));
        let wider = json!([{"from": [old, from(json!({"team": "a"}))]}]);
        assert!(!is_old_policy(&policy(POLICY, wider)), "somebody added to it");
        assert!(!is_old_policy(&policy(POLICY, json!([{}]))));
    }
}
