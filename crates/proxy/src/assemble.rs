//! Turns a `ProxyServer` and the Services and EndpointSlices that it names into [`Snapshot`]s.
//!
//! Facts come in one document at a time, in any order, from files or from a watch. [`Assembler::snapshot`] then
//! does work only for the backends that a change touched and hands everything else on as it was.
//!
//! `targetPort` is the Service's port, by number or by name; its name finds the pod port in the slices. With no
//! Service known (files may hold slices alone) it is the slice's port of that name, or its only port. Pods that
//! are ready take connections; where none is, those that still serve while they terminate do, as kube-proxy
//! has it. Where nobody is ready at all, those that are not are tried, and that is a problem nevertheless.
//!
//! A Service that is [awaited](Assembler::await_service) changes nothing: its backends keep what they had.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use oooi_api::proxy_server::ProxyServerSpec;

use crate::config::{Backend, Config, PortRef, ServiceKey, Transport};
use crate::route::Routes;
use crate::snapshot::{Cluster, Lack, ListenerKey, Problem, Snapshot};

const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// A port of a Service, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ServicePort {
    number: i32,
    name: String,
    transport: Option<Transport>,
}

/// A port of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SlicePort {
    name: String,
    number: u16,
    transport: Transport,
}

/// An EndpointSlice, as far as it matters here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Slice {
    ports: Vec<SlicePort>,
    ready: Vec<IpAddr>,
    /// Not ready any more, but still answering while they terminate.
    leaving: Vec<IpAddr>,
    /// Not ready, and not about to end.
    unready: Vec<IpAddr>,
}

/// Collects the facts and keeps the latest snapshot.
#[derive(Debug, Default)]
pub struct Assembler {
    config: Config,
    services: BTreeMap<ServiceKey, Vec<ServicePort>>,
    slices: BTreeMap<ServiceKey, BTreeMap<Arc<str>, Slice>>,
    /// The Service that each slice was seen to belong to: a deletion may come without its labels.
    slice_owner: BTreeMap<(Arc<str>, Arc<str>), ServiceKey>,
    /// Backends by the Service that they lead to.
    by_service: BTreeMap<ServiceKey, Vec<Arc<Backend>>>,
    /// Services whose facts changed since the last snapshot.
    touched: BTreeSet<ServiceKey>,
    /// Services whose facts are still on their way.
    awaited: BTreeSet<ServiceKey>,
    problems: BTreeMap<Arc<str>, Problem>,
    current: Snapshot,
}

impl Assembler {
    /// Takes a new spec. Services and slices that are known stay so.
    pub fn set_spec(&mut self, spec: &ProxyServerSpec) {
        let (config, mistakes) = Config::read(spec);
        if config == self.config && mistakes == *self.current.mistakes {
            return;
        }
        let mut ports: BTreeMap<ListenerKey, Vec<&Arc<Backend>>> = BTreeMap::new();
        self.by_service.clear();
        for backend in &config.backends {
            let key = ListenerKey {
                port: backend.port,
                transport: backend.transport,
            };
            ports.entry(key).or_default().push(backend);
            self.by_service
                .entry(backend.service.clone())
                .or_default()
                .push(backend.clone());
        }
        let old = &self.current.listeners;
        let listeners = ports.into_iter().map(|(key, backends)| {
            let routes = Routes::of_port(backends.into_iter());
            let same = old.get(&key).filter(|before| ***before == routes);
            (key, same.cloned().unwrap_or_else(|| Arc::new(routes)))
        });
        self.current.listeners = Arc::new(listeners.collect());
        self.current.idle_timeout = config.idle_timeout;
        self.current.log_level = config.log_level;
        self.current.mistakes = Arc::new(mistakes);
        let names: BTreeSet<&Arc<str>> = config.backends.iter().map(|backend| &backend.name).collect();
        self.current.clusters.retain(|name| names.contains(name));
        self.problems.retain(|name, _| names.contains(name));
        self.touched.extend(self.by_service.keys().cloned());
        self.config = config;
    }

    /// The spec as it is served.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The Services whose documents matter now.
    pub fn wanted_services(&self) -> impl Iterator<Item = &ServiceKey> {
        self.by_service.keys()
    }

    /// The facts of a Service are on their way: until they [are here](Self::service_is_here), nothing is concluded
    /// from their absence.
    pub fn await_service(&mut self, key: &ServiceKey) {
        self.awaited.insert(key.clone());
    }

    /// Everything about a Service that there is was told.
    pub fn service_is_here(&mut self, key: &ServiceKey) {
        if self.awaited.remove(key) {
            self.touched.insert(key.clone());
        }
    }

    /// Takes a Service, new or changed.
    pub fn set_service(&mut self, service: &Service) {
        let Some(key) = key_of(
            service.metadata.namespace.as_deref(),
            service.metadata.name.as_deref(),
        ) else {
            return;
        };
        let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
        let ports = ports
            .map(|port| ServicePort {
                number: port.port,
                name: port.name.clone().unwrap_or_default(),
                transport: transport(port.protocol.as_deref()),
            })
            .collect();
        if self.services.get(&key) != Some(&ports) {
            self.touched.insert(key.clone());
            self.services.insert(key, ports);
        }
    }

    /// Forgets a Service.
    pub fn remove_service(&mut self, namespace: &str, name: &str) {
        let key = ServiceKey {
            namespace: namespace.into(),
            name: name.into(),
        };
        if self.services.remove(&key).is_some() {
            self.touched.insert(key);
        }
    }

    /// Takes an EndpointSlice, new or changed. One that belongs to no Service is left aside.
    pub fn set_slice(&mut self, slice: &EndpointSlice) {
        let metadata = &slice.metadata;
        let owner = metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(SERVICE_NAME));
        let namespace = metadata.namespace.as_deref().unwrap_or("default");
        let Some(name) = metadata.name.as_deref() else {
            return;
        };
        let Some(key) = key_of(Some(namespace), owner.map(String::as_str)) else {
            return self.remove_slice(namespace, name);
        };
        let id: (Arc<str>, Arc<str>) = (namespace.into(), name.into());
        if self.slice_owner.get(&id).is_some_and(|before| *before != key) {
            self.remove_slice(namespace, name);
        }
        let facts = Slice::read(slice);
        let of_service = self.slices.entry(key.clone()).or_default();
        if of_service.get(&id.1) != Some(&facts) {
            of_service.insert(id.1.clone(), facts);
            self.touched.insert(key.clone());
            self.slice_owner.insert(id, key);
        }
    }

    /// Forgets an EndpointSlice.
    pub fn remove_slice(&mut self, namespace: &str, name: &str) {
        let Some(key) = self.slice_owner.remove(&(namespace.into(), name.into())) else {
            return;
        };
        if let Some(slices) = self.slices.get_mut(&key) {
            slices.remove(name);
            if slices.is_empty() {
                self.slices.remove(&key);
            }
        }
        self.touched.insert(key);
    }

    /// The state of the world as far as it is known now.
    pub fn snapshot(&mut self) -> Arc<Snapshot> {
        for key in std::mem::take(&mut self.touched) {
            for backend in self.by_service.get(&key).into_iter().flatten() {
                let (cluster, problem) = self.look_at(backend);
                let before = self.current.clusters.get(&backend.name);
                if before.is_none_or(|before| **before != cluster) {
                    self.current
                        .clusters
                        .insert(backend.name.clone(), Arc::new(cluster));
                }
                match problem {
                    Some(problem) => self.problems.insert(backend.name.clone(), problem),
                    None => self.problems.remove(&backend.name),
                };
            }
        }
        self.current.problems = self.problems.values().cloned().collect();
        Arc::new(self.current.clone())
    }

    /// What a backend leads to, and what it lacks. While its Service is awaited that is what it was before.
    fn look_at(&self, backend: &Backend) -> (Cluster, Option<Problem>) {
        let before = self.current.clusters.get(&backend.name);
        let (endpoints, known, problem) = match self.endpoints(backend) {
            _ if self.awaited.contains(&backend.service) => (
                before.map_or_else(Vec::new, |before| before.endpoints.clone()),
                before.is_some_and(|before| before.known),
                self.problems.get(&backend.name).cloned(),
            ),
            Ok((endpoints, problem)) => (endpoints, true, problem),
            Err(problem) => (Vec::new(), true, Some(problem)),
        };
        let cluster = Cluster {
            name: backend.name.clone(),
            transport: backend.transport,
            endpoints,
            known,
            connect_budget: backend.connect_budget,
            proxy_protocol: backend.proxy_protocol,
        };
        (cluster, problem)
    }

    /// Who takes connections: those that are ready, else those that leave and still serve, else those that are not ready.
    /// A node that cannot reach its API server for a while counts as lost, and none of its pods as ready, though nothing
    /// may be wrong with them: a connection that is tried may hold, one that is refused never does.
    fn endpoints(&self, backend: &Backend) -> Result<(Vec<SocketAddr>, Option<Problem>), Problem> {
        let key = &backend.service;
        let lacks = |lack, message| Problem {
            backend: backend.name.clone(),
            lack,
            message,
        };
        let service = self.services.get(key);
        let slices = self.slices.get(key);
        let wanted = match (service, slices) {
            (None, None) => {
                let message = format!(
                    "Service {key} does not exist; create it, or correct targetService and targetNamespace of backend {}",
                    backend.name
                );
                return Err(lacks(Lack::ServiceMissing, message));
            }
            (Some(ports), _) => {
                let mut fitting = ports
                    .iter()
                    .filter(|port| port.transport == Some(backend.transport));
                let found = fitting.find(|port| match &backend.service_port {
                    PortRef::Number(number) => port.number == i32::from(*number),
                    PortRef::Name(name) => port.name == **name,
                });
                let Some(port) = found else {
                    let message = format!(
                        "Service {key} has no {} port {}; correct targetPort of backend {}",
                        backend.transport, backend.service_port, backend.name
                    );
                    return Err(lacks(Lack::PortMissing, message));
                };
                Some(port.name.as_str())
            }
            (None, Some(_)) => match &backend.service_port {
                PortRef::Name(name) => Some(&**name),
                PortRef::Number(_) => None, // the slice's only port
            },
        };
        let [mut ready, mut leaving, mut unready] = [const { BTreeSet::new() }; 3];
        for slice in slices.iter().flat_map(|slices| slices.values()) {
            let Some(port) = slice.port(wanted, backend.transport) else {
                continue;
            };
            ready.extend(slice.ready.iter().map(|ip| SocketAddr::new(*ip, port)));
            leaving.extend(slice.leaving.iter().map(|ip| SocketAddr::new(*ip, port)));
            unready.extend(slice.unready.iter().map(|ip| SocketAddr::new(*ip, port)));
        }
        let serving = if ready.is_empty() { leaving } else { ready };
        if !serving.is_empty() {
            return Ok((serving.into_iter().collect(), None));
        }
        let tried = if unready.is_empty() {
            ""
        } else {
            ", and those that are not ready are tried meanwhile"
        };
        let message = format!(
            "Service {key} has no ready endpoint for port {}; look at its pods{tried}",
            backend.service_port
        );
        Ok((
            unready.into_iter().collect(),
            Some(lacks(Lack::NoEndpoints, message)),
        ))
    }
}

impl Slice {
    fn read(slice: &EndpointSlice) -> Self {
        let mut facts = Self::default();
        for port in slice.ports.iter().flatten() {
            let number = port
                .port
                .and_then(|number| u16::try_from(number).ok())
                .filter(|number| *number != 0);
            if let (Some(number), Some(transport)) = (number, transport(port.protocol.as_deref())) {
                facts.ports.push(SlicePort {
                    name: port.name.clone().unwrap_or_default(),
                    number,
                    transport,
                });
            }
        }
        for endpoint in slice.endpoints.iter() {
            let conditions = endpoint.conditions.clone().unwrap_or_default();
            // The API says that unknown readiness counts as ready, and unknown serving as readiness.
            let ready = conditions.ready.unwrap_or(true);
            let serving = conditions.serving.unwrap_or(ready);
            let addresses = endpoint
                .addresses
                .iter()
                .filter_map(|address| address.parse::<IpAddr>().ok());
            if ready {
                facts.ready.extend(addresses);
            } else if serving && conditions.terminating == Some(true) {
                facts.leaving.extend(addresses);
            } else if conditions.terminating != Some(true) {
                facts.unready.extend(addresses);
            }
        }
        facts
    }

    fn port(&self, wanted: Option<&str>, transport: Transport) -> Option<u16> {
        let mut fitting = self.ports.iter().filter(|port| port.transport == transport);
        match wanted {
            Some(name) => fitting.find(|port| port.name == name).map(|port| port.number),
            None => fitting
                .next()
                .filter(|_| fitting.next().is_none())
                .map(|port| port.number),
        }
    }
}

fn key_of(namespace: Option<&str>, name: Option<&str>) -> Option<ServiceKey> {
    Some(ServiceKey {
        namespace: namespace.unwrap_or("default").into(),
        name: name?.into(),
    })
}

fn transport(protocol: Option<&str>) -> Option<Transport> {
    match protocol {
        None | Some("TCP") => Some(Transport::Tcp),
        Some("UDP") => Some(Transport::Udp),
        Some(_) => None, // SCTP: neither engine carries it
    }
}

#[cfg(test)]
#[path = "assemble_tests.rs"]
mod tests;
