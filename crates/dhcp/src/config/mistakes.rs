//! Mistakes of a manifest, all at once.

use std::fmt;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
pub use oooi_api::mistake::Mistake;

/// Every mistake of one manifest, in the order of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistakes(Vec<Mistake>);

impl Mistakes {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every mistake.
    pub fn iter(&self) -> impl Iterator<Item = &Mistake> {
        self.0.iter()
    }

    /// A mistake at a path below `spec`.
    pub(super) fn add(&mut self, path: &str, message: String) {
        self.0.push(Mistake::new(format!("spec.{path}"), message));
    }

    /// The value, or a mistake at `path`.
    pub(super) fn take<T>(&mut self, path: &str, read: Result<T, String>) -> Option<T> {
        read.map_err(|message| self.add(path, message)).ok()
    }

    /// Addresses of a list, with a mistake for each that is none.
    pub(super) fn addresses(&mut self, path: &str, texts: &[String]) -> Vec<Ipv4Addr> {
        let read =
            |(at, text): (usize, &String)| self.take(&format!("{path}[{at}]"), super::read_address(text));
        texts.iter().enumerate().filter_map(read).collect()
    }

    /// A mistake unless a host of the network can have the address.
    pub(super) fn inside(&mut self, path: &str, network: Ipv4Net, address: Ipv4Addr) {
        if !network.contains(&address) {
            self.add(path, format!("{address} is outside {network}"));
        } else if address == network.network() || address == network.broadcast() {
            self.add(
                path,
                format!("{address} is the network or broadcast address of {network}: no host can have it"),
            );
        }
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Mistake::list(&self.0))
    }
}

impl std::error::Error for Mistakes {}
