//! Why does a node not boot?
//!
//! ```text
//! Infra ──► Expected ─┐
//! wire ──probe──► what was seen ──diagnose──► Report: a tree of checks, the first cause on top
//! cluster ──► Inventory ─┘
//! ```
//! [`probe`] does what a booting node does and writes down what it sees; [`diagnose`] is pure and says what that means;
//! [`diagnosis`] is the list of everything that can be said. [`client`] is what a node speaks, shared with the lab.
//! [`status`] is one screen about an Infra, [`egress`] one about an EgressIPAM. [`style`] and [`table`] are how all of it looks.

pub mod client;
pub mod diagnose;
pub mod diagnosis;
pub mod egress;
pub mod expected;
pub mod inventory;
pub mod probe;
pub mod report;
pub mod status;
pub mod style;
pub mod table;
