//! The way in for facts, and the servers' only way out.
//!
//! A server is handed a `watch::Receiver` of its validated configuration and never learns who fills it. Files fill
//! it on a host ([`Inputs`], [`follow`]); in a cluster the mounted file and a watch of the server's own resource do
//! so together ([`live`]). A change that is wrong is refused with all its mistakes, and the last good configuration
//! stays.
//!
//! Other facts come by watches of their own: the pods behind a gateway ([`endpoints`]), virtual machines
//! ([`machines`]), our other DHCP servers ([`servers`]), names ([`names`]); or only that something changed
//! ([`changes`]). Two things go out: how a server is ([`status`]) and leases that several servers share ([`leases`]).
//!
//! An API server that is away changes nothing: what is known is served on, reconnecting backs off with jitter, and
//! the log says it once.

mod change;
pub mod changes;
pub mod cluster;
pub mod endpoints;
mod events;
mod follow;
mod identity;
mod inputs;
pub mod leases;
pub mod live;
pub mod machines;
pub mod names;
pub mod servers;
pub mod status;
mod watching;

pub use follow::follow;
pub use inputs::{Inputs, Unreadable};
