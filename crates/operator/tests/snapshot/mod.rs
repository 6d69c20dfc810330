//! What a manager made of a namespace, in a form in which two namespaces can be compared.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use http::Request;
use serde_json::Value;

use super::world::World;

/// What a manager makes: the path of each API, and the kinds of it.
const KINDS: [(&str, &[&str]); 5] = [
    (
        "apis/hostedcluster.densityops.com/v1alpha1",
        &["infras", "dhcpservers", "dnsservers", "proxyservers"],
    ),
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
];

/// Every object of a namespace by kind and name, without what differs between any two.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Snapshot(BTreeMap<String, Value>);

impl Snapshot {
    pub(crate) async fn of(world: &World) -> Self {
        let namespace = world.namespace.name();
        let mut objects = BTreeMap::new();
        for (api, kinds) in KINDS {
            for kind in kinds {
                let path = format!("/{api}/namespaces/{namespace}/{kind}");
                let request = Request::get(path).body(Vec::new()).unwrap();
                let text = world.client.request_text(request).await.unwrap();
                let text = without_uids(&text.replace(namespace, "NAMESPACE"));
                let list: Value = serde_json::from_str(&text).unwrap();
                for object in list["items"].as_array().unwrap() {
                    objects.insert(format!("{kind} {}", object["metadata"]["name"]), essence(object));
                }
            }
        }
        Snapshot(objects)
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
        .map(|condition| condition["type"].to_string())
        .collect();
    said.retain(|kind| kind.contains("Ready") || kind.contains("Derived"));
    said.sort();
    object["status"] = Value::from(said);
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
