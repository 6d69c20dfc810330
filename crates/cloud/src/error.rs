//! Why a cloud did not do what it was asked.

/// The longest part of an answer that is shown to a person.
const SHOWN: usize = 300;

/// Why a cloud did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is nothing to show who we are.
    #[error("no credentials for {cloud}: {lacking}")]
    NoCredentials {
        /// The cloud.
        cloud: &'static str,
        /// What was looked for and what to do, without a value of it.
        lacking: String,
    },
    /// The cloud does not know us, or does not let us.
    #[error("{call} was denied ({code}): {message}; check the credentials and what they allow")]
    Denied {
        /// What was asked.
        call: String,
        /// The cloud's word for it.
        code: String,
        /// What the cloud says.
        message: String,
    },
    /// The cloud said no: nothing was done.
    #[error("{call} was refused ({code}): {message}")]
    Refused {
        /// What was asked.
        call: String,
        /// The cloud's word for it.
        code: String,
        /// What the cloud says.
        message: String,
    },
    /// The cloud has had enough of us for now: nothing was done.
    #[error("{call} was put off by the cloud again and again: too many calls; it is tried again later")]
    Throttled {
        /// What was asked.
        call: String,
    },
    /// Nobody could be asked: nothing was done.
    #[error("{call} could not be sent: {why}")]
    Unreachable {
        /// What was asked.
        call: String,
        /// Why not.
        why: String,
    },
    /// No answer came, or none that can be read. A write may have been done.
    #[error("{call} was sent and its answer is not known: {why}; the cloud is looked at again")]
    Unknown {
        /// What was asked.
        call: String,
        /// What came instead.
        why: String,
    },
}

impl Error {
    /// One CamelCase word for it.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::NoCredentials { .. } => "CredentialsMissing",
            Error::Denied { .. } => "CloudDenied",
            Error::Refused { .. } => "CloudRefused",
            Error::Throttled { .. } => "CloudThrottled",
            Error::Unreachable { .. } | Error::Unknown { .. } => "CloudUnreachable",
        }
    }

    /// Whether the cloud said no to this very thing, so that less of it may be allowed.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Error::Refused { .. })
    }

    /// Whether a write may have been done all the same.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Error::Unknown { .. })
    }
}

/// The beginning of a text from outside, on one line.
pub(crate) fn shown(text: &str) -> String {
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(SHOWN)
        .collect();
    line.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cloud_says_is_shown_on_one_line_and_not_at_any_length() {
        assert_eq!(shown(" a\nb\u{7}c "), "a b c");
        assert_eq!(shown(&"ä".repeat(5000)).chars().count(), SHOWN);
    }
}
