//! Objects in other namespaces than their owner: labels lead back to it, and a finalizer holds it until they are gone.

use std::sync::Arc;

use kube::api::{ListParams, Patch};
use kube::core::PartialObjectMeta;
use kube::{Api, Resource, ResourceExt};
use serde_json::json;

use super::{Error, Object, Writer, full, refused};
use crate::identity::{self, FINALIZER, Role};

impl Writer {
    /// Deletes what `owner` has in other namespaces, except the objects of these namespaces and names. `known` is
    /// what a watch keeps at hand.
    pub async fn prune_elsewhere<K: Object>(
        &self,
        owner: &impl Object,
        role: Role,
        known: &[Arc<PartialObjectMeta<K>>],
        keep: &[(String, String)],
    ) -> Result<(), Error> {
        let (namespace, name) = (owner.namespace().unwrap_or_default(), owner.name_any());
        for object in known {
            let meta = object.meta();
            if identity::owner_elsewhere(meta) != Some((&namespace, &name)) || !identity::has_role(meta, role)
            {
                continue;
            }
            let place = (object.namespace().unwrap_or_default(), object.name_any());
            if !keep.contains(&place) {
                self.delete_exactly::<K>(meta).await?;
            }
        }
        Ok(())
    }

    /// Deletes everything of a kind that `owner` has in other namespaces, wherever that is. It is asked for from the
    /// API server: a watch may lag behind what was just written.
    pub async fn clear_elsewhere<K: Object>(&self, owner: &impl Object, role: Role) -> Result<(), Error> {
        let selector = identity::select_elsewhere(owner, role);
        let list = Api::<K>::all(self.client.clone())
            .list_metadata(&ListParams::default().labels(&selector))
            .await
            .map_err(refused::<K>("list", &selector))?;
        for object in list.items {
            self.delete_exactly::<K>(object.meta()).await?;
        }
        Ok(())
    }

    /// Holds a resource until what it has in other namespaces is gone, or lets it go.
    pub async fn hold<K: Object>(&self, object: &K, held: bool) -> Result<(), Error> {
        if object.finalizers().iter().any(|name| name == FINALIZER) == held {
            return Ok(());
        }
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let full = full(&namespace, &name);
        self.may_write::<K>(&full)?;
        let finalizers: &[&str] = if held { &[FINALIZER] } else { &[] };
        let body = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": {"name": name, "uid": object.uid(), "finalizers": finalizers},
        });
        match self
            .api::<K>(&namespace)
            .patch(&name, &self.params(), &Patch::Apply(&body))
            .await
        {
            Ok(_) => Ok(()),
            // It went in between, which is what was wanted.
            Err(kube::Error::Api(status)) if !held && matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(refused::<K>("write the finalizer of", &full)(error)),
        }
    }
}
