//! Tells the stations of a network which hardware address an address has now.
//!
//! A pod that takes the place of another has its address, and another hardware address. Stations that spoke to the old
//! one go on sending to it for half a minute. Whoever asks for a neighbour tells all that hear it its own addresses, and
//! they correct what they know (RFC 826). So an empty datagram to a neighbour that is not known yet is enough; unlike a
//! packet of one's own making it needs no capability.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::sleep;

/// When it is said again: one may be lost, and a station may just have been told otherwise.
const AGAIN: [Duration; 3] = [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(3)];
/// Nobody listens there.
const DISCARD: u16 = 9;

/// Announces those of the addresses that this host has.
pub async fn announce(addresses: Vec<IpAddr>) {
    for (count, wait) in (1..).zip(AGAIN) {
        sleep(wait).await;
        for address in &addresses {
            if let IpAddr::V4(address) = address {
                // Another replica has this address, or the network is just going: there is nothing to announce.
                let _ = ask(*address, count).await;
            }
        }
    }
}

/// Has the kernel ask for a neighbour. Each time another: it asks for none that it knows.
async fn ask(address: Ipv4Addr, count: u32) -> std::io::Result<()> {
    let socket = UdpSocket::bind((address, 0)).await?;
    socket.send_to(&[], (neighbour(address, count), DISCARD)).await?;
    Ok(())
}

/// An address of the same network, of any size down to four addresses.
fn neighbour(address: Ipv4Addr, count: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(address) ^ count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_is_another_address_of_even_a_small_network() {
        let address = Ipv4Addr::new(192, 0, 2, 5);
        let asked: Vec<Ipv4Addr> = (1..)
            .zip(AGAIN)
            .map(|(count, _)| neighbour(address, count))
            .collect();
        assert_eq!(asked, [4, 7, 6].map(|last| Ipv4Addr::new(192, 0, 2, last)));
    }
}
