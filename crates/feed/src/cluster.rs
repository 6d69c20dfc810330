//! The way to the API server, and the resource that a server runs from.

use std::time::Duration;

use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client, Config, Resource};

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
    let mut config = Config::infer().await.map_err(NoCluster::Unknown)?;
    config.connect_timeout = Some(Duration::from_secs(5));
    Client::try_from(config).map_err(NoCluster::Unusable)
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
