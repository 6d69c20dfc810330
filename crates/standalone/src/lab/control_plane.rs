//! What stands in for the control plane: a TLS server a service, with certificates of a CA of the lab.
//!
//! Each answers any HTTP request with its own name, and keeps the connection open for the next one.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use oooi_net::Namespace;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// A certificate authority of the lab.
pub struct Authority {
    pem: String,
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

/// A server that cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A certificate cannot be made.
    #[error("no certificate can be made: {0}")]
    Certificate(#[from] rcgen::Error),
    /// TLS refuses it.
    #[error("the certificate does not serve: {0}")]
    Tls(#[from] rustls::Error),
    /// It cannot listen.
    #[error("the control plane's {service} cannot listen on {address}: {source}")]
    Listen {
        /// Which service.
        service: String,
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
}

impl Authority {
    /// A new one.
    pub fn new() -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "oooi lab");
        let certificate = params.self_signed(&key)?;
        Ok(Authority {
            pem: certificate.pem(),
            certificate: certificate.der().clone(),
            issuer: Issuer::new(params, key),
        })
    }

    /// Its certificate as a file has it.
    pub fn pem(&self) -> String {
        self.pem.clone()
    }

    /// What clients trust.
    pub fn roots(&self) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone())?;
        Ok(roots)
    }

    fn server(&self, backend: &Backend) -> Result<Arc<ServerConfig>, Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(backend.names.clone())?;
        if let Some((from, until)) = backend.valid {
            (params.not_before, params.not_after) = (from.into(), until.into());
        }
        if backend.for_clients {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        }
        let certificate = params.signed_by(&key, &self.issuer)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder().with_no_client_auth();
        Ok(Arc::new(
            config.with_single_cert(vec![certificate.der().clone()], key)?,
        ))
    }
}

/// One service of the control plane.
#[derive(Clone, Debug)]
pub struct Backend {
    /// What it calls itself.
    pub service: String,
    /// Where it listens.
    pub address: Ipv4Addr,
    /// On which port.
    pub port: u16,
    /// The names in its certificate.
    pub names: Vec<String>,
    /// Since and until when its certificate is valid; unset means always.
    pub valid: Option<(SystemTime, SystemTime)>,
    /// Whether its certificate says that it is one for clients, with which nobody may serve.
    pub for_clients: bool,
    /// How far its clock is ahead of the lab's.
    pub clock: Duration,
    /// The status that it answers with.
    pub status: u16,
}

impl Backend {
    /// A service that is well.
    pub fn new(service: &str, (address, port): (Ipv4Addr, u16), names: &[String]) -> Self {
        Backend {
            service: service.into(),
            address,
            port,
            names: names.to_vec(),
            valid: None,
            for_clients: false,
            clock: Duration::ZERO,
            status: 200,
        }
    }
}

/// Starts a service in the management namespace. It runs until the process ends.
pub fn serve(namespace: &Namespace, authority: &Authority, backend: &Backend) -> Result<(), Error> {
    let acceptor = TlsAcceptor::from(authority.server(backend)?);
    let address = SocketAddr::from((backend.address, backend.port));
    let failed = |source| Error::Listen {
        service: backend.service.clone(),
        address,
        source,
    };
    let (ready, listening) = std::sync::mpsc::channel();
    let says = Arc::new(backend.clone());
    namespace
        .spawn(async move || {
            let listener = match TcpListener::bind(address).await {
                Ok(listener) => listener,
                Err(error) => return drop(ready.send(Err(error))),
            };
            drop(ready.send(Ok(())));
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, says) = (acceptor.clone(), says.clone());
                // A client that goes away mid-way is its own business.
                tokio::spawn(async move { answer(stream, acceptor, &says).await.ok() });
            }
        })
        .map_err(failed)?;
    listening
        .recv()
        .unwrap_or_else(|_| Err(io::Error::other("its thread died")))
        .map_err(failed)
}

async fn answer(stream: TcpStream, acceptor: TlsAcceptor, says: &Backend) -> io::Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    let mut request = Vec::new();
    loop {
        request.clear();
        while !request.ends_with(b"\r\n\r\n") {
            // A request of the lab fits in a packet; what does not end is not ours to keep.
            if stream.read_buf(&mut request).await? == 0 || request.len() > 8192 {
                return stream.shutdown().await;
            }
        }
        let Backend {
            service,
            status,
            clock,
            ..
        } = says;
        let length = service.len();
        let date = http_date(SystemTime::now() + *clock);
        let reply = format!(
            "HTTP/1.1 {status} as it is\r\ndate: {date}\r\ncontent-length: {length}\r\n\r\n{service}"
        );
        stream.write_all(reply.as_bytes()).await?;
        stream.flush().await?;
    }
}

/// A moment as HTTP writes it.
fn http_date(at: SystemTime) -> String {
    let at = jiff::Timestamp::try_from(at).unwrap_or_default();
    at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}
