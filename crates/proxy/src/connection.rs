//! One TCP connection from its first byte to its last: hello, route, connect, relay.
//!
//! The phases before the relay live in a box that is freed when they end, so that an established connection
//! costs its relay alone.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use crate::client_hello::{HelloError, MAX_RECEIVED, parse_client_hello};
use crate::idle::Place;
use crate::metrics::Reason;
use crate::proxy_protocol;
use crate::relay::{Account, Relay};
use crate::route::{Refusal, Routes};
use crate::server_name::ServerName;
use crate::shared::{Shared, Ticket, is_exhaustion};
use crate::snapshot::ListenerKey;
use crate::table::Upstream;

/// The time that one attempt to connect may take.
const ATTEMPT: Duration = Duration::from_secs(5);
/// How long to wait for a file descriptor before the next try.
const DESCRIPTOR_WAIT: Duration = Duration::from_millis(50);
/// A peer that vanished is noticed after this and a few probes more, not after the idle timeout of a day.
const KEEPALIVE: Duration = Duration::from_secs(60);
const HELLO_READ: usize = 4096;

/// A connection as a task.
pub(crate) enum Connection {
    Setup(Pin<Box<dyn Future<Output = Option<Relay<Tally>>> + Send>>),
    Relay(Relay<Tally>, Arc<Shared>),
}

impl Connection {
    pub(crate) fn new(
        mut client: TcpStream,
        peer: SocketAddr,
        key: ListenerKey,
        ticket: Ticket,
        place: Place,
    ) -> Self {
        Self::Setup(Box::pin(async move {
            match setup(&mut client, peer, key, ticket.shared()).await {
                Ok(Established {
                    backend,
                    first,
                    upstream,
                }) => {
                    place.start();
                    Some(Relay::new(
                        client,
                        backend,
                        first,
                        Tally::new(upstream, ticket, place),
                    ))
                }
                Err(refused) => {
                    refuse(&client, peer, key, ticket.shared(), &refused);
                    None
                }
            }
        }))
    }
}

impl Future for Connection {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Self::Setup(setup) = &mut *self {
            let Some(relay) = ready!(setup.as_mut().poll(cx)) else {
                return Poll::Ready(());
            };
            let shared = relay.account().ticket.shared().clone();
            *self = Self::Relay(relay, shared);
        }
        let Self::Relay(relay, shared) = &mut *self else {
            return Poll::Ready(());
        };
        if ready!(Pin::new(relay).poll(cx)).is_err() {
            shared.metrics.reset(Reason::PeerReset);
        }
        Poll::Ready(())
    }
}

/// Counts a relayed connection, and holds its place and ticket until it ends.
pub(crate) struct Tally {
    upstream: Arc<Upstream>,
    ticket: Ticket,
    place: Place,
}

impl Tally {
    fn new(upstream: Arc<Upstream>, ticket: Ticket, place: Place) -> Self {
        upstream.metrics.active.inc();
        upstream.metrics.total.inc();
        Self {
            upstream,
            ticket,
            place,
        }
    }
}

impl Account for Tally {
    fn moved(&mut self, to_backend: u64, to_client: u64) {
        self.place.mark();
        self.upstream.metrics.to_backend.inc_by(to_backend);
        self.upstream.metrics.to_client.inc_by(to_client);
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.upstream.metrics.active.dec();
    }
}

struct Established {
    backend: TcpStream,
    /// What the backend gets first: the PROXY header if it wants one, and the hello.
    first: Vec<u8>,
    upstream: Arc<Upstream>,
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

async fn setup(
    client: &mut TcpStream,
    peer: SocketAddr,
    key: ListenerKey,
    shared: &Arc<Shared>,
) -> Result<Established, Refused> {
    let whole = matches!(
        shared.table().listeners.get(&key).map(|routes| &**routes),
        Some(Routes::Whole(_))
    );
    let mut first = Vec::new();
    let mut name = None;
    if !whole {
        name = match timeout(shared.limits.hello_time, read_hello(client, &mut first)).await {
            Ok(hello) => hello?,
            Err(_) => {
                return Err(Refused::because(
                    Reason::HelloTimeout,
                    "no complete hello in time",
                ));
            }
        };
    }
    let upstream = upstream(shared, key, name.as_ref()).map_err(|refused| Refused {
        name: name.clone(),
        ..refused
    })?;
    let backend = connect(&upstream, shared)
        .await
        .map_err(|refused| Refused { name, ..refused })?;
    if upstream.cluster.proxy_protocol {
        let gateway = client.local_addr().unwrap_or(peer);
        first.splice(0..0, proxy_protocol::header(peer, gateway));
    }
    Ok(Established {
        backend,
        first,
        upstream,
    })
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

/// Reads until the hello is complete. All bytes that were read are in `received` afterwards.
async fn read_hello(client: &mut TcpStream, received: &mut Vec<u8>) -> Result<Option<ServerName>, Refused> {
    loop {
        let before = received.len();
        received.resize((before + HELLO_READ).min(MAX_RECEIVED.max(before + 1)), 0);
        let read = client.read(&mut received[before..]).await;
        received.truncate(before + read.as_ref().copied().unwrap_or(0));
        match read {
            Ok(0) => {
                return Err(Refused::because(
                    Reason::HelloEnded,
                    "the client ended before its hello",
                ));
            }
            Ok(_) => {}
            Err(error) => return Err(Refused::because(Reason::HelloEnded, error)),
        }
        match parse_client_hello(received) {
            Ok(hello) => {
                received.shrink_to_fit();
                return Ok(hello.server_name);
            }
            Err(HelloError::Incomplete) => {}
            Err(error) => return Err(Refused::because(Reason::NotTls, error)),
        }
    }
}

/// Tries one endpoint after another until one answers or the budget is spent.
async fn connect(upstream: &Upstream, shared: &Shared) -> Result<TcpStream, Refused> {
    let deadline = Instant::now() + upstream.cluster.connect_budget;
    let mut tried = Vec::new();
    let mut last = String::new();
    loop {
        let start = Instant::now();
        let left = deadline.saturating_duration_since(start);
        let Some(endpoint) = upstream.pick(&tried, start).filter(|_| !left.is_zero()) else {
            let name = &upstream.cluster.name;
            return Err(match tried.len() {
                0 => Refused::because(Reason::NoEndpoint, format!("backend {name} has no endpoint")),
                count => Refused::because(
                    Reason::ConnectFailed,
                    format!("backend {name}: none of {count} endpoints answered, at last {last}"),
                ),
            });
        };
        let error = match timeout(left.min(ATTEMPT), open(endpoint)).await {
            Ok(Ok(stream)) => {
                upstream.succeeded(endpoint);
                upstream
                    .metrics
                    .connect_seconds
                    .observe(start.elapsed().as_secs_f64());
                return Ok(stream);
            }
            Ok(Err(error)) if is_exhaustion(&error) => {
                shared.ran_out(&error);
                sleep(DESCRIPTOR_WAIT).await;
                continue; // the endpoint is not to blame
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        upstream.metrics.connect_failures.inc();
        if let Some(ejected) = upstream.failed(endpoint, Instant::now()) {
            tracing::warn!(backend = %upstream.cluster.name, %endpoint, error, ?ejected, "endpoint ejected");
        }
        last = format!("{endpoint}: {error}");
        tried.push(endpoint);
    }
}

async fn open(endpoint: SocketAddr) -> io::Result<TcpStream> {
    let socket = if endpoint.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_nodelay(true)?;
    SockRef::from(&socket).set_tcp_keepalive(&keepalive())?;
    socket.connect(endpoint).await
}

pub(crate) fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new().with_time(KEEPALIVE)
}

fn refuse(client: &TcpStream, peer: SocketAddr, key: ListenerKey, shared: &Shared, refused: &Refused) {
    let Refused { reason, name, detail } = refused;
    let _ = client.set_zero_linger(); // closing then resets
    shared.metrics.reset(*reason);
    if shared.may_log() {
        let name = name.as_ref().map_or("", ServerName::as_str);
        tracing::info!(client = %peer, port = key.port, name, reason = reason.as_str(), "reset: {detail}");
    }
}
