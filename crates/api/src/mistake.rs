//! What is wrong with a specification: everybody who reads one says it in the same form.

use std::fmt;

use serde::Serialize;

/// A mistake and the field that it is in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mistake {
    /// The field, from the top of the resource: `spec.infraComponents.dhcp.serverIP`.
    pub path: String,
    /// What is wrong with it and how to mend it.
    pub message: String,
}

impl Mistake {
    /// A mistake.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Mistake {
            path: path.into(),
            message: message.into(),
        }
    }

    /// All of them on one line.
    pub fn list(mistakes: &[Mistake]) -> String {
        let each: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        each.join("; ")
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl std::error::Error for Mistake {}
