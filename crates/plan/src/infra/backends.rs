//! What the gateway forwards.
//!
//! Backends that a person wrote are taken as they are. Without any, they are those of the HostedCluster, or, where
//! there is none, the services that every control plane has. In each case the API server also answers to the names
//! that pods call it by, and `*.apps` is added where the ports of the cluster's own router are known.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use oooi_api::infra::ProxyComponent;
use oooi_api::proxy_server::{Protocol, ProxyBackend};

use super::control_plane::{self, Domain, pod_names};
use super::{Subject, apps};
use crate::mistake::Notes;
use crate::name;

const AT: &str = "spec.infraComponents.proxy.backends";

/// A backend with everything that has a default left at it.
pub(crate) fn backend(
    name: &str,
    names: Vec<String>,
    port: i32,
    target: (&str, &str, IntOrString),
) -> ProxyBackend {
    let mut names = names.into_iter();
    let (namespace, service, target_port) = target;
    ProxyBackend {
        name: name.to_owned(),
        hostname: names.next().unwrap_or_default(),
        alternate_hostnames: names.collect(),
        port,
        target_service: service.to_owned(),
        target_port,
        target_namespace: namespace.to_owned(),
        protocol: Protocol::Tcp,
        timeout_seconds: 30,
        proxy_protocol: None,
    }
}

/// All backends of the Infra. None at all if no gateway is written down.
pub(super) fn backends(
    subject: &Subject<'_>,
    domain: Option<&Domain>,
    notes: &mut Notes,
) -> Vec<ProxyBackend> {
    let Some(proxy) = &subject.parts.proxy else {
        return Vec::new();
    };
    let namespace = control_plane::namespace(subject);
    let mut list = if !proxy.backends.is_empty() {
        check(&proxy.backends, notes);
        proxy.backends.clone()
    } else if subject.infra.spec.hosted_cluster_ref.is_some() {
        match &subject.known.control_plane {
            Some(plane) => plane.backends.clone(),
            None => running(subject, domain),
        }
    } else {
        domain
            .map(|domain| defaults(proxy, &namespace, &domain.name))
            .unwrap_or_default()
    };
    let cluster = control_plane::cluster(subject);
    add_pod_names(
        &mut list,
        control_plane::api_server(proxy),
        &namespace,
        &pod_names(cluster),
    );
    if let Some(domain) = domain {
        add_apps(&mut list, subject, proxy, domain);
    }
    list
}

/// What the gateway forwards already. Applications are left out where they are added anew.
fn running(subject: &Subject<'_>, domain: Option<&Domain>) -> Vec<ProxyBackend> {
    let known = subject.unheard_of().and_then(|known| known.proxy.as_ref());
    let mut list = known.map(|proxy| proxy.backends.clone()).unwrap_or_default();
    list.retain(|backend| domain.is_none() || !leads_to_apps(subject, backend));
    list
}

/// Whether a backend is the one of the cluster's own router.
pub(super) fn leads_to_apps(subject: &Subject<'_>, backend: &ProxyBackend) -> bool {
    backend.target_namespace == subject.namespace
        && backend.target_service == apps::apps_service(subject.name)
}

/// The services that every control plane has, under the names that a person would give them.
fn defaults(proxy: &ProxyComponent, namespace: &str, domain: &str) -> Vec<ProxyBackend> {
    let api = control_plane::api_server(proxy);
    let of = |labels: &[&str]| labels.iter().map(|label| format!("{label}.{domain}")).collect();
    let to = |service, port| (namespace, service, IntOrString::Int(port));
    vec![
        backend("kube-apiserver", of(&["api", "api-int"]), 6443, to(api, 6443)),
        backend(
            "oauth-openshift",
            of(&["oauth", "oauth-openshift.apps"]),
            443,
            to("oauth-openshift", 6443),
        ),
        backend(
            "ignition-server",
            of(&["ignition", "ignition-server"]),
            443,
            to("ignition-server-proxy", 443),
        ),
        backend(
            "konnectivity-server",
            of(&["konnectivity", "konnectivity-server"]),
            443,
            to("konnectivity-server", 8091),
        ),
        backend("kube-apiserver-443", of(&["kubernetes"]), 443, to(api, 6443)),
    ]
}

/// Lets the API server answer to the names that pods call it by, once on each port where it is published by name.
fn add_pod_names(list: &mut [ProxyBackend], service: &str, namespace: &str, names: &[String]) {
    let mut claimed: BTreeMap<i32, Vec<String>> = BTreeMap::new();
    for backend in list.iter().filter(|backend| backend.protocol != Protocol::Udp) {
        claimed
            .entry(backend.port)
            .or_default()
            .extend(own_names(backend).map(str::to_ascii_lowercase));
    }
    for backend in list.iter_mut() {
        let is_api = backend.target_service == service && backend.target_namespace == namespace;
        if !is_api || backend.protocol == Protocol::Udp || backend.hostname == "*" {
            continue;
        }
        let taken = claimed.entry(backend.port).or_default();
        for name in names {
            if !taken.contains(name) {
                taken.push(name.clone());
                backend.alternate_hostnames.push(name.clone());
            }
        }
    }
}

/// Applications of the cluster, through the node ports of its own router. A person's own backend goes first.
fn add_apps(list: &mut Vec<ProxyBackend>, subject: &Subject<'_>, proxy: &ProxyComponent, domain: &Domain) {
    let Some(ports) = &proxy.apps else { return };
    let service = apps::apps_service(subject.name);
    let to = |port| (subject.namespace, service.as_str(), IntOrString::Int(port));
    let wildcard = format!("*.{}", domain.apps);
    let served = |list: &[ProxyBackend], port: i32, name: &str| {
        let mut there = list
            .iter()
            .filter(|backend| backend.port == port && backend.protocol != Protocol::Udp);
        there.any(|backend| {
            name == "*" || own_names(backend).any(|own| own.eq_ignore_ascii_case(name) || own == "*")
        })
    };
    if let Some(port) = ports.https_port.filter(|_| !served(list, 443, &wildcard)) {
        list.push(backend("apps-https", vec![wildcard.clone()], 443, to(port)));
    }
    // Plain HTTP carries no server name, so it needs the whole port.
    if let Some(port) = ports.http_port.filter(|_| !served(list, 80, "*")) {
        list.push(backend("apps-http", vec!["*".to_owned()], 80, to(port)));
    }
}

/// The names of a backend, its own first.
pub(super) fn own_names(backend: &ProxyBackend) -> impl Iterator<Item = &str> {
    std::iter::once(&backend.hostname)
        .chain(&backend.alternate_hostnames)
        .map(String::as_str)
}

/// Checks the backends that a person wrote.
fn check(list: &[ProxyBackend], notes: &mut Notes) {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    let mut ports: BTreeMap<(bool, i32), BTreeMap<String, usize>> = BTreeMap::new();
    for (at, backend) in list.iter().enumerate() {
        let path = format!("{AT}[{at}]");
        if let Some(first) = names.insert(&backend.name, at) {
            notes.mistake(
                format!("{path}.name"),
                format!(
                    "`{}` is the name of backends[{first}] already: rename one of the two",
                    backend.name
                ),
            );
        }
        fields(backend, &path, notes);
        let udp = backend.protocol == Protocol::Udp;
        let taken = ports.entry((udp, backend.port)).or_default();
        // Datagrams carry no server name: such a backend has its port for itself, whatever it is called.
        let alone = udp || backend.hostname == "*";
        if alone || taken.contains_key("*") {
            if let Some(other) = taken.values().next() {
                notes.mistake(
                    format!("{path}.port"),
                    format!(
                        "port {} cannot be shared between backends[{other}] and this one, since one of them takes \
                         whatever arrives there: use another port",
                        backend.port
                    ),
                );
            }
            taken.insert("*".to_owned(), at);
        }
        if alone {
            if !udp && !backend.alternate_hostnames.is_empty() {
                notes.mistake(
                    format!("{path}.alternateHostnames"),
                    "hostname `*` takes every connection already: remove the other names",
                );
            }
            continue;
        }
        for (index, text) in own_names(backend).enumerate() {
            let path = match index.checked_sub(1) {
                None => format!("{path}.hostname"),
                Some(index) => format!("{path}.alternateHostnames[{index}]"),
            };
            let Some(name) = notes.read(&path, name::maybe_wildcard(text)) else {
                continue;
            };
            match taken.insert(name, at) {
                Some(other) if other != at => notes.mistake(
                    path,
                    format!(
                        "`{text}` on port {} belongs to backends[{other}] already: remove it from one of the two",
                        backend.port
                    ),
                ),
                _ => {} // saying it twice in one backend does no harm
            }
        }
    }
}

/// The fields of a backend that need no look at the others.
fn fields(backend: &ProxyBackend, path: &str, notes: &mut Notes) {
    let port = |number: i32| (1..=65535).contains(&number);
    if !is_label(&backend.name) {
        notes.mistake(
            format!("{path}.name"),
            format!(
                "`{}` is not a name for a backend: use lower-case letters, digits and `-`",
                backend.name
            ),
        );
    }
    if !port(backend.port) {
        notes.mistake(
            format!("{path}.port"),
            format!("{} is not a port: use 1 to 65535", backend.port),
        );
    }
    let target = match &backend.target_port {
        IntOrString::Int(number) => port(*number),
        IntOrString::String(text) => match text.parse() {
            Ok(number) => port(number),
            Err(_) => is_label(text),
        },
    };
    if !target {
        notes.mistake(
            format!("{path}.targetPort"),
            "this is neither a port from 1 to 65535 nor the name of one: write a port of the Service",
        );
    }
    for (field, value) in [
        ("targetService", &backend.target_service),
        ("targetNamespace", &backend.target_namespace),
    ] {
        if !is_label(value) {
            notes.mistake(
                format!("{path}.{field}"),
                format!("`{value}` cannot be: name the Service that is forwarded to, and its namespace"),
            );
        }
    }
    if !(1..=3600).contains(&backend.timeout_seconds) {
        notes.mistake(
            format!("{path}.timeoutSeconds"),
            "write 1 to 3600 seconds; 30 is usual",
        );
    }
    if backend.protocol == Protocol::Udp && backend.proxy_protocol.is_some() {
        notes.mistake(
            format!("{path}.proxyProtocol"),
            "the PROXY protocol works with TCP only: remove it, or change the protocol",
        );
    }
}

/// Whether a text is one DNS label in lower case.
fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (1..=63).contains(&text.len())
        && text.bytes().all(|b| inner(b) || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}
