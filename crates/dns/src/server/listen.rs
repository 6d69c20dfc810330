//! Binding the sockets.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};

/// Why an address cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// `0.0.0.0` and `::` do not say which view is asked.
    #[error(
        "cannot listen on {0}: name an address of this host, since the view depends on the address asked"
    )]
    Unspecified(SocketAddr),
    /// The system refused.
    #[error("cannot listen on {protocol} {address}{}", hint(.source))]
    Bind {
        /// UDP or TCP.
        protocol: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// None of the addresses is one of this host.
    #[error("none of the addresses {0:?} is an address of this host; name one by --listen")]
    Nothing(Vec<SocketAddr>),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            ": ports below 1024 need net.ipv4.ip_unprivileged_port_start=0 or CAP_NET_BIND_SERVICE"
        }
        io::ErrorKind::AddrInUse => ": another server has it",
        io::ErrorKind::AddrNotAvailable => ": it is not an address of this host",
        _ => "",
    }
}

/// Bound sockets of every address, one set a core.
#[derive(Debug)]
pub struct Listeners {
    addresses: Vec<SocketAddr>,
    pub(super) cores: Vec<Vec<Bound>>,
}

/// The sockets of one address on one core.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) address: SocketAddr,
    pub(super) udp: UdpSocket,
    pub(super) tcp: TcpListener,
}

impl Listeners {
    /// Binds UDP and TCP of every address for so many cores. `wanted` must all be there; of `possible`
    /// (the addresses of all replicas) those of this host are taken. With port 0 the system chooses one
    /// port for all cores and both protocols.
    pub fn bind(
        wanted: &[SocketAddr],
        possible: &[SocketAddr],
        cores: usize,
    ) -> Result<Listeners, ListenError> {
        Listeners::beside(Vec::new(), wanted, possible, cores)
    }

    /// The same where some addresses have their sockets already.
    pub(super) fn beside(
        bound: Vec<SocketAddr>,
        wanted: &[SocketAddr],
        possible: &[SocketAddr],
        cores: usize,
    ) -> Result<Listeners, ListenError> {
        let mut listeners = Listeners {
            addresses: bound,
            cores: Vec::new(),
        };
        listeners.cores.resize_with(cores.max(1), Vec::new);
        for &address in wanted {
            listeners.add(address)?;
        }
        for &address in possible {
            match listeners.add(address) {
                Err(ListenError::Bind { source, .. }) if source.kind() == io::ErrorKind::AddrNotAvailable => {
                }
                outcome => outcome?,
            }
        }
        if listeners.addresses.is_empty() {
            return Err(ListenError::Nothing([wanted, possible].concat()));
        }
        Ok(listeners)
    }

    /// The addresses that are bound.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// For how many cores.
    pub fn cores(&self) -> usize {
        self.cores.len()
    }

    fn add(&mut self, address: SocketAddr) -> Result<(), ListenError> {
        if address.ip().is_unspecified() {
            return Err(ListenError::Unspecified(address));
        }
        if self.addresses.contains(&address) {
            return Ok(());
        }
        let mut address = address;
        let mut all = Vec::new();
        for _ in 0..self.cores.len() {
            let bound = bind_pair(address)?;
            address = bound.address; // the port that the system chose
            all.push(bound);
        }
        for (core, bound) in self.cores.iter_mut().zip(all) {
            core.push(bound);
        }
        self.addresses.push(address);
        Ok(())
    }
}

/// A port that the system chooses for UDP may be taken for TCP: then it chooses again.
fn bind_pair(address: SocketAddr) -> Result<Bound, ListenError> {
    let mut attempts = if address.port() == 0 { 16 } else { 1 };
    loop {
        attempts -= 1;
        let udp: UdpSocket = bind(address, Type::DGRAM, Protocol::UDP)
            .map_err(|source| ListenError::Bind {
                protocol: "UDP",
                address,
                source,
            })?
            .into();
        let chosen = udp.local_addr().map_err(|source| ListenError::Bind {
            protocol: "UDP",
            address,
            source,
        })?;
        match bind(chosen, Type::STREAM, Protocol::TCP) {
            Ok(tcp) => {
                return Ok(Bound {
                    address: chosen,
                    udp,
                    tcp: tcp.into(),
                });
            }
            Err(_) if attempts > 0 => {}
            Err(source) => {
                return Err(ListenError::Bind {
                    protocol: "TCP",
                    address: chosen,
                    source,
                });
            }
        }
    }
}

fn bind(address: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    // The kernel spreads clients over the cores by their address and port.
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if kind == Type::STREAM {
        socket.set_reuse_address(true)?; // a restart does not wait for old connections
        socket.bind(&address.into())?;
        socket.listen(1024)?;
    } else {
        // Room for a burst while this core is busy. The system may give less.
        let _ = socket.set_recv_buffer_size(1 << 20);
        let _ = socket.set_send_buffer_size(1 << 20);
        socket.bind(&address.into())?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_core_gets_sockets_on_the_same_port_of_every_address() {
        let wanted = ["127.0.0.1:0".parse().unwrap(), "[::1]:0".parse().unwrap()];
        let listeners = Listeners::bind(&wanted, &[], 3).unwrap();
        assert_eq!((listeners.cores(), listeners.addresses().len()), (3, 2));
        for core in &listeners.cores {
            for (bound, address) in core.iter().zip(listeners.addresses()) {
                assert_eq!(bound.udp.local_addr().unwrap(), *address);
                assert_eq!(bound.tcp.local_addr().unwrap(), *address);
            }
        }
    }

    #[test]
    fn an_address_of_another_replica_is_passed_over_and_one_that_was_asked_for_is_not() {
        let other = "192.0.2.1:0".parse().unwrap();
        let own = "127.0.0.1:0".parse().unwrap();
        assert_eq!(
            Listeners::bind(&[], &[other, own], 1).unwrap().addresses().len(),
            1
        );
        assert!(matches!(
            Listeners::bind(&[], &[other], 1),
            Err(ListenError::Nothing(_))
        ));
        let error = Listeners::bind(&[other], &[], 1).unwrap_err().to_string();
        assert!(error.contains("not an address of this host"), "{error}");
    }

    #[test]
    fn an_unspecified_address_is_refused_with_the_reason() {
        let error = Listeners::bind(&["0.0.0.0:0".parse().unwrap()], &[], 1)
            .unwrap_err()
            .to_string();
        assert!(error.contains("the view depends on the address asked"), "{error}");
    }
}
