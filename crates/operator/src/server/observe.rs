//! What runs of a server. Reads only.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::Store;
use kube::{Api, ResourceExt};

use super::carry_out::Carried;
use super::status::{Applied, Replica, VolumeTrouble};
use super::{Error, Server, ServerContext, Wants};
use crate::first_look::FirstLook;
use crate::identity::{self, OURS};

/// Looks at the pods of a server, as their watch tells, and at its volume.
pub(super) async fn observe<S: Server>(
    ctx: &ServerContext,
    server: &S,
    wants: &Wants,
    carried: Carried,
) -> Result<Applied, Error> {
    let client = &ctx.common.client;
    let failed = |what| move |source| Error::Observe { what, source };
    let (namespace, name) = (server.namespace().unwrap_or_default(), server.name_any());
    ctx.common.first_look.listed(&ctx.pods).await?;
    let pods = ctx.pods.state_filter(|pod| {
        pod.metadata.namespace.as_deref() == Some(&*namespace)
            && identity::instance(&pod.metadata) == Some(&*name)
    });
    let mut stale = stale(server, pods.iter().map(|pod| pod.name_any()).collect());
    if !stale.is_empty() {
        // A pod may be younger than what the watch told of: its word is forgotten only if it is really gone.
        let selector = format!("{OURS},app.kubernetes.io/instance={name}");
        let there = Api::<Pod>::namespaced(client.clone(), &namespace)
            .list_metadata(&ListParams::default().labels(&selector))
            .await
            .map_err(failed("the pods of the server"))?;
        stale = self::stale(server, there.iter().map(ResourceExt::name_any).collect());
    }
    let replicas = carried
        .deployments
        .into_iter()
        .zip(&wants.addresses)
        .enumerate()
        .map(|(index, (deployment, address))| {
            let number = (index + 1).to_string();
            let own = |pod: &&Arc<Pod>| pod.labels().get(super::build::REPLICA) == Some(&number);
            Replica {
                pods: pods.iter().filter(own).map(|pod| Pod::clone(pod)).collect(),
                deployment,
                address: address.addr(),
            }
        })
        .collect();
    Ok(Applied {
        replicas,
        service_address: carried.service.spec.and_then(|spec| spec.cluster_ip),
        stale,
        volume: volume(
            &ctx.common.first_look,
            &ctx.classes,
            wants,
            carried.claim.as_ref(),
        )
        .await,
        missing: carried.missing,
    })
}

/// Entries of pods that are gone: their place in the list, and their pod.
fn stale<S: Server>(server: &S, pods: BTreeSet<String>) -> Vec<(usize, String)> {
    server
        .reports()
        .iter()
        .enumerate()
        .filter(|(_, report)| !pods.contains(&report.pod))
        .map(|(index, report)| (index, report.pod.clone()))
        .collect()
}

/// By which a StorageClass says that it is the default.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// Why a volume that is not there yet will not come by itself.
async fn volume(
    look: &FirstLook,
    classes: &Store<PartialObjectMeta<StorageClass>>,
    wants: &Wants,
    claim: Option<&PersistentVolumeClaim>,
) -> Option<VolumeTrouble> {
    let wanted = wants.claim.as_ref()?;
    let phase = claim?.status.as_ref().and_then(|status| status.phase.as_deref());
    if phase == Some("Bound") {
        return None;
    }
    // Nothing is said of classes that could not be listed.
    look.listed(classes).await.ok()?;
    without_class(wanted.class.as_deref(), &classes.state())
}

/// What keeps a claim from getting a volume, with these StorageClasses.
fn without_class(
    wanted: Option<&str>,
    classes: &[Arc<PartialObjectMeta<StorageClass>>],
) -> Option<VolumeTrouble> {
    let is_default = |class: &Arc<PartialObjectMeta<StorageClass>>| {
        let value = class.annotations().get(DEFAULT_CLASS);
        value.is_some_and(|value| value == "true")
    };
    match wanted {
        // An empty name asks for a volume that somebody made by hand.
        Some("") => None,
        Some(name) if classes.iter().any(|class| class.name_any() == name) => None,
        Some(name) => Some(VolumeTrouble::NoSuchClass(name.to_owned())),
        None if classes.iter().any(is_default) => None,
        None => Some(VolumeTrouble::NoDefaultClass),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str, default: bool) -> Arc<PartialObjectMeta<StorageClass>> {
        let mut class = PartialObjectMeta::<StorageClass>::default();
        class.metadata.name = Some(name.into());
        class
            .annotations_mut()
            .insert(DEFAULT_CLASS.into(), default.to_string());
        Arc::new(class)
    }

    #[test]
    fn a_claim_needs_the_class_that_it_names_or_a_default() {
        let classes = [class("fast", false)];
        assert_eq!(without_class(None, &classes), Some(VolumeTrouble::NoDefaultClass));
        assert_eq!(without_class(None, &[class("fast", true)]), None);
        assert_eq!(without_class(Some("fast"), &classes), None);
        assert_eq!(
            without_class(Some("slow"), &classes),
            Some(VolumeTrouble::NoSuchClass("slow".into()))
        );
        assert_eq!(without_class(Some(""), &[]), None, "a volume made by hand");
    }
}
