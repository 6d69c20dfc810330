//! Relays datagrams by session: a client's address and port lead to one endpoint until both were silent.
//!
//! Each session has a socket of its own towards the endpoint, by which answers find their way back. A session
//! whose endpoint refuses (ICMP) or leaves the backend ends, and the next datagram starts a new one elsewhere.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::net::UdpSocket;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::balance::Pick;
use crate::metrics::Reason;
use crate::route::Routes;
use crate::shared::{Shared, Ticket, is_exhaustion};
use crate::snapshot::ListenerKey;
use crate::table::Upstream;

/// No datagram is longer.
const DATAGRAM: usize = 65_535;

struct Session {
    socket: Arc<UdpSocket>,
    upstream: Arc<Upstream>,
    endpoint: Pick,
    /// Set by either direction, cleared by the session's own look at it.
    active: Arc<AtomicBool>,
    answers: JoinHandle<()>,
    _ticket: Ticket,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.answers.abort();
        self.upstream.metrics.active.dec();
    }
}

/// Relays until told to stop; the sessions end with it.
pub(crate) async fn run(
    socket: UdpSocket,
    key: ListenerKey,
    shared: Arc<Shared>,
    mut stop: oneshot::Receiver<()>,
) {
    let socket = Arc::new(socket);
    let mut sessions: HashMap<SocketAddr, Session> = HashMap::new();
    let (end, mut ended) = mpsc::unbounded_channel();
    let mut buffer = vec![0; DATAGRAM];
    loop {
        tokio::select! {
            _ = &mut stop => return,
            Some((client, endpoint)) = ended.recv() => {
                // It may have been replaced in the meantime.
                if sessions.get(&client).is_some_and(|session| session.endpoint.address == endpoint) {
                    sessions.remove(&client);
                }
            }
            received = socket.recv_from(&mut buffer) => match received {
                Ok((length, client)) => {
                    forward(&buffer[..length], client, key, &shared, &socket, &mut sessions, &end).await;
                }
                Err(error) => tracing::debug!(port = key.port, %error, "datagram"),
            },
        }
    }
}

type End = mpsc::UnboundedSender<(SocketAddr, SocketAddr)>;

async fn forward(
    datagram: &[u8],
    client: SocketAddr,
    key: ListenerKey,
    shared: &Arc<Shared>,
    listener: &Arc<UdpSocket>,
    sessions: &mut HashMap<SocketAddr, Session>,
    end: &End,
) {
    let Some(upstream) = upstream(shared, key) else {
        return shared.metrics.reset(Reason::NoEndpoint);
    };
    let stale = |session: &Session| {
        !Arc::ptr_eq(&session.upstream.cluster, &upstream.cluster)
            && !upstream.cluster.endpoints.contains(&session.endpoint.address)
    };
    if sessions.get(&client).is_some_and(stale) {
        sessions.remove(&client);
    }
    let session = match sessions.entry(client) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => match open(client, &upstream, shared, listener, end).await {
            Ok(session) => new.insert(session),
            Err(reason) => return shared.metrics.reset(reason),
        },
    };
    session.active.store(true, Ordering::Relaxed);
    match session.socket.send(datagram).await {
        Ok(sent) => _ = session.upstream.metrics.to_backend.inc_by(sent as u64),
        Err(error) => {
            tracing::debug!(endpoint = %session.endpoint.address, %error, "datagram not sent");
            session.upstream.failed(session.endpoint, Instant::now());
            sessions.remove(&client);
        }
    }
}

fn upstream(shared: &Shared, key: ListenerKey) -> Option<Arc<Upstream>> {
    let table = shared.table();
    match &**table.listeners.get(&key)? {
        Routes::Whole(backend) => table.upstreams.get(backend).cloned(),
        Routes::ByName(_) => None,
    }
}

async fn open(
    client: SocketAddr,
    upstream: &Arc<Upstream>,
    shared: &Arc<Shared>,
    listener: &Arc<UdpSocket>,
    end: &End,
) -> Result<Session, Reason> {
    // Datagrams may be lost: at a limit they are, instead of waiting.
    shared
        .slots
        .try_acquire()
        .map_err(|_| {
            shared.filled_up();
            Reason::ConnectionLimit
        })?
        .forget();
    let ticket = Ticket::issue(shared, client.ip()).ok_or(Reason::ClientLimit)?;
    let endpoint = upstream.pick(&[], Instant::now()).ok_or(Reason::NoEndpoint)?;
    let socket = connected(endpoint.address).await.map_err(|error| {
        if is_exhaustion(&error) {
            shared.ran_out(&error);
            upstream.not_tried(endpoint, Instant::now());
            return Reason::Exhausted;
        }
        Reason::ConnectFailed
    })?;
    let socket = Arc::new(socket);
    let active = Arc::new(AtomicBool::new(true));
    let answering = Answers {
        socket: socket.clone(),
        listener: listener.clone(),
        client,
        endpoint,
        upstream: upstream.clone(),
        active: active.clone(),
    };
    let (end, idle) = (end.clone(), shared.limits.udp_idle);
    let answers = tokio::spawn(async move {
        answering.run(idle).await;
        let _ = end.send((client, endpoint.address));
    });
    upstream.metrics.active.inc();
    upstream.metrics.total.inc();
    Ok(Session {
        socket,
        upstream: upstream.clone(),
        endpoint,
        active,
        answers,
        _ticket: ticket,
    })
}

async fn connected(endpoint: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = if endpoint.is_ipv4() {
        ([0; 4], 0).into()
    } else {
        ([0u16; 8], 0).into()
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(endpoint).await?;
    Ok(socket)
}

/// The way back of one session.
struct Answers {
    socket: Arc<UdpSocket>,
    listener: Arc<UdpSocket>,
    client: SocketAddr,
    endpoint: Pick,
    upstream: Arc<Upstream>,
    active: Arc<AtomicBool>,
}

impl Answers {
    async fn run(self, idle: std::time::Duration) {
        let mut buffer = Vec::new();
        loop {
            match timeout(idle, self.socket.readable()).await {
                Err(_) if self.active.swap(false, Ordering::Relaxed) => continue, // the client was not silent
                Err(_) | Ok(Err(_)) => return,
                Ok(Ok(())) => {}
            }
            buffer.resize(DATAGRAM, 0);
            match self.socket.try_recv(&mut buffer) {
                Ok(length) => {
                    self.active.store(true, Ordering::Relaxed);
                    self.upstream.succeeded(self.endpoint.address);
                    if self
                        .listener
                        .send_to(&buffer[..length], self.client)
                        .await
                        .is_ok()
                    {
                        self.upstream.metrics.to_client.inc_by(length as u64);
                    }
                }
                // Nothing left to read: hold no buffer while the session is silent.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => buffer = Vec::new(),
                Err(error) => {
                    tracing::debug!(endpoint = %self.endpoint.address, %error, "session ended");
                    self.upstream.failed(self.endpoint, Instant::now());
                    return;
                }
            }
        }
    }
}
