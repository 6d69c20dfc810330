//! DNS
pub mod wire;
