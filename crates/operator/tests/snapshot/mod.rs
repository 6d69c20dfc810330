//! What a manager made of a namespace, in a form in which two namespaces can be compared.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use http::Request;
use serde_json::Value;

use super::world::World;

/// What a manager makes, or writes something of: the path of each API, and the kinds of it.
const KINDS: [(&str, &[&str]); 8] = [
    (
        "apis/hostedcluster.densityops.com/v1alpha1",
        &["infras", "dhcpservers", "dnsservers", "proxyservers"],
    ),
    ("apis/hypershift.openshift.io/v1beta1", &["hostedclusters"]),
    ("apis/k8s.cni.cncf.io/v1", &["network-attachment-definitions"]),
    ("apis/apps/v1", &["deployments"]),
    (
        "api/v1",
        &[
            "services",
            "configmaps",
            "serviceaccounts",
            "persistentvolumeclaims",
        ],
    ),
    ("apis/rbac.authorization.k8s.io/v1", &["rolebindings"]),
    ("apis/networking.k8s.io/v1", &["networkpolicies"]),
    ("apis/policy/v1", &["poddisruptionbudgets"]),
];

/// What Kubernetes itself puts into every namespace, sooner or later.
const OF_KUBERNETES: [&str; 2] = ["kube-root-ca.crt", "default"];

/// Every object of some namespaces by kind and name, without what differs between any two.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Snapshot(BTreeMap<String, Value>);

impl Snapshot {
    /// The namespace of a world, and that of the control plane beside it.
    pub(crate) async fn of(world: &World, plane: &str) -> Self {
        let own = world.namespace.name();
        let mut objects = BTreeMap::new();
        for (api, kinds) in KINDS {
            for kind in kinds {
                for (place, namespace) in [("", own), ("of the control plane ", plane)] {
                    let path = format!("/{api}/namespaces/{namespace}/{kind}");
                    let request = Request::get(path).body(Vec::new()).unwrap();
                    let text = world.client.request_text(request).await.unwrap();
                    let text = without_uids(&text.replace(own, "NAMESPACE"));
                    let list: Value = serde_json::from_str(&text).unwrap();
                    for object in list["items"].as_array().unwrap() {
                        let name = &object["metadata"]["name"];
                        if OF_KUBERNETES.iter().any(|its| name == its) {
                            continue;
                        }
                        objects.insert(format!("{kind} {place}{name}"), essence(object));
                    }
                }
            }
        }
        Snapshot(objects)
    }

    /// Whether there is an object of this kind, in either namespace.
    pub(crate) fn has(&self, kind: &str) -> bool {
        self.0.keys().any(|key| key.starts_with(&format!("{kind} ")))
    }

    /// What is different in another one.
    pub(crate) fn difference(&self, other: &Self) -> String {
        let mut lines = Vec::new();
        for (key, value) in &self.0 {
            match other.0.get(key) {
                None => lines.push(format!("{key} is missing")),
                Some(found) if found != value => lines.push(format!("{key} is {found} instead of {value}")),
                Some(_) => {}
            }
        }
        let more = other.0.keys().filter(|key| !self.0.contains_key(*key));
        lines.extend(more.map(|key| format!("{key} is too much")));
        lines.join("\n")
    }
}

fn essence(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|key, _| matches!(key.as_str(), "labels" | "ownerReferences" | "finalizers"));
    }
    // How far the servers of this moment are is not the manager's affair; what it speaks of is.
    let status = object["status"].take();
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let mut said: Vec<String> = conditions
        .iter()
        .map(|condition| match condition["type"].as_str().unwrap_or_default() {
            kind if kind.ends_with("Derived") => format!("{kind} {}", condition["reason"]),
            kind => kind.to_owned(),
        })
        .collect();
    said.retain(|kind| kind.contains("Ready") || kind.contains("Derived"));
    said.sort();
    object["status"] = Value::from(said);
    // A digest of what has the name of the namespace in it.
    let state = "/spec/template/metadata/annotations/hostedcluster.densityops.com~1network-state";
    if let Some(state) = object.pointer_mut(state) {
        *state = "STATE".into();
    }
    if let Some(spec) = object["spec"].as_object_mut() {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    object
}

/// The text with every UUID as `UID`.
fn without_uids(text: &str) -> String {
    let is_uid = |part: &[u8]| {
        part.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    let bytes = text.as_bytes();
    let mut kept = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes.len() - at >= 36 && is_uid(&bytes[at..at + 36]) {
            kept.extend_from_slice(b"UID");
            at += 36;
        } else {
            kept.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(kept).unwrap()
}
