//! Listens for Envoys: on a loopback address or on a Unix socket, never on the VLAN.

use std::future::Future;
use std::io;
use std::path::PathBuf;

use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::ads::ControlPlane;
use crate::bootstrap::Endpoint;

/// Why the control plane cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Anyone who reaches this port could read the routes, and load it with streams.
    #[error("xDS must not leave this host: {0} is not a loopback address")]
    NotLoopback(std::net::SocketAddr),
    /// The address or the socket's path cannot be bound.
    #[error("cannot listen for Envoy on {at}: {source}; is another process there?")]
    Bind {
        /// Where.
        at: String,
        /// Why.
        source: io::Error,
    },
    /// The transport broke.
    #[error("serving Envoy failed: {0}")]
    Serve(#[from] tonic::transport::Error),
}

/// A place where Envoys are listened for.
pub enum Listener {
    /// Loopback.
    Tcp(TcpListener),
    /// A Unix socket, and its path.
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Opens it. The port may be 0; a Unix socket that an earlier process left behind is replaced.
    pub async fn bind(endpoint: &Endpoint) -> Result<Self, Error> {
        match endpoint {
            Endpoint::Tcp(address) if !address.ip().is_loopback() => Err(Error::NotLoopback(*address)),
            Endpoint::Tcp(address) => match TcpListener::bind(address).await {
                Ok(listener) => Ok(Self::Tcp(listener)),
                Err(source) => Err(Error::Bind {
                    at: address.to_string(),
                    source,
                }),
            },
            Endpoint::Unix(path) => {
                let stale = std::os::unix::net::UnixStream::connect(path)
                    .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
                let removed = if stale { std::fs::remove_file(path) } else { Ok(()) };
                match removed.and_then(|()| UnixListener::bind(path)) {
                    Ok(listener) => Ok(Self::Unix(listener, path.clone())),
                    Err(source) => Err(Error::Bind {
                        at: path.display().to_string(),
                        source,
                    }),
                }
            }
        }
    }

    /// Where Envoys find it.
    pub fn endpoint(&self) -> io::Result<Endpoint> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Endpoint::Tcp),
            Self::Unix(_, path) => Ok(Endpoint::Unix(path.clone())),
        }
    }
}

/// Serves until `shutdown` is ready; then streams and connections end. Envoys keep what they have and come back.
pub async fn run(
    listener: Listener,
    control: &ControlPlane,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let (server, service) = (Server::builder(), control.service());
    let ended = async {
        shutdown.await;
        control.end_streams(); // they never end by themselves
    };
    match listener {
        Listener::Tcp(listener) => {
            // A response is often two small writes: the second must not wait for Envoy's delayed acknowledgement of the
            // first, which takes 40 ms.
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            server
                .serve_with_incoming_shutdown(service, incoming, ended)
                .await?;
        }
        Listener::Unix(listener, _) => {
            let incoming = UnixListenerStream::new(listener);
            server
                .serve_with_incoming_shutdown(service, incoming, ended)
                .await?;
        }
    }
    Ok(())
}
