//! Operations that go on after their answer. Pure.

use http::HeaderMap;
use http::header::LOCATION;
use serde_json::Value;

use super::answer;

/// Our word for a thing that was changed since it was read.
pub(super) const CHANGED: &str = "PreconditionFailed";

/// Answers that mean that another operation comes first.
pub(super) const BUSY: [&str; 4] = [
    "AnotherOperationInProgress",
    "RetryableError",
    "CanceledAndSupersededDueToAnotherOperation",
    "ReferencedResourceNotProvisioned",
];

/// How far an operation is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Runs,
    Done,
    /// A code and a sentence.
    Failed(String, String),
}

/// How far an operation is, by an answer to it or about it: the operation's own state, else that of the thing.
pub(super) fn progress(status: u16, text: &str) -> Progress {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let state = value["status"].as_str();
    let state = state.or(value["properties"]["provisioningState"].as_str());
    match state.map(str::to_ascii_lowercase).as_deref() {
        Some("succeeded") => Progress::Done,
        Some("failed" | "canceled" | "cancelled") => {
            let (code, message) = answer::fault(text);
            Progress::Failed(code, message)
        }
        Some(_) => Progress::Runs,
        None if status == 202 => Progress::Runs,
        None => Progress::Done,
    }
}

/// Where to ask how far it is.
pub(super) fn place(headers: &HeaderMap) -> Option<String> {
    let place = headers.get("azure-asyncoperation").or(headers.get(LOCATION))?;
    place.to_str().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_over_when_it_says_so() {
        assert_eq!(progress(200, r#"{"status": "InProgress"}"#), Progress::Runs);
        assert_eq!(progress(200, r#"{"status": "Succeeded"}"#), Progress::Done);
        assert_eq!(progress(202, ""), Progress::Runs);
        assert_eq!(
            progress(201, r#"{"properties": {"provisioningState": "Updating"}}"#),
            Progress::Runs
        );
        assert_eq!(
            progress(200, r#"{"properties": {"provisioningState": "Succeeded"}}"#),
            Progress::Done
        );
        let failed = r#"{"status": "Failed", "error": {"code": "InUse", "message": "by x"}}"#;
        assert_eq!(
            progress(200, failed),
            Progress::Failed("InUse".into(), "by x".into())
        );
    }
}
