//! Addresses that belong to one client each.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::Ipv4Net;
use oooi_api::dhcp_server::Reservation as Spec;

use super::{Mistakes, option_value, read_address};
use crate::mac::Mac;

/// An address that belongs to one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The address.
    pub address: Ipv4Addr,
    /// The host name that the client gets.
    pub host_name: Option<Arc<str>>,
}

/// Reservations by client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservations {
    by_mac: HashMap<Mac, Reservation>,
    by_id: HashMap<Vec<u8>, Reservation>,
    /// Whose address it is, as the manifest writes it.
    by_address: HashMap<Ipv4Addr, String>,
}

impl Reservations {
    /// The reservation of a client: by its identifier, which is the more exact name, or by its hardware address.
    pub fn of(&self, mac: Mac, id: &[u8]) -> Option<&Reservation> {
        self.by_id.get(id).or_else(|| self.by_mac.get(&mac))
    }

    /// Whether an address belongs to some client.
    pub fn is_reserved(&self, address: Ipv4Addr) -> bool {
        self.by_address.contains_key(&address)
    }

    /// Every reserved address.
    pub fn addresses(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.by_address.keys().copied()
    }

    pub(super) fn read(
        list: &[Spec],
        network: Option<Ipv4Net>,
        taken: &[Ipv4Addr],
        mistakes: &mut Mistakes,
    ) -> Self {
        let mut all = Reservations::default();
        for (
            at,
            Spec {
                mac,
                client_id,
                address,
                hostname,
            },
        ) in list.iter().enumerate()
        {
            let path = format!("leaseConfig.reservations[{at}]");
            let address_path = format!("{path}.address");
            let Some(address) = mistakes.take(&address_path, read_address(address)) else {
                continue;
            };
            if let Some(network) = network {
                mistakes.inside(&address_path, network, address);
            }
            if taken.contains(&address) {
                mistakes.add(
                    &address_path,
                    format!("{address} is a server's or the gateway's: choose another"),
                );
            }
            let reservation = Reservation {
                address,
                host_name: hostname.as_deref().map(Arc::from),
            };
            let whose = mac
                .as_deref()
                .or(client_id.as_deref())
                .unwrap_or_default()
                .to_owned();
            if let Some(other) = all.by_address.insert(address, whose) {
                mistakes.add(
                    &address_path,
                    format!("{address} already belongs to {other}: choose another"),
                );
            }
            let earlier = match (mac, client_id) {
                (Some(mac), None) => {
                    let read = mac.parse().map_err(|error: crate::mac::BadMac| error.to_string());
                    let Some(mac) = mistakes.take(&format!("{path}.mac"), read) else {
                        continue;
                    };
                    all.by_mac.insert(mac, reservation)
                }
                (None, Some(id)) => {
                    let read = option_value::hex(id).and_then(|id| match id.len() {
                        2..=255 => Ok(id),
                        length => Err(format!("a client identifier has 2 to 255 bytes, not {length}")),
                    });
                    let Some(id) = mistakes.take(&format!("{path}.clientId"), read) else {
                        continue;
                    };
                    all.by_id.insert(id, reservation)
                }
                _ => {
                    mistakes.add(&path, "name the client either by mac or by clientId".into());
                    None
                }
            };
            if let Some(earlier) = earlier {
                mistakes.add(
                    &path,
                    format!(
                        "this client already has {}: one address a client",
                        earlier.address
                    ),
                );
            }
        }
        all
    }
}
