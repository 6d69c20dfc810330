//! What the gateway does now, as a value for people and programs: the routes of each port and the endpoints of
//! each backend with their health.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use crate::config::{Mistake, Transport};
use crate::route::Routes;
use crate::snapshot::{Problem, Snapshot};
use crate::table::Table;

/// The whole view.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// The version of this document's form.
    pub schema_version: u32,
    /// The ports and what they do.
    pub listeners: Vec<ListenerView>,
    /// The backends and where they lead.
    pub backends: Vec<BackendView>,
    /// What the manifest got wrong.
    pub mistakes: Vec<Mistake>,
    /// Backends that have no endpoints.
    pub problems: Vec<Problem>,
}

/// A port.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerView {
    /// Its number.
    pub port: u16,
    /// Streams or datagrams.
    pub protocol: Transport,
    /// Which names lead to which backend.
    pub routes: Arc<Routes>,
}

/// A backend.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendView {
    /// Its name.
    pub name: Arc<str>,
    /// Open connections and sessions; absent where the engine does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<i64>,
    /// Where it leads.
    pub endpoints: Vec<EndpointView>,
}

/// An endpoint.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointView {
    /// The pod's address and port.
    pub address: SocketAddr,
    /// Whether it is left out for a while, since it refused connections.
    pub ejected: bool,
}

impl View {
    /// The view of a snapshot alone, as an engine that keeps health to itself has it.
    pub fn of_snapshot(snapshot: &Snapshot) -> Self {
        let backends = snapshot.clusters.values().map(|cluster| BackendView {
            name: cluster.name.clone(),
            active: None,
            endpoints: cluster
                .endpoints
                .iter()
                .map(|a| EndpointView {
                    address: *a,
                    ejected: false,
                })
                .collect(),
        });
        let listeners = snapshot.listeners.iter().map(|(key, routes)| ListenerView {
            port: key.port,
            protocol: key.transport,
            routes: routes.clone(),
        });
        Self {
            schema_version: 1,
            listeners: listeners.collect(),
            backends: backends.collect(),
            mistakes: snapshot.mistakes.to_vec(),
            problems: snapshot.problems.clone(),
        }
    }

    pub(crate) fn of_engine(snapshot: &Snapshot, table: &Table, now: Instant) -> Self {
        let mut view = Self::of_snapshot(snapshot);
        for backend in &mut view.backends {
            let Some(upstream) = table.upstreams.get(&backend.name) else {
                continue;
            };
            backend.active = Some(upstream.metrics.active.get());
            let health = upstream.health(now).into_iter();
            backend.endpoints = health
                .map(|(address, ejected)| EndpointView { address, ejected })
                .collect();
        }
        view
    }
}
