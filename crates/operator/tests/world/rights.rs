//! Clients with exactly the rights of a ServiceAccount, which take note of every call that was forbidden.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};

use http::{Request, Response, StatusCode};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use oooi_testkit::Cluster;

/// The calls that were forbidden so far, with what the API server said.
#[derive(Clone, Default)]
pub(crate) struct Forbidden(Arc<Mutex<Vec<String>>>);

impl Forbidden {
    /// What was forbidden.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Takes note of a refusal of rights. Other refusals, such as in a namespace that ends, have the same code.
    async fn note(&self, call: String, response: Response<Body>) -> Result<Response<Body>, kube::Error> {
        if response.status() != StatusCode::FORBIDDEN {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let said = body.collect_bytes().await?;
        let text = String::from_utf8_lossy(&said);
        if text.contains("cannot ") {
            self.0.lock().unwrap().push(format!("{call}: {text}"));
        }
        Ok(Response::from_parts(head, Body::from(said)))
    }
}

/// A client that acts as this ServiceAccount.
pub(crate) async fn client_of(cluster: &Cluster, namespace: &str, account: &str) -> (Client, Forbidden) {
    let document = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(document, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.auth_info.impersonate = Some(format!("system:serviceaccount:{namespace}:{account}"));
    let inner = Client::try_from(config).unwrap();
    let forbidden = Forbidden::default();
    let notes = forbidden.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, notes) = (inner.clone(), notes.clone());
        async move {
            let call = format!("{} {}", request.method(), request.uri());
            notes.note(call, inner.send(request).await?).await
        }
    });
    (Client::new(service, "default"), forbidden)
}
