//! The layer-4 gateway: TLS connections from the VLAN reach the right Service by their server name, unopened.
//!
//! ```text
//! ProxyServer, Service, EndpointSlice ──assemble──► Snapshot ──► native engine (server)
//!                                                           └──► Envoy engine (crate oooi-xds)
//! bytes ──client_hello──► ServerName ──route──► backend ──balance──► endpoint ──relay──► bytes
//! ```
//! Pure, without clock, socket or disk: [`client_hello`], [`server_name`], [`config`], [`snapshot`],
//! [`name_map`], [`assemble`], [`route`], [`balance`], [`limit`], [`proxy_protocol`]. The rest is the native engine's shell.

pub mod assemble;
pub mod balance;
pub mod client_hello;
pub mod config;
pub mod limit;
pub mod name_map;
pub mod proxy_protocol;
pub mod route;
pub mod server_name;
pub mod snapshot;

pub mod announce;
mod connect;
mod connection;
mod listen;
pub mod metrics;
mod pipe;
mod relay;
pub mod server;
mod shared;
mod slab;
mod table;
mod udp;
pub mod view;
mod worker;
