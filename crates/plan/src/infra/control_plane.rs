//! Names of a control plane.

use oooi_api::infra::ProxyComponent;

use super::Subject;
use super::backends::leads_to_apps;
use crate::mistake::Notes;
use crate::name;
use crate::object_name::control_plane_namespace;

/// The Service of the API server in the namespace of a control plane.
pub const API_SERVER: &str = "kube-apiserver";

/// The domain of a hosted cluster, in lower case.
pub(super) struct Domain {
    /// `<clusterName>.<baseDomain>`.
    pub(super) name: String,
    /// What its applications are below.
    pub(super) apps: String,
}

/// The names under which pods of the hosted cluster ask for their API server. The node's own proxy passes them on
/// as they are, so they arrive at the gateway; no node resolves them there.
pub fn pod_names(cluster: &str) -> Vec<String> {
    let mut names = Vec::new();
    for service in ["kubernetes", "openshift"] {
        for suffix in ["", ".default", ".default.svc", ".default.svc.cluster.local"] {
            names.push(format!("{service}{suffix}"));
        }
    }
    names.push(format!("api.{cluster}.hypershift.local"));
    names
}

/// The name of the hosted cluster: that of its HostedCluster, else the one written for DNS, else the Infra's.
pub(super) fn cluster<'a>(subject: &Subject<'a>) -> &'a str {
    let reference = subject
        .infra
        .spec
        .hosted_cluster_ref
        .as_ref()
        .map(|r| r.name.as_str());
    let dns = subject
        .parts
        .dns
        .as_ref()
        .and_then(|dns| dns.cluster_name.as_deref());
    reference
        .or(dns.filter(|name| !name.is_empty()))
        .unwrap_or(subject.name)
}

/// The Service of the API server.
pub(super) fn api_server(proxy: &ProxyComponent) -> &str {
    match proxy.api_server_service.as_str() {
        "" => API_SERVER, // as the field left out: what a template renders for "nothing"
        written => written,
    }
}

/// The namespace of the control plane.
pub(super) fn namespace(subject: &Subject<'_>) -> String {
    let proxy = subject.parts.proxy.as_ref();
    if let Some(written) = proxy
        .and_then(|proxy| proxy.control_plane_namespace.as_ref())
        .filter(|written| !written.is_empty())
    {
        return written.clone();
    }
    match (
        &subject.known.control_plane,
        &subject.infra.spec.hosted_cluster_ref,
    ) {
        (Some(plane), Some(_)) => plane.namespace.clone(),
        (None, Some(reference)) => {
            let namespace = reference.namespace.as_deref().unwrap_or(subject.namespace);
            control_plane_namespace(namespace, &reference.name)
        }
        (_, None) => control_plane_namespace(subject.namespace, subject.name),
    }
}

/// The domain of the hosted cluster: as written for DNS, else that of the HostedCluster, else the one that is served
/// already. Where somebody needs it and nobody says it, that is a mistake.
pub(super) fn domain(subject: &Subject<'_>, notes: &mut Notes) -> Option<Domain> {
    const BASE: &str = "spec.infraComponents.dns.baseDomain";
    let parts = subject.parts;
    let plane = subject.known.control_plane.as_ref();
    let base = parts
        .dns
        .as_ref()
        .and_then(|dns| dns.base_domain.as_deref())
        .filter(|base| !base.is_empty());
    let served = subject.unheard_of().and_then(|known| known.dns.as_ref());
    let derived = plane
        .and_then(|plane| plane.domain.as_deref())
        .or(served.map(|dns| &*dns.hosted_cluster_domain));
    let (text, path) = match (base, derived) {
        (Some(base), _) => {
            let written = parts.dns.as_ref().and_then(|dns| dns.cluster_name.as_deref());
            match written.unwrap_or_else(|| cluster(subject)) {
                "" => (base.to_owned(), BASE), // a cluster without a prefix of its own
                prefix => (format!("{prefix}.{base}"), BASE),
            }
        }
        (None, Some(domain)) => (domain.to_owned(), "spec.hostedClusterRef"),
        (None, None) => {
            let proxy = parts
                .proxy
                .as_ref()
                .filter(|proxy| proxy.enabled && proxy.backends.is_empty());
            let derived = subject.infra.spec.hosted_cluster_ref.is_some();
            if parts.dns.as_ref().is_some_and(|dns| dns.enabled) {
                notes.mistake(
                    BASE,
                    "the domain of the hosted cluster is missing: set baseDomain, such as example.com, and clusterName",
                );
            } else if proxy.is_some() && !derived {
                notes.mistake(
                    "spec.infraComponents.proxy.backends",
                    "there is nothing to forward: set dns.baseDomain and dns.clusterName, from which the names of the \
                     control plane follow, or write backends",
                );
            }
            return None;
        }
    };
    let name = notes.read(path, name::exact(&text))?;
    let apps = plane
        .and_then(|plane| plane.apps_domain.clone())
        .or_else(|| served_apps(subject))
        .unwrap_or_else(|| format!("apps.{name}"));
    Some(Domain { name, apps })
}

/// What applications are below already.
fn served_apps(subject: &Subject<'_>) -> Option<String> {
    let proxy = subject.unheard_of()?.proxy.as_ref()?;
    let mut apps = proxy
        .backends
        .iter()
        .filter(|backend| leads_to_apps(subject, backend));
    apps.find_map(|backend| backend.hostname.strip_prefix("*.").map(str::to_owned))
}
