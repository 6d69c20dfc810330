//! The way from a server name to a socket of its backend: route, pick an endpoint, connect, try the next.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use crate::balance::Pick;
use crate::connection::Thread;
use crate::metrics::Reason;
use crate::relay::Side;
use crate::route::{Refusal, Routes};
use crate::server_name::ServerName;
use crate::shared::{Shared, is_exhaustion};
use crate::snapshot::ListenerKey;
use crate::table::Upstream;

/// How long to wait for a file descriptor before the next try.
const DESCRIPTOR_WAIT: Duration = Duration::from_millis(50);
/// A peer that has been silent for this long is asked whether it is still there, so that one that vanished is
/// noticed before the idle timeout of a day.
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
    pub(crate) name: Option<ServerName>,
    /// What the backend gets first: the hello, after a PROXY header where it wants one.
    pub(crate) first: Vec<u8>,
    /// How much of it the backend took while the way to it was opened.
    pub(crate) sent: usize,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) tried: Vec<SocketAddr>,
    /// Those of them that did not answer in time.
    pub(crate) silent: Vec<SocketAddr>,
    pub(crate) last: String,
    /// Why there was no socket for the last attempt.
    pub(crate) starved: Option<String>,
    pub(crate) deadline: Instant,
    pub(crate) attempt: Attempt,
}

/// One attempt to connect.
pub(crate) enum Attempt {
    /// The way to this endpoint is being opened.
    Open {
        side: Side,
        endpoint: Pick,
        start: Instant,
        until: Instant,
    },
    /// There was no file descriptor; the next try is then.
    Later(Instant),
}

impl Connecting {
    pub(crate) fn failed(&mut self, pick: Pick, error: &str) {
        let (name, endpoint) = (&self.upstream.cluster.name, pick.address);
        self.upstream.metrics.connect_failures.inc();
        if let Some(ejected) = self.upstream.failed(pick, Instant::now()) {
            tracing::warn!(backend = %name, %endpoint, error, ?ejected, "endpoint ejected");
        }
        self.last = format!("{endpoint}: {error}");
        self.tried.push(endpoint);
    }

    /// Like [`failed`](Self::failed), but it may answer yet: what was sent to it may be lost.
    pub(crate) fn timed_out(&mut self, pick: Pick) {
        self.failed(pick, "no answer in time");
        self.silent.push(pick.address);
    }

    /// The endpoint for the next attempt: one that was not tried, else one that was silent.
    fn pick(&mut self, now: Instant) -> Option<Pick> {
        let untried = self.upstream.pick(&self.tried, now);
        if untried.is_some() || self.silent.is_empty() {
            return untried;
        }
        let silent = std::mem::take(&mut self.silent);
        self.tried.retain(|tried| !silent.contains(tried));
        self.upstream.pick(&self.tried, now)
    }

    /// Starts the next attempt; an error if there is none.
    pub(crate) fn attempt(&mut self, token: u64, thread: &mut Thread<'_>) -> Result<(), Refused> {
        loop {
            let now = Instant::now();
            let left = self.deadline.saturating_duration_since(now);
            let endpoint = if left.is_zero() { None } else { self.pick(now) };
            let Some(endpoint) = endpoint else {
                return Err(self.out_of_endpoints());
            };
            match self.open(endpoint.address, token, thread) {
                Ok(side) => {
                    self.starved = None;
                    let until = now + left.min(thread.shared.limits.attempt_time);
                    self.attempt = Attempt::Open {
                        side,
                        endpoint,
                        start: now,
                        until,
                    };
                    return Ok(());
                }
                Err(error) if is_exhaustion(&error) => {
                    thread.shared.ran_out(&error);
                    self.upstream.not_tried(endpoint, now); // which is not to blame
                    self.starved = Some(error.to_string());
                    self.attempt = Attempt::Later(now + DESCRIPTOR_WAIT);
                    return Ok(());
                }
                Err(error) => {
                    self.starved = None;
                    self.failed(endpoint, &error.to_string());
                }
            }
        }
    }

    /// A socket on its way to an endpoint, watched under `token`; writable if it is there already.
    fn open(&mut self, endpoint: SocketAddr, token: u64, thread: &mut Thread<'_>) -> io::Result<Side> {
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = Socket::new(Domain::for_address(endpoint), kind, Some(Protocol::TCP))?;
        socket.set_tcp_nodelay(true)?;
        match socket.connect(&endpoint.into()) {
            Err(error) if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {
                return Err(error);
            }
            _ => {}
        }
        let mut side = Side::new(socket.into());
        // An endpoint on the same host has answered by now, which connect does not say: the first write does.
        if !self.first.is_empty() {
            self.sent = side.write(&self.first)?;
        }
        side.writable = self.sent > 0;
        side.watch(thread.epoll, token)?;
        Ok(side)
    }

    fn out_of_endpoints(&mut self) -> Refused {
        let backend = &self.upstream.cluster.name;
        let (reason, detail) = match (&self.starved, self.tried.len()) {
            (Some(error), _) => (
                Reason::Exhausted,
                format!("backend {backend}: no socket to connect with: {error}"),
            ),
            (None, 0) => (Reason::NoEndpoint, format!("backend {backend} has no endpoint")),
            (None, count) => (
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

pub(crate) fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new().with_time(KEEPALIVE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Transport;
    use crate::metrics::Metrics;
    use crate::snapshot::{Cluster, Snapshot};
    use crate::table::Table;

    fn connecting(endpoints: &[SocketAddr]) -> Connecting {
        let cluster = Cluster {
            name: "api".into(),
            transport: Transport::Tcp,
            endpoints: endpoints.to_vec(),
            known: true,
            connect_budget: Duration::from_secs(1),
            proxy_protocol: false,
        };
        let mut snapshot = Snapshot::default();
        snapshot.clusters.insert("api".into(), Arc::new(cluster));
        let table = Table::next(&Table::default(), &snapshot, &Metrics::default());
        let now = Instant::now();
        Connecting {
            name: None,
            first: Vec::new(),
            sent: 0,
            upstream: table.upstreams["api"].clone(),
            tried: Vec::new(),
            silent: Vec::new(),
            last: String::new(),
            starved: None,
            deadline: now,
            attempt: Attempt::Later(now),
        }
    }

    #[test]
    fn a_connection_is_refused_for_what_stood_in_its_way() {
        assert_eq!(connecting(&[]).out_of_endpoints().reason, Reason::NoEndpoint);
        let mut failed = connecting(&[([10, 0, 0, 1], 6443).into()]);
        let pick = failed.pick(Instant::now()).unwrap();
        failed.failed(pick, "refused");
        assert_eq!(failed.out_of_endpoints().reason, Reason::ConnectFailed);
        let mut starved = connecting(&[([10, 0, 0, 1], 6443).into()]);
        starved.starved = Some("too many open files".into());
        let Refused { reason, detail, .. } = starved.out_of_endpoints();
        assert_eq!(reason, Reason::Exhausted);
        assert!(detail.contains("too many open files"), "{detail}");
    }
}
