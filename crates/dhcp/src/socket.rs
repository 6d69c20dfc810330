//! The two sockets of the server on one interface.
//!
//! Requests come in by UDP port 67, bound to the interface: the kernel reassembles and checks them. A packet
//! socket sends to clients that have no address yet, asks by ARP, and hears what other servers answer; a filter
//! in the kernel lets nothing else through. Both receive and send many packets by one system call.

mod holders;
mod interface;
mod many;

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use socket2::{Domain, Protocol, Socket as Raw, Type};
use tokio::io::unix::AsyncFd;

use crate::frame;
use crate::mac::Mac;
use crate::reply::Destination;
use crate::respond::Arrival;
pub use holders::holders;
pub use many::{Inbox, Outbox};

/// The port of DHCP servers and relays.
const SERVER_PORT: u16 = 67;
/// The port of DHCP clients.
const CLIENT_PORT: u16 = 68;

/// Why the sockets cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The interface is not there.
    #[error("there is no interface {interface}: {source}; `ip link` lists those that are there")]
    Interface {
        /// Its name.
        interface: String,
        /// What the system said.
        source: io::Error,
    },
    /// It is no Ethernet interface.
    #[error("{0} is not an Ethernet interface: DHCP is served on Ethernet only")]
    NotEthernet(String),
    /// The UDP socket was refused.
    #[error("cannot listen on UDP port 67 of {interface}: {source}{}", hint(.source))]
    Udp {
        /// The interface.
        interface: String,
        /// What the system said.
        source: io::Error,
    },
    /// The packet socket was refused.
    #[error("cannot open a packet socket on {interface}: {source}{}", hint(.source))]
    Packet {
        /// The interface.
        interface: String,
        /// What the system said.
        source: io::Error,
    },
}

fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            " (the server needs CAP_NET_RAW and CAP_NET_BIND_SERVICE, or root)"
        }
        io::ErrorKind::AddrInUse => " (another DHCP server runs on this host)",
        _ => "",
    }
}

/// The sockets of one server.
#[derive(Debug)]
pub struct Socket {
    interface: String,
    udp: AsyncFd<Raw>,
    packet: AsyncFd<Raw>,
    mac: Mac,
}

/// Which socket has something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// Requests.
    Requests,
    /// Frames of other stations.
    Frames,
}

impl Socket {
    /// Opens the sockets on an interface. Must be called inside a tokio runtime.
    pub fn open(interface: &str) -> Result<Self, SocketError> {
        let no_interface = |source| SocketError::Interface {
            interface: interface.into(),
            source,
        };
        let index = interface::index(interface).map_err(no_interface)?;
        interface::take_up_net_raw();
        let udp = udp(interface).and_then(interface::watched);
        let udp = udp.map_err(|source| SocketError::Udp {
            interface: interface.into(),
            source,
        })?;
        let packet = interface::packet_socket(index).and_then(interface::watched);
        let packet = packet.map_err(|source| SocketError::Packet {
            interface: interface.into(),
            source,
        })?;
        let mac =
            interface::mac(packet.get_ref()).ok_or_else(|| SocketError::NotEthernet(interface.into()))?;
        Ok(Socket {
            interface: interface.into(),
            udp,
            packet,
            mac,
        })
    }

    /// The interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The interface's hardware address.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// The interface's addresses at this moment.
    pub fn addresses(&self) -> io::Result<Vec<Ipv4Addr>> {
        interface::addresses(&self.interface)
    }

    /// Waits until a socket has something, and receives it: requests into `requests`, frames into `frames`.
    pub async fn receive(&self, requests: &mut Inbox, frames: &mut Inbox) -> io::Result<Ready> {
        loop {
            let (ready, mut guard, inbox) = tokio::select! {
                biased;
                guard = self.udp.readable() => (Ready::Requests, guard?, &mut *requests),
                guard = self.packet.readable() => (Ready::Frames, guard?, &mut *frames),
            };
            match guard.try_io(|fd| many::receive(fd.get_ref(), inbox)) {
                Ok(Ok(())) => {
                    if !inbox.is_full() {
                        // The queue is empty, so the call that would say so is spared.
                        guard.clear_ready();
                    }
                    return Ok(ready);
                }
                // The interface went down, or an earlier answer was unreachable: neither stops the server.
                Ok(Err(error)) if is_passing(&error) => {}
                Ok(Err(error)) => return Err(error),
                Err(_would_block) => {}
            }
        }
    }

    /// Receives further requests after a full batch of them, without waiting. False if there is none.
    pub fn receive_more(&self, requests: &mut Inbox) -> io::Result<bool> {
        if !requests.is_full() {
            return Ok(false);
        }
        match many::receive(self.udp.get_ref(), requests) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock || is_passing(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Queues an answer.
    pub fn answer(&self, out: &mut Outbox, server: Ipv4Addr, to: Destination, message: &[u8]) {
        let mut by_frame = |mac, address| {
            out.frame(|bytes| frame::answer(bytes, (self.mac, server), (mac, address), message));
        };
        match to {
            Destination::Relay(relay) => out.datagram(server, SocketAddrV4::new(relay, SERVER_PORT), message),
            Destination::Address(client) => {
                out.datagram(server, SocketAddrV4::new(client, CLIENT_PORT), message);
            }
            Destination::Hardware(mac, address) => by_frame(mac, address),
            Destination::Broadcast => by_frame(Mac::BROADCAST, Ipv4Addr::BROADCAST),
        }
    }

    /// Queues an ARP probe.
    pub fn probe(&self, out: &mut Outbox, address: Ipv4Addr) {
        // A bridge or bond may have got another hardware address since, and the answer comes to the present one.
        let mac = interface::mac(self.packet.get_ref()).unwrap_or(self.mac);
        out.frame(|bytes| frame::probe(bytes, mac, address));
    }

    /// Sends what is queued and empties the queue. Returns how many packets the system did not take: the network
    /// may lose packets anyway, and clients ask again.
    pub fn send(&self, out: &mut Outbox) -> usize {
        out.flush(self.udp.get_ref(), self.packet.get_ref())
    }
}

fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, Interrupted, NetworkDown, NetworkUnreachable};
    matches!(
        error.kind(),
        ConnectionRefused | HostUnreachable | Interrupted | NetworkDown | NetworkUnreachable
    )
}

fn udp(interface: &str) -> io::Result<Raw> {
    let socket = Raw::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.set_broadcast(true)?;
    // A rack that powers up asks all at once.
    socket.set_recv_buffer_size(4 << 20)?;
    interface::want_destination(&socket)?;
    socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, SERVER_PORT).into())?;
    Ok(socket)
}

/// How a message arrived, by the address that it was sent to.
fn arrival(destination: Option<Ipv4Addr>) -> Arrival {
    match destination {
        // The directed broadcast of the network is not told apart: relays and clients do not use it.
        Some(address) if !address.is_broadcast() => Arrival::Unicast,
        _ => Arrival::Broadcast,
    }
}
