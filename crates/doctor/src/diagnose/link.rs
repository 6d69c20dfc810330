//! The interface.

use ipnet::Ipv4Net;
use oooi_net::Link;

use crate::diagnosis::{LINK_DOWN, LINK_MISSING, LINK_NO_CARRIER};
use crate::report::{Check, Finding};

/// What was seen of the interface.
#[derive(Clone, Debug)]
pub enum Seen {
    /// It is not there.
    Missing {
        /// Those that are.
        others: Vec<String>,
    },
    /// It is.
    Present {
        /// How it is.
        link: Link,
        /// Its addresses.
        addresses: Vec<Ipv4Net>,
    },
}

/// Whether packets can leave.
pub fn diagnose(interface: &str, seen: &Seen) -> Check {
    let name = format!("link {interface}");
    let found = |diagnosis, detail: String| Check::new(&name, "", vec![Finding::new(diagnosis, detail)]);
    match seen {
        Seen::Missing { others } => {
            let others = super::list(others);
            found(
                &LINK_MISSING,
                format!("there is no interface {interface} here; there is: {others}"),
            )
        }
        Seen::Present { link, .. } if !link.is_up => found(&LINK_DOWN, format!("{interface} is down")),
        Seen::Present { link, .. } if !link.has_carrier => {
            found(&LINK_NO_CARRIER, format!("{interface} is up but has no carrier"))
        }
        Seen::Present { link, addresses } => {
            let detail = format!("up, MTU {}, addresses: {}", link.mtu, super::list(addresses));
            Check::new(&name, detail, Vec::new())
        }
    }
}
