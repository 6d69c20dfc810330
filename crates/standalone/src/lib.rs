//! An `Infra` without Kubernetes: the same manifest, the same plan, all servers in one process.
//!
//! ```text
//! documents ──desired──► Desired ──up──► DHCP, DNS and gateway on one interface
//!                                   lab: the same between network namespaces, with nodes that boot through it
//! ```

pub mod addresses;
pub mod desired;
mod envoy;
pub mod lab;
mod ledger;
pub mod up;
