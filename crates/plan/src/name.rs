//! DNS names as manifests write them.

use std::net::IpAddr;

/// Why a text is no DNS name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadName {
    #[error("a name is missing: write a DNS name such as api.my-cluster.example.com")]
    Empty,
    #[error("`{0}` is longer than the 253 characters that DNS allows: shorten it")]
    Long(String),
    #[error("`{0}` is an address: clients send no server name for addresses, so write a DNS name")]
    Address(String),
    #[error("`{0}` ends in a dot: leave it out, names are complete here anyway")]
    Dot(String),
    #[error(
        "`{0}` has a part that is empty or longer than 63 characters: write a DNS name such as api.example.com"
    )]
    Label(String),
    #[error("`{0}` has a `*` that is not its whole first part: write *.apps.example.com")]
    Star(String),
    #[error("`{0}` is a wildcard: write one name, without `*`")]
    Wildcard(String),
    #[error(
        "`{0}` has a character that no DNS name has: use letters, digits, `-`, `_` and `.`, and write international \
         names in their xn-- form"
    )]
    Character(String),
}

/// A name without a wildcard, in lower case.
pub(crate) fn exact(text: &str) -> Result<String, BadName> {
    let own = || text.to_owned();
    if text.is_empty() {
        return Err(BadName::Empty);
    }
    if text.len() > 253 {
        return Err(BadName::Long(own()));
    }
    if text.parse::<IpAddr>().is_ok() {
        return Err(BadName::Address(own()));
    }
    if text.starts_with("*.") {
        return Err(BadName::Wildcard(own()));
    }
    if text.contains('*') {
        return Err(BadName::Star(own()));
    }
    if text.ends_with('.') {
        return Err(BadName::Dot(own()));
    }
    for label in text.split('.') {
        if !(1..=63).contains(&label.len()) {
            return Err(BadName::Label(own()));
        }
        let edge = label.starts_with('-') || label.ends_with('-');
        if edge
            || !label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        {
            return Err(BadName::Character(own()));
        }
    }
    Ok(text.to_ascii_lowercase())
}

/// A name with or without a leading wildcard label, in lower case.
pub(crate) fn maybe_wildcard(text: &str) -> Result<String, BadName> {
    match text.strip_prefix("*.") {
        Some(suffix) => exact(suffix).map(|suffix| format!("*.{suffix}")),
        None => exact(text),
    }
}

/// Whether `name` is `domain` or below it. Both in lower case.
pub(crate) fn is_within(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_client_can_ask_for_are_taken_in_lower_case() {
        for (text, name) in [
            ("api.Example.COM", "api.example.com"),
            ("kubernetes", "kubernetes"),
            ("_dns.xn--bcher-kva.example", "_dns.xn--bcher-kva.example"),
        ] {
            assert_eq!(exact(text).unwrap(), name);
        }
        assert_eq!(
            maybe_wildcard("*.Apps.example.com").unwrap(),
            "*.apps.example.com"
        );
    }

    #[test]
    fn names_that_no_client_can_ask_for_are_refused_with_the_remedy() {
        let long = format!("{}.example.com", "a".repeat(64));
        for (text, says) in [
            ("", "is missing"),
            ("10.0.0.1", "is an address"),
            ("::1", "is an address"),
            ("api.example.com.", "ends in a dot"),
            ("api..example.com", "part that is empty"),
            (long.as_str(), "longer than 63"),
            ("b\u{fc}cher.example", "xn--"),
            ("api example.com", "no DNS name has"),
            ("-api.example.com", "no DNS name has"),
            ("a*.example.com", "whole first part"),
            ("*", "whole first part"),
            ("*.", "is missing"),
            ("*.*.example.com", "is a wildcard"),
        ] {
            let error = maybe_wildcard(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn a_domain_holds_itself_and_what_is_below() {
        assert!(is_within("example.com", "example.com"));
        assert!(is_within("a.example.com", "example.com"));
        assert!(!is_within("badexample.com", "example.com"));
    }
}
