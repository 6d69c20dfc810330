//! What is wrong with a manifest, and what is merely odd.

use std::fmt;

use serde::Serialize;

/// A mistake in a manifest: it cannot be planned until this is mended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mistake {
    /// The field, such as `spec.infraComponents.dhcp.serverIP`.
    pub path: String,
    /// What is wrong with it and how to mend it.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl std::error::Error for Mistake {}

/// Something that works, but not as one might expect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// Which kind of thing it is, in CamelCase: the reason of an event or a condition.
    pub reason: &'static str,
    /// The field that it is about.
    pub path: String,
    /// What follows from it, and what to do if that is not wanted.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Collects both while a manifest is read from top to bottom.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) mistakes: Vec<Mistake>,
    pub(crate) warnings: Vec<Warning>,
}

impl Notes {
    pub(crate) fn mistake(&mut self, path: impl Into<String>, message: impl Into<String>) {
        let mistake = Mistake {
            path: path.into(),
            message: message.into(),
        };
        if !self.mistakes.contains(&mistake) {
            self.mistakes.push(mistake);
        }
    }

    pub(crate) fn warning(
        &mut self,
        reason: &'static str,
        path: impl Into<String>,
        message: impl Into<String>,
    ) {
        self.warnings.push(Warning {
            reason,
            path: path.into(),
            message: message.into(),
        });
    }

    /// The value, or a mistake at `path`.
    pub(crate) fn read<T, E: fmt::Display>(
        &mut self,
        path: impl Into<String>,
        read: Result<T, E>,
    ) -> Option<T> {
        read.map_err(|error| self.mistake(path, error.to_string())).ok()
    }
}
