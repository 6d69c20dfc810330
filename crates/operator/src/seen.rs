//! Which version of each object the watches told of last, so that what is known to be as wanted is not read again.
//!
//! Whoever wrote an object, or read it and found it as wanted, remembers its version and the digest of what was wanted.
//! For as long as the watch of its kind tells of that version and the same is wanted, there is nothing to read. A watch
//! may lag behind: a change that it has not told of yet wakes whoever looked when it comes.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Resource;
use kube::api::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;

use serde_json::json;

use crate::identity;
use crate::unchanged::digest;

/// What is known of the objects of one kind, by namespace and name.
type Objects = HashMap<(String, String), Known>;

/// What the watches of one controller told of. Clones share it.
#[derive(Clone, Default)]
pub struct Seen(Arc<Mutex<HashMap<TypeId, Objects>>>);

/// What is known of an object.
#[derive(Default)]
struct Known {
    /// The state that the watch told of last; none if it told of none.
    state: Option<String>,
    /// What it belongs to, by its label.
    instance: Option<String>,
    /// The state that was as wanted, and the digest of that.
    settled: Option<(String, String)>,
}

/// What tells states of an object apart. Where the API server counts changes of the specification, those of the status
/// do not matter; else every version is another state.
fn state(metadata: &ObjectMeta) -> Option<String> {
    let version = metadata.resource_version.clone()?;
    let Some(generation) = metadata.generation else {
        return Some(version);
    };
    Some(digest(&json!([
        metadata.uid,
        generation,
        metadata.labels,
        metadata.annotations,
        metadata.owner_references,
        metadata.finalizers,
        metadata.deletion_timestamp,
    ])))
}

fn place(metadata: &ObjectMeta) -> (String, String) {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    (text(&metadata.namespace), text(&metadata.name))
}

impl Seen {
    fn kinds(&self) -> MutexGuard<'_, HashMap<TypeId, Objects>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of what the only watch of a kind tells.
    pub(crate) fn note<K: Resource<DynamicType = ()> + 'static>(&self, event: &Event<PartialObjectMeta<K>>) {
        self.note_whole::<K, _>(event);
    }

    /// The same of a watch that tells of more than metadata.
    pub(crate) fn note_whole<K: 'static, O: Resource>(&self, event: &Event<O>) {
        let mut kinds = self.kinds();
        let objects = kinds.entry(TypeId::of::<K>()).or_default();
        match event {
            // What is not in the list that begins is gone.
            Event::Init => objects.values_mut().for_each(|known| known.state = None),
            Event::InitDone => objects.retain(|_, known| known.state.is_some()),
            Event::InitApply(object) | Event::Apply(object) => {
                let known = objects.entry(place(object.meta())).or_default();
                known.state = state(object.meta());
                known.instance = identity::instance(object.meta()).map(str::to_owned);
            }
            Event::Delete(object) => drop(objects.remove(&place(object.meta()))),
        }
    }

    /// Whether an object is known to be as this digest wants it.
    pub(crate) fn is_settled<K: 'static>(&self, metadata: &ObjectMeta, digest: &str) -> bool {
        let kinds = self.kinds();
        let objects = kinds.get(&TypeId::of::<K>());
        let known = objects.and_then(|objects| objects.get(&place(metadata)));
        known.is_some_and(|known| match (&known.state, &known.settled) {
            (Some(state), Some((settled, wanted))) => state == settled && wanted == digest,
            _ => false,
        })
    }

    /// An object is as this digest wants it, in the version that it has.
    pub(crate) fn settle<K: 'static>(&self, metadata: &ObjectMeta, digest: String) {
        let Some(state) = state(metadata) else {
            return;
        };
        let mut kinds = self.kinds();
        let objects = kinds.entry(TypeId::of::<K>()).or_default();
        objects.entry(place(metadata)).or_default().settled = Some((state, digest));
    }

    /// The names of objects that belong to something, as the watch tells.
    pub(crate) fn names<K: 'static>(&self, namespace: &str, instance: &str) -> Vec<String> {
        let kinds = self.kinds();
        let objects = kinds.get(&TypeId::of::<K>());
        let own = objects.into_iter().flatten().filter(|((place, _), known)| {
            place == namespace && known.state.is_some() && known.instance.as_deref() == Some(instance)
        });
        own.map(|((_, name), _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(version: &str) -> PartialObjectMeta<ConfigMap> {
        let mut object = PartialObjectMeta::<ConfigMap>::default();
        object.metadata.namespace = Some("n".into());
        object.metadata.name = Some("a".into());
        object.metadata.resource_version = Some(version.into());
        object.metadata.labels = Some(identity::labels("x", None));
        object
    }

    fn settled(seen: &Seen, digest: &str) -> bool {
        seen.is_settled::<ConfigMap>(&object("").metadata, digest)
    }

    #[test]
    fn what_was_found_as_wanted_is_known_until_its_version_or_the_wish_changes() {
        let seen = Seen::default();
        seen.settle::<ConfigMap>(&object("1").metadata, "d".into());
        assert!(!settled(&seen, "d"), "the watch did not tell of it yet");
        seen.note(&Event::Apply(object("1")));
        assert!(settled(&seen, "d"));
        assert!(!settled(&seen, "e"), "something else is wanted");
        seen.note(&Event::Apply(object("2")));
        assert!(!settled(&seen, "d"), "somebody changed it");
        seen.settle::<ConfigMap>(&object("2").metadata, "d".into());
        seen.note(&Event::Delete(object("2")));
        assert!(!settled(&seen, "d"), "somebody deleted it");
    }

    #[test]
    fn a_change_of_the_status_is_none_where_changes_of_the_specification_are_counted() {
        let seen = Seen::default();
        let counted = |version: &str, generation, label: &str| {
            let mut object = object(version);
            object.metadata.generation = Some(generation);
            let labels = object.metadata.labels.get_or_insert_default();
            labels.insert("l".into(), label.into());
            object
        };
        seen.settle::<ConfigMap>(&counted("1", 1, "a").metadata, "d".into());
        seen.note(&Event::Apply(counted("2", 1, "a")));
        assert!(settled(&seen, "d"));
        seen.note(&Event::Apply(counted("3", 2, "a")));
        assert!(!settled(&seen, "d"), "its specification changed");
        seen.note(&Event::Apply(counted("4", 1, "b")));
        assert!(!settled(&seen, "d"), "its labels changed");
    }

    #[test]
    fn what_a_new_list_lacks_is_gone() {
        let seen = Seen::default();
        seen.note(&Event::Apply(object("1")));
        assert_eq!(seen.names::<ConfigMap>("n", "x"), ["a"]);
        assert!(seen.names::<ConfigMap>("n", "y").is_empty());
        seen.settle::<ConfigMap>(&object("1").metadata, "d".into());
        seen.note::<ConfigMap>(&Event::Init);
        assert!(!settled(&seen, "d"), "nobody knows before the list is whole");
        seen.note(&Event::InitApply(object("1")));
        seen.note::<ConfigMap>(&Event::InitDone);
        assert!(settled(&seen, "d"));
        seen.note::<ConfigMap>(&Event::Init);
        seen.note::<ConfigMap>(&Event::InitDone);
        assert!(seen.names::<ConfigMap>("n", "x").is_empty());
    }
}
