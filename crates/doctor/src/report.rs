//! What was found: a tree of checks, with the first cause on top.

use std::fmt::Write;

use serde::Serialize;

use crate::diagnosis::{Diagnosis, Severity};
use crate::style::{Colour, Style};

/// Something that is wrong here and now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is.
    #[serde(flatten)]
    pub diagnosis: &'static Diagnosis,
    /// What was seen, with names and addresses.
    pub detail: String,
}

impl Finding {
    /// A finding.
    pub fn new(diagnosis: &'static Diagnosis, detail: impl Into<String>) -> Self {
        Finding {
            diagnosis,
            detail: detail.into(),
        }
    }
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// It could not be made, because of what was found before.
    Skipped,
    /// All is well.
    Ok,
    /// Something needs a look.
    Warning,
    /// Something is broken.
    Failure,
}

/// One check, and those that belong to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// What was looked at.
    pub name: String,
    /// The worst of it and of what belongs to it.
    pub state: State,
    /// What was seen.
    pub detail: String,
    /// What is wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// What belongs to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
}

impl Check {
    /// A check with what it found.
    pub fn new(name: impl Into<String>, detail: impl Into<String>, findings: Vec<Finding>) -> Self {
        let worst = findings.iter().map(|finding| finding.diagnosis.severity).max();
        Check {
            name: name.into(),
            state: match worst {
                None => State::Ok,
                Some(Severity::Warning) => State::Warning,
                Some(Severity::Failure) => State::Failure,
            },
            detail: detail.into(),
            findings,
            checks: Vec::new(),
        }
    }

    /// A check that could not be made.
    pub fn skipped(name: impl Into<String>, why: impl Into<String>) -> Self {
        Check {
            state: State::Skipped,
            ..Check::new(name, why, Vec::new())
        }
    }

    /// A check that consists of others.
    pub fn of(name: impl Into<String>, detail: impl Into<String>, checks: Vec<Check>) -> Self {
        let mut check = Check::new(name, detail, Vec::new());
        check.state = checks.iter().map(|check| check.state).max().unwrap_or(State::Ok);
        check.checks = checks;
        check
    }

    fn all(&self) -> Vec<&Finding> {
        let deeper = self.checks.iter().flat_map(Check::all);
        self.findings.iter().chain(deeper).collect()
    }

    fn lines(&self, style: Style, depth: usize, text: &mut String) {
        let (mark, colour) = match self.state {
            State::Skipped => ("skip ", Colour::Faint),
            State::Ok => ("ok   ", Colour::Good),
            State::Warning => ("WARN ", Colour::Warning),
            State::Failure => ("FAIL ", Colour::Bad),
        };
        let indent = depth * 2;
        let mut line = |words: &str| {
            // Further lines of the same words stand a little to the right.
            let words = style.fold(words, MARK + indent + 2);
            let line = format!("{} {:indent$}{words}", style.paint(colour, mark), "");
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}", line.trim_end());
        };
        if self.findings.is_empty() {
            let between = if self.detail.is_empty() { "" } else { ": " };
            line(&format!("{}{between}{}", self.name, self.detail));
        }
        for finding in &self.findings {
            line(&format!(
                "{}: {} ({})",
                self.name, finding.detail, finding.diagnosis.id
            ));
        }
        for check in &self.checks {
            check.lines(style, depth + 1, text);
        }
    }
}

/// How wide the mark before each check is.
const MARK: usize = 6;

/// Everything that was looked at, in the order in which one thing can cause the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The version of this document.
    pub schema_version: u32,
    /// The worst of all checks.
    pub state: State,
    /// The first cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Finding>,
    /// The checks.
    pub checks: Vec<Check>,
}

impl Report {
    /// A report of checks.
    pub fn new(checks: Vec<Check>) -> Self {
        let all: Vec<&Finding> = checks.iter().flat_map(Check::all).collect();
        // Of what is equally bad the earlier can cause the later.
        let worst = all.iter().map(|finding| finding.diagnosis.severity).max();
        let cause = all
            .iter()
            .find(|finding| Some(finding.diagnosis.severity) == worst)
            .map(|finding| (*finding).clone());
        Report {
            schema_version: 1,
            state: checks.iter().map(|check| check.state).max().unwrap_or(State::Ok),
            cause,
            checks,
        }
    }

    /// For people.
    pub fn text(&self, style: Style) -> String {
        let mut text = String::new();
        match &self.cause {
            None => {
                let _ = writeln!(text, "{}", style.paint(Colour::Good, "nothing wrong was found"));
            }
            Some(Finding { diagnosis, detail }) => {
                let colour = match diagnosis.severity {
                    Severity::Warning => Colour::Warning,
                    Severity::Failure => Colour::Bad,
                };
                let cause = style.fold(&format!("{}: {detail}", diagnosis.meaning), 0);
                let _ = writeln!(text, "{}", style.paint(colour, &cause));
                let _ = writeln!(text, "  {}", style.fold(diagnosis.remedy, 2));
                let others = self.checks.iter().flat_map(Check::all).count() - 1;
                if others > 0 {
                    let s = if others == 1 { "" } else { "s" };
                    let _ = writeln!(text, "  {others} more finding{s} below may follow from it.");
                }
            }
        }
        text.push('\n');
        for check in &self.checks {
            check.lines(style, 0, &mut text);
        }
        text
    }
}
