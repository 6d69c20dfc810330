//! Writing objects that are in no namespace, and our few fields of objects that are not ours.

use std::fmt::Debug;

use k8s_openapi::ClusterResourceScope;
use kube::api::{DeleteParams, Patch, Preconditions};
use kube::runtime::events::EventType;
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Error, Writer, kind, refused, to_json};
use crate::identity;
use crate::unchanged::{DIGEST, contains, digest, status_contains};

/// What every object in no namespace that is written here can do.
pub trait Global:
    Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + DeserializeOwned + Serialize
{
}

impl<K> Global for K where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
{
}

impl Writer {
    pub(super) fn global<K: Global>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    /// Makes an object as it is wanted. `known` is the object as it was last seen, so that one that is well costs
    /// nothing; what is written is checked against the object as it is.
    pub async fn apply_global<K: Global>(&self, wanted: &K, known: Option<&K>) -> Result<(), Error> {
        let name = wanted.name_any();
        let mut body = to_json(wanted, &name)?;
        let digest = digest(&body);
        body["metadata"]["annotations"][DIGEST] = json!(digest);
        if let Some(known) = known
            && contains(&to_json(known, &name)?, &body)
        {
            return Ok(());
        }
        let api = self.global::<K>();
        let existing = api.get_opt(&name).await.map_err(refused::<K>("read", &name))?;
        if let Some(existing) = &existing {
            let owner = identity::controller(wanted.meta()).map(|owner| owner.uid.as_str());
            if !identity::is_ours(existing.meta(), owner) {
                let kind = kind::<K>();
                return Err(Error::Foreign { kind, name });
            }
        }
        self.may_write::<K>(&name)?;
        api.patch(&name, &self.params(), &Patch::Apply(&body))
            .await
            .map(drop)
            .map_err(refused::<K>("apply", &name))
    }

    /// Deletes the very object that was seen, if it has our labels. One that is gone is well.
    pub async fn delete_global<K: Global>(&self, seen: &K) -> Result<(), Error> {
        let name = seen.name_any();
        let owner = identity::controller(seen.meta()).map(|owner| owner.uid.as_str());
        if seen.meta().deletion_timestamp.is_some() || !identity::is_ours(seen.meta(), owner) {
            return Ok(());
        }
        self.may_write::<K>(&name)?;
        let params = DeleteParams::background().preconditions(Preconditions {
            uid: seen.uid(),
            resource_version: None,
        });
        match self.global::<K>().delete(&name, &params).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(refused::<K>("delete", &name)(error)),
        }
    }

    /// Changes some fields of an object that others own too, but only as it was seen: who changed it since wins.
    /// A field that is null in `fields` is removed.
    pub async fn change_as_seen<K: Global>(
        &self,
        seen: &impl ResourceExt,
        mut fields: Value,
    ) -> Result<(), Error> {
        fields["metadata"]["resourceVersion"] = json!(seen.resource_version());
        self.change::<K>(seen, fields).await
    }

    /// Changes fields that nobody but us writes, of an object that others write all the time.
    /// A field that is null in `fields` is removed.
    pub async fn change<K: Global>(&self, seen: &impl ResourceExt, mut fields: Value) -> Result<(), Error> {
        let name = seen.name_any();
        fields["metadata"]["uid"] = json!(seen.uid());
        self.may_write::<K>(&name)?;
        self.global::<K>()
            .patch(&name, &self.merging(), &Patch::Merge(&fields))
            .await
            .map(drop)
            .map_err(refused::<K>("change", &name))
    }

    /// Writes our part of a status, if it changed.
    pub async fn status_global<K: Global>(
        &self,
        object: &K,
        before: &Value,
        status: &Value,
    ) -> Result<(), Error> {
        if status_contains(before, status) {
            return Ok(());
        }
        let name = object.name_any();
        self.may_write::<K>(&name)?;
        let body = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": {"name": name, "uid": object.uid()},
            "status": status,
        });
        self.global::<K>()
            .patch_status(&name, &self.params(), &Patch::Apply(&body))
            .await
            .map(drop)
            .map_err(refused::<K>("write the status of", &name))
    }

    /// Tells a person something about an object in no namespace.
    pub async fn tell<K>(&self, about: &K, is_good: bool, reason: &str, message: &str)
    where
        K: Resource<DynamicType = ()>,
    {
        let type_ = if is_good {
            EventType::Normal
        } else {
            EventType::Warning
        };
        self.publish(&about.object_ref(&()), type_, reason, message, "Reconcile")
            .await;
    }
}
