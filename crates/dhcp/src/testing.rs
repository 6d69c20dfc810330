//! What tests of this crate and of stores need: packets as clients send them, and the battery for stores.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

pub mod battery;
pub mod fixture;
pub mod packet;
pub mod shared;
