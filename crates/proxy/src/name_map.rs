//! A sorted map by name of which copies are cheap, and so is the difference between two of them.
//!
//! Entries lie in chunks that copies share. A change copies one chunk; [`NameMap::differences`] passes over chunks that
//! both maps share without looking into them. So one change among a thousand entries costs what one among ten does, give
//! or take a list of some thirty pointers, however many copies are alive: a snapshot is sent to many, who are
//! late by as many changes as they like.

use std::sync::Arc;

/// Entries of a chunk before it is split: a chunk is copied whole, and the list of chunks is.
const LARGEST: usize = 64;

type Entry<V> = (Arc<str>, V);
type Chunk<V> = Arc<Vec<Entry<V>>>;

/// The map.
#[derive(Debug, Clone)]
pub struct NameMap<V> {
    /// In order, each in order, none empty.
    chunks: Vec<Chunk<V>>,
    len: usize,
}

impl<V> Default for NameMap<V> {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            len: 0,
        }
    }
}

/// What became of a name between two maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference<'a, V> {
    /// The name.
    pub name: &'a Arc<str>,
    /// What it stood for.
    pub before: Option<&'a V>,
    /// What it stands for.
    pub after: Option<&'a V>,
}

impl<V> NameMap<V> {
    /// How many names there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What a name stands for.
    pub fn get(&self, name: &str) -> Option<&V> {
        let chunk = &self.chunks[self.chunk_of(name)?];
        let at = position(chunk, name).ok()?;
        Some(&chunk[at].1)
    }

    /// Whether the name is there.
    pub fn contains_key(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// All entries in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &V)> {
        self.chunks
            .iter()
            .flat_map(|chunk| chunk.iter())
            .map(|(name, value)| (name, value))
    }

    /// All names in order.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.iter().map(|(name, _)| name)
    }

    /// All values in the order of their names.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// The chunk that has the name, if any has.
    fn chunk_of(&self, name: &str) -> Option<usize> {
        let after = self.chunks.partition_point(|chunk| first(chunk) <= Some(name));
        after.checked_sub(1)
    }
}

impl<V: Clone> NameMap<V> {
    /// Lets the name stand for this value.
    pub fn insert(&mut self, name: Arc<str>, value: V) {
        if self.chunks.is_empty() {
            self.chunks.push(Arc::default());
        }
        let which = self.chunk_of(&name).unwrap_or(0);
        let chunk = Arc::make_mut(&mut self.chunks[which]);
        match position(chunk, &name) {
            Ok(at) => chunk[at].1 = value,
            Err(at) => {
                chunk.insert(at, (name, value));
                self.len += 1;
            }
        }
        if chunk.len() > LARGEST {
            // Names that come in order fill one chunk after the other.
            let cut = if which + 1 == self.chunks.len() {
                LARGEST
            } else {
                LARGEST / 2
            };
            let rest = Arc::make_mut(&mut self.chunks[which]).split_off(cut);
            self.chunks.insert(which + 1, Arc::new(rest));
        }
    }

    /// Forgets the name.
    pub fn remove(&mut self, name: &str) {
        let Some(which) = self.chunk_of(name) else {
            return;
        };
        let Ok(at) = position(&self.chunks[which], name) else {
            return;
        };
        self.len -= 1;
        let chunk = Arc::make_mut(&mut self.chunks[which]);
        chunk.remove(at);
        if chunk.is_empty() {
            self.chunks.remove(which);
        }
    }

    /// Forgets the names that `keep` does not want.
    pub fn retain(&mut self, keep: impl Fn(&Arc<str>) -> bool) {
        let gone: Vec<Arc<str>> = self.keys().filter(|name| !keep(name)).cloned().collect();
        gone.iter().for_each(|name| self.remove(name));
    }
}

impl<T> NameMap<Arc<T>> {
    /// The names that stand for something else than in `before`, in order. Values are the same when they are shared.
    pub fn differences<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = Difference<'a, Arc<T>>> {
        let (mut old, mut new) = (Place::start(&before.chunks), Place::start(&self.chunks));
        std::iter::from_fn(move || {
            loop {
                if let (Some(one), Some(other)) = (old.whole_chunk(), new.whole_chunk())
                    && Arc::ptr_eq(one, other)
                {
                    old.skip_chunk();
                    new.skip_chunk();
                    continue;
                }
                let (has, gets) = (old.entry(), new.entry());
                let name = match (has, gets) {
                    (None, None) => return None,
                    (Some((one, _)), Some((other, _))) => one.min(other),
                    (Some((name, _)), None) | (None, Some((name, _))) => name,
                };
                let of_name = |entry: Option<&'a Entry<Arc<T>>>| entry.filter(|entry| entry.0 == *name);
                let (before, after) = (of_name(has), of_name(gets));
                if before.is_some() {
                    old.next();
                }
                if after.is_some() {
                    new.next();
                }
                let [before, after] = [before, after].map(|entry| entry.map(|(_, value)| value));
                let same = matches!((before, after), (Some(one), Some(other)) if Arc::ptr_eq(one, other));
                if !same {
                    return Some(Difference { name, before, after });
                }
            }
        })
    }
}

impl<V: Clone> FromIterator<(Arc<str>, V)> for NameMap<V> {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, V)>>(entries: I) -> Self {
        let mut map = Self::default();
        entries
            .into_iter()
            .for_each(|(name, value)| map.insert(name, value));
        map
    }
}

fn first<V>(chunk: &Chunk<V>) -> Option<&str> {
    chunk.first().map(|(name, _)| &**name)
}

fn position<V>(chunk: &[Entry<V>], name: &str) -> Result<usize, usize> {
    chunk.binary_search_by(|(has, _)| (**has).cmp(name))
}

/// How far a walk over a map has come.
struct Place<'a, V> {
    chunks: &'a [Chunk<V>],
    at: usize,
}

impl<'a, V> Place<'a, V> {
    fn start(chunks: &'a [Chunk<V>]) -> Self {
        Self { chunks, at: 0 }
    }

    /// The chunk that the walk is about to enter.
    fn whole_chunk(&self) -> Option<&'a Chunk<V>> {
        self.chunks.first().filter(|_| self.at == 0)
    }

    fn skip_chunk(&mut self) {
        (self.chunks, self.at) = (&self.chunks[1..], 0);
    }

    fn entry(&self) -> Option<&'a Entry<V>> {
        self.chunks.first().map(|chunk| &chunk[self.at])
    }

    fn next(&mut self) {
        self.at += 1;
        if self.chunks.first().is_some_and(|chunk| chunk.len() == self.at) {
            self.skip_chunk();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn many(count: usize) -> NameMap<Arc<usize>> {
        (0..count)
            .map(|number| (Arc::from(format!("n{number:05}")), Arc::new(number)))
            .collect()
    }

    #[test]
    fn a_copy_that_changes_shares_the_rest() {
        let before = many(1000);
        let mut after = before.clone();
        after.insert("n00500".into(), Arc::new(0));
        let shared = before.chunks.iter().filter(|chunk| {
            let mut others = after.chunks.iter();
            others.any(|other| Arc::ptr_eq(other, chunk))
        });
        assert_eq!(shared.count(), before.chunks.len() - 1);
        let [ref only] = after.differences(&before).collect::<Vec<_>>()[..] else {
            panic!("one difference")
        };
        assert_eq!(
            (&**only.name, only.before, only.after),
            ("n00500", Some(&Arc::new(500)), Some(&Arc::new(0)))
        );
    }

    #[test]
    fn names_in_order_fill_their_chunks() {
        assert!(many(1000).chunks.len() <= 1000 / LARGEST + 1);
    }

    proptest! {
        #[test]
        fn it_is_what_a_sorted_map_is_and_knows_every_difference(
            first in prop::collection::vec((0_u16..300, any::<bool>()), 0..400),
            then in prop::collection::vec((0_u16..300, any::<bool>()), 0..200),
        ) {
            let mut map = NameMap::<Arc<u16>>::default();
            let mut model = BTreeMap::<Arc<str>, Arc<u16>>::new();
            let change = |map: &mut NameMap<Arc<u16>>, model: &mut BTreeMap<Arc<str>, Arc<u16>>, (number, stays): (u16, bool)| {
                let name: Arc<str> = format!("n{number}").into();
                if stays {
                    let value = Arc::new(number);
                    map.insert(name.clone(), value.clone());
                    model.insert(name, value);
                } else {
                    map.remove(&name);
                    model.remove(&name);
                }
            };
            first.into_iter().for_each(|one| change(&mut map, &mut model, one));
            let (old_map, old_model) = (map.clone(), model.clone());
            then.into_iter().for_each(|one| change(&mut map, &mut model, one));
            prop_assert!(map.iter().eq(model.iter()));
            prop_assert_eq!(map.len(), model.len());
            prop_assert!(model.keys().all(|name| map.get(name).is_some()));
            let same = |one: Option<&Arc<u16>>, other: Option<&Arc<u16>>| one.map(Arc::as_ptr) == other.map(Arc::as_ptr);
            let names: std::collections::BTreeSet<_> = old_model.keys().chain(model.keys()).collect();
            let expected = names.into_iter().filter(|name| !same(old_model.get(*name), model.get(*name)));
            let found: Vec<_> = map.differences(&old_map).collect();
            prop_assert!(found.iter().map(|one| one.name).eq(expected));
            for one in found {
                prop_assert!(same(one.before, old_model.get(one.name)) && same(one.after, model.get(one.name)));
            }
        }
    }
}
