//! One core's sockets and connections to all upstreams.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use rustls::ClientConfig;
use tokio::sync::mpsc::UnboundedSender;

use super::pending::{Event, Pending, Ticket, Trouble, Waiting};
use super::random::Random;
use super::stream::Connection;
use super::udp::{Pool, Socket};
use super::{Member, Target};
use crate::wire::reply::Asked;
use crate::wire::{UDP_LIMIT, flag, kind};

/// The TLS client, set once some upstream needs it.
pub type TlsClient = Arc<OnceLock<Arc<ClientConfig>>>;

/// A question for an upstream.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The name in lower case, in wire form.
    pub name: Box<[u8]>,
    /// The record type.
    pub kind: u16,
    /// DNSSEC records are wanted.
    pub dnssec_ok: bool,
    /// Data that did not validate are wanted, too.
    pub checking_disabled: bool,
    /// The most seconds for which the answer may be kept.
    pub cap: u32,
}

/// How a question travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Datagram,
    Stream,
}

impl By {
    /// The way in which this target is asked first.
    pub(super) fn usual(target: &Target) -> By {
        match target {
            Target::Plain(_) => By::Datagram,
            Target::Tls(..) => By::Stream,
        }
    }
}

/// Keeps the question waiting for its answer, and the socket open that the answer comes to.
pub(super) struct Held {
    _ticket: Ticket,
    _socket: Option<Rc<Socket>>,
}

/// All sockets and connections of one core.
pub struct Transport {
    pools: RefCell<HashMap<SocketAddr, Pool>>,
    connections: RefCell<HashMap<Target, Rc<Connection>>>,
    random: RefCell<Random>,
    tls: TlsClient,
}

impl Transport {
    /// Without any socket yet.
    pub fn new(tls: TlsClient) -> Transport {
        Transport {
            pools: RefCell::default(),
            connections: RefCell::default(),
            random: RefCell::new(Random::new()),
            tls,
        }
    }

    /// Sends a question, with EDNS or without; what comes of it is told to `reply_to`.
    pub(super) fn ask(
        &self,
        (index, member): (usize, &Member),
        ask: &Ask,
        (by, edns): (By, bool),
        reply_to: &UnboundedSender<Event>,
    ) -> Result<Held, Trouble> {
        let mut random = self.random.borrow_mut();
        let unreachable = |_| Trouble::Unreachable;
        let [choice] = random.take::<1>().map_err(unreachable)?;
        let mut name = ask.name.clone();
        random.spell(&mut name).map_err(unreachable)?;
        let now = Instant::now();
        let waiting = Waiting {
            asked: Asked {
                id: 0,
                name,
                kind: ask.kind,
                dnssec_ok: ask.dnssec_ok,
                spelling: by == By::Datagram,
            },
            edns,
            cap: ask.cap,
            member: index,
            reply_to: reply_to.clone(),
            sent: now,
        };
        if by == By::Datagram {
            let address = member.target.address();
            let socket = self
                .pools
                .borrow_mut()
                .entry(address)
                .or_default()
                .choose(address, now, choice);
            let socket = socket.map_err(|_| Trouble::Unreachable)?;
            let (ticket, message) = admit(&socket.pending, waiting, ask, edns, &mut random)?;
            socket.send(&message).map_err(|_| Trouble::Unreachable)?;
            return Ok(Held {
                _ticket: ticket,
                _socket: Some(socket),
            });
        }
        let mut connections = self.connections.borrow_mut();
        let connection = match connections.get(&member.target).filter(|open| open.is_open()) {
            Some(open) => Rc::clone(open),
            None => {
                let opened = Rc::new(Connection::open(member.target.clone(), self.tls.get().cloned()));
                connections.insert(member.target.clone(), Rc::clone(&opened));
                opened
            }
        };
        let (ticket, message) = admit(&connection.pending, waiting, ask, edns, &mut random)?;
        connection.send(message)?;
        Ok(Held {
            _ticket: ticket,
            _socket: None,
        })
    }

    /// Closes what has not been used of late.
    pub fn sweep(&self) {
        let now = Instant::now();
        self.pools.borrow_mut().retain(|_, pool| {
            pool.sweep(now);
            !pool.is_empty()
        });
        self.connections
            .borrow_mut()
            .retain(|_, connection| connection.is_open());
    }

    /// Random octets, for the names of probes.
    pub(super) fn random<const N: usize>(&self) -> Option<[u8; N]> {
        self.random.borrow_mut().take().ok()
    }
}

/// Finds a free id at random and writes the message.
fn admit(
    pending: &Rc<Pending>,
    mut waiting: Waiting,
    ask: &Ask,
    edns: bool,
    random: &mut Random,
) -> Result<(Ticket, Vec<u8>), Trouble> {
    for _ in 0..16 {
        let id = u16::from_be_bytes(random.take::<2>().map_err(|_| Trouble::Unreachable)?);
        waiting.asked.id = id;
        let message = encode(id, &waiting.asked.name, ask, edns);
        match pending.add(waiting) {
            Ok(ticket) => return Ok((ticket, message)),
            Err(back) => waiting = back,
        }
    }
    Err(Trouble::Unreachable) // thousands of questions wait on this one socket
}

/// The message to an upstream. AD asks it to say whether it validated (RFC 6840, 5.7); the client's options
/// stay here.
fn encode(id: u16, name: &[u8], ask: &Ask, edns: bool) -> Vec<u8> {
    let mut flags = flag::RECURSION_DESIRED | flag::AUTHENTIC;
    if ask.checking_disabled {
        flags |= flag::CHECKING_DISABLED;
    }
    let mut message = Vec::with_capacity(name.len() + 27);
    message.extend(id.to_be_bytes());
    message.extend(flags.to_be_bytes());
    message.extend([0, 1, 0, 0, 0, 0, 0, u8::from(edns)]);
    message.extend(name);
    message.extend(ask.kind.to_be_bytes());
    message.extend([0, 1]);
    if edns {
        message.extend([0, 0, kind::OPT as u8]);
        message.extend((UDP_LIMIT as u16).to_be_bytes());
        message.extend([0, 0, if ask.dnssec_ok { 0x80 } else { 0 }, 0, 0, 0]);
    }
    message
}
