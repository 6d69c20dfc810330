//! The way from a server name to a socket of its backend: route, pick an endpoint, connect, try the next.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use crate::connection::Thread;
use crate::metrics::Reason;
use crate::relay::Side;
use crate::route::{Refusal, Routes};
use crate::server_name::ServerName;
use crate::shared::{Shared, is_exhaustion};
use crate::snapshot::ListenerKey;
use crate::table::Upstream;

/// The time that one attempt to connect may take.
const ATTEMPT: Duration = Duration::from_secs(5);
/// How long to wait for a file descriptor before the next try.
const DESCRIPTOR_WAIT: Duration = Duration::from_millis(50);
/// A peer that vanished is noticed after this and a few probes more, not after the idle timeout of a day.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Why a connection is reset before it reached a backend.
pub(crate) struct Refused {
    pub(crate) reason: Reason,
    pub(crate) name: Option<ServerName>,
    pub(crate) detail: String,
}

impl Refused {
    pub(crate) fn because(reason: Reason, detail: impl ToString) -> Self {
        Self {
            reason,
            name: None,
            detail: detail.to_string(),
        }
    }
}

/// A connection whose backend is known, on its way to one of its endpoints.
pub(crate) struct Connecting {
    pub(crate) peer: SocketAddr,
    pub(crate) name: Option<ServerName>,
    /// What the backend gets first: the hello.
    pub(crate) first: Vec<u8>,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) tried: Vec<SocketAddr>,
    pub(crate) last: String,
    pub(crate) deadline: Instant,
    pub(crate) attempt: Attempt,
}

/// One attempt to connect.
pub(crate) enum Attempt {
    /// The way to this endpoint is being opened.
    Open {
        side: Side,
        endpoint: SocketAddr,
        start: Instant,
        until: Instant,
    },
    /// There was no file descriptor; the next try is then.
    Later(Instant),
}

impl Connecting {
    pub(crate) fn failed(&mut self, endpoint: SocketAddr, error: &str) {
        let name = &self.upstream.cluster.name;
        self.upstream.metrics.connect_failures.inc();
        if let Some(ejected) = self.upstream.failed(endpoint, Instant::now()) {
            tracing::warn!(backend = %name, %endpoint, error, ?ejected, "endpoint ejected");
        }
        self.last = format!("{endpoint}: {error}");
        self.tried.push(endpoint);
    }

    /// Starts the next attempt; an error if there is none.
    pub(crate) fn attempt(&mut self, token: u64, thread: &mut Thread<'_>) -> Result<(), Refused> {
        loop {
            let now = Instant::now();
            let left = self.deadline.saturating_duration_since(now);
            let Some(endpoint) = self.upstream.pick(&self.tried, now).filter(|_| !left.is_zero()) else {
                return Err(self.out_of_endpoints());
            };
            match open(endpoint, token, thread.epoll) {
                Ok(stream) => {
                    let (side, until) = (Side::new(stream), now + left.min(ATTEMPT));
                    self.attempt = Attempt::Open {
                        side,
                        endpoint,
                        start: now,
                        until,
                    };
                    return Ok(());
                }
                Err(error) if is_exhaustion(&error) => {
                    thread.shared.ran_out(&error); // the endpoint is not to blame
                    self.attempt = Attempt::Later(now + DESCRIPTOR_WAIT);
                    return Ok(());
                }
                Err(error) => self.failed(endpoint, &error.to_string()),
            }
        }
    }

    fn out_of_endpoints(&mut self) -> Refused {
        let backend = &self.upstream.cluster.name;
        let (reason, detail) = match self.tried.len() {
            0 => (Reason::NoEndpoint, format!("backend {backend} has no endpoint")),
            count => (
                Reason::ConnectFailed,
                format!(
                    "backend {backend}: none of {count} endpoints answered, at last {}",
                    self.last
                ),
            ),
        };
        Refused {
            reason,
            name: self.name.take(),
            detail,
        }
    }
}

/// The backend by the routes of this moment, which may be newer than the connection.
pub(crate) fn upstream(
    shared: &Shared,
    key: ListenerKey,
    name: Option<&ServerName>,
) -> Result<Arc<Upstream>, Refused> {
    let table = shared.table();
    let backend = match table.listeners.get(&key).map(|routes| &**routes) {
        Some(Routes::Whole(backend)) => Ok(backend),
        Some(Routes::ByName(names)) => names.select(name),
        None => Err(Refusal::UnknownName),
    };
    let backend = backend.map_err(|refusal| match refusal {
        Refusal::UnknownName => Refused::because(Reason::UnknownName, "no backend has this name"),
        Refusal::NoName => Refused::because(Reason::NoName, "no server name, and no backend for that"),
    })?;
    let upstream = table.upstreams.get(backend).cloned();
    upstream.ok_or_else(|| Refused::because(Reason::NoEndpoint, format!("backend {backend} is not there")))
}

/// A socket on its way to an endpoint, watched under `token`.
fn open(endpoint: SocketAddr, token: u64, epoll: &OwnedFd) -> io::Result<TcpStream> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(endpoint), kind, Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&keepalive())?;
    match socket.connect(&endpoint.into()) {
        Err(error) if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {
            return Err(error);
        }
        _ => {}
    }
    watch(epoll, &socket, token)?;
    Ok(socket.into())
}

/// Tells epoll to report every change of a socket.
pub(crate) fn watch(epoll: &OwnedFd, socket: &impl rustix::fd::AsFd, token: u64) -> io::Result<()> {
    let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
    Ok(epoll::add(epoll, socket, EventData::new_u64(token), flags)?)
}

pub(crate) fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new().with_time(KEEPALIVE)
}
