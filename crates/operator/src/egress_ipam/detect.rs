//! Which network the cluster has.

use std::fmt;
use std::str::FromStr;

use kube::api::ListParams;
use kube::{Api, Client};
use oooi_api::foreign::{self, EgressIP, HostSubnet, NetworkType};

/// A network that can carry egress addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// OVN-Kubernetes: it places the addresses of `EgressIP` objects itself.
    OvnKubernetes,
    /// OpenShift SDN: `NetNamespace` and `HostSubnet` objects.
    OpenShiftSdn,
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Network::OvnKubernetes => "OVN-Kubernetes",
            Network::OpenShiftSdn => "OpenShift SDN",
        })
    }
}

/// There is no such network.
#[derive(Debug, thiserror::Error)]
#[error("there is no network `{0}`; there are ovn-kubernetes and openshift-sdn")]
pub struct UnknownNetwork(String);

impl FromStr for Network {
    type Err = UnknownNetwork;

    fn from_str(text: &str) -> Result<Self, UnknownNetwork> {
        match text {
            "ovn-kubernetes" => Ok(Network::OvnKubernetes),
            "openshift-sdn" => Ok(Network::OpenShiftSdn),
            other => Err(UnknownNetwork(other.to_owned())),
        }
    }
}

/// Asks OpenShift's configuration, else looks whose definitions are there.
pub(super) async fn network(client: &Client) -> Result<Option<Network>, kube::Error> {
    let configuration = Api::<foreign::Network>::all(client.clone());
    let configured = match configuration.get_opt("cluster").await? {
        Some(network) => network.status.and_then(|status| status.network_type),
        None => None,
    };
    match configured {
        Some(NetworkType::OVNKubernetes) => return Ok(Some(Network::OvnKubernetes)),
        Some(NetworkType::OpenShiftSDN) => return Ok(Some(Network::OpenShiftSdn)),
        Some(NetworkType::Other(_)) | None => {}
    }
    if is_served(Api::<EgressIP>::all(client.clone())).await? {
        return Ok(Some(Network::OvnKubernetes));
    }
    if is_served(Api::<HostSubnet>::all(client.clone())).await? {
        return Ok(Some(Network::OpenShiftSdn));
    }
    Ok(None)
}

/// Whether the API server knows a kind.
pub(super) async fn is_served<K>(api: Api<K>) -> Result<bool, kube::Error>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    match api.list_metadata(&ListParams::default().limit(1)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}
