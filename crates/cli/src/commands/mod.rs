//! The commands of the binary, one a file.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod crds;
pub(crate) mod lab;
pub(crate) mod up;
