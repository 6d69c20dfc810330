//! A `ProxyServerSpec`, read once into values that cannot be wrong.
//!
//! [`Config::read`] never fails as a whole: a backend or a name that cannot work is left out and becomes a
//! [`Mistake`] with its place in the manifest, and everything else is served. Where two backends want the same
//! name on a port, the first one in the manifest has it.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use oooi_api::duration;
use oooi_api::proxy_server::{LogLevel, Protocol, ProxyBackend, ProxyServerSpec};
use serde::Serialize;

use crate::server_name::Pattern;

/// How long a connection may be silent where the manifest says nothing: watches and konnectivity live long.
pub const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// Something in the manifest that cannot work. The rest is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mistake {
    /// Where it is, such as `spec.backends[2].hostname`.
    pub field: String,
    /// The backend that is left out or works without this, if it is about one.
    pub backend: Option<Arc<str>>,
    /// What is wrong and how to mend it.
    pub message: String,
}

impl std::fmt::Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.backend {
            Some(backend) => write!(f, "{} (backend {backend}): {}", self.field, self.message),
            None => write!(f, "{}: {}", self.field, self.message),
        }
    }
}

/// How a port is listened on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Transport {
    /// Byte streams.
    Tcp,
    /// Datagrams, relayed by session.
    Udp,
}

impl std::fmt::Display for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}

/// A Service in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct ServiceKey {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl std::fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortRef {
    /// By its number in the Service, which need not be that of the pods.
    Number(u16),
    /// By its name.
    Name(Arc<str>),
}

impl std::fmt::Display for PortRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

/// One published service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// Unique in its ProxyServer.
    pub name: Arc<str>,
    /// The port that clients connect to.
    pub port: u16,
    /// Streams or datagrams.
    pub transport: Transport,
    /// What clients ask for. At least one; [`Pattern::Any`] is always alone on its port.
    pub patterns: Vec<Pattern>,
    /// Where it leads.
    pub service: ServiceKey,
    /// Which port of that Service.
    pub service_port: PortRef,
    /// The time for all attempts to connect together.
    pub connect_budget: Duration,
    /// Whether the backend is told the client's address by a PROXY v2 header.
    pub proxy_protocol: bool,
}

/// A whole `ProxyServerSpec` that makes sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The addresses that it names: the server's own, those of further replicas, the published ones.
    pub addresses: Vec<IpAddr>,
    /// In the manifest's order.
    pub backends: Vec<Arc<Backend>>,
    /// How long a connection may be silent.
    pub idle_timeout: Duration,
    /// How much is logged.
    pub log_level: LogLevel,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            backends: Vec::new(),
            idle_timeout: DEFAULT_IDLE_TIMEOUT,
            log_level: LogLevel::Info,
        }
    }
}

impl Config {
    /// Reads a spec, and says all that is wrong with it.
    pub fn read(spec: &ProxyServerSpec) -> (Self, Vec<Mistake>) {
        let mut reading = Reading::default();
        let backends = spec
            .backends
            .iter()
            .enumerate()
            .filter_map(|(i, b)| reading.backend(i, b))
            .map(Arc::new)
            .collect();
        let config = Self {
            addresses: reading.addresses(spec),
            backends,
            idle_timeout: reading.idle_timeout(spec.idle_timeout.as_deref()),
            log_level: spec.log_level,
        };
        (config, reading.mistakes)
    }
}

/// What is taken so far while a spec is read from top to bottom.
#[derive(Default)]
struct Reading {
    mistakes: Vec<Mistake>,
    names: BTreeSet<Arc<str>>,
    ports: BTreeMap<(Transport, u16), BTreeMap<Pattern, Arc<str>>>,
}

impl Reading {
    fn mistake(&mut self, field: String, backend: Option<&Arc<str>>, message: impl Into<String>) {
        self.mistakes.push(Mistake {
            field,
            backend: backend.cloned(),
            message: message.into(),
        });
    }

    fn addresses(&mut self, spec: &ProxyServerSpec) -> Vec<IpAddr> {
        let network = &spec.network_config;
        let own = [("spec.networkConfig.serverIP".to_owned(), &network.server_ip)];
        let further = (0..).zip(&network.additional_server_ips);
        let published = (0..).zip(&spec.published_ips);
        let all = own
            .into_iter()
            .chain(further.map(|(i, ip)| (format!("spec.networkConfig.additionalServerIPs[{i}]"), ip)))
            .chain(published.map(|(i, ip)| (format!("spec.publishedIPs[{i}]"), ip)));
        let mut addresses = Vec::new();
        for (field, text) in all {
            match text.split('/').next().unwrap_or_default().parse() {
                Ok(address) if addresses.contains(&address) => {}
                Ok(address) => addresses.push(address),
                Err(_) => self.mistake(field, None, format!("`{text}` is no IP address")),
            }
        }
        addresses
    }

    fn idle_timeout(&mut self, text: Option<&str>) -> Duration {
        let Some(text) = text else {
            return DEFAULT_IDLE_TIMEOUT;
        };
        let message = match duration::parse(text) {
            Ok(timeout) if timeout >= Duration::from_secs(1) => return timeout,
            Ok(_) => "must be one second or more".to_owned(),
            Err(error) => error.to_string(),
        };
        self.mistake(
            "spec.idleTimeout".to_owned(),
            None,
            format!("{message}; 24h is used"),
        );
        DEFAULT_IDLE_TIMEOUT
    }

    fn backend(&mut self, index: usize, backend: &ProxyBackend) -> Option<Backend> {
        let at = |field: &str| format!("spec.backends[{index}].{field}");
        let name: Arc<str> = backend.name.as_str().into();
        let before = self.mistakes.len();
        if name.is_empty() {
            self.mistake(at("name"), None, "is empty; give the backend a name");
        } else if !self.names.insert(name.clone()) {
            self.mistake(at("name"), Some(&name), "is used twice; rename one of the two");
        }
        for (field, value) in [
            ("targetService", &backend.target_service),
            ("targetNamespace", &backend.target_namespace),
        ] {
            if value.is_empty() {
                self.mistake(
                    at(field),
                    Some(&name),
                    "is empty; name the Service that clients are sent to",
                );
            }
        }
        let port = port_number(backend.port);
        if port.is_none() {
            self.mistake(
                at("port"),
                Some(&name),
                format!("{} is not a port: use 1 to 65535", backend.port),
            );
        }
        let service_port = match &backend.target_port {
            IntOrString::Int(number) => port_number(*number).map(PortRef::Number),
            IntOrString::String(text) if text.is_empty() => None,
            IntOrString::String(text) => Some(
                text.parse()
                    .map_or_else(|_| PortRef::Name(text.as_str().into()), PortRef::Number),
            ),
        };
        if service_port.is_none() {
            self.mistake(
                at("targetPort"),
                Some(&name),
                "is neither a port from 1 to 65535 nor a port's name",
            );
        }
        let budget = u64::try_from(backend.timeout_seconds)
            .ok()
            .filter(|seconds| (1..=3600).contains(seconds));
        if budget.is_none() {
            self.mistake(at("timeoutSeconds"), Some(&name), "must be from 1 to 3600");
        }
        let transport = match backend.protocol {
            Protocol::Tcp | Protocol::Tls | Protocol::Https => Transport::Tcp,
            Protocol::Udp => Transport::Udp,
        };
        if transport == Transport::Udp && backend.proxy_protocol.is_some() {
            self.mistake(
                at("proxyProtocol"),
                Some(&name),
                "works with TCP only; leave it out",
            );
        }
        let (Some(port), Some(service_port), Some(budget)) = (port, service_port, budget) else {
            return None;
        };
        if self.mistakes.len() > before {
            return None;
        }
        let patterns = self.patterns(&at, &name, transport, port, backend)?;
        Some(Backend {
            name,
            port,
            transport,
            patterns,
            service: ServiceKey {
                namespace: backend.target_namespace.as_str().into(),
                name: backend.target_service.as_str().into(),
            },
            service_port,
            connect_budget: Duration::from_secs(budget),
            proxy_protocol: backend.proxy_protocol.is_some(),
        })
    }

    /// The names of a backend, as far as they are good and free. Without its `hostname` it is left out.
    fn patterns(
        &mut self,
        at: &dyn Fn(&str) -> String,
        backend: &Arc<str>,
        transport: Transport,
        port: u16,
        manifest: &ProxyBackend,
    ) -> Option<Vec<Pattern>> {
        if transport == Transport::Udp {
            // Datagrams carry no name: whatever the manifest calls it, the backend has the port for itself.
            return self
                .claim(at("port"), backend, transport, port, Pattern::Any)
                .map(|pattern| vec![pattern]);
        }
        let mut patterns = Vec::new();
        let alternates = manifest.alternate_hostnames.iter().enumerate();
        let fields = std::iter::once((at("hostname"), &manifest.hostname))
            .chain(alternates.map(|(i, name)| (at(&format!("alternateHostnames[{i}]")), name)));
        for (field, text) in fields {
            let claimed = match Pattern::parse(text) {
                Ok(pattern) if patterns.contains(&pattern) => continue, // saying it twice does no harm
                Ok(pattern) => self.claim(field, backend, transport, port, pattern),
                Err(error) => {
                    self.mistake(field, Some(backend), format!("`{text}` {error}"));
                    None
                }
            };
            match claimed {
                Some(pattern) => patterns.push(pattern),
                None if patterns.is_empty() => return None, // the hostname itself
                None => {}
            }
        }
        Some(patterns)
    }

    fn claim(
        &mut self,
        field: String,
        backend: &Arc<str>,
        transport: Transport,
        port: u16,
        pattern: Pattern,
    ) -> Option<Pattern> {
        let taken = self.ports.entry((transport, port)).or_default();
        let rival = match &pattern {
            Pattern::Any => taken.iter().find(|(_, owner)| *owner != backend),
            _ => taken
                .get_key_value(&pattern)
                .or_else(|| taken.get_key_value(&Pattern::Any)),
        };
        let message = match rival {
            None if pattern == Pattern::Any && !taken.is_empty() => {
                "`*` takes the whole port and cannot stand beside other names".to_owned()
            }
            None => {
                taken.insert(pattern.clone(), backend.clone());
                return Some(pattern);
            }
            Some((Pattern::Any, owner)) => {
                format!("{transport} port {port} belongs to backend {owner} as a whole; use another port")
            }
            Some((_, owner)) if pattern == Pattern::Any => {
                format!(
                    "{transport} port {port} is shared with backend {owner}; a backend without a name needs a port of its own"
                )
            }
            Some((_, owner)) => {
                format!(
                    "`{pattern}` on port {port} belongs to backend {owner} already; remove it from one of the two"
                )
            }
        };
        self.mistake(field, Some(backend), message);
        None
    }
}

fn port_number(number: i32) -> Option<u16> {
    u16::try_from(number).ok().filter(|port| *port != 0)
}

#[cfg(test)]
#[path = "config_tests.rs"]
pub(crate) mod tests;
