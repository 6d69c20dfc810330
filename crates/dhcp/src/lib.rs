//! A DHCP server for one VLAN.
//!
//! A packet passes through pure steps: [`message`] reads it, [`respond`] decides by [`config`], [`leases`] and
//! [`machines`], [`reply`] writes the answer. Around them is the shell: [`socket`] receives and sends, [`store`]
//! makes a lease durable before its ACK leaves, [`server`] runs the loop. Decisions are told the time and never
//! ask for it.
//!
//! The server knows no Kubernetes. Its configuration and the index of machines come by `watch` channels, leases
//! go out by a [`store::LeaseStore`], and what people should know goes to an [`oooi_api::report::Report`].

#![warn(clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::indexing_slicing))]

pub mod client_id;
pub mod config;
pub mod control;
pub mod frame;
pub mod lease;
pub mod leases;
pub mod ledger;
pub mod mac;
pub mod machines;
pub mod message;
pub mod metrics;
pub mod options;
pub mod probe;
pub mod reply;
pub mod respond;
pub mod server;
pub mod socket;
pub mod split;
pub mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod time;
