//! A real API server as the tests here use it: definitions are installed, manifests are offered, strictly.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{path::Path, time::Duration};

use http::Method;
use kube::Client;
use oooi_testkit::{Cluster, until};
use serde_json::{Value, json};

/// What the API server said to a manifest.
pub(crate) type Answer = Result<Value, String>;

/// The API server of a cluster.
pub(crate) struct ApiServer<'a> {
    cluster: &'a Cluster,
    client: Client,
}

/// Where the objects of a kind are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resource {
    pub(crate) group_version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) namespaced: bool,
}

impl Resource {
    /// The path of the kind's objects, in `namespace` if they have one.
    pub(crate) fn path(&self, namespace: &str) -> String {
        let Self {
            group_version,
            plural,
            ..
        } = self;
        if self.namespaced {
            format!("/apis/{group_version}/namespaces/{namespace}/{plural}")
        } else {
            format!("/apis/{group_version}/{plural}")
        }
    }

    /// Whether a manifest is of this kind.
    pub(crate) fn is_of(&self, manifest: &Value) -> bool {
        manifest["apiVersion"] == self.group_version.as_str() && manifest["kind"] == self.kind.as_str()
    }
}

/// Our own kinds.
pub(crate) fn our_kinds() -> Vec<Resource> {
    oooi_api::definitions()
        .iter()
        .map(|definition| definition_resource(&serde_json::to_value(definition).unwrap()))
        .collect()
}

/// What a definition defines.
pub(crate) fn definition_resource(definition: &Value) -> Resource {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let version = spec["versions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|version| version["storage"] == true)
        .unwrap();
    Resource {
        group_version: format!("{}/{}", text(&spec["group"]), text(&version["name"])),
        kind: text(&spec["names"]["kind"]),
        plural: text(&spec["names"]["plural"]),
        namespaced: spec["scope"] == "Namespaced",
    }
}

impl<'a> ApiServer<'a> {
    /// The API server of `cluster`.
    pub(crate) async fn of(cluster: &'a Cluster) -> Self {
        let client = cluster.client().await.unwrap();
        Self { cluster, client }
    }

    /// Installs our definitions by server-side apply and waits until they are served.
    pub(crate) async fn install_ours(&self) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": oooi_api::definitions()});
        self.cluster.apply(&list.to_string()).await.unwrap();
        self.wait_for(&our_kinds()).await;
    }

    /// Installs the definitions of a file or a folder and waits until they are served. Gives what they define.
    pub(crate) async fn install(&self, path: &Path) -> Vec<Resource> {
        let path = path.to_str().unwrap();
        self.cluster
            .kubectl(&["apply", "--server-side", "--force-conflicts", "-f", path])
            .await
            .unwrap();
        let text = self
            .cluster
            .kubectl(&["get", "-o", "json", "-f", path])
            .await
            .unwrap();
        let answer: Value = serde_json::from_str(&text).unwrap();
        let definitions = answer["items"]
            .as_array()
            .cloned()
            .unwrap_or_else(|| vec![answer.clone()]);
        let kinds: Vec<Resource> = definitions.iter().map(definition_resource).collect();
        self.wait_for(&kinds).await;
        kinds
    }

    /// A definition is established a moment before its objects are served: only asking for them tells.
    async fn wait_for(&self, kinds: &[Resource]) {
        for kind in kinds {
            until(
                &format!("{} to be served", kind.kind),
                Duration::from_secs(30),
                async || {
                    self.send(
                        Method::GET,
                        &format!("{}?limit=1", kind.path("default")),
                        &Value::Null,
                    )
                    .await
                },
            )
            .await
            .unwrap();
        }
    }

    /// What would become of a manifest in `namespace`: unknown fields are refused, nothing is stored.
    pub(crate) async fn offer(&self, kind: &Resource, namespace: &str, manifest: &Value) -> Answer {
        let mut manifest = manifest.clone();
        if kind.namespaced {
            manifest["metadata"]["namespace"] = namespace.into();
        }
        let path = format!("{}?fieldValidation=Strict&dryRun=All", kind.path(namespace));
        self.send(Method::POST, &path, &manifest).await
    }

    /// One request. A refusal is its message.
    pub(crate) async fn send(&self, method: Method, path: &str, body: &Value) -> Answer {
        let bytes = if body.is_null() {
            Vec::new()
        } else {
            serde_json::to_vec(body).unwrap()
        };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(bytes)
            .unwrap();
        self.client
            .request(request)
            .await
            .map_err(|error| error.to_string())
    }
}

/// All documents of a YAML text. The mistakes of one that is no Kubernetes object.
pub(crate) fn documents(name: &str, text: &str) -> Result<Vec<Value>, String> {
    let source = oooi_manifest::Source::new(name, text.to_owned());
    match oooi_manifest::read(&source) {
        Ok(documents) => Ok(documents.iter().map(oooi_manifest::Document::to_value).collect()),
        Err(mistakes) => Err(mistakes
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; ")),
    }
}
