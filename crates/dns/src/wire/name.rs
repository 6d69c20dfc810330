//! Domain names in wire form: length octet, label, …, zero octet.
//!
//! [`Name`] is an owned, lower-case name: a key of zones and caches. [`Folded`] is the same on the stack,
//! made from a question without allocating. Text comes in by [`Name::parse`] (manifests) and goes out by
//! `Display` (logs). Refused: empty labels, labels over 63 octets, names over 255, and in manifests
//! everything that is not a host name (letters, digits, `-`, `_`, and `*` as the whole first label).

use std::borrow::Borrow;
use std::fmt;

/// The longest name in wire form (RFC 1035, 2.3.4).
pub const MAX_NAME: usize = 255;

/// The longest label.
const MAX_LABEL: usize = 63;

/// Why a text is no name that this server can serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing between two dots, or nothing at all.
    #[error("has an empty label; write names as `host.example.com`")]
    EmptyLabel,
    /// A label over 63 octets.
    #[error("has a label of {0} octets; at most 63 are allowed")]
    LongLabel(usize),
    /// A name over 255 octets.
    #[error("is longer than 255 octets in wire form")]
    TooLong,
    /// A character that no host name has.
    #[error("has the character {0:?}; letters, digits, `-` and `_` are allowed")]
    Character(char),
    /// `*` anywhere but as the whole first label.
    #[error("has a `*` that is not the whole first label; write `*.apps.example.com`")]
    Asterisk,
}

/// An owned name, lower case, in wire form with its final zero octet.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Box<[u8]>);

impl Name {
    /// The root, `.`.
    pub fn root() -> Name {
        Name(Box::new([0]))
    }

    /// Reads a host name, with or without a final dot; the first label may be `*`.
    pub fn parse(text: &str) -> Result<Name, NameError> {
        if text == "." {
            return Ok(Name::root());
        }
        let text = text.strip_suffix('.').unwrap_or(text);
        let mut wire = Vec::with_capacity(text.len() + 2);
        for (position, label) in text.split('.').enumerate() {
            if label.is_empty() {
                return Err(NameError::EmptyLabel);
            }
            if label.len() > MAX_LABEL {
                return Err(NameError::LongLabel(label.len()));
            }
            if label.contains('*') && (label != "*" || position > 0) {
                return Err(NameError::Asterisk);
            }
            if let Some(bad) = label
                .chars()
                .find(|c| !(c.is_ascii_alphanumeric() || "-_*".contains(*c)))
            {
                return Err(NameError::Character(bad));
            }
            wire.push(label.len() as u8);
            wire.extend(label.bytes().map(|octet| octet.to_ascii_lowercase()));
        }
        wire.push(0);
        if wire.len() > MAX_NAME {
            return Err(NameError::TooLong);
        }
        Ok(Name(wire.into()))
    }

    /// `label` in front of this name.
    pub fn child(&self, label: &str) -> Result<Name, NameError> {
        let own = self.to_string();
        if own == "." {
            Name::parse(label)
        } else {
            Name::parse(&format!("{label}.{own}"))
        }
    }

    /// The name that answers for everything below this one: `*.` in front of it, where that fits.
    pub fn wildcard(&self) -> Option<Name> {
        let mut wire = vec![1, b'*'];
        wire.extend_from_slice(&self.0);
        (wire.len() <= MAX_NAME).then(|| Name(wire.into()))
    }

    /// The same name as octets.
    pub fn wire(&self) -> &[u8] {
        &self.0
    }

    /// Does its first label stand for every name below the rest?
    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with(&[1, b'*'])
    }

    /// A name that [`skip`] has measured, folded to lower case. The caller vouches for the wire form.
    pub(crate) fn from_checked_wire(wire: &[u8]) -> Name {
        Name(wire.iter().map(u8::to_ascii_lowercase).collect())
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_text(&self.0, f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_text(&self.0, f)
    }
}

/// Shows a name in wire form as text, for logs.
pub struct Text<'a>(pub &'a [u8]);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_text(self.0, f)
    }
}

fn write_text(wire: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if wire.len() <= 1 {
        return f.write_str(".");
    }
    for (position, label) in labels(wire).enumerate() {
        if position > 0 {
            f.write_str(".")?;
        }
        for &octet in label {
            match octet {
                b'.' | b'\\' => write!(f, "\\{}", octet as char)?,
                0x21..=0x7e => write!(f, "{}", octet as char)?,
                _ => write!(f, "\\{octet:03}")?,
            }
        }
    }
    Ok(())
}

/// A lower-case copy of an asked name on the stack.
#[derive(Clone)]
pub struct Folded {
    octets: [u8; MAX_NAME],
    len: u8,
}

impl Folded {
    /// Folds a name that [`skip`] has measured; longer input is cut, which no measured name is.
    pub fn new(wire: &[u8]) -> Folded {
        let len = wire.len().min(MAX_NAME);
        let mut octets = [0; MAX_NAME];
        octets[..len].copy_from_slice(&wire[..len]);
        octets[..len].make_ascii_lowercase(); // length octets are below 64 and stay as they are
        Folded {
            octets,
            len: len as u8,
        }
    }

    /// The folded name.
    pub fn wire(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }
}

/// The labels of a name in wire form, without their length octets; stops at the root or at the end.
pub fn labels(wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = wire;
    std::iter::from_fn(move || {
        let (&len, tail) = rest.split_first()?;
        let len = usize::from(len);
        if len == 0 || len > tail.len() {
            return None;
        }
        let (label, next) = tail.split_at(len);
        rest = next;
        Some(label)
    })
}

/// The name itself, then each of its parents down to the root.
pub fn ancestors(wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(wire);
    std::iter::from_fn(move || {
        let current = rest?;
        rest = match current.first() {
            None | Some(0) => None,
            Some(&len) => current.get(usize::from(len) + 1..),
        };
        (!current.is_empty()).then_some(current)
    })
}

/// Is `name` equal to `zone` or below it? Both are lower case.
pub fn is_within(name: &[u8], zone: &[u8]) -> bool {
    name.len() >= zone.len() && ancestors(name).any(|parent| parent.len() == zone.len() && parent == zone)
}

/// The length of the uncompressed name at the start of `octets`, or nothing where it is cut off, longer
/// than allowed, or has a pointer or a reserved label type.
pub fn skip(octets: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let len = usize::from(*octets.get(at)?);
        at += 1;
        if len == 0 {
            return (at <= MAX_NAME).then_some(at);
        }
        if len > MAX_LABEL {
            return None;
        }
        at += len;
        if at >= MAX_NAME {
            return None;
        }
    }
}

/// The length that the possibly compressed name at `at` has in the message itself.
pub(crate) fn skip_compressed(message: &[u8], mut at: usize) -> Option<usize> {
    let start = at;
    loop {
        let len = usize::from(*message.get(at)?);
        match len {
            0 => return Some(at + 1 - start),
            1..=MAX_LABEL => at += 1 + len,
            0xc0.. => return message.get(at + 1).map(|_| at + 2 - start),
            _ => return None,
        }
    }
}

/// Appends the possibly compressed name at `at`, uncompressed, to `out`; gives its length in the message.
///
/// Every pointer must lead before the place where the labels now being read began, so that a loop ends.
pub(crate) fn expand(message: &[u8], at: usize, out: &mut Vec<u8>) -> Option<usize> {
    let start = out.len();
    let mut end = None;
    let mut segment = at;
    let mut read = at;
    loop {
        let len = usize::from(*message.get(read)?);
        match len {
            0 => {
                out.push(0);
                let used = end.unwrap_or(read + 1) - at;
                return (out.len() - start <= MAX_NAME).then_some(used);
            }
            1..=MAX_LABEL => {
                out.extend_from_slice(message.get(read..read + 1 + len)?);
                if out.len() - start >= MAX_NAME {
                    return None;
                }
                read += 1 + len;
            }
            0xc0.. => {
                let target = (len & 0x3f) << 8 | usize::from(*message.get(read + 1)?);
                if target >= segment {
                    return None;
                }
                end.get_or_insert(read + 2);
                segment = target;
                read = target;
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_name_is_read_folded_and_shown() {
        let name = Name::parse("API.Cluster.Example.COM.").unwrap();
        assert_eq!(name.wire(), b"\x03api\x07cluster\x07example\x03com\x00");
        assert_eq!(name.to_string(), "api.cluster.example.com");
        assert_eq!(Name::root().to_string(), ".");
    }

    #[test]
    fn texts_that_are_no_host_names_are_refused_with_the_reason() {
        assert_eq!(Name::parse(""), Err(NameError::EmptyLabel));
        assert_eq!(Name::parse("a..b"), Err(NameError::EmptyLabel));
        assert_eq!(Name::parse("a b"), Err(NameError::Character(' ')));
        assert_eq!(Name::parse("ä.example"), Err(NameError::Character('ä')));
        assert_eq!(Name::parse("a.*.b"), Err(NameError::Asterisk));
        assert_eq!(Name::parse("a*.b"), Err(NameError::Asterisk));
        assert_eq!(Name::parse(&"x".repeat(64)), Err(NameError::LongLabel(64)));
        assert_eq!(Name::parse(&["abcdefg"; 32].join(".")), Err(NameError::TooLong));
        assert!(Name::parse("*.apps.example.com").unwrap().is_wildcard());
    }

    #[test]
    fn the_longest_name_is_accepted_and_one_octet_more_is_not() {
        let label = |len: usize| "x".repeat(len);
        let longest = [label(63), label(63), label(63), label(61)].join(".");
        assert_eq!(Name::parse(&longest).unwrap().wire().len(), MAX_NAME);
        let wire = Name::parse(&longest).unwrap().wire().to_vec();
        assert_eq!(skip(&wire), Some(MAX_NAME));
        let over = [label(63), label(63), label(63), label(62)].join(".");
        assert_eq!(Name::parse(&over), Err(NameError::TooLong));
    }

    #[test]
    fn ancestors_go_from_the_name_to_the_root() {
        let name = Name::parse("a.b.c").unwrap();
        let seen: Vec<String> = ancestors(name.wire())
            .map(|wire| Text(wire).to_string())
            .collect();
        assert_eq!(seen, ["a.b.c", "b.c", "c", "."]);
        assert!(is_within(name.wire(), Name::parse("b.c").unwrap().wire()));
        assert!(is_within(name.wire(), Name::root().wire()));
        assert!(!is_within(name.wire(), Name::parse("x.c").unwrap().wire()));
    }

    #[test]
    fn a_compression_loop_ends_without_a_name() {
        let message = [0u8; 12]
            .iter()
            .copied()
            .chain([0xc0, 0x0e, 0xc0, 0x0c])
            .collect::<Vec<_>>();
        assert_eq!(expand(&message, 12, &mut Vec::new()), None);
        assert_eq!(expand(&message, 14, &mut Vec::new()), None);
        let own = [1, b'a', 0xc0, 0x00];
        assert_eq!(expand(&own, 0, &mut Vec::new()), None);
    }

    #[test]
    fn a_chain_of_pointers_that_grows_past_255_octets_is_refused() {
        // Each step adds a label of 30 octets and points to the step before.
        let mut message = vec![0];
        let mut last = 0u16;
        for _ in 0..12 {
            let start = message.len() as u16;
            message.push(30);
            message.extend([b'x'; 30]);
            message.extend((0xc000 | last).to_be_bytes());
            last = start;
        }
        assert_eq!(expand(&message, usize::from(last), &mut Vec::new()), None);
    }

    #[test]
    fn a_compressed_name_is_expanded_and_measured() {
        let mut message = b"\x07example\x03com\x00".to_vec();
        let at = message.len();
        message.extend(b"\x03www\xc0\x00");
        let mut out = Vec::new();
        assert_eq!(expand(&message, at, &mut out), Some(6));
        assert_eq!(out, b"\x03www\x07example\x03com\x00");
        assert_eq!(skip_compressed(&message, at), Some(6));
    }
}
