//! Answers to names: each at each resolver, by UDP and by TCP.

use std::net::Ipv4Addr;

use crate::client::dns::{Error, Transport, rcode};
use crate::diagnosis::{
    DNS_BROKEN, DNS_NAME_MISSING, DNS_NO_UPSTREAM, DNS_REFUSED, DNS_SILENT, DNS_UPSTREAM_DEAD,
    DNS_WRONG_VIEW, Diagnosis,
};
use crate::expected::Outside;
use crate::report::{Check, Finding};

const REFUSED: u8 = 5;
const NXDOMAIN: u8 = 3;

/// One answer.
#[derive(Debug)]
pub struct Answer {
    /// Who was asked.
    pub server: Ipv4Addr,
    /// How.
    pub transport: Transport,
    /// For which name.
    pub name: String,
    /// What it should be; nothing: whatever it is.
    pub wanted: Vec<Ipv4Addr>,
    /// What came.
    pub got: Result<Vec<Ipv4Addr>, Error>,
}

/// Whether a resolver knows the names of the control plane. All answers are of one resolver.
pub fn resolver(server: Ipv4Addr, answers: &[Answer]) -> Check {
    let mut findings: Vec<Finding> = Vec::new();
    for transport in [Transport::Udp, Transport::Tcp] {
        let by_it: Vec<&Answer> = answers
            .iter()
            .filter(|answer| answer.transport == transport)
            .collect();
        let silent =
            |answer: &&Answer| matches!(answer.got, Err(Error::Silence { .. } | Error::Socket { .. }));
        if !by_it.is_empty() && by_it.iter().all(silent) {
            // One sentence for a server that is not there, not one a name.
            let why = by_it.first().and_then(|answer| answer.got.as_ref().err());
            let why = why.map(ToString::to_string).unwrap_or_default();
            findings.push(Finding::new(&DNS_SILENT, format!("{transport}: {why}")));
            continue;
        }
        for answer in by_it {
            findings.extend(fault(answer).map(|(diagnosis, detail)| {
                Finding::new(diagnosis, format!("{}: {detail} (by {transport})", answer.name))
            }));
        }
    }
    let names = answers
        .iter()
        .filter(|answer| answer.transport == Transport::Udp)
        .count();
    let s = if names == 1 { "" } else { "s" };
    Check::new(
        format!("resolver {server}"),
        format!("{names} name{s} by UDP and TCP"),
        findings,
    )
}

fn fault(answer: &Answer) -> Option<(&'static Diagnosis, String)> {
    match &answer.got {
        Ok(got) if answer.wanted.is_empty() || same(got, &answer.wanted) => None,
        Ok(got) => {
            let (got, wanted) = (super::list(got), super::list(&answer.wanted));
            Some((
                &DNS_WRONG_VIEW,
                format!("{} says {got}, not {wanted}", answer.server),
            ))
        }
        Err(error) => {
            let diagnosis = match error {
                Error::Silence { .. } | Error::Socket { .. } => &DNS_SILENT,
                Error::Code { code: REFUSED, .. } => &DNS_REFUSED,
                Error::Code { code: NXDOMAIN, .. } | Error::NoAddress { .. } => &DNS_NAME_MISSING,
                Error::Code { .. } | Error::Garbage { .. } | Error::BadName(_) => &DNS_BROKEN,
            };
            Some((diagnosis, error.to_string()))
        }
    }
}

fn same(got: &[Ipv4Addr], wanted: &[Ipv4Addr]) -> bool {
    got.len() == wanted.len() && got.iter().all(|address| wanted.contains(address))
}

/// Whether names outside of the cluster are resolved.
pub fn outside(outside: &Outside, server: Ipv4Addr, got: &Result<Vec<Ipv4Addr>, Error>) -> Check {
    let name = "names outside";
    let Outside {
        name: asked,
        upstreams,
    } = outside;
    let found = |diagnosis, detail: String| Check::new(name, "", vec![Finding::new(diagnosis, detail)]);
    match (got, upstreams) {
        (Err(Error::Code { code: REFUSED, .. }), Some(false)) => Check::new(
            name,
            "not resolved, as the Infra has it: it names no upstream",
            Vec::new(),
        ),
        (Err(Error::Code { code: REFUSED, .. }), _) => {
            found(&DNS_NO_UPSTREAM, format!("{server} refuses {asked}"))
        }
        // The upstream answered; what it says of the name is its business.
        (Ok(_) | Err(Error::NoAddress { .. } | Error::Code { code: NXDOMAIN, .. }), _) => {
            Check::new(name, format!("{server} asks its upstream"), Vec::new())
        }
        (Err(Error::Code { code, .. }), _) => found(
            &DNS_UPSTREAM_DEAD,
            format!("{server} answers {asked} with {}", rcode(*code)),
        ),
        (Err(error), _) => found(&DNS_UPSTREAM_DEAD, format!("{asked}: {error}")),
    }
}
