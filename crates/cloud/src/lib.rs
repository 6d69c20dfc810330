//! The clouds whose machines carry egress addresses, by their own HTTP APIs.
//!
//! ```text
//! secret, web identity, machine's own role ──► credentials ─┐
//! what is to be asked ──► request ──► signed ───────────────┴─► http ──► answer ──► machines, addresses in use
//! ```
//! What is asked, how it is signed and what an answer means is pure; [`Http`] is the only socket. A read is repeated
//! until it succeeds or has failed often enough. A write is repeated only if it certainly was not done: whoever gets
//! [`Error::Unknown`] looks again before going on. No secret is ever part of an error, a log line or a `Debug` text.

pub mod aws;
pub mod azure;
mod environment;
mod error;
mod form;
mod http;
#[cfg(test)]
mod http_tests;
mod pace;
mod persist;
mod proxy;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use futures_util::future::BoxFuture;

pub use environment::Environment;
pub use error::Error;
pub use http::Http;
pub use oooi_trust::TrustError;

/// Gives the credentials' Secret as it is now; none if there is none.
pub type SecretReader = Arc<dyn Fn() -> Option<BTreeMap<String, Vec<u8>>> + Send + Sync>;

/// A machine, as its cloud has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// What the cloud calls it.
    pub id: String,
    /// Its first interface: the one that carries egress addresses.
    pub interface: String,
    /// The interface's own address.
    pub primary: Option<Ipv4Addr>,
    /// Further addresses of the interface, whoever put them there.
    pub secondary: BTreeSet<Ipv4Addr>,
    /// How many further addresses it can have; none if the cloud does not say.
    pub capacity: Option<u32>,
}

/// What a cloud has at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// By the name that the cloud has for it. A machine that is not there is not in the cloud.
    pub machines: BTreeMap<String, Machine>,
    /// Addresses in the subnets of these machines that are on no interface of them, and who has them.
    pub used: BTreeMap<Ipv4Addr, String>,
}

/// Whether an address joins the load balancers that the interface's own address is behind. Of Azure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pools {
    /// As the interface's own address.
    #[default]
    AsPrimary,
    /// None of them.
    None,
}

/// Why a machine cannot carry addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unable {
    /// One CamelCase word for it.
    pub reason: &'static str,
    /// What it is and what to do, after "the machine".
    pub why: &'static str,
}

/// A cloud that must be asked for each address.
pub trait Cloud: Send + Sync {
    /// What people call it.
    fn name(&self) -> &'static str;

    /// The name of a machine in this cloud, out of a node's `providerID`; none if it is not of this cloud.
    fn machine_id(&self, provider_id: &str) -> Option<String>;

    /// Why a machine of this cloud that has no name here cannot carry addresses, if that is known.
    fn cannot_carry(&self, _provider_id: &str) -> Option<Unable> {
        None
    }

    /// The machines of these names, and what else uses addresses beside them.
    fn look<'a>(&'a self, ids: &'a BTreeSet<String>) -> BoxFuture<'a, Result<View, Error>>;

    /// Puts addresses on a machine that does not have them: all, or none.
    fn assign<'a>(
        &'a self,
        machine: &'a Machine,
        addresses: &'a BTreeMap<Ipv4Addr, Pools>,
    ) -> BoxFuture<'a, Result<(), Error>>;

    /// Takes addresses from a machine that has them: all, or none.
    fn unassign<'a>(
        &'a self,
        machine: &'a Machine,
        addresses: &'a BTreeSet<Ipv4Addr>,
    ) -> BoxFuture<'a, Result<(), Error>>;
}
