//! What runs of a server. Reads only.

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use super::carry_out::Carried;
use super::status::{Applied, Replica};
use super::{Error, Server, Wants};
use crate::identity::OURS;

/// Looks at the pods of a server and at its Service.
pub(super) async fn observe<S: Server>(
    client: &Client,
    server: &S,
    wants: &Wants,
    carried: Carried,
) -> Result<Applied, Error> {
    let failed = |what| move |source| Error::Observe { what, source };
    let (namespace, name) = (server.namespace().unwrap_or_default(), server.name_any());
    let selector = format!("{OURS},app.kubernetes.io/instance={name}");
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace)
        .list(&ListParams::default().labels(&selector))
        .await
        .map_err(failed("the pods of the server"))?
        .items;
    let service = Api::<Service>::namespaced(client.clone(), &namespace)
        .get_opt(&name)
        .await
        .map_err(failed("the Service of the server"))?;
    let replicas = carried
        .deployments
        .into_iter()
        .zip(&wants.addresses)
        .enumerate()
        .map(|(index, (deployment, address))| {
            let number = (index + 1).to_string();
            let own = |pod: &&Pod| pod.labels().get(super::build::REPLICA) == Some(&number);
            Replica {
                pods: pods.iter().filter(own).cloned().collect(),
                deployment,
                address: address.addr(),
            }
        })
        .collect();
    Ok(Applied {
        replicas,
        service_address: service.and_then(|service| service.spec?.cluster_ip),
        missing: carried.missing,
    })
}
