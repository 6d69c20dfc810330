//! What is wrong with a manifest, and what is merely odd.

use std::fmt;

pub use oooi_api::mistake::Mistake;
use serde::Serialize;

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
        let mistake = Mistake::new(path, message);
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
