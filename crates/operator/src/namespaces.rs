//! One watch of several namespaces.
//!
//! Each namespace is watched by itself, so that rights in these namespaces are enough. To whoever fills a store from
//! it they look like one watch: its first list is whole when every namespace was listed, and a later list of one
//! namespace is told as changes and deletions of that one's objects.

use std::collections::HashMap;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream, Stream};
use kube::ResourceExt;
use kube::runtime::watcher::{self, Event};

/// The watch of one namespace.
pub(crate) type Watch<K> = BoxStream<'static, Result<Event<K>, watcher::Error>>;

/// Joins the watches of several namespaces.
pub(crate) fn join<K>(
    watches: Vec<Watch<K>>,
) -> impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static
where
    K: ResourceExt + Clone + Send + 'static,
{
    let mut joined = Joined::of(watches.len());
    let numbered = watches.into_iter().enumerate();
    let numbered = numbered.map(|(at, watch)| watch.map(move |event| (at, event)).boxed());
    stream::select_all(numbered).flat_map(move |(at, event)| {
        stream::iter(match event {
            Ok(event) => joined.take(at, event).into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        })
    })
}

/// What is known of each namespace: its objects by name.
struct Joined<K> {
    namespaces: Vec<Namespace<K>>,
    is_told: bool,
}

struct Namespace<K> {
    known: HashMap<String, K>,
    /// What the list that is being read has so far.
    list: HashMap<String, K>,
    is_listed: bool,
}

impl<K: ResourceExt + Clone> Joined<K> {
    fn of(count: usize) -> Self {
        let empty = || Namespace {
            known: HashMap::new(),
            list: HashMap::new(),
            is_listed: false,
        };
        Joined {
            namespaces: std::iter::repeat_with(empty).take(count).collect(),
            is_told: false,
        }
    }

    /// Takes what one namespace's watch says, and gives what follows for all of them.
    fn take(&mut self, at: usize, event: Event<K>) -> Vec<Event<K>> {
        let Some(namespace) = self.namespaces.get_mut(at) else {
            return Vec::new();
        };
        let changes = match event {
            Event::Init => {
                namespace.list.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                namespace.list.insert(object.name_any(), object);
                Vec::new()
            }
            Event::InitDone => namespace.listed(),
            Event::Apply(object) => {
                namespace.known.insert(object.name_any(), object.clone());
                vec![Event::Apply(object)]
            }
            Event::Delete(object) => {
                namespace.known.remove(&object.name_any());
                vec![Event::Delete(object)]
            }
        };
        if self.is_told {
            return changes;
        }
        if !self.namespaces.iter().all(|namespace| namespace.is_listed) {
            return Vec::new(); // it is told with the others
        }
        self.is_told = true;
        let all = self
            .namespaces
            .iter()
            .flat_map(|namespace| namespace.known.values());
        let all = all.cloned().map(Event::InitApply);
        std::iter::once(Event::Init)
            .chain(all)
            .chain([Event::InitDone])
            .collect()
    }
}

impl<K: ResourceExt + Clone> Namespace<K> {
    /// A list is whole: what is new or changed since, and what is gone.
    fn listed(&mut self) -> Vec<Event<K>> {
        self.is_listed = true;
        let now = std::mem::take(&mut self.list);
        let before = std::mem::replace(&mut self.known, now);
        let is_same = |object: &K| {
            let old = before.get(&object.name_any());
            old.is_some_and(|old| {
                old.uid() == object.uid() && old.resource_version() == object.resource_version()
            })
        };
        let mut changes: Vec<Event<K>> = Vec::new();
        changes.extend(
            self.known
                .values()
                .filter(|object| !is_same(object))
                .cloned()
                .map(Event::Apply),
        );
        let gone = before
            .into_iter()
            .filter(|(name, _)| !self.known.contains_key(name));
        changes.extend(gone.map(|(_, object)| Event::Delete(object)));
        changes
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(name: &str, version: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.into());
        object.metadata.resource_version = Some(version.into());
        object
    }

    fn words(events: Vec<Event<ConfigMap>>) -> Vec<String> {
        let mut words: Vec<String> = events
            .iter()
            .map(|event| match event {
                Event::Init => "init".into(),
                Event::InitDone => "done".into(),
                Event::InitApply(object) => format!("listed {}", object.name_any()),
                Event::Apply(object) => format!("put {}", object.name_any()),
                Event::Delete(object) => format!("gone {}", object.name_any()),
            })
            .collect();
        if words.len() > 2 {
            let last = words.len() - 1;
            words[1..last].sort();
        }
        words
    }

    fn list(joined: &mut Joined<ConfigMap>, at: usize, objects: &[(&str, &str)]) -> Vec<String> {
        assert!(joined.take(at, Event::Init).is_empty());
        for (name, version) in objects {
            assert!(
                joined
                    .take(at, Event::InitApply(object(name, version)))
                    .is_empty()
            );
        }
        words(joined.take(at, Event::InitDone))
    }

    #[test]
    fn the_first_list_is_whole_when_every_namespace_was_listed() {
        let mut joined = Joined::of(2);
        assert!(list(&mut joined, 0, &[("a", "1")]).is_empty());
        assert!(
            joined.take(0, Event::Apply(object("b", "1"))).is_empty(),
            "told with the others"
        );
        assert_eq!(
            list(&mut joined, 1, &[("c", "1")]),
            ["init", "listed a", "listed b", "listed c", "done"]
        );
        assert_eq!(words(joined.take(1, Event::Apply(object("d", "1")))), ["put d"]);
    }

    #[test]
    fn a_list_that_was_begun_anew_before_the_first_was_whole_counts_alone() {
        let mut joined = Joined::of(1);
        joined.take(0, Event::Init);
        joined.take(0, Event::InitApply(object("a", "1")));
        assert_eq!(list(&mut joined, 0, &[("b", "1")]), ["init", "listed b", "done"]);
    }

    #[test]
    fn a_later_list_of_one_namespace_is_told_as_what_changed_there() {
        let mut joined = Joined::of(2);
        list(&mut joined, 0, &[("a", "1"), ("b", "1"), ("same", "1")]);
        list(&mut joined, 1, &[("c", "1")]);
        let mut told = list(&mut joined, 0, &[("a", "2"), ("same", "1"), ("new", "1")]);
        told.sort();
        assert_eq!(told, ["gone b", "put a", "put new"]);
        assert!(
            list(&mut joined, 1, &[("c", "1")]).is_empty(),
            "nothing changed there"
        );
    }
}
