//! Which network the cluster has.

use std::fmt;
use std::str::FromStr;

use kube::{Api, Client};
use oooi_api::foreign::{self, EgressIP, HostSubnet, NetworkType};

use crate::context::Pauses;
use crate::presence::Presence;

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

/// Which network the cluster has now. Asks until there is an answer.
pub(super) async fn network(client: &Client, presence: &Presence) -> Option<Network> {
    until_answered("which network the cluster has", || look(client, presence)).await
}

/// Asks until there is an answer, however long that takes: a guess could move addresses that nobody asked to move.
pub(super) async fn until_answered<T, F>(what: &str, ask: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let pauses = Pauses::default();
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => {
                let pause = pauses.failed(what);
                tracing::warn!(%error, ?pause, "cannot tell {what}, asking again");
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// Asks OpenShift's configuration, else looks whose definitions are there.
async fn look(client: &Client, presence: &Presence) -> Result<Option<Network>, kube::Error> {
    if presence.has::<foreign::Network>() {
        let configuration = Api::<foreign::Network>::all(client.clone())
            .get_opt("cluster")
            .await?;
        match configuration.and_then(|network| network.status?.network_type) {
            Some(NetworkType::OVNKubernetes) => return Ok(Some(Network::OvnKubernetes)),
            Some(NetworkType::OpenShiftSDN) => return Ok(Some(Network::OpenShiftSdn)),
            Some(NetworkType::Other(_)) | None => {}
        }
    }
    if presence.has::<EgressIP>() {
        return Ok(Some(Network::OvnKubernetes));
    }
    Ok(presence.has::<HostSubnet>().then_some(Network::OpenShiftSdn))
}
