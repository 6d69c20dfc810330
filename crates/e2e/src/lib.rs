//! The scene of the end-to-end tests: what stands around oooi on a management cluster.
//!
//! - [`deploy`]: the operator, from `deploy/`, by kubectl.
//! - [`Hosted`]: a hosted control plane in its namespace, as HyperShift lays it out: a real API server with
//!   etcd, controller manager and konnectivity, TLS servers for ignition and OAuth, the default-deny policies;
//!   and the HostedCluster with its NodePool and the network of its machines.
//! - [`join`]: a worker boots on the VLAN with nothing but its interface, and becomes a node of that cluster;
//!   [`is_whole`]: it still is one.
//! - [`Traffic`] from that worker, [`harm`] that is done meanwhile, and [`Run`]: what the harm cost.
//! - [`hears_datagrams`] and [`takes_connections`]: what a scan cannot tell.
//! - [`Beyond`]: a client behind the VLAN's own gateway, and a DNS server that has to answer it.
//! - [`Resolvers`] of the management cluster, whose list of zones is everybody's.
//! - [`growth`] of what a process has while it serves for long.

mod beyond;
mod growth;
pub mod harm;
mod hosted;
mod join;
mod listeners;
mod member;
mod operator;
mod page;
mod resolvers;
mod run;
mod traffic;

use std::time::Duration;

pub use beyond::{Beyond, Routed};
pub use growth::{Usage, growth};
pub use hosted::{Api, Hosted};
pub use join::join;
pub use listeners::{hears_datagrams, takes_connections};
pub use member::{is_whole, run_probe};
pub use operator::deploy;
pub use resolvers::Resolvers;
pub use run::{Allowed, EVERYTHING, GATEWAY, REPLACED, Run};
pub use traffic::{Seen, Traffic, traffic};

/// How long anything may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Everything that can go wrong here is shown to a person as it is.
pub type Result<T> = std::result::Result<T, oooi_testkit::Error>;
