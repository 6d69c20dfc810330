//! A relay: clients that speak by plain UDP, as many as one likes.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    unreachable_pub,
    reason = "tests"
)]

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use oooi_dhcp::mac::Mac;
use oooi_dhcp::message::MessageType;
use oooi_dhcp::testing::packet::{Answer, Packet};

/// A relay's socket. Make it inside the relay's namespace.
pub struct Relay {
    socket: UdpSocket,
    pub address: Ipv4Addr,
    server: Ipv4Addr,
}

impl Relay {
    pub fn new(address: Ipv4Addr, server: Ipv4Addr) -> Self {
        let socket = UdpSocket::bind(SocketAddrV4::new(address, 67)).expect("a relay's address");
        Relay {
            socket,
            address,
            server,
        }
    }

    /// How long `receive` waits; nothing means not at all.
    pub fn wait(&self, time: Option<Duration>) {
        self.socket.set_nonblocking(time.is_none()).unwrap();
        self.socket.set_read_timeout(time).unwrap();
    }

    pub fn send(&self, packet: Packet) {
        // While no server runs the system may refuse; clients ask again.
        let _ = self.socket.send_to(
            &packet.giaddr(self.address).build(),
            SocketAddrV4::new(self.server, 67),
        );
    }

    pub fn receive(&self) -> Option<Answer> {
        let mut bytes = vec![0; 1500];
        let length = self.socket.recv(&mut bytes).ok()?;
        bytes.truncate(length);
        Some(Answer { bytes })
    }

    /// An answer that must come, however busy the machine is.
    pub fn expect(&self, what: &str) -> Answer {
        (0..60).find_map(|_| self.receive()).expect(what)
    }

    pub fn discover(&self, mac: Mac) {
        self.send(Packet::new(MessageType::Discover, mac));
    }

    pub fn select(&self, mac: Mac, address: Ipv4Addr) {
        self.send(
            Packet::new(MessageType::Request, mac)
                .server(self.server)
                .requested(address),
        );
    }
}

/// The client that an answer is for.
pub fn client(answer: &Answer) -> Mac {
    Mac(answer.bytes[28..34].try_into().unwrap())
}
