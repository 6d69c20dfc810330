//! The commands of the binary, one a file.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod crds;
