//! The servers' addresses on the interface: put there as the manifest asks for them, taken away at the end.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use oooi_dhcp::mac::Mac;
use oooi_dhcp::socket::{SocketError, holders};
use oooi_net::Network;
use tracing::{info, warn};

/// Why the servers have no addresses.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another station has one.
    #[error(
        "{address} is used on {interface} already, by {mac}: give that station another address, or change the one in the manifest"
    )]
    Taken {
        /// The address.
        address: Ipv4Addr,
        /// Where it was to be put.
        interface: String,
        /// Who has it.
        mac: Mac,
    },
    /// Addresses may not be added.
    #[error(
        "the servers' addresses are not on the interface, and adding them needs CAP_NET_ADMIN: {}",
        .commands.join("; ")
    )]
    NotAllowed {
        /// What adds them.
        commands: Vec<String>,
    },
    /// The network cannot be looked at or changed.
    #[error(transparent)]
    Network(#[from] oooi_net::Error),
}

/// The addresses that were put on an interface.
#[derive(Debug)]
pub struct Addresses {
    interface: String,
    added: Vec<Ipv4Net>,
}

impl Addresses {
    /// None yet.
    pub fn on(interface: &str) -> Self {
        Addresses {
            interface: interface.to_owned(),
            added: Vec::new(),
        }
    }

    /// Puts on the interface what is wanted and missing, and takes away what was added and is wanted no more. An
    /// address that another station has is left to it.
    pub async fn have(&mut self, wanted: &[Ipv4Net]) -> Result<(), Error> {
        let network = Network::open()?;
        let there = network.addresses(&self.interface).await?;
        let is_there = |address: &Ipv4Addr| there.iter().any(|net| net.addr() == *address);
        let missing: Vec<Ipv4Net> = wanted
            .iter()
            .filter(|net| !is_there(&net.addr()))
            .copied()
            .collect();
        self.must_be_free(&missing).await?;
        for address in &missing {
            match network.add_address(&self.interface, *address).await {
                Ok(()) => self.added.push(*address),
                Err(error) if error.is_there_already() => {}
                Err(error) if error.is_permission() => {
                    let add = |net: &Ipv4Net| format!("ip address add {net} dev {}", self.interface);
                    let commands = missing.iter().map(add).collect();
                    return Err(Error::NotAllowed { commands });
                }
                Err(error) => return Err(error.into()),
            }
        }
        let (kept, over) = self.added.iter().partition(|net| wanted.contains(net));
        self.added = kept;
        self.take_away(&network, over).await;
        Ok(())
    }

    /// Takes away all that was added.
    pub async fn remove(self) {
        match Network::open() {
            Ok(network) => self.take_away(&network, self.added.clone()).await,
            Err(error) => warn!(%error, "the addresses stay on the interface"),
        }
    }

    /// Two stations with one address would take each other's packets.
    async fn must_be_free(&self, addresses: &[Ipv4Net]) -> Result<(), Error> {
        let asked: Vec<Ipv4Addr> = addresses.iter().map(Ipv4Net::addr).collect();
        match holders(&self.interface, &asked).await {
            Ok(found) => match found.into_iter().next() {
                Some((address, mac)) => Err(Error::Taken {
                    address,
                    interface: self.interface.clone(),
                    mac,
                }),
                None => Ok(()),
            },
            // No Ethernet, no neighbours.
            Err(SocketError::NotEthernet(_)) => Ok(()),
            Err(error) => {
                info!(%error, "nobody was asked whether the servers' addresses are free");
                Ok(())
            }
        }
    }

    async fn take_away(&self, network: &Network, addresses: Vec<Ipv4Net>) {
        for address in addresses {
            if let Err(error) = network.remove_address(&self.interface, address.addr()).await {
                warn!(%address, interface = self.interface, %error, "the address stays on the interface");
            }
        }
    }
}
