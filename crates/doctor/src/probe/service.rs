//! Connects to every Service of the control plane as a node does.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;
use rustls::RootCertStore;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Error;
use super::dns::Resolved;
use crate::client::tls::{Answer, Examiner, get, handshake};
use crate::diagnose::service::{Failure, Seen, diagnose};
use crate::expected::{Expected, Role, Service};
use crate::report::Check;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(3);
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(5);

/// Looks at all of them at once.
pub(super) async fn look(
    expected: &Expected,
    resolved: &Resolved,
    authority: Option<RootCertStore>,
    now: Timestamp,
) -> Result<Check, Error> {
    let mut checks = Vec::new();
    let mut looks = Vec::new();
    for service in &expected.services {
        // A node goes where the name leads; where it leads nowhere, the gateway may still be well.
        let addresses = resolved.get(&service.name).unwrap_or(&expected.gateways);
        if addresses.is_empty() {
            checks.push(Check::skipped(
                format!("{}:{}", service.name, service.port),
                "its name does not resolve",
            ));
        }
        looks.extend(addresses.iter().map(|address| (service, *address)));
    }
    if looks.is_empty() && checks.is_empty() {
        return Ok(Check::skipped(
            "services",
            "nothing says which names the control plane has: name the Infra",
        ));
    }
    let has_authority = authority.is_some();
    let roots = authority.unwrap_or_else(RootCertStore::empty);
    let looked = join_all(looks.into_iter().map(async |(service, address)| {
        let seen = connect(service, address, roots.clone()).await?;
        Ok::<_, Error>(diagnose(service, address, &seen, has_authority, now))
    }));
    for check in looked.await {
        checks.push(check?);
    }
    Ok(Check::of("services", "", checks))
}

async fn connect(service: &Service, address: Ipv4Addr, roots: RootCertStore) -> Result<Seen, Error> {
    let address = SocketAddr::from((address, service.port));
    let stream = match within(CONNECT, TcpStream::connect(address)).await {
        Ok(stream) => stream,
        Err(failure) => return Ok(Seen::NoConnection(failure)),
    };
    let examiner = Examiner::new(roots);
    let mut stream = match within(ANSWER, handshake(examiner.client()?, stream, &service.name)).await {
        Ok(stream) => stream,
        Err(failure) => return Ok(Seen::NoTls(failure)),
    };
    let path = match service.role {
        Role::Api => Some("/version"),
        Role::Ignition => Some("/ignition"),
        Role::Other => None,
    };
    let answer: Option<Result<Answer, Failure>> = match path {
        Some(path) => Some(within(ANSWER, get(&mut stream, &service.name, path)).await),
        None => None,
    };
    Ok(Seen::Tls {
        faults: examiner.faults(),
        answer,
    })
}

async fn within<T>(time: Duration, work: impl Future<Output = std::io::Result<T>>) -> Result<T, Failure> {
    match timeout(time, work).await {
        Ok(outcome) => outcome.map_err(Failure::Io),
        Err(_) => Err(Failure::Slow(time)),
    }
}
