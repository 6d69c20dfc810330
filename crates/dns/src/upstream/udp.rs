//! Connected UDP sockets on random ports, a few an upstream, each for a short time.
//!
//! A socket a question would cost more than the question. A few sockets that are replaced all the time
//! keep what matters: the port is unknown to others, and since the socket is connected nothing but the
//! upstream's own address is heard (RFC 5452, 9.2), not even by a port scan.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::net::UdpSocket;
use tokio::task::AbortHandle;

use super::pending::{Pending, Trouble};
use crate::wire::{UDP_LIMIT, flag};

/// Sockets to one upstream on one core.
const SOCKETS: usize = 8;
/// A socket is replaced after so many questions …
const USES: u32 = 100;
/// … or after this time.
const LIFETIME: Duration = Duration::from_secs(5);

/// One connected socket and its reader.
pub(super) struct Socket {
    socket: Rc<UdpSocket>,
    pub(super) pending: Rc<Pending>,
    born: Instant,
    uses: std::cell::Cell<u32>,
    reader: AbortHandle,
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Socket {
    fn connect(to: SocketAddr, now: Instant) -> io::Result<Rc<Socket>> {
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        // The kernel chooses the port at random.
        let socket = std::net::UdpSocket::bind((any, 0))?;
        socket.connect(to)?;
        socket.set_nonblocking(true)?;
        let socket = Rc::new(UdpSocket::from_std(socket)?);
        let pending = Rc::new(Pending::default());
        let reader = tokio::task::spawn_local(read(Rc::clone(&socket), Rc::clone(&pending)));
        Ok(Rc::new(Socket {
            socket,
            pending,
            born: now,
            uses: 0.into(),
            reader: reader.abort_handle(),
        }))
    }

    pub(super) fn send(&self, message: &[u8]) -> io::Result<()> {
        self.uses.set(self.uses.get() + 1);
        // Not by the event loop: it calls a new socket unwritable until it has come round once.
        SockRef::from(&*self.socket).send(message).map(drop)
    }

    fn is_spent(&self, now: Instant) -> bool {
        self.uses.get() >= USES || now.duration_since(self.born) >= LIFETIME
    }
}

async fn read(socket: Rc<UdpSocket>, pending: Rc<Pending>) {
    let mut buffer = [0; UDP_LIMIT + 1];
    loop {
        match socket.recv(&mut buffer).await {
            Ok(length) => {
                if length > UDP_LIMIT {
                    // Longer than we said we take: its end is lost, as if the upstream had cut it.
                    buffer[2] |= (flag::TRUNCATED >> 8) as u8;
                }
                pending.deliver(&buffer[..length]);
            }
            // Nobody listens there (ICMP): no need to wait for the timeout.
            Err(_) => pending.fail_all(Trouble::Unreachable),
        }
    }
}

/// The sockets to one upstream.
#[derive(Default)]
pub(super) struct Pool {
    sockets: Vec<Rc<Socket>>,
}

impl Pool {
    /// A socket to ask by, chosen with the random number. Spent ones are replaced as they come up; they
    /// live on until their last question is answered or given up.
    pub(super) fn choose(&mut self, to: SocketAddr, now: Instant, random: u8) -> io::Result<Rc<Socket>> {
        let at = usize::from(random) % SOCKETS;
        if at >= self.sockets.len() {
            let socket = Socket::connect(to, now)?;
            self.sockets.push(Rc::clone(&socket));
            return Ok(socket);
        }
        if self.sockets[at].is_spent(now) {
            self.sockets[at] = Socket::connect(to, now)?;
        }
        Ok(Rc::clone(&self.sockets[at]))
    }

    /// Closes sockets that nobody has used of late; nothing is left of an upstream that is not asked.
    pub(super) fn sweep(&mut self, now: Instant) {
        self.sockets
            .retain(|socket| now.duration_since(socket.born) < 2 * LIFETIME);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }
}
