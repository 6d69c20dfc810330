//! ICMP echo of a given size that must not be fragmented: what does not fit is lost, or refused by the kernel.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, set_ip_mtu_discover};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// How long an answer may take on one VLAN.
const WAIT: Duration = Duration::from_millis(400);
/// What IP and ICMP take of a packet.
const HEADERS: u16 = 28;
const REQUEST: u8 = 8;
const REPLY: u8 = 0;

/// A socket that pings one address.
pub struct Echo {
    socket: UdpSocket,
    address: Ipv4Addr,
    /// A raw socket also sees the headers of IP, and everybody's answers.
    raw: bool,
    identifier: u16,
    sequence: u16,
}

impl Echo {
    /// A socket for an address. Anybody may where `net.ipv4.ping_group_range` says so, else CAP_NET_RAW is needed.
    pub fn new(address: Ipv4Addr) -> io::Result<Self> {
        let protocol = Some(Protocol::ICMPV4);
        let (socket, raw) = match Socket::new(Domain::IPV4, Type::DGRAM, protocol) {
            Ok(socket) => (socket, false),
            Err(_) => (Socket::new(Domain::IPV4, Type::RAW, protocol)?, true),
        };
        socket.set_nonblocking(true)?;
        // Probe: never fragment, and do not believe what was learned about the path.
        set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?;
        socket.connect(&SocketAddrV4::new(address, 0).into())?;
        let seed = getrandom::u32()
            .map_err(|error| io::Error::other(error.to_string()))?
            .to_be_bytes();
        Ok(Echo {
            // The calls are those of a datagram socket, whatever the datagrams are.
            socket: UdpSocket::from_std(socket.into())?,
            address,
            raw,
            identifier: u16::from_be_bytes([seed[0], seed[1]]),
            sequence: 0,
        })
    }

    /// Who is pinged.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Whether a packet of this size, headers of IP included, comes back. Asked twice.
    pub async fn fits(&mut self, size: u16) -> io::Result<bool> {
        for _ in 0..2 {
            self.sequence = self.sequence.wrapping_add(1);
            let packet = self.request(size);
            match self.socket.send(&packet).await {
                // Larger than the interface takes.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::MSGSIZE) => return Ok(false),
                Err(error) if is_unreachable(&error) => return Ok(false),
                sent => sent?,
            };
            match timeout(WAIT, self.answer()).await {
                Ok(Err(error)) if is_unreachable(&error) => return Ok(false),
                Ok(answered) => return answered.map(|()| true),
                Err(_) => {}
            }
        }
        Ok(false)
    }

    fn request(&self, size: u16) -> Vec<u8> {
        let mut packet = vec![0; usize::from(size.max(HEADERS) - HEADERS) + 8];
        let header = [
            &[REQUEST, 0, 0, 0][..],
            &self.identifier.to_be_bytes(),
            &self.sequence.to_be_bytes(),
        ]
        .concat();
        packet[..8].copy_from_slice(&header);
        let sum = checksum(&packet).to_be_bytes();
        packet[2..4].copy_from_slice(&sum);
        packet
    }

    /// Waits for the answer to the last request.
    async fn answer(&self) -> io::Result<()> {
        let mut buffer = vec![0; 65_536];
        loop {
            let length = self.socket.recv(&mut buffer).await?;
            let packet = buffer.get(..length).unwrap_or_default();
            let message = if self.raw {
                let header = packet.first().map_or(0, |first| usize::from(first & 15) * 4);
                packet.get(header..).unwrap_or_default()
            } else {
                packet
            };
            let ours = message.first() == Some(&REPLY)
                && message.get(6..8) == Some(&self.sequence.to_be_bytes())
                // The kernel gives other sockets an identifier of its own, and hands them their own answers alone.
                && (!self.raw || message.get(4..6) == Some(&self.identifier.to_be_bytes()));
            if ours {
                return Ok(());
            }
        }
    }
}

fn is_unreachable(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable | io::ErrorKind::ConnectionRefused
    )
}

/// The Internet checksum (RFC 1071).
fn checksum(packet: &[u8]) -> u16 {
    let sum: u32 = packet
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or_default()))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) as u16 + (folded >> 16) as u16)
}
