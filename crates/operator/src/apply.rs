//! The only module that writes to the cluster; [`global`] is its part for objects in no namespace.
//!
//! ```text
//! wanted object ─► is there one? ─┬─ not ours ──► refused, named
//!                                 ├─ as wanted ─► nothing is written
//!                                 └─ else ──────► server-side apply, one field manager a controller
//! ```
//! Guarantees: an object without our labels, or with another owner, is never written nor deleted, but for what an
//! earlier operator made for the same resource; what is already as wanted costs one read, or none where a watch tells
//! that it is still as it was found ([`Seen`]); a status is written only if it changed; and once leadership is lost
//! every write is refused before it leaves.

mod elsewhere;
mod error;
mod foreign;
mod global;
mod takeover;

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, Preconditions};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::condition::Finding;
use crate::identity;
use crate::lease::Term;
use crate::seen::Seen;
use crate::unchanged::{DIGEST, contains, digest, status_contains};

pub use error::Error;
pub use global::Global;

/// The longest note that the API server takes for an event.
const LONGEST_NOTE: usize = 1000;

/// Kinds that are replaced where an earlier operator made them: what they select cannot be changed.
const REPLACED: [&str; 1] = ["Deployment"];

/// Kinds that are never changed once they are there: what is kept on a volume is worth more than its size.
const KEPT: [&str; 1] = ["PersistentVolumeClaim"];

/// What every object that is written here can do.
pub trait Object:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Serialize
{
}

impl<K> Object for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
{
}

/// How much of an object is ours.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// All of it.
    Whole,
    /// The fields that are applied, and no others.
    Fields,
}

/// Writes for one controller.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    manager: &'static str,
    recorder: Recorder,
    leading: watch::Receiver<Term>,
    seen: Seen,
}

impl Writer {
    /// A writer under the name of a controller, for as long as `leading` holds.
    pub fn new(client: Client, manager: &'static str, leading: watch::Receiver<Term>) -> Self {
        let recorder = Recorder::new(client.clone(), Reporter::from(manager));
        Writer {
            client,
            manager,
            recorder,
            leading,
            seen: Seen::default(),
        }
    }

    /// Where watches are to tell of what this writer keeps.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    fn api<K: Object>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn params(&self) -> PatchParams {
        PatchParams::apply(self.manager).force()
    }

    fn merging(&self) -> PatchParams {
        PatchParams {
            field_manager: Some(self.manager.to_owned()),
            ..PatchParams::default()
        }
    }

    /// Refuses a write once another process leads, or may lead by now.
    fn may_write<K: Resource<DynamicType = ()>>(&self, name: &str) -> Result<(), Error> {
        if self.leading.borrow().runs() {
            return Ok(());
        }
        Err(Error::NotLeading {
            kind: kind::<K>(),
            name: name.to_owned(),
        })
    }

    /// An object as it is now, if it is there.
    pub async fn read<K: Object>(&self, namespace: &str, name: &str) -> Result<Option<K>, Error> {
        let read = self.api::<K>(namespace).get_opt(name).await;
        read.map_err(refused::<K>("read", &full(namespace, name)))
    }

    /// Makes an object as it is wanted. One of which a watch tells that it is as it was found last is not read again.
    pub async fn keep<K: Object + 'static>(&self, wanted: &K) -> Result<(), Error> {
        let (namespace, name) = (wanted.namespace().unwrap_or_default(), wanted.name_any());
        let body = to_json(wanted, &full(&namespace, &name))?;
        let digest = digest(&body);
        if self.seen.is_settled::<K>(wanted.meta(), &digest) {
            return Ok(());
        }
        let existing = self.read::<K>(&namespace, &name).await?;
        let kept = self
            .change_into(existing, wanted.meta(), body, Extent::Whole, |_| false)
            .await?;
        self.seen.settle::<K>(kept.meta(), digest);
        Ok(())
    }

    /// The same, and gives the object as it is then: if it was not read, as the watch keeps it at hand. One that is
    /// there and must not be changed now is left and given as it is.
    pub async fn keep_at_hand<K: Object + 'static>(
        &self,
        at_hand: &Store<K>,
        wanted: &K,
        stays: impl Fn(&K) -> bool,
    ) -> Result<K, Error> {
        let (namespace, name) = (wanted.namespace().unwrap_or_default(), wanted.name_any());
        let body = to_json(wanted, &full(&namespace, &name))?;
        let digest = digest(&body);
        if self.seen.is_settled::<K>(wanted.meta(), &digest)
            && let Some(known) = at_hand.get(&ObjectRef::from_obj(wanted))
        {
            return Ok(K::clone(&known));
        }
        let existing = self.read::<K>(&namespace, &name).await?;
        let left = AtomicBool::new(false);
        let stays = |existing: &K| {
            let stays = stays(existing);
            left.fetch_or(stays, Ordering::Relaxed);
            stays
        };
        let kept = self
            .change_into(existing, wanted.meta(), body, Extent::Whole, stays)
            .await?;
        if !left.into_inner() {
            self.seen.settle::<K>(kept.meta(), digest);
        }
        Ok(kept)
    }

    /// Makes an object as it is wanted, and gives it as it is then. `existing` is what is known of it. If that is nothing,
    /// it is looked for: somebody may have made one of that name since.
    pub async fn apply_to<K: Object>(&self, existing: Option<K>, wanted: &K) -> Result<K, Error> {
        let (namespace, name) = (wanted.namespace().unwrap_or_default(), wanted.name_any());
        let existing = match existing {
            None => self.read::<K>(&namespace, &name).await?,
            known => known,
        };
        let body = to_json(wanted, &full(&namespace, &name))?;
        self.change_into(existing, wanted.meta(), body, Extent::Whole, |_| false)
            .await
    }

    /// Makes an object as it is wanted, and gives it as it is then.
    pub async fn apply<K: Object>(&self, wanted: &K) -> Result<K, Error> {
        self.apply_to(None, wanted).await
    }

    /// The same with these fields alone: any other field of the object belongs to whoever set it, and so does what
    /// somebody adds to a list.
    pub async fn apply_fields<K: Object>(&self, metadata: &ObjectMeta, body: Value) -> Result<K, Error> {
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        let existing = self.read::<K>(namespace, name).await?;
        self.change_into(existing, metadata, body, Extent::Fields, |_| false)
            .await
    }

    /// Makes what was read into what is wanted.
    async fn change_into<K: Object>(
        &self,
        existing: Option<K>,
        metadata: &ObjectMeta,
        mut body: Value,
        extent: Extent,
        stays: impl Fn(&K) -> bool,
    ) -> Result<K, Error> {
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let name = metadata.name.clone().unwrap_or_default();
        let full = full(&namespace, &name);
        let digest = digest(&body);
        body["metadata"]["annotations"][DIGEST] = json!(digest);

        if let Some(existing) = existing {
            let owner = identity::controller(metadata).map(|owner| owner.uid.as_str());
            let same_owner =
                identity::owner_elsewhere(existing.meta()) == identity::owner_elsewhere(metadata);
            let inherited = identity::is_inherited(existing.meta(), owner);
            if !inherited && (!same_owner || !identity::is_ours(existing.meta(), owner)) {
                return Err(Error::Foreign {
                    kind: kind::<K>(),
                    name: full,
                });
            }
            if inherited && REPLACED.contains(&&*K::kind(&())) {
                return Err(Error::Replacing {
                    kind: kind::<K>(),
                    name: full,
                });
            }
            if KEPT.contains(&&*K::kind(&())) {
                if !inherited {
                    return Ok(existing);
                }
                body.as_object_mut().map(|body| body.remove("spec"));
            }
            if contains(&to_json(&existing, &full)?, &body) || stays(&existing) {
                return Ok(existing);
            }
            // The very object that was looked at: one of the same name may have come in between.
            body["metadata"]["uid"] = json!(existing.uid());
        }
        self.may_write::<K>(&full)?;
        let applied: K = self
            .api::<K>(&namespace)
            .patch(&name, &self.params(), &Patch::Apply(&body))
            .await
            .map_err(refused::<K>("apply", &full))?;
        match extent {
            Extent::Whole => self.without_additions(applied, body).await,
            Extent::Fields => Ok(applied),
        }
    }

    /// Takes out of an object's lists what somebody else added: such items belong to whoever added them, so no apply
    /// removes them. Its metadata is left to everybody.
    async fn without_additions<K: Object>(&self, applied: K, mut wanted: Value) -> Result<K, Error> {
        let (namespace, name) = (applied.namespace().unwrap_or_default(), applied.name_any());
        let full = full(&namespace, &name);
        wanted["metadata"] = json!({"uid": applied.uid()});
        if contains(&to_json(&applied, &full)?, &wanted) {
            return Ok(applied);
        }
        self.may_write::<K>(&full)?;
        self.api::<K>(&namespace)
            .patch(&name, &self.merging(), &Patch::Merge(&wanted))
            .await
            .map_err(refused::<K>("change", &full))
    }

    /// Deletes an object that `owner` has no more use for. One that is not ours stays.
    pub async fn remove<K: Object>(&self, namespace: &str, name: &str, owner: &str) -> Result<(), Error> {
        match self.read::<K>(namespace, name).await? {
            Some(existing) => self.delete(&existing, owner).await,
            None => Ok(()),
        }
    }

    /// Deletes what belongs to `owner` by label and owner reference, except the objects of these names. A watch tells
    /// which there are; one that it has not told of yet wakes the owner when it does.
    pub async fn prune<K: Object + 'static>(
        &self,
        owner: &impl Object,
        keep: &[String],
    ) -> Result<(), Error> {
        let namespace = owner.namespace().unwrap_or_default();
        let uid = owner.uid().unwrap_or_default();
        for name in self
            .seen
            .names::<K>(&namespace, &identity::label_value(&owner.name_any()))
        {
            if !keep.contains(&name) {
                self.remove::<K>(&namespace, &name, &uid).await?;
            }
        }
        Ok(())
    }

    async fn delete<K: Object>(&self, existing: &K, owner: &str) -> Result<(), Error> {
        let owned = identity::controller(existing.meta()).is_some_and(|controller| controller.uid == owner);
        let leaving = existing.meta().deletion_timestamp.is_some();
        if leaving || !owned || !identity::is_ours(existing.meta(), Some(owner)) {
            return Ok(());
        }
        self.delete_exactly::<K>(existing.meta()).await
    }

    async fn delete_exactly<K: Object>(&self, existing: &ObjectMeta) -> Result<(), Error> {
        let (namespace, name) = (
            existing.namespace.as_deref().unwrap_or_default(),
            existing.name.as_deref().unwrap_or_default(),
        );
        let full = full(namespace, name);
        self.may_write::<K>(&full)?;
        // Only the very object that was looked at: one of the same name may have come in between.
        let params = DeleteParams::background().preconditions(Preconditions {
            uid: existing.uid.clone(),
            resource_version: None,
        });
        match self.api::<K>(namespace).delete(name, &params).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(refused::<K>("delete", &full)(error)),
        }
    }

    /// Writes our part of a status, if it changed. `before` is the status as it was read.
    pub async fn status<K: Object>(&self, object: &K, before: &Value, status: &Value) -> Result<(), Error> {
        if status_contains(before, status) {
            return Ok(());
        }
        self.write_status(object, status).await
    }

    async fn write_status<K: Object>(&self, object: &K, status: &Value) -> Result<(), Error> {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let full = full(&namespace, &name);
        self.may_write::<K>(&full)?;
        let body = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            // With its uid, so that an object of the same name that was made since gets no status of the old one.
            "metadata": {"name": name, "uid": object.uid()},
            "status": status,
        });
        self.api::<K>(&namespace)
            .patch_status(&name, &self.params(), &Patch::Apply(&body))
            .await
            .map(drop)
            .map_err(refused::<K>("write the status of", &full))
    }

    /// Removes entries of a status that pods wrote which are gone. Each is named by its place in the list and its pod:
    /// if another one is there by now, nothing is removed, and the change brings the next look.
    pub async fn forget_reports<K: Object>(
        &self,
        object: &K,
        stale: &[(usize, String)],
    ) -> Result<(), Error> {
        if stale.is_empty() {
            return Ok(());
        }
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let full = full(&namespace, &name);
        self.may_write::<K>(&full)?;
        // From the end, so that the places of the others stay.
        let steps: Vec<Value> = stale
            .iter()
            .rev()
            .flat_map(|(place, pod)| {
                [
                    json!({"op": "test", "path": format!("/status/servers/{place}/pod"), "value": pod}),
                    json!({"op": "remove", "path": format!("/status/servers/{place}")}),
                ]
            })
            .collect();
        let patch: Patch<Value> = match serde_json::from_value(Value::Array(steps)) {
            Ok(steps) => Patch::Json(steps),
            Err(source) => {
                return Err(Error::Json {
                    kind: kind::<K>(),
                    name: full,
                    source,
                });
            }
        };
        match self
            .api::<K>(&namespace)
            .patch_status(&name, &PatchParams::default(), &patch)
            .await
        {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => Ok(()),
            Err(error) => Err(refused::<K>("write the status of", &full)(error)),
        }
    }

    /// Tells a person. An event that cannot be written is logged: it must not hold up the work that it is about.
    pub async fn event(&self, about: &impl Object, finding: &Finding) {
        let reference = about.object_ref(&());
        let type_ = if finding.is_true() {
            EventType::Normal
        } else {
            EventType::Warning
        };
        self.publish(&reference, type_, &finding.reason, &finding.message, finding.kind)
            .await;
    }

    /// Warns a person of something that is no condition.
    pub async fn warn(&self, about: &impl Object, reason: &str, message: &str) {
        self.publish(
            &about.object_ref(&()),
            EventType::Warning,
            reason,
            message,
            "Plan",
        )
        .await;
    }

    async fn publish(
        &self,
        about: &ObjectReference,
        type_: EventType,
        reason: &str,
        message: &str,
        action: &str,
    ) {
        if !self.leading.borrow().runs() {
            return;
        }
        let mut end = message.len().min(LONGEST_NOTE);
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(message[..end].to_owned()),
            action: action.to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, about).await {
            tracing::warn!(%error, reason, message, "an event cannot be written");
        }
    }
}

fn kind<K: Resource<DynamicType = ()>>() -> String {
    K::kind(&()).into_owned()
}

fn full(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

fn to_json<K: Resource<DynamicType = ()> + Serialize>(object: &K, name: &str) -> Result<Value, Error> {
    serde_json::to_value(object).map_err(|source| Error::Json {
        kind: kind::<K>(),
        name: name.to_owned(),
        source,
    })
}

fn refused<K: Resource<DynamicType = ()>>(verb: &'static str, name: &str) -> impl Fn(kube::Error) -> Error {
    let (kind, name) = (kind::<K>(), name.to_owned());
    move |source| Error::Refused {
        verb,
        kind: kind.clone(),
        name: name.clone(),
        source: Box::new(source),
    }
}
