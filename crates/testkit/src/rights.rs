//! Clients with exactly the rights of a ServiceAccount, which take note of what was called and what was forbidden.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http::{Method, Request, Response, StatusCode, Uri};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::{Client, client::Body};

use crate::{Cluster, Error, cluster::config};

/// A right as rules grant it: `verb group/resource`, or `verb group/resource/subresource`.
pub type Right = String;

/// The calls of one or more clients.
#[derive(Clone, Default)]
pub struct Calls(Arc<Mutex<Noted>>);

#[derive(Default)]
struct Noted {
    forbidden: Vec<String>,
    used: BTreeSet<Right>,
    paths: BTreeSet<String>,
}

impl Calls {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was forbidden, with what the API server said.
    pub fn forbidden(&self) -> Vec<String> {
        self.noted().forbidden.clone()
    }

    /// The rights that were made use of.
    pub fn used(&self) -> BTreeSet<Right> {
        self.noted().used.clone()
    }

    /// The paths that were asked for.
    pub fn paths(&self) -> BTreeSet<String> {
        self.noted().paths.clone()
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
            let mut noted = self.noted();
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
            self.noted().forbidden.push(format!("{method} {uri}: {text}"));
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
pub fn granted(rules: &[PolicyRule]) -> BTreeSet<Right> {
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

/// A client that acts as this ServiceAccount, and its calls.
pub async fn client_of(cluster: &Cluster, namespace: &str, account: &str) -> Result<(Client, Calls), Error> {
    let calls = Calls::default();
    Ok((noted(cluster, namespace, account, &calls).await?, calls))
}

/// The same, with its calls noted beside those of others.
pub async fn noted(
    cluster: &Cluster,
    namespace: &str,
    account: &str,
    calls: &Calls,
) -> Result<Client, Error> {
    let mut config = config(&cluster.kubeconfig()).await?;
    config.auth_info.impersonate = Some(format!("system:serviceaccount:{namespace}:{account}"));
    let (inner, calls) = (Client::try_from(config)?, calls.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, calls) = (inner.clone(), calls.clone());
        async move {
            let (method, uri) = (request.method().clone(), request.uri().clone());
            calls.note(&method, &uri, inner.send(request).await?).await
        }
    });
    Ok(Client::new(service, "default"))
}
