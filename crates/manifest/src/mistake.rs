//! A mistake in a manifest: what is wrong, where, and how to mend it.

use std::fmt;
use std::sync::Arc;

/// A manifest as it was given.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// The file's name, or `-` for standard input.
    pub name: String,
    /// Its text.
    pub text: String,
}

impl Source {
    /// A manifest with its name.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Arc<Self> {
        Arc::new(Source {
            name: name.into(),
            text: text.into(),
        })
    }
}

/// A place in a text. Lines and columns count from one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
    /// How many characters to point at, at least one.
    pub length: usize,
}

/// What is wrong in a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The manifest.
    pub source: Arc<Source>,
    /// Where in it.
    pub place: Place,
    /// The field, such as `spec.networkConfig.cidr`; empty if the text itself cannot be read.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// How to mend it, if more can be said than the message does.
    pub help: Option<String>,
}

impl Mistake {
    /// The mistake with the line that it is on, and a mark under the words that are meant:
    ///
    /// ```text
    /// infra.yaml:8:5: spec.networkConfig.cird: unknown field
    ///   8 |     cird: 192.168.100.0/24
    ///     |     ^^^^ did you mean `cidr`?
    /// ```
    pub fn with_snippet(&self) -> String {
        let line = self
            .source
            .text
            .lines()
            .nth(self.place.line.saturating_sub(1))
            .unwrap_or_default();
        let number = self.place.line.to_string();
        let gutter = " ".repeat(number.len());
        let indent: String = line
            .chars()
            .take(self.place.column.saturating_sub(1))
            .map(|c| if c == '\t' { c } else { ' ' })
            .collect();
        let left = line
            .chars()
            .count()
            .saturating_sub(self.place.column.saturating_sub(1))
            .max(1);
        let mark = "^".repeat(self.place.length.clamp(1, left));
        let help = self.help.as_deref().unwrap_or_default();
        let summary = self.summary();
        format!("{summary}\n  {number} | {line}\n  {gutter} | {indent}{mark} {help}")
            .trim_end()
            .to_owned()
    }

    fn summary(&self) -> String {
        let Mistake {
            source,
            place,
            path,
            message,
            ..
        } = self;
        let (name, line, column) = (&source.name, place.line, place.column);
        if path.is_empty() {
            format!("{name}:{line}:{column}: {message}")
        } else {
            format!("{name}:{line}:{column}: {path}: {message}")
        }
    }
}

impl fmt::Display for Mistake {
    /// One line, for logs and conditions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary())?;
        if let Some(help) = &self.help {
            write!(f, "; {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistake {}
