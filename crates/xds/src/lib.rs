//! The Envoy engine of the gateway.
pub mod cluster;
pub mod listener;
pub mod resources;
