//! Server names: what a client asks for (SNI) and what a backend is published under.
//!
//! [`ServerName`] is one concrete name in lower case. [`Pattern`] is what a manifest may say: a name, a
//! wildcard (`*.apps.example.com`, any depth below the suffix) or `*`, which means plain TCP without any
//! look at the bytes. Both refuse what no TLS client can send (RFC 6066 section 3: a DNS host name, ASCII, no
//! trailing dot, no IP literal), so that a mistake in a manifest is named instead of never matching.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde::Serialize;

/// Why a text is not a name that a TLS client can send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing there.
    #[error("is empty; give a DNS name")]
    Empty,
    /// Longer than DNS allows.
    #[error("is longer than 253 characters, the limit of DNS names")]
    TooLong,
    /// Clients leave the server name out for an address (RFC 6066), so this would never match.
    #[error(
        "is an IP address; TLS clients send no server name for addresses, leave it out or use a DNS name"
    )]
    IpLiteral,
    /// SNI names have no trailing dot.
    #[error("ends in a dot; server names are sent without it")]
    TrailingDot,
    /// An empty label or one above 63 characters.
    #[error("has a label that is empty or longer than 63 characters")]
    Label,
    /// A character that no DNS host name has; international names are sent in their `xn--` form.
    #[error(
        "has a character other than letters, digits, '-', '_' and '.'; write international names as xn--…"
    )]
    Character,
    /// A star anywhere but as the whole first label.
    #[error("has a '*' that is not the whole first label; write *.example.com, or * alone for plain TCP")]
    Star,
}

/// One concrete server name, lower case.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ServerName(Arc<str>);

impl ServerName {
    /// Takes a name as sent or as written, and folds its case.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        check(text)?;
        Ok(Self(text.to_ascii_lowercase().into()))
    }

    /// The name in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a client may ask for this name. The same rules as [`parse`](Self::parse), except for the last
    /// ones that only matter in a manifest: what is merely odd becomes an unknown name, which is reset with
    /// its text in the log, instead of a malformed hello.
    pub(crate) fn from_wire(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let plain = !text.is_empty() && text.len() <= 255 && text.bytes().all(|b| b.is_ascii_graphic());
        plain.then(|| Self(text.to_ascii_lowercase().into()))
    }
}

impl std::borrow::Borrow<str> for ServerName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a backend is published under.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pattern {
    /// Exactly this name.
    Exact(ServerName),
    /// Every name below this suffix, at any depth; the suffix itself is not among them.
    Wildcard(ServerName),
    /// Every connection, without reading a byte of it.
    Any,
}

impl Pattern {
    /// Reads `name`, `*.suffix` or `*`.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        match text.strip_prefix('*') {
            Some("") => Ok(Self::Any),
            Some(rest) => match rest.strip_prefix('.') {
                Some(suffix) => ServerName::parse(suffix).map(Self::Wildcard),
                None => Err(NameError::Star),
            },
            None => ServerName::parse(text).map(Self::Exact),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => name.fmt(f),
            Self::Wildcard(suffix) => write!(f, "*.{suffix}"),
            Self::Any => f.write_str("*"),
        }
    }
}

impl Serialize for Pattern {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn check(text: &str) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > 253 {
        return Err(NameError::TooLong);
    }
    if text.parse::<IpAddr>().is_ok() {
        return Err(NameError::IpLiteral);
    }
    if text.contains('*') {
        return Err(NameError::Star);
    }
    if text.ends_with('.') {
        return Err(NameError::TrailingDot);
    }
    if !text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    {
        return Err(NameError::Character);
    }
    if text.split('.').any(|label| label.is_empty() || label.len() > 63) {
        return Err(NameError::Label);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_without_case() {
        assert_eq!(
            ServerName::parse("API.Demo.Example").unwrap().as_str(),
            "api.demo.example"
        );
        assert_eq!(
            ServerName::from_wire(b"API.demo.example"),
            ServerName::parse("api.demo.example").ok()
        );
    }

    #[test]
    fn each_name_that_no_client_can_send_is_refused_with_its_reason() {
        let long_label = format!("{}.example", "a".repeat(64));
        let long_name = format!("{}example", "a.".repeat(124));
        for (text, expected) in [
            ("", NameError::Empty),
            ("192.0.2.1", NameError::IpLiteral),
            ("2001:db8::1", NameError::IpLiteral),
            ("api.example.", NameError::TrailingDot),
            ("api..example", NameError::Label),
            (".example", NameError::Label),
            ("bücher.example", NameError::Character),
            ("api example", NameError::Character),
            ("a*.example", NameError::Star),
            (long_label.as_str(), NameError::Label),
            (long_name.as_str(), NameError::TooLong),
        ] {
            assert_eq!(ServerName::parse(text), Err(expected), "{text:?}");
        }
    }

    #[test]
    fn a_pattern_is_a_name_a_wildcard_or_everything() {
        assert_eq!(Pattern::parse("*"), Ok(Pattern::Any));
        assert_eq!(
            Pattern::parse("*.Apps.example").unwrap().to_string(),
            "*.apps.example"
        );
        assert!(matches!(Pattern::parse("api.example"), Ok(Pattern::Exact(_))));
        for wrong in ["**", "*apps.example", "*.", "*.*.example", "a.*.example"] {
            assert!(Pattern::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_that_could_forge_a_log_line_are_no_name() {
        for bytes in [&b""[..], b"a\nb", b"a b", b"\xff\xfe", b"a\0b", &[b'a'; 256]] {
            assert_eq!(ServerName::from_wire(bytes), None);
        }
    }
}
