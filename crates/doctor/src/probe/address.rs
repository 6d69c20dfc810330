//! An address to look from: the one that is there, or a lease for as long as the look takes.

use std::fmt;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use oooi_net::Network;

use crate::client::dhcp::{Client, Lease, Offer};
use crate::diagnosis::{ADDRESS_MISSING, DHCP_REFUSED};
use crate::report::Finding;

/// An address.
pub(super) enum Address {
    /// It was there.
    Own(Ipv4Net),
    /// It was leased for the look.
    Leased(Lease),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Own(net) => write!(f, "{net}, as it was"),
            Address::Leased(lease) => write!(f, "{}/{}, leased for this look", lease.address, lease.prefix),
        }
    }
}

impl Address {
    /// Takes what is there, else an offer.
    pub(super) async fn have(
        network: &Network,
        interface: &str,
        there: &[Ipv4Net],
        client: &mut Client,
        offer: Option<&Offer>,
    ) -> Result<Self, Finding> {
        if let Some(own) = there.iter().find(|net| !net.addr().is_link_local()) {
            return Ok(Address::Own(*own));
        }
        let missing = |why: String| Finding::new(&ADDRESS_MISSING, why);
        let offer =
            offer.ok_or_else(|| missing(format!("{interface} has no address, and none is offered")))?;
        let server = super::diagnose::dhcp::server(offer);
        let lease = client.take(offer.address, server).await.map_err(|error| {
            Finding::new(
                &DHCP_REFUSED,
                format!("{server} offers {}: {error}", offer.address),
            )
        })?;
        let address = Address::Leased(lease.clone());
        if let Err(error) = put(network, interface, &lease).await {
            address.give_back(network, interface, client).await;
            return Err(missing(format!(
                "{} was leased but cannot be put on {interface}: {error} (it needs root or CAP_NET_ADMIN)",
                lease.address
            )));
        }
        Ok(address)
    }

    /// Leaves everything as it was. What cannot be given back runs out by itself.
    pub(super) async fn give_back(&self, network: &Network, interface: &str, client: &mut Client) {
        if let Address::Leased(lease) = self {
            let _ = client.release(lease).await;
            let _ = network.remove_address(interface, lease.address).await;
        }
    }
}

async fn put(network: &Network, interface: &str, lease: &Lease) -> Result<(), oooi_net::Error> {
    let net = Ipv4Net::new(lease.address, lease.prefix).unwrap_or_else(|_| Ipv4Net::from(lease.address));
    network.add_address(interface, net).await?;
    let Some(router) = lease.router else { return Ok(()) };
    // The route goes with the address. A router that is not on the network is what DHCP's own check says.
    match network
        .add_route(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0), router)
        .await
    {
        Err(error) if error.is_permission() => Err(error),
        _ => Ok(()),
    }
}
