//! What both engines serve: the routes of each port and the endpoints of each backend.
//!
//! A [`Snapshot`] is immutable and shared. What did not change from one snapshot to the next is the same `Arc`
//! in both, and [`NameMap`] shares what lies between, so that an engine finds the difference by looking at little
//! else than that. The [`Assembler`](crate::assemble::Assembler) makes them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use oooi_api::proxy_server::LogLevel;
use serde::Serialize;

use crate::config::{DEFAULT_IDLE_TIMEOUT, Mistake, Transport};
use crate::name_map::NameMap;
use crate::route::Routes;

/// A port that is listened on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerKey {
    /// The port's number.
    pub port: u16,
    /// Streams or datagrams.
    pub transport: Transport,
}

impl std::fmt::Display for ListenerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} port {}", self.transport, self.port)
    }
}

/// The endpoints of one backend and how to connect to them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cluster {
    /// The backend's name.
    pub name: Arc<str>,
    /// Streams or datagrams.
    pub transport: Transport,
    /// Where its pods listen now; sorted, each once. Empty: connections are reset.
    pub endpoints: Vec<SocketAddr>,
    /// False until its Service was heard of for the first time: that there are no endpoints means nothing then.
    pub known: bool,
    /// The time for all attempts to connect together.
    pub connect_budget: Duration,
    /// Whether each connection starts with a PROXY v2 header.
    pub proxy_protocol: bool,
}

/// Why a backend has no endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Lack {
    /// Neither the Service nor an EndpointSlice of it is known.
    ServiceMissing,
    /// The Service has no such port.
    PortMissing,
    /// The Service is there, but none of its pods takes connections.
    NoEndpoints,
}

/// A backend that cannot be served now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The backend.
    pub backend: Arc<str>,
    /// What it lacks.
    pub lack: Lack,
    /// The same for people, with what to do.
    pub message: String,
}

/// Everything that an engine needs to know.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// What each port does.
    pub listeners: Arc<BTreeMap<ListenerKey, Arc<Routes>>>,
    /// Each backend that a listener names, by its name.
    pub clusters: NameMap<Arc<Cluster>>,
    /// How long a connection may be silent.
    pub idle_timeout: Duration,
    /// How much is logged.
    pub log_level: LogLevel,
    /// What the manifest got wrong.
    pub mistakes: Arc<Vec<Mistake>>,
    /// Backends that have no endpoints now.
    pub problems: Vec<Problem>,
}

impl Default for Snapshot {
    fn default() -> Self {
        Self {
            listeners: Arc::default(),
            clusters: NameMap::default(),
            idle_timeout: DEFAULT_IDLE_TIMEOUT,
            log_level: LogLevel::Info,
            mistakes: Arc::default(),
            problems: Vec::new(),
        }
    }
}
