//! The commands of the binary, one a file.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod crds;
pub(crate) mod dhcp;
pub(crate) mod dns;
pub(crate) mod doctor;
pub(crate) mod lab;
pub(crate) mod leases;
pub(crate) mod man;
pub(crate) mod manager;
pub(crate) mod plan;
pub(crate) mod proxy;
pub(crate) mod reference;
pub(crate) mod route;
pub(crate) mod status;
pub(crate) mod up;
