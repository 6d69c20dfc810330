//! By what an object is known to be ours: its labels and its owner.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};

use crate::unchanged::DIGEST;

/// The prefix of our own annotations and labels.
pub const PREFIX: &str = "hostedcluster.densityops.com";

/// With the value `true` on an object of ours, nothing is written for it.
pub const PAUSED: &str = "hostedcluster.densityops.com/paused";

/// On a DHCPServer or DNSServer: the namespace of the virtual machines that it serves.
pub const MACHINE_NAMESPACE: &str = "hostedcluster.densityops.com/machine-namespace";

/// On a ProxyServer: `None` if somebody else admits it to the pods that it forwards to.
pub const NETWORK_POLICY: &str = "hostedcluster.densityops.com/network-policy";

/// On a server and its pods: the state of the network that they are attached to. Pods of another state are replaced, since
/// nothing else moves them to another bridge or gives them another route.
pub const NETWORK_STATE: &str = "hostedcluster.densityops.com/network-state";

/// Keeps a resource until what was made for it in other namespaces is removed.
pub const FINALIZER: &str = "hostedcluster.densityops.com/elsewhere";

/// The labels of an object in another namespace than its owner: no owner reference can lead there.
const OWNER_NAMESPACE: &str = "hostedcluster.densityops.com/owner-namespace";
const OWNER_NAME: &str = "hostedcluster.densityops.com/owner-name";

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const INSTANCE: &str = "app.kubernetes.io/instance";
const COMPONENT: &str = "app.kubernetes.io/component";
const NAME: &str = "oooi";

/// The selector of everything that the operator made.
pub const OURS: &str = "app.kubernetes.io/managed-by=oooi";

/// What a server is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It gives nodes their addresses.
    Dhcp,
    /// It resolves names.
    Dns,
    /// It is the gateway.
    Proxy,
}

impl Role {
    /// The word that names it: a subcommand of the binary, a suffix of objects, a label.
    pub fn word(self) -> &'static str {
        match self {
            Role::Dhcp => "dhcp",
            Role::Dns => "dns",
            Role::Proxy => "proxy",
        }
    }

    /// The suffix of its ConfigMap.
    pub fn config_suffix(self) -> &'static str {
        match self {
            Role::Dhcp => "dhcp-config",
            Role::Dns => "dns-config",
            Role::Proxy => "proxy-bootstrap",
        }
    }

    /// The label `app`, by which Services and pods were known before there were recommended labels.
    pub fn app(self) -> String {
        format!("{}-server", self.word())
    }
}

/// The labels of every object that belongs to `instance`.
pub fn labels(instance: &str, role: Option<Role>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([
        ("app.kubernetes.io/name".to_owned(), NAME.to_owned()),
        (INSTANCE.to_owned(), label_value(instance)),
        (MANAGED_BY.to_owned(), NAME.to_owned()),
    ]);
    if let Some(role) = role {
        labels.insert(COMPONENT.to_owned(), role.word().to_owned());
    }
    labels
}

/// A name as the value of a label, which has at most 63 characters. What is too long is cut, and keeps its digest.
pub fn label_value(name: &str) -> String {
    const LONGEST: usize = 63;
    if name.len() <= LONGEST {
        return name.to_owned();
    }
    let digest = crate::unchanged::digest(&serde_json::Value::from(name));
    let kept: String = name.chars().take(LONGEST - 1 - digest.len()).collect();
    format!("{}-{digest}", kept.trim_end_matches(['-', '.']))
}

/// What an object belongs to, by its labels.
pub fn instance(metadata: &ObjectMeta) -> Option<&str> {
    metadata.labels.as_ref()?.get(INSTANCE).map(String::as_str)
}

/// The metadata of a new object of ours beside its owner. The owner's deletion removes it.
pub fn metadata<K>(owner: &K, name: String, role: Option<Role>) -> ObjectMeta
where
    K: Resource<DynamicType = ()>,
{
    ObjectMeta {
        name: Some(name),
        namespace: owner.namespace(),
        labels: Some(labels(&owner.name_any(), role)),
        owner_references: owner.controller_owner_ref(&()).map(|reference| vec![reference]),
        ..ObjectMeta::default()
    }
}

/// The metadata of a new object of ours in another namespace than its owner.
pub fn metadata_elsewhere<K>(owner: &K, namespace: &str, name: String, role: Role) -> ObjectMeta
where
    K: Resource<DynamicType = ()>,
{
    let mut labels = labels(&owner.name_any(), Some(role));
    labels.insert(OWNER_NAMESPACE.to_owned(), owner.namespace().unwrap_or_default());
    labels.insert(OWNER_NAME.to_owned(), owner.name_any());
    ObjectMeta {
        name: Some(name),
        namespace: Some(namespace.to_owned()),
        labels: Some(labels),
        ..ObjectMeta::default()
    }
}

/// The namespace and name of the owner of an object in another namespace.
pub fn owner_elsewhere(metadata: &ObjectMeta) -> Option<(&str, &str)> {
    let labels = metadata.labels.as_ref()?;
    Some((labels.get(OWNER_NAMESPACE)?, labels.get(OWNER_NAME)?))
}

/// The selector of all objects that an owner has in other namespaces.
pub fn select_elsewhere<K>(owner: &K, role: Role) -> String
where
    K: Resource<DynamicType = ()>,
{
    let (namespace, name, role) = (
        owner.namespace().unwrap_or_default(),
        owner.name_any(),
        role.word(),
    );
    format!("{OURS},{COMPONENT}={role},{OWNER_NAMESPACE}={namespace},{OWNER_NAME}={name}")
}

/// Whether an existing object may be written by whoever has this uid: it has our labels, and no other controller. What
/// we applied for that owner stays ours when somebody removes the label, which is then put back.
pub fn is_ours(existing: &ObjectMeta, owner: Option<&str>) -> bool {
    match controller(existing).map(|reference| reference.uid.as_str()) {
        None => is_labelled(existing),
        own => own == owner && (is_labelled(existing) || was_applied(existing)),
    }
}

/// Whether an object has the mark that everything gets which is applied here.
fn was_applied(metadata: &ObjectMeta) -> bool {
    let annotations = metadata.annotations.as_ref();
    annotations.is_some_and(|all| all.contains_key(DIGEST))
}

/// Whether an object has our label.
pub fn is_labelled(metadata: &ObjectMeta) -> bool {
    let manager = metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY));
    manager.is_some_and(|manager| manager == NAME)
}

/// Whether an object is of a server of this role.
pub fn has_role(metadata: &ObjectMeta, role: Role) -> bool {
    let component = metadata.labels.as_ref().and_then(|labels| labels.get(COMPONENT));
    component.is_some_and(|component| component == role.word())
}

/// Whether an earlier operator made an object for whoever has this uid: it has none of our labels and marks, and that
/// very resource, of a kind of ours, as its controller.
pub fn is_inherited(existing: &ObjectMeta, owner: Option<&str>) -> bool {
    let controller = controller(existing).map(|reference| reference.uid.as_str());
    !is_labelled(existing) && !was_applied(existing) && controller.is_some() && controller == owner
}

/// The controller of an object.
pub fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata
        .owner_references
        .iter()
        .flatten()
        .find(|reference| reference.controller == Some(true))
}

/// Whether a person stopped writes for an object.
pub fn is_paused(metadata: &ObjectMeta) -> bool {
    let value = metadata.annotations.as_ref().and_then(|all| all.get(PAUSED));
    value.is_some_and(|value| value == "true")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(labelled: bool, controller: Option<&str>) -> ObjectMeta {
        let reference = |uid: &str| OwnerReference {
            uid: uid.into(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        ObjectMeta {
            labels: labelled.then(|| labels("x", None)),
            owner_references: controller.map(|uid| vec![reference(uid)]),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn an_object_without_our_labels_is_never_ours() {
        assert!(!is_ours(&object(false, None), Some("1")));
        assert!(!is_ours(&object(false, Some("1")), Some("1")));
    }

    #[test]
    fn what_an_earlier_operator_made_for_the_same_resource_is_inherited() {
        assert!(is_inherited(&object(false, Some("1")), Some("1")));
        assert!(!is_inherited(&object(false, Some("2")), Some("1")), "another's");
        assert!(!is_inherited(&object(false, None), Some("1")), "nobody's");
        assert!(!is_inherited(&object(false, None), None), "nobody's");
        assert!(
            !is_inherited(&object(true, Some("1")), Some("1")),
            "it is ours already"
        );
    }

    #[test]
    fn what_we_applied_stays_ours_without_its_label() {
        let mut object = object(false, Some("1"));
        object.annotations = Some(BTreeMap::from([(DIGEST.to_owned(), "0".to_owned())]));
        assert!(is_ours(&object, Some("1")));
        assert!(!is_inherited(&object, Some("1")), "it must not be replaced");
        assert!(!is_ours(&object, Some("2")), "another's");
        object.owner_references = None;
        assert!(!is_ours(&object, Some("1")), "nobody's: a copy keeps annotations");
    }

    #[test]
    fn every_label_is_one_that_the_api_server_takes() {
        let long = "x".repeat(253);
        assert!(labels(&long, None).values().all(|value| value.len() <= 63));
        assert_eq!(labels("x", None)[INSTANCE], "x");
    }

    #[test]
    fn an_object_of_another_owner_is_not_ours_although_it_has_our_labels() {
        assert!(!is_ours(&object(true, Some("2")), Some("1")));
        assert!(is_ours(&object(true, Some("1")), Some("1")));
        assert!(
            is_ours(&object(true, None), Some("1")),
            "restored from a backup, without its owner"
        );
    }
}
