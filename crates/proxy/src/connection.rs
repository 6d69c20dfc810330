//! One TCP connection from its first byte to its last: hello, connect, relay.
//!
//! A state machine that a [worker](crate::worker) drives: [`Connection::advance`] goes as far as the sockets
//! allow. What only the phases before the relay need is in a box that is freed when they end, so that an
//! established connection takes little more than a hundred bytes.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::client_hello::{HelloError, parse_client_hello};
use crate::metrics::Reason;
use crate::proxy_protocol;
use crate::relay::{Direction, Progress, Side};
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

/// What a connection needs of its thread.
pub(crate) struct Thread<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) epoll: &'a OwnedFd,
    pub(crate) buffer: &'a mut [u8],
}

/// What is to be done with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing until an event or a deadline comes.
    Wait,
    /// Advance it again after the others had their turn.
    Again,
    /// It ended: drop it.
    Close,
}

/// A connection.
pub(crate) struct Connection {
    client: Side,
    key: ListenerKey,
    pub(crate) peer: IpAddr,
    phase: Phase,
    /// Bytes moved since the last sweep.
    active: bool,
    /// For how long none did, in milliseconds.
    silent: u32,
}

enum Phase {
    Hello(Box<Hello>),
    Connecting(Box<Connecting>),
    Relay(Relay),
}

struct Hello {
    peer: SocketAddr,
    received: Vec<u8>,
    deadline: Instant,
}

struct Connecting {
    peer: SocketAddr,
    name: Option<ServerName>,
    /// What the backend gets first: the hello.
    first: Vec<u8>,
    upstream: Arc<Upstream>,
    tried: Vec<SocketAddr>,
    last: String,
    deadline: Instant,
    attempt: Attempt,
}

enum Attempt {
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

struct Relay {
    backend: Side,
    upstream: Arc<Upstream>,
    to_backend: Direction,
    to_client: Direction,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.upstream.metrics.active.dec();
    }
}

/// Why a connection is reset before it reached a backend.
struct Refused {
    reason: Reason,
    name: Option<ServerName>,
    detail: String,
}

impl Refused {
    fn because(reason: Reason, detail: impl ToString) -> Self {
        Self {
            reason,
            name: None,
            detail: detail.to_string(),
        }
    }
}

impl Connection {
    /// A connection that was just accepted.
    pub(crate) fn new(
        client: TcpStream,
        peer: SocketAddr,
        key: ListenerKey,
        shared: &Shared,
        now: Instant,
    ) -> Self {
        let hello = Hello {
            peer,
            received: Vec::new(),
            deadline: now + shared.limits.hello_time,
        };
        Self {
            client: Side::new(client),
            key,
            peer: peer.ip(),
            phase: Phase::Hello(Box::new(hello)),
            active: true,
            silent: 0,
        }
    }

    /// The client's socket, to be watched.
    pub(crate) fn client(&self) -> &TcpStream {
        &self.client.stream
    }

    /// Takes note of an event on one of its sockets.
    pub(crate) fn note(&mut self, backend: bool, flags: EventFlags) {
        let side = match (&mut self.phase, backend) {
            (_, false) => &mut self.client,
            (Phase::Relay(relay), true) => &mut relay.backend,
            (Phase::Connecting(connecting), true) => match &mut connecting.attempt {
                Attempt::Open { side, .. } => side,
                Attempt::Later(_) => return,
            },
            (Phase::Hello(_), true) => return,
        };
        let broken = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        let ended = broken || flags.contains(EventFlags::RDHUP);
        side.ended |= ended;
        side.readable |= ended || flags.contains(EventFlags::IN);
        side.writable |= broken || flags.contains(EventFlags::OUT);
    }

    /// Whether it has not reached its backend yet, and so has a deadline.
    pub(crate) fn is_setup(&self) -> bool {
        !matches!(self.phase, Phase::Relay(_))
    }

    /// Goes as far as the sockets allow. `token` names its backend's socket to epoll.
    pub(crate) fn advance(&mut self, token: u64, thread: &mut Thread<'_>) -> Step {
        let result = match &self.phase {
            Phase::Hello(_) => self.read_hello(token, thread),
            Phase::Connecting(_) => self.check_attempt(token, thread),
            Phase::Relay(_) => Ok(()),
        };
        if let Err(refused) = result {
            return self.refuse(thread.shared, &refused);
        }
        let Phase::Relay(relay) = &mut self.phase else {
            return Step::Wait;
        };
        let mut moved = (0, 0);
        let result = relay.pump(&mut self.client, thread.buffer, &mut moved);
        if moved != (0, 0) {
            self.active = true;
            relay.upstream.metrics.to_backend.inc_by(moved.0);
            relay.upstream.metrics.to_client.inc_by(moved.1);
        }
        match result {
            Ok(step) => step,
            Err(_) => {
                // One side was reset: the other must not take it for a proper end of stream.
                reset(&self.client.stream);
                reset(&relay.backend.stream);
                thread.shared.metrics.reset(Reason::PeerReset);
                Step::Close
            }
        }
    }

    /// Looks at the deadlines of the phases before the relay.
    pub(crate) fn tick(&mut self, token: u64, now: Instant, thread: &mut Thread<'_>) -> Step {
        let result = match &mut self.phase {
            Phase::Hello(hello) if hello.deadline <= now => Err(Refused::because(
                Reason::HelloTimeout,
                "no complete hello in time",
            )),
            Phase::Connecting(connecting) => match &connecting.attempt {
                Attempt::Open { until, endpoint, .. } if *until <= now => {
                    connecting.failed(*endpoint, "no answer in time");
                    connecting.attempt(token, thread)
                }
                Attempt::Later(then) if *then <= now => connecting.attempt(token, thread),
                _ => Ok(()),
            },
            _ => Ok(()),
        };
        match result {
            Ok(()) => Step::Wait,
            Err(refused) => self.refuse(thread.shared, &refused),
        }
    }

    /// Ages a silent relay by `passed`; true if it has been silent for `limit`.
    pub(crate) fn is_idle(&mut self, passed: Duration, limit: Duration) -> bool {
        if self.is_setup() || std::mem::take(&mut self.active) {
            self.silent = 0;
            return false;
        }
        let passed = u32::try_from(passed.as_millis()).unwrap_or(u32::MAX);
        self.silent = self.silent.saturating_add(passed);
        u128::from(self.silent) >= limit.as_millis()
    }

    fn read_hello(&mut self, token: u64, thread: &mut Thread<'_>) -> Result<(), Refused> {
        let Phase::Hello(hello) = &mut self.phase else {
            return Ok(());
        };
        let table = thread.shared.table();
        let mut name = None;
        if !matches!(
            table.listeners.get(&self.key).map(|routes| &**routes),
            Some(Routes::Whole(_))
        ) {
            loop {
                match self.client.read_some(thread.buffer) {
                    Ok(Some(0)) => {
                        return Err(Refused::because(
                            Reason::HelloEnded,
                            "the client ended before its hello",
                        ));
                    }
                    Ok(Some(count)) => hello.received.extend_from_slice(&thread.buffer[..count]),
                    Ok(None) => return Ok(()),
                    Err(error) => return Err(Refused::because(Reason::HelloEnded, error)),
                }
                match parse_client_hello(&hello.received) {
                    Ok(parsed) => {
                        name = parsed.server_name;
                        break;
                    }
                    Err(HelloError::Incomplete) => {}
                    Err(error) => return Err(Refused::because(Reason::NotTls, error)),
                }
            }
        }
        let upstream = upstream(thread.shared, self.key, name.as_ref()).map_err(|refused| Refused {
            name: name.clone(),
            ..refused
        })?;
        let now = Instant::now();
        let mut connecting = Box::new(Connecting {
            peer: hello.peer,
            name,
            first: std::mem::take(&mut hello.received),
            deadline: now + upstream.cluster.connect_budget,
            upstream,
            tried: Vec::new(),
            last: String::new(),
            attempt: Attempt::Later(now),
        });
        connecting.attempt(token, thread)?;
        self.phase = Phase::Connecting(connecting);
        Ok(())
    }

    /// Whether the attempt to connect came to an end.
    fn check_attempt(&mut self, token: u64, thread: &mut Thread<'_>) -> Result<(), Refused> {
        let Phase::Connecting(connecting) = &mut self.phase else {
            return Ok(());
        };
        let Attempt::Open {
            side,
            endpoint,
            start,
            ..
        } = &connecting.attempt
        else {
            return Ok(());
        };
        if !side.writable {
            return Ok(());
        }
        if let Err(error) = side
            .stream
            .take_error()
            .and_then(|error| error.map_or(Ok(()), Err))
        {
            let endpoint = *endpoint;
            connecting.failed(endpoint, &error.to_string());
            return connecting.attempt(token, thread);
        }
        connecting.upstream.succeeded(*endpoint);
        connecting
            .upstream
            .metrics
            .connect_seconds
            .observe(start.elapsed().as_secs_f64());
        self.establish();
        Ok(())
    }

    fn establish(&mut self) {
        let later = Phase::Hello(Box::new(Hello {
            peer: SocketAddr::new(self.peer, 0),
            received: Vec::new(),
            deadline: Instant::now(),
        }));
        let Phase::Connecting(connecting) = std::mem::replace(&mut self.phase, later) else {
            return;
        };
        let Connecting {
            peer,
            mut first,
            upstream,
            attempt,
            ..
        } = *connecting;
        let Attempt::Open { side: backend, .. } = attempt else {
            return;
        };
        if upstream.cluster.proxy_protocol {
            let gateway = self.client.stream.local_addr().unwrap_or(peer);
            first.splice(0..0, proxy_protocol::header(peer, gateway));
        }
        upstream.metrics.active.inc();
        upstream.metrics.total.inc();
        let (to_backend, to_client) = (Direction::starting_with(first), Direction::default());
        self.phase = Phase::Relay(Relay {
            backend,
            upstream,
            to_backend,
            to_client,
        });
    }

    fn refuse(&self, shared: &Shared, refused: &Refused) -> Step {
        let Refused { reason, name, detail } = refused;
        reset(&self.client.stream);
        shared.metrics.reset(*reason);
        if shared.may_log() {
            let name = name.as_ref().map_or("", ServerName::as_str);
            tracing::info!(client = %self.peer, port = self.key.port, name, reason = reason.as_str(), "reset: {detail}");
        }
        Step::Close
    }
}

impl Relay {
    fn pump(&mut self, client: &mut Side, buffer: &mut [u8], moved: &mut (u64, u64)) -> io::Result<Step> {
        let up = self
            .to_backend
            .pump(client, &mut self.backend, buffer, &mut moved.0)?;
        let down = self
            .to_client
            .pump(&mut self.backend, client, buffer, &mut moved.1)?;
        Ok(match (up, down) {
            (Progress::Done, Progress::Done) => Step::Close,
            (Progress::Yielded, _) | (_, Progress::Yielded) => Step::Again,
            _ => Step::Wait,
        })
    }
}

impl Connecting {
    fn failed(&mut self, endpoint: SocketAddr, error: &str) {
        let name = &self.upstream.cluster.name;
        self.upstream.metrics.connect_failures.inc();
        if let Some(ejected) = self.upstream.failed(endpoint, Instant::now()) {
            tracing::warn!(backend = %name, %endpoint, error, ?ejected, "endpoint ejected");
        }
        self.last = format!("{endpoint}: {error}");
        self.tried.push(endpoint);
    }

    /// Starts the next attempt; an error if there is none.
    fn attempt(&mut self, token: u64, thread: &mut Thread<'_>) -> Result<(), Refused> {
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
fn upstream(shared: &Shared, key: ListenerKey, name: Option<&ServerName>) -> Result<Arc<Upstream>, Refused> {
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

/// Closing it then resets it.
pub(crate) fn reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
