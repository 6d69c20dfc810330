//! TLS with a certificate that may change while it is served.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::certificate::Certificate;

/// How long a client may take to shake hands.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How many may do so at once.
const AT_ONCE: usize = 64;

/// The certificate that is served, once there is one. Clones see the same.
#[derive(Clone, Debug)]
pub struct Served(watch::Receiver<Option<Arc<CertifiedKey>>>);

/// Where the certificate that is served comes from.
#[derive(Debug)]
pub struct Serves(watch::Sender<Option<Arc<CertifiedKey>>>);

/// A certificate that cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It or its key is no PEM.
    #[error("the certificate or its key is no PEM: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// They do not fit together.
    #[error("the certificate cannot be served: {0}")]
    Rustls(#[from] rustls::Error),
}

/// No certificate yet.
pub fn channel() -> (Serves, Served) {
    let (sender, receiver) = watch::channel(None);
    (Serves(sender), Served(receiver))
}

impl Serves {
    /// Serves this certificate from the next connection on.
    pub fn take_up(&self, certificate: &Certificate) -> Result<(), Error> {
        let chain = CertificateDer::pem_slice_iter(certificate.certificate.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes())?;
        let key = CertifiedKey::from_der(chain.collect::<Result<_, _>>()?, key, &ring::default_provider())?;
        self.0.send_replace(Some(Arc::new(key)));
        Ok(())
    }
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.borrow().clone()
    }
}

/// Accepts TLS connections. Clients shake hands beside each other: one that is slow holds up nobody.
pub struct Listener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    shaking: JoinSet<Option<(TlsStream<TcpStream>, SocketAddr)>>,
}

impl Listener {
    /// Listens with this certificate.
    pub fn new(listener: TcpListener, served: Served) -> Result<Self, Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(served));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Listener {
            listener,
            acceptor: TlsAcceptor::from(Arc::new(config)),
            shaking: JoinSet::new(),
        })
    }
}

impl axum::serve::Listener for Listener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            tokio::select! {
                Some(shaken) = self.shaking.join_next() => {
                    if let Ok(Some(connection)) = shaken {
                        return connection;
                    }
                }
                accepted = axum::serve::Listener::accept(&mut self.listener), if self.shaking.len() < AT_ONCE => {
                    let (stream, address) = accepted;
                    let acceptor = self.acceptor.clone();
                    self.shaking.spawn(async move {
                        match timeout(HANDSHAKE, acceptor.accept(stream)).await {
                            Ok(Ok(stream)) => Some((stream, address)),
                            Ok(Err(_)) | Err(_) => None, // the client's affair
                        }
                    });
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}
