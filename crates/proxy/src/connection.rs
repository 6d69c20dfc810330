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

use rustix::event::epoll::EventFlags;
use socket2::SockRef;

use crate::client_hello::{HelloError, parse_client_hello};
use crate::connect::{Attempt, Connecting, Refused, keepalive, upstream};
use crate::metrics::Reason;
use crate::proxy_protocol;
use crate::relay::{Direction, Progress, Side};
use crate::route::Routes;
use crate::server_name::ServerName;
use crate::shared::Shared;
use crate::snapshot::ListenerKey;
use crate::table::Upstream;

/// What a connection needs of its thread.
pub(crate) struct Thread<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) epoll: &'a OwnedFd,
    pub(crate) buffer: &'a mut [u8],
}

/// What names the two sockets of a connection to epoll.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tokens {
    pub(crate) client: u64,
    pub(crate) backend: u64,
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
    /// The backend is asked now and then whether it is still there.
    kept_alive: bool,
}

enum Phase {
    Hello(Box<Hello>),
    Connecting(Box<Connecting>),
    Relay(Relay),
    /// Between two of the others; never seen from outside.
    Moving,
}

struct Hello {
    peer: SocketAddr,
    received: Vec<u8>,
    deadline: Instant,
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
            kept_alive: false,
        }
    }

    /// Makes epoll report the client's socket under `token`.
    pub(crate) fn watch_client(&mut self, epoll: &OwnedFd, token: u64) -> io::Result<()> {
        self.client.watch(epoll, token)
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
            (Phase::Hello(_) | Phase::Moving, true) => return,
        };
        let broken = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        let ended = broken || flags.contains(EventFlags::RDHUP);
        side.failed |= flags.contains(EventFlags::ERR);
        side.ended |= ended;
        side.readable |= ended || flags.contains(EventFlags::IN);
        side.writable |= broken || flags.contains(EventFlags::OUT);
    }

    /// Whether it has not reached its backend yet, and so has a deadline.
    pub(crate) fn is_setup(&self) -> bool {
        !matches!(self.phase, Phase::Relay(_))
    }

    /// Goes as far as the sockets allow. `tokens` name its client's and its backend's socket to epoll.
    pub(crate) fn advance(&mut self, tokens: Tokens, thread: &mut Thread<'_>) -> Step {
        let result = self
            .read_hello(tokens.backend, thread)
            .and_then(|()| self.check_attempts(tokens.backend, thread));
        if let Err(refused) = result {
            return self.refuse(thread.shared, &refused);
        }
        let Phase::Relay(relay) = &mut self.phase else {
            return Step::Wait;
        };
        let mut moved = (0, 0);
        let result = relay
            .pump(&mut self.client, thread.buffer, &mut moved)
            .and_then(|step| {
                self.client.watch_room(thread.epoll, tokens.client)?;
                relay.backend.watch_room(thread.epoll, tokens.backend)?;
                Ok(step)
            });
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
    pub(crate) fn tick(&mut self, tokens: Tokens, now: Instant, thread: &mut Thread<'_>) -> Step {
        let result = match &mut self.phase {
            Phase::Hello(hello) if hello.deadline <= now => Err(Refused::because(
                Reason::HelloTimeout,
                "no complete hello in time",
            )),
            Phase::Connecting(connecting) => match &connecting.attempt {
                Attempt::Open { until, endpoint, .. } if *until <= now => {
                    let endpoint = *endpoint;
                    connecting.timed_out(endpoint);
                    connecting.attempt(tokens.backend, thread)
                }
                Attempt::Later(then) if *then <= now => connecting.attempt(tokens.backend, thread),
                _ => return Step::Wait,
            },
            _ => return Step::Wait,
        };
        match result {
            Ok(()) => self.advance(tokens, thread), // the endpoint may have answered already
            Err(refused) => self.refuse(thread.shared, &refused),
        }
    }

    /// Ages a silent relay by `passed`; true if it has been silent for `limit`.
    pub(crate) fn is_idle(&mut self, passed: Duration, limit: Duration) -> bool {
        if self.is_setup() || std::mem::take(&mut self.active) {
            self.silent = 0;
            return false;
        }
        if let Phase::Relay(relay) = &self.phase
            && !std::mem::replace(&mut self.kept_alive, true)
        {
            // Only now: most connections are over before they were silent once.
            let _ = SockRef::from(&relay.backend.stream).set_tcp_keepalive(&keepalive());
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
        let mut first = std::mem::take(&mut hello.received);
        if upstream.cluster.proxy_protocol {
            let gateway = self.client.stream.local_addr().unwrap_or(hello.peer);
            first.splice(0..0, proxy_protocol::header(hello.peer, gateway));
        }
        let now = Instant::now();
        let mut connecting = Box::new(Connecting {
            name,
            first,
            sent: 0,
            deadline: now + upstream.cluster.connect_budget,
            upstream,
            tried: Vec::new(),
            silent: Vec::new(),
            last: String::new(),
            starved: None,
            attempt: Attempt::Later(now),
        });
        connecting.attempt(token, thread)?;
        self.phase = Phase::Connecting(connecting);
        Ok(())
    }

    /// Follows attempts to connect until one has to be waited for, or one succeeded.
    fn check_attempts(&mut self, token: u64, thread: &mut Thread<'_>) -> Result<(), Refused> {
        while let Phase::Connecting(connecting) = &mut self.phase {
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
            // A socket that works has no error to ask for.
            let error = if side.ended {
                side.stream.take_error()
            } else {
                Ok(None)
            };
            if let Err(error) = error.and_then(|error| error.map_or(Ok(()), Err)) {
                let endpoint = *endpoint;
                connecting.failed(endpoint, &error.to_string());
                connecting.attempt(token, thread)?;
                continue;
            }
            connecting.upstream.succeeded(endpoint.address);
            let metrics = &connecting.upstream.metrics;
            metrics.connect_seconds.observe(start.elapsed().as_secs_f64());
            self.establish();
        }
        Ok(())
    }

    fn establish(&mut self) {
        let Phase::Connecting(connecting) = std::mem::replace(&mut self.phase, Phase::Moving) else {
            return;
        };
        let Connecting {
            mut first,
            sent,
            upstream,
            attempt,
            ..
        } = *connecting;
        let Attempt::Open { side: backend, .. } = attempt else {
            return;
        };
        upstream.metrics.active.inc();
        upstream.metrics.total.inc();
        upstream.metrics.to_backend.inc_by(sent as u64);
        first.drain(..sent);
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
        if (up, down) == (Progress::Done, Progress::Done) {
            return Ok(Step::Close); // which tells both sides
        }
        if up == Progress::Done {
            self.to_backend.pass_end(&self.backend)?;
        }
        if down == Progress::Done {
            self.to_client.pass_end(client)?;
        }
        if up == Progress::Yielded || down == Progress::Yielded {
            return Ok(Step::Again);
        }
        // Nothing may be read from it any more, or not until the other side takes more: then no call says that it broke.
        if client.failed || self.backend.failed {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(Step::Wait)
    }
}

/// Closing it then resets it.
pub(crate) fn reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
