//! A real Kubernetes for tests, gone with the test run however it ends.
//!
//! - [`Cluster`]: etcd, API server and controller manager on loopback. No root.
//! - [`Node`]: a machine of its own (PID, mount, network and host-name namespaces) with that control
//!   plane, a scheduler, a kubelet on containerd, Multus, kube-proxy, kube-router, and a bridge as
//!   the VLAN. [`Tenant`]s are network namespaces on that bridge, [`Worker`]s are tenants with a kubelet.
//!   Needs root.
//!   A [`SecondNode`] is a node on a machine beside it.
//!
//! How a run passes: `testbed run -- COMMAND` starts one and names it to every test process by
//! [`SHARED`]; [`Cluster::shared`] attaches to it, and without it starts one for the process. A test
//! takes a [`Namespace`] of its own. When a test fails, its namespace prints what happened there.
//!
//! How it ends: every process that is started here gets a parent-death signal from a thread that lives
//! as long as the runner ([`process`]), and all of a node lives in namespaces that die with their first
//! process. What the kernel does not remove (a state directory, control groups) is removed at the
//! end, and by the next run after a runner that was killed ([`state`]).
//!
//! Refused: to run without the built parts (`make testbed`), and a node without root.

mod cgroup;
mod cluster;
mod control_plane;
mod definitions;
mod error;
mod machine;
mod moto;
mod namespace;
mod node;
mod parts;
mod pki;
mod process;
pub mod rights;
mod shared;
mod state;
mod tenant;
mod wait;
mod worker;

pub use cluster::Cluster;
pub use error::Error;
pub use moto::Moto;
pub use namespace::Namespace;
pub use node::{Node, SecondNode};
pub use parts::Parts;
pub use pki::{Authority, Identity};
pub use process::{output_of, spawn};
pub use shared::SHARED;
pub use state::{Live, live, sweep};
pub use tenant::Tenant;
pub use wait::until;
pub use worker::Worker;
