//! DNS
pub mod answer;
pub mod config;
pub mod names;
pub mod view;
pub mod wire;
pub mod zone;
