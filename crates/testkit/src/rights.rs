//! Clients with exactly the rights of a ServiceAccount, which take note of what was called and what was forbidden.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode, Uri};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use oooi_testkit::Cluster;

/// A right as rules grant it: `verb group/resource`, or `verb group/resource/subresource`.
type Right = String;

/// The calls of one or more clients.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<Mutex<Noted>>);

#[derive(Default)]
struct Noted {
    forbidden: Vec<String>,
    used: BTreeSet<Right>,
    paths: BTreeSet<String>,
}

impl Calls {
    /// What was forbidden, with what the API server said.
    pub(crate) fn forbidden(&self) -> Vec<String> {
        self.0.lock().unwrap().forbidden.clone()
    }

    /// The rights that were made use of.
    pub(crate) fn used(&self) -> BTreeSet<Right> {
        self.0.lock().unwrap().used.clone()
    }

    /// The paths that were asked for.
    pub(crate) fn paths(&self) -> BTreeSet<String> {
        self.0.lock().unwrap().paths.clone()
    }

    /// Takes note of a call and its answer. Of refusals only those of rights count: others, such as in a namespace that
    /// ends, have the same code.
    async fn note(
        &self,
        method: &Method,
        uri: &Uri,
        response: Response<Body>,
    ) -> Result<Response<Body>, kube::Error> {
        let mut rights: Vec<Right> = right(method, uri).into_iter().collect();
        if *method == Method::PATCH && response.status() == StatusCode::CREATED {
            rights.extend(rights.first().map(|right| right.replacen("patch", "create", 1)));
        }
        {
            let mut noted = self.0.lock().unwrap();
            noted.used.extend(rights);
            noted.paths.insert(uri.path().to_owned());
        }
        if response.status() != StatusCode::FORBIDDEN {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let said = body.collect_bytes().await?;
        let text = String::from_utf8_lossy(&said);
        if text.contains("cannot ") {
            self.0
                .lock()
                .unwrap()
                .forbidden
                .push(format!("{method} {uri}: {text}"));
        }
        Ok(Response::from_parts(head, Body::from(said)))
    }
}

/// The right that a call needs. None for what is no resource.
fn right(method: &Method, uri: &Uri) -> Option<Right> {
    let segments: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
    let (group, rest) = match &*segments {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return None,
    };
    let (resource, name, below) = match rest {
        ["namespaces", _, resource, rest @ ..] => (*resource, rest.first(), rest.get(1)),
        [resource, rest @ ..] => (*resource, rest.first(), rest.get(1)),
        [] => return None,
    };
    let watches = uri
        .query()
        .is_some_and(|query| query.split('&').any(|part| part.starts_with("watch=")));
    let verb = match (method.as_str(), name) {
        ("GET", Some(_)) => "get",
        ("GET", None) if watches => "watch",
        ("GET", None) => "list",
        ("POST", _) => "create",
        ("PATCH", _) => "patch",
        ("PUT", _) => "update",
        ("DELETE", Some(_)) => "delete",
        ("DELETE", None) => "deletecollection",
        _ => return None,
    };
    let below = below.map_or_else(String::new, |below| format!("/{below}"));
    Some(format!("{verb} {group}/{resource}{below}"))
}

/// Every right that rules grant, one by one.
pub(crate) fn granted(rules: &[PolicyRule]) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for rule in rules {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                rights.extend(rule.verbs.iter().map(|verb| format!("{verb} {group}/{resource}")));
            }
        }
    }
    rights
}

/// A client that acts as this ServiceAccount.
pub(crate) async fn client_of(cluster: &Cluster, namespace: &str, account: &str) -> (Client, Calls) {
    let calls = Calls::default();
    (noted(cluster, namespace, account, &calls).await, calls)
}

/// The same, with its calls noted beside those of others.
pub(crate) async fn noted(cluster: &Cluster, namespace: &str, account: &str, calls: &Calls) -> Client {
    let document = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(document, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.auth_info.impersonate = Some(format!("system:serviceaccount:{namespace}:{account}"));
    let inner = Client::try_from(config).unwrap();
    let calls = calls.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, calls) = (inner.clone(), calls.clone());
        async move {
            let (method, uri) = (request.method().clone(), request.uri().clone());
            calls.note(&method, &uri, inner.send(request).await?).await
        }
    });
    Client::new(service, "default")
}
