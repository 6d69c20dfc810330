//! Choosing IPv4 addresses. Pure: no clock, no socket, no chance.
//!
//! ```text
//! Ipv4Net ──hosts──► Range ──┐
//! reserved, taken ──► Set ───┴──► Pool ──assign──► an address for everybody who has none
//! ```
//! A [`Range`] is an interval, a [`Set`] a list of intervals, so a /8 costs as little as a /30 and nothing is ever
//! counted out address by address. A [`Pool`] knows which addresses may be given and which are gone. [`assign()`] keeps
//! every address that somebody has already and gives the lowest free one to who has none: the same question always
//! has the same answer, and an answer that was given stays.

mod assign;
mod pool;
mod range;
mod set;

pub use assign::{Assigned, assign};
pub use pool::{Pool, Unavailable};
pub use range::{BadRange, Range, hosts};
pub use set::Set;
