//! The operator: an `Infra` becomes running servers, and its status tells the truth about them.
//!
//! ```text
//! Infra ──infra──► DHCPServer, DNSServer, ProxyServer, the pods' network ──server──► Deployments, Services, …
//! ```
//! Each controller is a folder or a file whose `reconcile` reads as its pipeline. Deciding is pure; [`apply`] is the
//! only file that writes to the cluster, and [`manager`] the only one that watches it.

pub mod apply;
pub mod condition;
pub mod context;
mod dhcp_server;
mod dns_server;
pub mod identity;
pub mod infra;
pub mod lease;
pub mod manager;
mod proxy_server;
pub mod server;
mod unchanged;
