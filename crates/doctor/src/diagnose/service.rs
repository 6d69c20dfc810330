//! A Service of the control plane: TCP, TLS by its name, its certificate, its answer.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use jiff::Timestamp;

use crate::client::tls::{Answer, CertificateFault};
use crate::diagnosis::{
    API_ANSWER, CERTIFICATE_BROKEN, CERTIFICATE_EXPIRED, CERTIFICATE_ISSUER, CERTIFICATE_NAMES,
    CERTIFICATE_NOT_YET_VALID, CLOCK_WRONG, IGNITION_ANSWER, NO_ROUTE, TCP_REFUSED, TCP_SILENT, TLS_BROKEN,
    TLS_RESET, TLS_SILENT,
};
use crate::expected::{Role, Service};
use crate::report::{Check, Finding};

/// Clocks may differ by so much.
const TOLERANCE: Duration = Duration::from_secs(120);

/// How far a connection came.
#[derive(Debug)]
pub enum Seen {
    /// No connection.
    NoConnection(Failure),
    /// A connection, and no TLS on it.
    NoTls(Failure),
    /// TLS.
    Tls {
        /// What is wrong with the certificate.
        faults: Vec<CertificateFault>,
        /// What was answered to a request, where one is made.
        answer: Option<Result<Answer, Failure>>,
    },
}

/// Why something did not come about.
#[derive(Debug)]
pub enum Failure {
    /// Nothing came in time.
    Slow(Duration),
    /// The kernel, or the other side, said no.
    Io(io::Error),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Slow(time) => write!(f, "nothing came within {time:?}"),
            Failure::Io(error) => error.fmt(f),
        }
    }
}

/// What is wrong with one Service, as a node sees it through one gateway.
pub fn diagnose(
    service: &Service,
    gateway: Ipv4Addr,
    seen: &Seen,
    has_authority: bool,
    now: Timestamp,
) -> Check {
    let Service { name, port, role } = service;
    let place = format!("{name}:{port} by {gateway}");
    let check = |detail: &str, findings| Check::new(&place, detail, findings);
    let one = |diagnosis, why: &dyn ToString| {
        check(
            "",
            vec![Finding::new(diagnosis, format!("{place}: {}", why.to_string()))],
        )
    };
    let (faults, answer) = match seen {
        Seen::NoConnection(failure) => {
            let diagnosis = match failure {
                Failure::Slow(_) => &TCP_SILENT,
                Failure::Io(error) => match error.kind() {
                    io::ErrorKind::ConnectionRefused => &TCP_REFUSED,
                    io::ErrorKind::NetworkUnreachable => &NO_ROUTE,
                    _ => &TCP_SILENT,
                },
            };
            return one(diagnosis, failure);
        }
        Seen::NoTls(failure) => {
            let diagnosis = match failure {
                Failure::Slow(_) => &TLS_SILENT,
                Failure::Io(error) => match error.kind() {
                    io::ErrorKind::ConnectionReset
                    | io::ErrorKind::UnexpectedEof
                    | io::ErrorKind::BrokenPipe => &TLS_RESET,
                    _ => &TLS_BROKEN,
                },
            };
            return one(diagnosis, failure);
        }
        Seen::Tls { faults, answer } => (faults, answer),
    };
    let mut findings = Vec::new();
    let theirs = answer
        .as_ref()
        .and_then(|answer| answer.as_ref().ok())
        .and_then(|answer| answer.date);
    let skew = theirs.map(|theirs| now.duration_since(theirs));
    let off = skew.filter(|skew| skew.unsigned_abs() > TOLERANCE);
    if let Some(skew) = off {
        let (seconds, side) = (
            skew.unsigned_abs().as_secs(),
            if skew.is_negative() { "behind" } else { "ahead of" },
        );
        let detail = format!("this machine's clock is {seconds} s {side} that of {name}");
        findings.push(Finding::new(&CLOCK_WRONG, detail));
    }
    for fault in faults {
        let (diagnosis, detail) = match fault {
            // What the other clock finds valid is the clock's fault, and that was said.
            CertificateFault::Expired { since: Some(since) } if off.is_some() && theirs < Some(*since) => {
                continue;
            }
            CertificateFault::NotYetValid { from: Some(from) } if off.is_some() && theirs >= Some(*from) => {
                continue;
            }
            CertificateFault::Issuer if !has_authority => continue,
            CertificateFault::Expired { since } => {
                (&CERTIFICATE_EXPIRED, format!("over since {}", moment(*since)))
            }
            CertificateFault::NotYetValid { from } => (
                &CERTIFICATE_NOT_YET_VALID,
                format!("valid from {} on", moment(*from)),
            ),
            CertificateFault::Names { presented } => (
                &CERTIFICATE_NAMES,
                format!("it is for {}", super::list(presented)),
            ),
            CertificateFault::Issuer => (&CERTIFICATE_ISSUER, "unknown issuer".to_owned()),
            CertificateFault::Other(why) => (&CERTIFICATE_BROKEN, why.clone()),
        };
        findings.push(Finding::new(diagnosis, format!("{place}: {detail}")));
    }
    let mut detail = if has_authority {
        "certificate verified"
    } else {
        "certificate is for this name and valid now"
    }
    .to_owned();
    if let Some(answer) = answer {
        let diagnosis = if *role == Role::Ignition {
            &IGNITION_ANSWER
        } else {
            &API_ANSWER
        };
        match answer {
            Err(failure) => findings.push(Finding::new(diagnosis, format!("{place}: {failure}"))),
            // Without a token both say that one is needed, which only they do.
            Ok(answer) if matches!(answer.status, 200..=299 | 401 | 403) => {
                detail = format!("{detail}, answers {}", answer.status);
            }
            Ok(answer) => findings.push(Finding::new(
                diagnosis,
                format!("{place}: answers {}", answer.status),
            )),
        }
    }
    check(&detail, findings)
}

fn moment(at: Option<Timestamp>) -> String {
    at.map_or_else(|| "an unknown moment".into(), |at| at.to_string())
}
