//! What a namespace asks for, by its annotations.

use std::net::Ipv4Addr;

use kube::core::ObjectMeta;

/// The annotation that names the EgressIPAM that a namespace wants addresses of.
pub const ASKS: &str = "egressip-ipam-operator.redhat-cop.io/egressipam";

/// The annotation with the addresses: the i-th one is of the i-th network. Whoever sets it first is right.
pub const GIVEN: &str = "egressip-ipam-operator.redhat-cop.io/egressips";

/// The annotation that tells which EgressIPAM chose the addresses. Only with it are they ever taken back.
pub const ALLOCATED_BY: &str = "egressip-ipam-operator.redhat-cop.io/allocated-by";

/// A namespace that asks for addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Its name.
    pub namespace: String,
    /// When it was made, in seconds of any epoch: of two that want the same address the older one gets it.
    pub created: i64,
    /// The EgressIPAM that it asks.
    pub ipam: String,
    /// The addresses that it has or wants, as they are written.
    pub given: Option<String>,
    /// The EgressIPAM that chose them; none if a person did.
    pub allocated_by: Option<String>,
    /// It is being deleted: it keeps what it has and gets nothing new.
    pub leaving: bool,
}

impl Claim {
    /// The claim of a namespace by its metadata; none if it asks for nothing.
    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        let annotation = |key| {
            let value = metadata.annotations.as_ref()?.get(key)?;
            (!value.is_empty()).then(|| value.clone())
        };
        Some(Claim {
            namespace: metadata.name.clone()?,
            created: metadata
                .creation_timestamp
                .as_ref()
                .map_or(i64::MAX, |time| time.0.as_second()),
            ipam: annotation(ASKS)?,
            given: annotation(GIVEN),
            allocated_by: annotation(ALLOCATED_BY),
            leaving: metadata.deletion_timestamp.is_some(),
        })
    }
}

/// A list of addresses that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The list has no spaces.
    #[error("the annotation {GIVEN} has spaces in `{0}`: write the addresses with commas and no spaces")]
    Spaces(String),
    /// One of them is no address.
    #[error(
        "`{0}` in the annotation {GIVEN} is not an IPv4 address: write addresses such as 10.0.128.5,10.0.144.5"
    )]
    Address(String),
}

/// The addresses of a list such as `10.0.128.5,10.0.144.5`.
pub fn addresses(list: &str) -> Result<Vec<Ipv4Addr>, Malformed> {
    if list.contains(char::is_whitespace) {
        return Err(Malformed::Spaces(shortened(list)));
    }
    list.split(',')
        .map(|text| text.parse().map_err(|_| Malformed::Address(shortened(text))))
        .collect()
}

/// What a person wrote, short enough for a message.
fn shortened(text: &str) -> String {
    const LONGEST: usize = 80;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_in_its_order() {
        assert_eq!(
            addresses("10.0.1.5,10.0.0.5").unwrap(),
            [Ipv4Addr::new(10, 0, 1, 5), Ipv4Addr::new(10, 0, 0, 5)]
        );
    }

    #[test]
    fn spaces_empty_places_and_other_texts_are_named() {
        assert_eq!(
            addresses("10.0.1.5, 10.0.0.5"),
            Err(Malformed::Spaces("10.0.1.5, 10.0.0.5".into()))
        );
        for (list, bad) in [("10.0.1.5,", ""), ("a,10.0.0.1", "a"), ("10.0.0.1,::1", "::1")] {
            assert_eq!(addresses(list), Err(Malformed::Address(bad.into())), "{list}");
        }
        let long = "ä".repeat(5000);
        assert!(addresses(&long).unwrap_err().to_string().len() < 400);
    }

    #[test]
    fn a_namespace_without_the_annotation_asks_for_nothing() {
        assert_eq!(Claim::of(&ObjectMeta::default()), None);
    }
}
