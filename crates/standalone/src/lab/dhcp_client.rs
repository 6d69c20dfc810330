//! A DHCP client as a booting node is one: no address, broadcasts, and a few options.
//!
//! It shares no code with the server, so that the two cannot agree on a mistake.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::time::timeout;

const CLIENT: u16 = 68;
const SERVER: u16 = 67;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST: u8 = 3;
const ACK: u8 = 5;
const NAK: u8 = 6;

/// What a node was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) address: Ipv4Addr,
    pub(crate) prefix: u8,
    pub(crate) server: Ipv4Addr,
    pub(crate) router: Option<Ipv4Addr>,
    pub(crate) resolvers: Vec<Ipv4Addr>,
    pub(crate) domain: Option<String>,
    pub(crate) time: Duration,
}

/// Why a node has no lease.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the socket failed: {0}")]
    Socket(#[from] io::Error),
    #[error("no {what} within {waited:?}: is a DHCP server on this network?")]
    Silence { what: &'static str, waited: Duration },
    #[error("the server refused {address}: {reason}")]
    Refused { address: Ipv4Addr, reason: String },
    #[error("the server's answer has no {0}")]
    Incomplete(&'static str),
}

/// A client on one interface.
pub(crate) struct Client {
    socket: UdpSocket,
    mac: [u8; 6],
    transaction: u32,
}

impl Client {
    pub(crate) fn new(interface: &str, mac: [u8; 6]) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_reuse_address(true)?;
        socket.set_broadcast(true)?;
        // Without an address there is no route: the interface must be named.
        socket.bind_device(Some(interface.as_bytes()))?;
        socket.set_nonblocking(true)?;
        socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, CLIENT).into())?;
        let transaction = u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]]);
        Ok(Client {
            socket: UdpSocket::from_std(socket.into())?,
            mac,
            transaction,
        })
    }

    /// DISCOVER → OFFER → REQUEST → ACK.
    pub(crate) async fn boot(&mut self) -> Result<Lease, Error> {
        let offer = self
            .exchange("OFFER", &[OFFER], Ipv4Addr::BROADCAST, |m| m.message(DISCOVER))
            .await?;
        let server = offer.address(54).ok_or(Error::Incomplete("server identifier"))?;
        let wanted = offer.yours;
        let reply = self
            .exchange("ACK", &[ACK, NAK], Ipv4Addr::BROADCAST, |m| {
                m.message(REQUEST)
                    .option(50, &wanted.octets())
                    .option(54, &server.octets())
            })
            .await?;
        reply.into_lease()
    }

    /// REQUEST to the server alone, as at half of the lease time.
    pub(crate) async fn renew(&mut self, lease: &Lease) -> Result<Lease, Error> {
        let own = lease.address;
        let reply = self
            .exchange("ACK", &[ACK, NAK], lease.server, |m| m.message(REQUEST).from(own))
            .await?;
        reply.into_lease()
    }

    /// Sends until an answer comes: a packet may be lost, and a server may still be probing the address.
    async fn exchange(
        &mut self,
        what: &'static str,
        wanted: &[u8],
        to: Ipv4Addr,
        build: impl Fn(Outgoing) -> Outgoing,
    ) -> Result<Reply, Error> {
        self.transaction = self.transaction.wrapping_add(1);
        let message = build(Outgoing::new(self.transaction, self.mac)).finish();
        let tries = [400, 800, 1600, 3200].map(Duration::from_millis);
        for wait in tries {
            self.socket.send_to(&message, (to, SERVER)).await?;
            if let Ok(reply) = timeout(wait, self.receive(wanted)).await {
                return reply;
            }
        }
        Err(Error::Silence {
            what,
            waited: tries.iter().sum(),
        })
    }

    async fn receive(&self, wanted: &[u8]) -> Result<Reply, Error> {
        let mut buffer = [0; 1500];
        loop {
            let (length, _) = self.socket.recv_from(&mut buffer).await?;
            let reply = buffer
                .get(..length)
                .and_then(|packet| Reply::parse(packet, self.transaction));
            if let Some(reply) = reply.filter(|reply| wanted.contains(&reply.kind())) {
                return Ok(reply);
            }
        }
    }
}

/// A message that is being written.
struct Outgoing(Vec<u8>);

impl Outgoing {
    fn new(transaction: u32, mac: [u8; 6]) -> Self {
        let mut bytes = vec![0; 236];
        bytes[..4].copy_from_slice(&[1, 1, 6, 0]);
        bytes[4..8].copy_from_slice(&transaction.to_be_bytes());
        bytes[28..34].copy_from_slice(&mac);
        bytes.extend(COOKIE);
        Outgoing(bytes)
    }

    fn message(self, kind: u8) -> Self {
        let mut message = self
            .option(53, &[kind])
            .option(55, &[1, 3, 6, 12, 15, 26, 42, 51, 54, 119, 121]);
        // Answers must be broadcast: the socket hears nothing that is sent to an address it does not have.
        message.0[10] = 0x80;
        message
    }

    fn from(mut self, address: Ipv4Addr) -> Self {
        self.0[10] = 0;
        self.0[12..16].copy_from_slice(&address.octets());
        self
    }

    fn option(mut self, code: u8, value: &[u8]) -> Self {
        self.0.extend([code, value.len() as u8]);
        self.0.extend(value);
        self
    }

    fn finish(mut self) -> Vec<u8> {
        self.0.push(255);
        self.0
    }
}

/// A server's answer.
struct Reply {
    yours: Ipv4Addr,
    options: Vec<(u8, Vec<u8>)>,
}

impl Reply {
    fn parse(packet: &[u8], transaction: u32) -> Option<Self> {
        let ours = packet.first() == Some(&2)
            && packet.get(4..8)? == transaction.to_be_bytes()
            && packet.get(236..240)? == COOKIE;
        if !ours {
            return None;
        }
        let yours: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
        let mut options = Vec::new();
        let mut rest = packet.get(240..)?;
        while let [code, after @ ..] = rest {
            match (*code, after) {
                (255, _) => break,
                (0, _) => rest = after,
                (code, [length, after @ ..]) => {
                    let (value, after) = after.split_at_checked(usize::from(*length))?;
                    options.push((code, value.to_vec()));
                    rest = after;
                }
                _ => return None,
            }
        }
        Some(Reply {
            yours: yours.into(),
            options,
        })
    }

    fn get(&self, code: u8) -> Option<&[u8]> {
        self.options
            .iter()
            .find(|(c, _)| *c == code)
            .map(|(_, value)| value.as_slice())
    }

    fn addresses(&self, code: u8) -> Vec<Ipv4Addr> {
        let (whole, _) = self.get(code).unwrap_or_default().as_chunks::<4>();
        whole.iter().map(|octets| Ipv4Addr::from(*octets)).collect()
    }

    fn address(&self, code: u8) -> Option<Ipv4Addr> {
        self.addresses(code).first().copied()
    }

    fn text(&self, code: u8) -> Option<String> {
        self.get(code)
            .map(|value| String::from_utf8_lossy(value).into_owned())
    }

    fn kind(&self) -> u8 {
        self.get(53)
            .and_then(|value| value.first().copied())
            .unwrap_or_default()
    }

    fn into_lease(self) -> Result<Lease, Error> {
        if self.kind() == NAK {
            let reason = self.text(56).unwrap_or_else(|| "no reason given".into());
            return Err(Error::Refused {
                address: self.yours,
                reason,
            });
        }
        let mask = self.address(1).ok_or(Error::Incomplete("subnet mask"))?;
        let time = self
            .get(51)
            .and_then(|value| value.try_into().ok())
            .map(u32::from_be_bytes);
        Ok(Lease {
            address: self.yours,
            prefix: u32::from(mask).leading_ones() as u8,
            server: self.address(54).ok_or(Error::Incomplete("server identifier"))?,
            router: self.address(3),
            resolvers: self.addresses(6),
            domain: self.text(15),
            time: Duration::from_secs(time.ok_or(Error::Incomplete("lease time"))?.into()),
        })
    }
}
