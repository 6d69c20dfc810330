//! Manifests from files: YAML text → documents that know where each of their values stands → typed objects.
//!
//! ```text
//! text ──yaml──► Node tree with places ──document──► Document ──schema, CEL──► checked ──decode──► T
//! ```
//! [`Document::check`] holds a document of one of our kinds against the very schema and rules that the API server
//! enforces, so a file is refused for the same reasons as a `kubectl apply`, and every mistake comes at once, with
//! file, line, column, field path and a suggestion. Other projects' kinds are passed through: only the fields that
//! we read matter, and those are checked when they are decoded.
//!
//! The crate is pure (it reads no files) and apart from `api` so that no server needs a YAML parser or a CEL
//! interpreter.

mod document;
mod mistake;
mod nearest;
mod structure;
mod yaml;

pub use document::{Document, all, only, read};
pub use mistake::{Mistake, Place, Source};
