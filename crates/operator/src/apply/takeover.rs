//! What an earlier operator left: replaced, or removed where nothing uses it any more. Nothing is touched that is not
//! proven to be its work.

use kube::api::{DeleteParams, Patch, Preconditions};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::{Error, Global, Object, Writer, full, refused};
use crate::identity;

impl Writer {
    /// Deletes what an earlier operator made under the name of `wanted`, which is made anew once it is gone, and its
    /// pods with it: two of them would have the same address. Says whether it was to be deleted only now.
    pub async fn replace<K: Object>(&self, wanted: &K) -> Result<bool, Error> {
        let (namespace, name) = (wanted.namespace().unwrap_or_default(), wanted.name_any());
        let full = full(&namespace, &name);
        let existing = self.read::<K>(&namespace, &name).await?;
        let owner = identity::controller(wanted.meta()).map(|owner| owner.uid.as_str());
        let Some(existing) = existing.filter(|existing| {
            identity::is_inherited(existing.meta(), owner) && existing.meta().deletion_timestamp.is_none()
        }) else {
            return Ok(false);
        };
        self.may_write::<K>(&full)?;
        let params = DeleteParams::foreground().preconditions(exactly(&existing));
        let deleted = self.api::<K>(&namespace).delete(&name, &params).await;
        deleted.map_err(refused::<K>("delete", &full)).map(|_| true)
    }

    /// Sets fields of a resource that a person may have written, and leaves them to whoever has them.
    pub async fn set_fields<K: Object>(&self, object: &K, mut fields: Value) -> Result<(), Error> {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let full = full(&namespace, &name);
        self.may_write::<K>(&full)?;
        fields["metadata"] = json!({"uid": object.uid()});
        let written = self
            .api::<K>(&namespace)
            .patch(&name, &self.merging(), &Patch::Merge(&fields))
            .await;
        written.map(drop).map_err(refused::<K>("change", &full))
    }

    /// Deletes an object that an earlier operator left, if it is proven to be one.
    pub async fn remove_leftover<K: Object>(
        &self,
        namespace: &str,
        name: &str,
        is_proven: impl Fn(&K) -> bool,
    ) -> Result<(), Error> {
        let full = full(namespace, name);
        let found = self.read::<K>(namespace, name).await?;
        let Some(found) = found.filter(|found| !identity::is_labelled(found.meta()) && is_proven(found))
        else {
            return Ok(());
        };
        self.may_write::<K>(&full)?;
        let params = DeleteParams::background().preconditions(exactly(&found));
        gone(self.api::<K>(namespace).delete(name, &params).await).map_err(refused::<K>("delete", &full))
    }

    /// An object in no namespace that is not ours.
    pub async fn find_leftover<K: Global>(&self, name: &str) -> Result<Option<K>, Error> {
        match self.global::<K>().get_opt(name).await {
            Ok(found) => Ok(found.filter(|found| !identity::is_labelled(found.meta()))),
            Err(error) => Err(refused::<K>("read", name)(error)),
        }
    }

    /// Deletes the very object in no namespace that was found.
    pub async fn remove_found<K: Global>(&self, found: &K) -> Result<(), Error> {
        let name = found.name_any();
        self.may_write::<K>(&name)?;
        let params = DeleteParams::background().preconditions(exactly(found));
        gone(self.global::<K>().delete(&name, &params).await).map_err(refused::<K>("delete", &name))
    }
}

/// Only the very object that was looked at: one of the same name may have come in between.
fn exactly(object: &impl Resource) -> Preconditions {
    Preconditions {
        uid: object.meta().uid.clone(),
        resource_version: None,
    }
}

/// An object that is gone already is well.
fn gone<T>(deleted: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match deleted {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}
