//! Egress addresses: which one each namespace gets, and which node carries it. Pure: no clock, client or chance.
//!
//! ```text
//! EgressIPAM ──layout──► Networks ──┐
//! Namespace ──claim──► Claim ───────┼─ allocate ─► an Outcome a namespace ─┬─ preflight ─► OVN-Kubernetes places
//! used elsewhere ──► Used ──────────┘                                      └─ place ─────► OpenShift SDN: we place
//! ```
//! Everything is decided for all EgressIPAMs at once: they share one address space and the same nodes. A mistake
//! belongs to the one object that it is in; what is well goes on.

mod allocate;
mod claim;
mod free;
mod layout;
mod node;
mod place;
mod preflight;
mod problem;
mod reading;
mod record;

pub use allocate::{Allocation, Outcome, Usage, Used, allocate};
pub use claim::{ALLOCATED_BY, ASKS, Claim, GIVEN, Malformed, addresses};
pub use layout::{Layout, Mistake, Network, Warning, overlaps, read};
pub use node::Node;
pub use place::{Groups, Placement, Unplaced, Wanted, place};
pub use preflight::{Lack, preflight, shared_subnets};
pub use problem::Problem;
pub use record::{PLACED, Record};
