//! Offers: whose they are, and whether they say what the Infra says.

use std::net::Ipv4Addr;

use oooi_dhcp::options::code;

use crate::client::dhcp::Offer;
use crate::diagnosis::{
    DHCP_ADDRESS_WRONG, DHCP_OPTION_MISSING, DHCP_OPTION_WRONG, DHCP_ROGUE, DHCP_SEVERAL, DHCP_SILENT,
};
use crate::expected::ExpectedDhcp;
use crate::report::{Check, Finding};

/// What an offer should look like.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// Nothing is known.
    Anything,
    /// The Infra has no DHCP server.
    Nobody,
    /// The Infra has these.
    Of(&'a ExpectedDhcp),
}

/// Whether a node gets the right address, and everything with it.
pub fn diagnose(wanted: Wanted<'_>, offers: &[Offer]) -> Check {
    let mut findings = Vec::new();
    match wanted {
        Wanted::Nobody if offers.is_empty() => {
            return Check::skipped(
                "DHCP",
                "the Infra has no DHCP server, and nobody else offers addresses",
            );
        }
        _ if offers.is_empty() => findings.push(Finding::new(&DHCP_SILENT, "no offer to a DISCOVER")),
        Wanted::Nobody => findings.extend(offers.iter().map(rogue)),
        Wanted::Anything => {
            let mut servers: Vec<Ipv4Addr> = offers.iter().map(server).collect();
            servers.sort_unstable();
            servers.dedup();
            if servers.len() > 1 {
                let detail = format!("offers come from {}", super::list(&servers));
                findings.push(Finding::new(&DHCP_SEVERAL, detail));
            }
        }
        Wanted::Of(expected) => {
            let (own, strange): (Vec<&Offer>, Vec<&Offer>) = offers
                .iter()
                .partition(|offer| expected.servers.contains(&server(offer)));
            findings.extend(strange.into_iter().map(rogue));
            if own.is_empty() {
                let detail = format!(
                    "none of the Infra's servers answers ({})",
                    super::list(&expected.servers)
                );
                findings.push(Finding::new(&DHCP_SILENT, detail));
            }
            findings.extend(own.into_iter().flat_map(|offer| compare(expected, offer)));
        }
    }
    let shown: Vec<String> = offers
        .iter()
        .map(|offer| format!("{} from {}", offer.address, server(offer)))
        .collect();
    Check::new("DHCP", format!("offered {}", super::list(&shown)), findings)
}

/// Who made an offer: what it calls itself, else where the offer came from.
pub fn server(offer: &Offer) -> Ipv4Addr {
    offer.server.unwrap_or(offer.from)
}

fn rogue(offer: &Offer) -> Finding {
    Finding::new(&DHCP_ROGUE, format!("{} offers {}", server(offer), offer.address))
}

fn compare(expected: &ExpectedDhcp, offer: &Offer) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !expected.network.contains(&offer.address) {
        let detail = format!(
            "{} offers {}, which is not in {}",
            server(offer),
            offer.address,
            expected.network
        );
        findings.push(Finding::new(&DHCP_ADDRESS_WRONG, detail));
    }
    for (code, value) in &expected.options {
        let Some(name) = name(*code) else { continue };
        let wanted = show(*code, value);
        match offer.options.iter().find(|(other, _)| other == code) {
            None => {
                let detail = format!(
                    "{} gives no {name} (option {code}): it should be {wanted}",
                    server(offer)
                );
                findings.push(Finding::new(&DHCP_OPTION_MISSING, detail));
            }
            Some((_, got)) if got != value => {
                let got = show(*code, got);
                let detail = format!(
                    "{} gives {name} (option {code}) {got}, not {wanted}",
                    server(offer)
                );
                findings.push(Finding::new(&DHCP_OPTION_WRONG, detail));
            }
            Some(_) => {}
        }
    }
    findings
}

/// What the doctor asks for, in words. A server gives no more than it is asked for.
fn name(code: u8) -> Option<&'static str> {
    Some(match code {
        code::SUBNET_MASK => "subnet mask",
        code::ROUTERS => "router",
        code::DNS_SERVERS => "resolvers",
        code::DOMAIN_NAME => "domain",
        code::MTU => "MTU",
        code::NTP_SERVERS => "time servers",
        code::DOMAIN_SEARCH => "search domains",
        code::CLASSLESS_ROUTES => "routes",
        _ => return None,
    })
}

fn show(code: u8, value: &[u8]) -> String {
    let hex = || {
        value
            .iter()
            .map(|octet| format!("{octet:02x}"))
            .collect::<String>()
    };
    match code {
        code::SUBNET_MASK | code::ROUTERS | code::DNS_SERVERS | code::NTP_SERVERS => {
            let (addresses, []) = value.as_chunks::<4>() else {
                return hex();
            };
            let addresses: Vec<Ipv4Addr> = addresses.iter().map(|octets| Ipv4Addr::from(*octets)).collect();
            super::list(&addresses)
        }
        code::MTU => {
            <[u8; 2]>::try_from(value).map_or_else(|_| hex(), |mtu| u16::from_be_bytes(mtu).to_string())
        }
        code::DOMAIN_NAME => format!("`{}`", String::from_utf8_lossy(value).escape_debug()),
        _ => hex(),
    }
}
