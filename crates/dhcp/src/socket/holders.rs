//! Who has an address already, asked by ARP before it is put on an interface.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, timeout_at};

use super::many::{self, Inbox, Outbox};
use super::{Raw, SocketError, interface, is_passing};
use crate::frame::{self, Heard};
use crate::mac::Mac;

/// How often is asked: a packet may be lost, and the neighbour may sleep.
const PROBES: u32 = 3;
/// How long is waited after each. On one link an answer takes milliseconds.
const WAIT: Duration = Duration::from_millis(150);

/// Which stations on an interface have any of these addresses. Must be called inside a tokio runtime.
///
/// Nobody is heard through an interface that is down.
pub async fn holders(
    interface: &str,
    addresses: &[Ipv4Addr],
) -> Result<BTreeMap<Ipv4Addr, Mac>, SocketError> {
    let mut found = BTreeMap::new();
    if addresses.is_empty() {
        return Ok(found);
    }
    let index = interface::index(interface).map_err(|source| SocketError::Interface {
        interface: interface.into(),
        source,
    })?;
    interface::take_up_net_raw();
    let refused = |source| SocketError::Packet {
        interface: interface.into(),
        source,
    };
    let packet = interface::packet_socket(index)
        .and_then(interface::watched)
        .map_err(refused)?;
    let mac = interface::mac(packet.get_ref()).ok_or_else(|| SocketError::NotEthernet(interface.into()))?;
    let mut inbox = Inbox::default();
    for _ in 0..PROBES {
        let mut probes = Outbox::default();
        for address in addresses.iter().filter(|address| !found.contains_key(*address)) {
            probes.frame(|bytes| frame::probe(bytes, mac, *address));
        }
        // What the system does not take is as good as lost.
        probes.flush(packet.get_ref(), packet.get_ref());
        let until = Instant::now() + WAIT;
        while let Ok(heard) = timeout_at(until, receive(&packet, &mut inbox)).await {
            heard.map_err(refused)?;
            let said = inbox.packets().filter_map(|(bytes, _)| frame::hear(bytes.ok()?));
            found.extend(said.filter_map(|heard| match heard {
                Heard::Has(address, mac) if addresses.contains(&address) => Some((address, mac)),
                _ => None,
            }));
        }
        if found.len() == addresses.len() {
            break;
        }
    }
    Ok(found)
}

async fn receive(packet: &AsyncFd<Raw>, inbox: &mut Inbox) -> std::io::Result<()> {
    loop {
        let mut guard = packet.readable().await?;
        match guard.try_io(|fd| many::receive(fd.get_ref(), inbox)) {
            Ok(Err(error)) if is_passing(&error) => {}
            Ok(received) => return received,
            Err(_would_block) => {}
        }
    }
}
