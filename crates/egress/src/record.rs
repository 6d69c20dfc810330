//! What we put on a node, kept on the node itself. Only what stands there is ever removed.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

/// The Node annotation with the addresses and networks that we put there, written before they are put there.
pub const PLACED: &str = "egressip-ipam-operator.redhat-cop.io/placed";

/// What we put on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Addresses.
    pub addresses: BTreeSet<Ipv4Addr>,
    /// Networks of which the SDN chooses addresses itself.
    pub networks: BTreeSet<Ipv4Net>,
}

impl Record {
    /// Reads the annotation. What cannot be read was not written by us, and is passed over.
    pub fn read(text: &str) -> Self {
        let mut record = Record::default();
        for part in text.split(',') {
            if let Ok(address) = part.parse() {
                record.addresses.insert(address);
            } else if let Ok(network) = part.parse() {
                record.networks.insert(network);
            }
        }
        record
    }

    /// Whether nothing is there.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.networks.is_empty()
    }

    /// Both together.
    #[must_use]
    pub fn with(&self, other: &Record) -> Record {
        Record {
            addresses: &self.addresses | &other.addresses,
            networks: &self.networks | &other.networks,
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = self.addresses.iter().map(ToString::to_string);
        let all: Vec<String> = addresses
            .chain(self.networks.iter().map(ToString::to_string))
            .collect();
        f.write_str(&all.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_what_it_writes_and_passes_over_the_rest() {
        let record = Record::read("10.0.0.9,10.0.0.5,10.1.0.0/24");
        assert_eq!(record.to_string(), "10.0.0.5,10.0.0.9,10.1.0.0/24");
        assert_eq!(Record::read(&record.to_string()), record);
        assert!(Record::read("x, 10.0.0.1,,").is_empty());
    }
}
