//! The Envoy engine of the gateway: a control plane that speaks ADS, and the Envoys that it feeds.
//!
//! ```text
//! Snapshot ──resources──► Cluster, ClusterLoadAssignment, Listener ──stream──► what one Envoy is owed
//!                                                                      │ ads (gRPC)
//!                                                                      ▼
//!                                               Envoy, started by supervisor or in its own container
//! ```
//! Pure: [`resources`], [`cluster`], [`listener`], [`stream`], [`wire`], [`bootstrap`], [`envoy_stats`].

pub mod admin;
pub mod ads;
pub mod bootstrap;
pub mod cluster;
pub mod envoy_stats;
pub mod listener;
pub mod metrics;
pub mod resources;
pub mod server;
pub mod stream;
mod subscription;
pub mod supervisor;
pub mod wire;
