//! Packets of every size that the interface takes must arrive.

use std::net::Ipv4Addr;

use crate::diagnosis::MTU_BLACKHOLE;
use crate::report::{Check, Finding};

/// How a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Not even small packets come back: nothing can be said.
    Mute,
    /// All sizes pass.
    Whole,
    /// Only smaller ones do.
    Narrow {
        /// The largest that does.
        largest: u16,
    },
}

/// Whether large packets vanish on the way to any of these.
pub fn diagnose(mtu: u16, seen: &[(Ipv4Addr, Seen)]) -> Check {
    let name = "packet size";
    if seen.iter().all(|(_, seen)| *seen == Seen::Mute) {
        return Check::skipped(name, "nobody answers echo requests");
    }
    let findings = seen.iter().filter_map(|(address, seen)| match seen {
        Seen::Narrow { largest } => Some(Finding::new(
            &MTU_BLACKHOLE,
            format!("packets of {mtu} bytes to {address} vanish; {largest} bytes pass"),
        )),
        _ => None,
    });
    let heard: Vec<Ipv4Addr> = seen
        .iter()
        .filter(|(_, seen)| *seen == Seen::Whole)
        .map(|(address, _)| *address)
        .collect();
    let detail = format!("{mtu} bytes pass to {}", super::list(&heard));
    Check::new(name, detail, findings.collect())
}
