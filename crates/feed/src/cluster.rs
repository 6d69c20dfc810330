//! The way to the API server, and the resource that a server runs from.

use std::time::Duration;

use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::api::{ApiResource, DynamicObject};
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ConfigExt};
use kube::{Api, Client, Config, Resource};
use tower::retry::RetryLayer;
use tower::{BoxError, ServiceBuilder};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);

/// After so long a silence a connection is probed, and so often again, and given up if nothing is heard of any of
/// [`PROBES`].
const PROBE: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;

/// Why there is no way to the API server.
#[derive(Debug, thiserror::Error)]
pub enum NoCluster {
    /// Neither a service account nor a kubeconfig says where it is.
    #[error("no cluster is configured: set KUBECONFIG, or run in a pod with a service account")]
    Unknown(#[source] kube::config::InferConfigError),
    /// The configuration cannot be used.
    #[error("the cluster's configuration cannot be used")]
    Unusable(#[source] kube::Error),
}

/// A kind that a server can run from.
pub trait Kind: Resource<DynamicType = ()> {}

impl<K: Resource<DynamicType = ()>> Kind for K {}

/// A client by the pod's service account or by a kubeconfig. Nothing is sent yet: the API server may be away.
pub async fn connect() -> Result<Client, NoCluster> {
    let config = Config::infer().await.map_err(NoCluster::Unknown)?;
    client(config).map_err(NoCluster::Unusable)
}

/// The client that kube would make, but one that notices when packets get lost. A watch is silent for minutes, and what
/// the API server sent meanwhile it repeats at ever longer intervals: news would come half a minute after it is back.
fn client(mut config: Config) -> Result<Client, kube::Error> {
    config.connect_timeout = Some(CONNECT);
    if config.proxy_url.is_some() {
        return Client::try_from(config); // which says whether it can
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.set_keepalive(Some(PROBE));
    tcp.set_keepalive_interval(Some(PROBE));
    tcp.set_keepalive_retries(Some(PROBES));
    tcp.set_tcp_user_timeout(Some(PROBE * (PROBES + 1)));
    // An API server that hangs accepts connections, and its system answers probes: the handshake has its time, too.
    let mut tls = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    tls.set_connect_timeout(config.connect_timeout);
    tls.set_read_timeout(config.read_timeout);
    tls.set_write_timeout(config.write_timeout);
    let retry = config
        .default_retry
        .then(|| RetryLayer::new(RetryPolicy::server_retry()));
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(retry)
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(legacy::Client::builder(TokioExecutor::new()).build::<_, Body>(tls));
    Ok(Client::new(service, config.default_namespace))
}

/// The resource that a server runs from.
#[derive(Clone)]
pub struct Own {
    /// The way to the API server.
    pub client: Client,
    /// The resource's namespace.
    pub namespace: String,
    /// The resource's name.
    pub name: String,
    kind: ApiResource,
}

impl Own {
    /// The resource of kind `K` with this name.
    pub fn new<K: Kind>(client: Client, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Own {
            client,
            namespace: namespace.into(),
            name: name.into(),
            kind: ApiResource::erase::<K>(&()),
        }
    }

    /// The resource of kind `K` with this name, in the cluster that [`connect`] finds.
    pub async fn connect<K: Kind>(
        namespace: impl Into<String>,
        name: impl Into<String>,
    ) -> Result<Self, NoCluster> {
        Ok(Own::new::<K>(connect().await?, namespace, name))
    }

    /// Its kind, such as `DHCPServer`.
    pub fn kind(&self) -> &str {
        &self.kind.kind
    }

    pub(crate) fn api_version(&self) -> &str {
        &self.kind.api_version
    }

    pub(crate) fn api(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &self.kind)
    }
}

impl std::fmt::Display for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind.kind, self.namespace, self.name)
    }
}
