//! All mistakes of a manifest at once, each with its place.

use std::fmt;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
pub use oooi_api::mistake::Mistake;

use crate::wire::name::Name;

/// All mistakes of one manifest, in the order of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl std::error::Error for Mistakes {}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Mistake::list(&self.0))
    }
}

impl Mistakes {
    /// Nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(Mistake::new(path, message));
    }

    pub(super) fn name(&mut self, path: &str, text: &str) -> Option<Name> {
        match Name::parse(text) {
            Ok(name) => Some(name),
            Err(error) => {
                self.add(path, format!("is {text:?}, which {error}"));
                None
            }
        }
    }

    pub(super) fn address(&mut self, path: &str, text: &str) -> Option<Ipv4Addr> {
        let read = text.parse().ok();
        if read.is_none() {
            self.add(
                path,
                format!("is {text:?}; write an IPv4 address such as 10.0.0.4"),
            );
        }
        read
    }

    pub(super) fn addresses(&mut self, path: &str, texts: &[String]) -> Vec<Ipv4Addr> {
        let read = |(index, text): (usize, &String)| self.address(&format!("{path}[{index}]"), text);
        texts.iter().enumerate().filter_map(read).collect()
    }

    pub(super) fn network(&mut self, path: &str, text: &str) -> Option<Ipv4Net> {
        let read = text.parse().ok().map(|network: Ipv4Net| network.trunc());
        if read.is_none() {
            self.add(
                path,
                format!("is {text:?}; write an IPv4 network such as 10.0.0.0/24"),
            );
        }
        read
    }

    /// Whole seconds; a part of a second is dropped, since TTLs have none.
    pub(super) fn duration(&mut self, path: &str, text: &str) -> Option<u32> {
        match oooi_api::duration::parse(text) {
            Ok(duration) => Some(
                u32::try_from(duration.as_secs())
                    .unwrap_or(u32::MAX)
                    .min(i32::MAX as u32),
            ),
            Err(error) => {
                self.add(path, error.to_string());
                None
            }
        }
    }
}
