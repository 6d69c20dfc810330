//! The way in for facts: manifests from files, followed as they change.
//!
//! A server is handed a `watch::Receiver` of its validated configuration and never learns who fills it. Here it is
//! filled from files: [`Inputs`] reads them, [`follow`] keeps the receiver current. A change that is wrong is
//! refused with all its mistakes, and the last good configuration stays.

mod change;
mod follow;
mod inputs;

pub use follow::follow;
pub use inputs::{Inputs, Unreadable};
