//! The single meaning of an `Infra`. Pure: no clock, no socket, no disk, no client.
//!
//! ```text
//! HostedCluster, NodePools, Routes, Services ──hosted_cluster──► InfraSpec, and what is still missing
//! Infra, what is known ──infra::plan──► DHCPServer, DNSServer, ProxyServer specs ─┬─► custom resources (operator)
//!                                       or every mistake at once                  └─► servers (standalone)
//! NetworkAttachmentDefinition ──network──► which VLAN it is, and a sibling that gives pods static addresses
//! ```
//! The operator and standalone hand the same `Infra` to the same function, so both run the same thing. A mistake is
//! never fixed up in silence and never ends the search: [`Mistake`]s carry the path of their field and say how to
//! mend it, [`Warning`]s say what works but not as one might expect.

pub mod hosted_cluster;
pub mod infra;
mod mistake;
mod name;
pub mod network;
pub mod object_name;

pub use infra::{Components, Known, plan, plan_all};
pub use mistake::{Mistake, Warning};
