//! A worker node, as far as booting is concerned: it gets an address, resolves names, and opens TLS by them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;
use oooi_doctor::client::dhcp::{self, Client, Lease};
use oooi_doctor::client::dns::{self, Transport};
use oooi_doctor::client::tls::{get, open};
use oooi_net::{Namespace, Network};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::topology::NODE_INTERFACE;

/// How long a node waits for a connection that should work.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it waits for one that should not.
const SILENCE: Duration = Duration::from_millis(500);

/// A step that did not hold.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{0}")]
    Dhcp(#[from] dhcp::Error),
    #[error("{0}")]
    Name(#[from] dns::Error),
    #[error("{0}")]
    Network(#[from] oooi_net::Error),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("no answer within {0:?}")]
    Slow(Duration),
    #[error("{0}")]
    Unexpected(String),
}

/// A machine on the VLAN.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) namespace: Namespace,
    tls: Arc<ClientConfig>,
    mac: [u8; 6],
}

impl Node {
    /// The machine number `index` in its namespace. It trusts `roots`.
    pub(crate) fn new(index: u8, namespace: Namespace, roots: RootCertStore) -> Self {
        let tls = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Node {
            name: namespace.name().to_owned(),
            namespace,
            tls: Arc::new(tls),
            // Locally administered, like those that KubeVirt gives out.
            mac: [0x02, 0, 0, 0, 0x10, index],
        }
    }

    fn run<F, Fut, T>(&self, work: F) -> Result<T, Error>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, Error>>,
        T: Send + 'static,
    {
        self.namespace.run(work)?
    }

    /// Gets a lease and sets the interface up with it.
    pub(crate) fn boot(&self) -> Result<Lease, Error> {
        let mac = self.mac;
        self.run(async move || {
            let lease = Client::new(NODE_INTERFACE, mac)?.boot().await?;
            let network = Network::open()?;
            network
                .add_address(NODE_INTERFACE, Ipv4Net::new_assert(lease.address, lease.prefix))
                .await?;
            if let Some(router) = lease.router {
                network
                    .add_route(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0), router)
                    .await?;
            }
            Ok(lease)
        })
    }

    /// Renews a lease at its server.
    pub(crate) fn renew(&self, lease: &Lease) -> Result<Lease, Error> {
        let (mac, lease) = (self.mac, lease.clone());
        self.run(async move || Ok(Client::new(NODE_INTERFACE, mac)?.renew(&lease).await?))
    }

    /// The addresses of a name.
    pub(crate) fn resolve(&self, resolver: Ipv4Addr, name: &str) -> Result<Vec<Ipv4Addr>, Error> {
        let name = name.to_owned();
        self.run(async move || Ok(dns::resolve(resolver, &name, Transport::Udp).await?))
    }

    /// Who answers at an address for a server name; the certificate must be valid for the name.
    pub(crate) fn ask(&self, address: SocketAddr, name: &str) -> Result<String, Error> {
        let (tls, name) = (self.tls.clone(), name.to_owned());
        self.run(async move || {
            let mut stream = patiently(open(tls, address, &name)).await?;
            request(&mut stream, &name).await
        })
    }

    /// Opens a connection and keeps it.
    pub(crate) fn hold(&self, address: SocketAddr, name: &str) -> Result<Held, Error> {
        let (tls, name) = (self.tls.clone(), name.to_owned());
        let (questions, mut asked) = mpsc::channel::<oneshot::Sender<Result<String, Error>>>(1);
        let (opened, ready) = std::sync::mpsc::channel();
        self.namespace.spawn(async move || {
            let mut stream = match patiently(open(tls, address, &name)).await {
                Ok(stream) => stream,
                Err(error) => return drop(opened.send(Err(error))),
            };
            drop(opened.send(Ok(())));
            while let Some(answer) = asked.recv().await {
                drop(answer.send(request(&mut stream, &name).await));
            }
        })?;
        ready
            .recv()
            .unwrap_or_else(|_| Err(Error::Unexpected("the connection's thread died".into())))?;
        Ok(Held { questions })
    }

    /// Whether an address answers at all; says how it does not.
    pub(crate) fn is_out_of_reach(&self, address: SocketAddr) -> Result<String, Error> {
        self.run(
            async move || match timeout(SILENCE, TcpStream::connect(address)).await {
                Err(_) => Ok(format!("{address}: no answer within {SILENCE:?}")),
                Ok(Err(error)) => Ok(format!("{address}: {error}")),
                Ok(Ok(_)) => Err(Error::Unexpected(format!(
                    "{address} answers: the networks are not apart"
                ))),
            },
        )
    }
}

/// A connection that stays open.
pub(crate) struct Held {
    questions: mpsc::Sender<oneshot::Sender<Result<String, Error>>>,
}

impl Held {
    /// Who answers on it.
    pub(crate) fn ask(&self) -> Result<String, Error> {
        let (answer, answered) = oneshot::channel();
        let closed = || Error::Unexpected("the connection is gone".into());
        self.questions.blocking_send(answer).map_err(|_| closed())?;
        answered.blocking_recv().map_err(|_| closed())?
    }
}

/// As long as a node is patient.
async fn patiently<T>(work: impl Future<Output = io::Result<T>>) -> Result<T, Error> {
    match timeout(PATIENCE, work).await {
        Ok(outcome) => Ok(outcome?),
        Err(_) => Err(Error::Slow(PATIENCE)),
    }
}

/// Who answers on a connection.
async fn request(stream: &mut TlsStream<TcpStream>, name: &str) -> Result<String, Error> {
    Ok(patiently(get(stream, name, "/")).await?.body)
}
