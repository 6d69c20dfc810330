//! A DHCP client as a booting node is one: no address, broadcasts, and a few options.
//!
//! It shares no code with the server, so that the two cannot agree on a mistake. A DISCOVER leaves nothing behind at a
//! server but an offer that it forgets; a lease is left only by [`Client::take`], and [`Client::release`] gives it back.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
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
const RELEASE: u8 = 7;

/// What a node was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its address.
    pub address: Ipv4Addr,
    /// The prefix length of its network.
    pub prefix: u8,
    /// Who gave it.
    pub server: Ipv4Addr,
    /// Its default router.
    pub router: Option<Ipv4Addr>,
    /// Its resolvers.
    pub resolvers: Vec<Ipv4Addr>,
    /// Its domain.
    pub domain: Option<String>,
    /// For how long.
    pub time: Duration,
}

/// Why a node has no lease.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket cannot be used.
    #[error("the socket failed: {0}")]
    Socket(#[from] io::Error),
    /// Nobody answered.
    #[error("no {what} within {waited:?}: is a DHCP server on this network?")]
    Silence {
        /// What was waited for.
        what: &'static str,
        /// How long.
        waited: Duration,
    },
    /// The server said no.
    #[error("the server refused {address}: {reason}")]
    Refused {
        /// The address that was asked for.
        address: Ipv4Addr,
        /// What the server says.
        reason: String,
    },
    /// The answer lacks what every answer has.
    #[error("the server's answer has no {0}")]
    Incomplete(&'static str),
}

/// A client on one interface.
pub struct Client {
    socket: UdpSocket,
    mac: [u8; 6],
    transaction: u32,
}

impl Client {
    /// A client that calls itself by a hardware address.
    pub fn new(interface: &str, mac: [u8; 6]) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_reuse_address(true)?;
        socket.set_broadcast(true)?;
        // Without an address there is no route: the interface must be named.
        socket.bind_device(Some(interface.as_bytes()))?;
        socket.set_nonblocking(true)?;
        socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, CLIENT).into())?;
        let transaction = getrandom::u32().map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Client {
            socket: UdpSocket::from_std(socket.into())?,
            mac,
            transaction,
        })
    }

    /// DISCOVER → OFFER → REQUEST → ACK.
    pub async fn boot(&mut self) -> Result<Lease, Error> {
        let offer = self
            .exchange("OFFER", &[OFFER], Ipv4Addr::BROADCAST, |m| m.message(DISCOVER))
            .await?;
        let server = offer.address(54).ok_or(Error::Incomplete("server identifier"))?;
        self.take(offer.yours, server).await
    }

    /// Everything that is offered to a DISCOVER within a time. It is asked again while nobody answers: a packet may be
    /// lost, and a server may still be probing the address.
    pub async fn offers(&mut self, within: Duration) -> Result<Vec<Offer>, Error> {
        self.transaction = self.transaction.wrapping_add(1);
        let message = Outgoing::new(self.transaction, self.mac)
            .message(DISCOVER)
            .finish();
        let mut offers: Vec<Offer> = Vec::new();
        for part in 1..=4 {
            if part == 1 || offers.is_empty() {
                self.socket
                    .send_to(&message, (Ipv4Addr::BROADCAST, SERVER))
                    .await?;
            }
            let until = tokio::time::Instant::now() + within / 4;
            while let Ok(heard) = tokio::time::timeout_at(until, self.receive(&[OFFER])).await {
                let (reply, from) = heard?;
                let offer = Offer {
                    server: reply.address(54),
                    from,
                    address: reply.yours,
                    options: reply.options,
                };
                if !offers.contains(&offer) {
                    offers.push(offer);
                }
            }
        }
        Ok(offers)
    }

    /// REQUEST → ACK for an address that a server offered.
    pub async fn take(&mut self, wanted: Ipv4Addr, server: Ipv4Addr) -> Result<Lease, Error> {
        let reply = self
            .exchange("ACK", &[ACK, NAK], Ipv4Addr::BROADCAST, |m| {
                m.message(REQUEST)
                    .option(50, &wanted.octets())
                    .option(54, &server.octets())
            })
            .await?;
        reply.into_lease()
    }

    /// Gives a lease back. There is no answer to it.
    pub async fn release(&mut self, lease: &Lease) -> Result<(), Error> {
        self.transaction = self.transaction.wrapping_add(1);
        let message = Outgoing::new(self.transaction, self.mac)
            .message(RELEASE)
            .from(lease.address)
            .option(54, &lease.server.octets())
            .finish();
        self.socket.send_to(&message, (lease.server, SERVER)).await?;
        Ok(())
    }

    /// REQUEST to the server alone, as at half of the lease time.
    pub async fn renew(&mut self, lease: &Lease) -> Result<Lease, Error> {
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
            if let Ok(heard) = timeout(wait, self.receive(wanted)).await {
                return heard.map(|(reply, _)| reply);
            }
        }
        Err(Error::Silence {
            what,
            waited: tries.iter().sum(),
        })
    }

    async fn receive(&self, wanted: &[u8]) -> Result<(Reply, Ipv4Addr), Error> {
        let mut buffer = [0; 1500];
        loop {
            let (length, from) = self.socket.recv_from(&mut buffer).await?;
            let IpAddr::V4(from) = from.ip() else { continue };
            let reply = buffer
                .get(..length)
                .and_then(|packet| Reply::parse(packet, self.transaction));
            if let Some(reply) = reply.filter(|reply| wanted.contains(&reply.kind())) {
                return Ok((reply, from));
            }
        }
    }
}

/// What a server offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What the server calls itself (option 54).
    pub server: Option<Ipv4Addr>,
    /// Where it came from.
    pub from: Ipv4Addr,
    /// The address.
    pub address: Ipv4Addr,
    /// All options, as they came.
    pub options: Vec<(u8, Vec<u8>)>,
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
        let mut options: Vec<(u8, Vec<u8>)> = Vec::new();
        let mut rest = packet.get(240..)?;
        while let [code, after @ ..] = rest {
            match (*code, after) {
                (255, _) => break,
                (0, _) => rest = after,
                (code, [length, after @ ..]) => {
                    let (value, after) = after.split_at_checked(usize::from(*length))?;
                    // An option that occurs several times is one option in pieces (RFC 3396).
                    match options.iter_mut().find(|(known, _)| *known == code) {
                        Some((_, pieces)) => pieces.extend_from_slice(value),
                        None => options.push((code, value.to_vec())),
                    }
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
