//! Forms, as both clouds take them. Pure.

use std::fmt::Write;

/// The fields of a form, in order.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Form(Vec<(String, String)>);

impl Form {
    /// With one field more.
    #[must_use]
    pub(crate) fn with(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.push((key.into(), value.into()));
        self
    }

    /// With a numbered list, such as `PrivateIpAddress.1`.
    #[must_use]
    pub(crate) fn with_list(mut self, key: &str, values: impl IntoIterator<Item = impl ToString>) -> Self {
        for (index, value) in values.into_iter().enumerate() {
            self.0.push((format!("{key}.{}", index + 1), value.to_string()));
        }
        self
    }

    /// As the body of a request.
    pub(crate) fn encode(&self) -> String {
        let mut text = String::new();
        for (key, value) in &self.0 {
            if !text.is_empty() {
                text.push('&');
            }
            text.push_str(&escape(key));
            text.push('=');
            text.push_str(&escape(value));
        }
        text
    }
}

/// Everything but the unreserved characters of RFC 3986 as `%XX`.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}"); // writing to a String cannot fail
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_unreserved_is_escaped_by_its_bytes() {
        assert_eq!(escape("aZ9-._~"), "aZ9-._~");
        assert_eq!(escape("a b+c/ä&="), "a%20b%2Bc%2F%C3%A4%26%3D");
    }

    #[test]
    fn lists_are_numbered_from_one() {
        let form = Form::default().with("Action", "X").with_list("Id", ["a", "b"]);
        assert_eq!(form.encode(), "Action=X&Id.1=a&Id.2=b");
    }
}
