//! Interfaces, addresses and network namespaces, by netlink.
//!
//! [`Network`] speaks netlink in the namespace of the thread that opened it. [`Namespace`] is a network namespace
//! without a name: it lives as long as somebody holds it, so whatever was built in it is gone with the process,
//! however that ends. [`become_root_of_own_namespace`] gives an unprivileged user the right to make them. [`announce`]
//! tells neighbours that an address moved. [`Network::route_by_source`] lets answers leave by where the question came in.

mod announce;
mod by_source;
mod namespace;
mod network;
mod user;

pub use announce::announce;
pub use by_source::take_up_net_admin;
pub use namespace::Namespace;
pub use network::{Error, Link, Network};
pub use user::become_root_of_own_namespace;
