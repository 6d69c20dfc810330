//! The resource itself as a file, so that a server starts while the API server is away.
//!
//! It carries uid and generation: for one uid a server never goes back a generation, whichever of file and watch is
//! later.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::{config_map_name, metadata};
use crate::server::Server;

/// The name of the file.
pub(super) const FILE: &str = "server.yaml";

pub(super) fn build<S: Server>(server: &S) -> ConfigMap {
    ConfigMap {
        metadata: metadata(server, config_map_name(server)),
        data: Some(BTreeMap::from([(FILE.to_owned(), manifest(server))])),
        ..ConfigMap::default()
    }
}

/// The manifest as YAML. JSON, should it ever be needed, is YAML too.
fn manifest<S: Server>(server: &S) -> String {
    let whole = serde_json::to_value(server).unwrap_or_default();
    let manifest = json!({
        "apiVersion": S::api_version(&()),
        "kind": <S as Resource>::kind(&()),
        "metadata": {
            "name": server.name_any(),
            "namespace": server.namespace(),
            "uid": server.uid(),
            "generation": server.meta().generation,
        },
        "spec": whole.get("spec").unwrap_or(&Value::Null),
    });
    serde_saphyr::to_string(&manifest).unwrap_or_else(|_| manifest.to_string())
}
