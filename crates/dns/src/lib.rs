//! The DNS server of an isolated network: split horizon, forwarding, cache.
//!
//! A question goes this way, left of the bar without clock, socket or disk:
//!
//! ```text
//! wire::query → view → answer ─┬─ zone ──────────────► wire::writer │ server::udp, server::tcp
//!                              └─ forward ─ cache (hit) ──────────► │
//!                                             └ miss ── wire::reply │ upstream
//! ```
//!
//! [`config::Config`] is the manifest read once into a type that cannot be wrong; [`names::Names`] are
//! machines and leases learnt meanwhile. [`Server::run`] takes both by channels and serves every change
//! from the next question on.

pub mod answer;
pub mod cache;
mod clock;
pub mod config;
pub mod metrics;
pub mod names;
pub mod server;
pub mod upstream;
pub mod view;
pub mod wire;
pub mod zone;

pub use config::Config;
pub use metrics::Metrics;
pub use names::Names;
pub use server::{Listeners, Options, Probes, Server};
