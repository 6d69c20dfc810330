//! Leases that several DHCP servers share, as `DHCPLease` resources.
//!
//! One object an address: its creation is the lock, so the API server itself makes it impossible to give an address
//! twice. A change is a replacement of the very version that was seen; whoever loses reads again and decides anew.
//! A watch tells each server what the others stored.
//!
//! While the API server is away, a client that has an address keeps it: its renewal is put aside and written when the
//! API server is back. Nothing else is stored. A renewal that meets another client's record then has lost: the server
//! hears of that record and refuses the next renewal.

pub(crate) mod record;
mod store;
mod table;
mod writer;

use std::net::Ipv4Addr;

use kube::api::ListParams;
use kube::{Api, Client};
use oooi_api::dhcp_server::LeaseStorage;
use oooi_api::{DhcpLease, DhcpServer};
use oooi_dhcp::lease::Lease;
use oooi_dhcp::time::Timestamp;

pub use store::ClusterStore;
use writer::{Failure, Writer, Written};

/// Why leases cannot be shown or freed.
#[derive(Debug, thiserror::Error)]
pub enum LeasesError {
    /// There is no such server.
    #[error("there is no DHCPServer {server} in {namespace}: `kubectl get dhcpservers -A` shows all of them")]
    NoServer {
        /// The namespace.
        namespace: String,
        /// The DHCPServer.
        server: String,
    },
    /// Its leases are no resources.
    #[error(
        "{server} keeps its leases on a volume of its own (leaseConfig.storage is Embedded): \
         `kubectl exec -n {namespace} deploy/{server} -- /oooi leases` shows them"
    )]
    Embedded {
        /// The namespace.
        namespace: String,
        /// The DHCPServer.
        server: String,
    },
    /// The API server refused or does not answer.
    #[error("the leases of {server} cannot be read: {why}")]
    Read {
        /// The DHCPServer.
        server: String,
        /// What the API server said.
        why: String,
    },
    /// The record could not be changed.
    #[error("{address} cannot be freed: {why}")]
    Write {
        /// The address.
        address: Ipv4Addr,
        /// What the API server said.
        why: String,
    },
}

/// Whether the leases of a DHCPServer are resources; if not, why there are none to be seen.
pub async fn are_shared(client: Client, namespace: &str, server: &str) -> Result<(), LeasesError> {
    let api: Api<DhcpServer> = Api::namespaced(client, namespace);
    let found = api.get_opt(server).await.map_err(|error| LeasesError::Read {
        server: server.to_owned(),
        why: said(error),
    })?;
    let (namespace, server) = (namespace.to_owned(), server.to_owned());
    match found.map(|found| found.spec.lease_config.storage.unwrap_or_default()) {
        Some(LeaseStorage::Kubernetes) => Ok(()),
        Some(LeaseStorage::Embedded) => Err(LeasesError::Embedded { namespace, server }),
        None => Err(LeasesError::NoServer { namespace, server }),
    }
}

/// What the API server said, or why it said nothing.
fn said(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}

/// Every lease of a DHCP server, by address.
pub async fn list(client: Client, namespace: &str, server: &str) -> Result<Vec<Lease>, LeasesError> {
    let api: Api<DhcpLease> = Api::namespaced(client, namespace);
    let of_server = ListParams::default().fields(&format!("spec.server={server}"));
    let listed = api.list(&of_server).await.map_err(|error| LeasesError::Read {
        server: server.to_owned(),
        why: said(error),
    })?;
    let mut leases: Vec<Lease> = listed.items.iter().filter_map(record::read).collect();
    leases.sort_by_key(|lease| lease.address);
    Ok(leases)
}

/// Frees an address; running servers hear of it by their watch. False if nobody had it.
pub async fn release(
    client: Client,
    namespace: &str,
    server: &str,
    address: Ipv4Addr,
    now: Timestamp,
) -> Result<bool, LeasesError> {
    let writer = Writer::new(client, namespace, server, None);
    let failed = |failure: Failure| LeasesError::Write {
        address,
        why: failure.to_string(),
    };
    let held = writer.read(address).await.map_err(failed)?;
    let Some(held) = held.filter(|known| known.lease.is_live(now)) else {
        return Ok(false);
    };
    let released = held.lease.released(now.max(held.lease.since));
    match writer.write(Some(held), &released).await.map_err(failed)? {
        Written::Stored(_) => Ok(true),
        Written::Taken(_) => Ok(false),
    }
}
