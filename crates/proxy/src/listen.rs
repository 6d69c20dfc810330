//! Opens the sockets that are listened on, one a thread for each address and port (SO_REUSEPORT).

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};

use crate::config::Transport;
use crate::connect::keepalive;

/// Connections that the kernel holds until they are accepted.
const BACKLOG: i32 = 4096;

/// A listening socket, not yet with a thread.
pub(crate) fn open(address: SocketAddr, transport: Transport) -> io::Result<Socket> {
    let (kind, protocol) = match transport {
        Transport::Tcp => (Type::STREAM, Protocol::TCP),
        Transport::Udp => (Type::DGRAM, Protocol::UDP),
    };
    let socket = Socket::new(
        Domain::for_address(address),
        kind.nonblocking().cloexec(),
        Some(protocol),
    )?;
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if transport == Transport::Tcp {
        socket.set_reuse_address(true)?;
        // Accepted sockets inherit these: no system call for each connection.
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_keepalive(&keepalive())?;
    }
    socket.bind(&address.into())?;
    if transport == Transport::Tcp {
        socket.listen(BACKLOG)?;
    }
    Ok(socket)
}
