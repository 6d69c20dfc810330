//! The operator: an annotated HostedCluster becomes running servers, and statuses tell the truth about them.
//!
//! ```text
//! HostedCluster ──hosted_cluster──► Infra
//! Infra ──infra──► DHCPServer, DNSServer, ProxyServer, the pods' network ──server──► Deployments, Services, …
//! EgressIPAM, namespaces, nodes ──egress_ipam──► EgressIPs, or NetNamespaces and HostSubnets
//! ```
//! Each controller is a folder or a file whose `reconcile` reads as its pipeline. Deciding is pure; [`apply`] is the
//! only file that writes to the cluster.

pub mod apply;
pub mod condition;
pub mod context;
pub mod control_planes;
pub mod controllers;
mod dhcp_server;
mod dns_server;
pub mod egress_ipam;
pub mod first_look;
mod gaps;
pub mod hosted_cluster;
pub mod identity;
pub mod infra;
pub mod lease;
pub mod manager;
pub mod metrics;
mod namespaces;
pub mod presence;
mod proxy_server;
pub mod seen;
pub mod server;
pub mod serving;
mod unchanged;
