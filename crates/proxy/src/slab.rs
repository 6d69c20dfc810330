//! Values under small numbers that stay the same while they live.

/// A slab. A number that became free is used again only after [`recycle`](Slab::recycle), so that what still
/// speaks of the old value, such as events that were fetched together, cannot meet a new one.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    values: Vec<Option<T>>,
    free: Vec<usize>,
    freed: Vec<usize>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            free: Vec::new(),
            freed: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> usize {
        match self.free.pop() {
            Some(index) => {
                self.values[index] = Some(value);
                index
            }
            None => {
                self.values.push(Some(value));
                self.values.len() - 1
            }
        }
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.values.get_mut(index)?.as_mut()
    }

    pub(crate) fn remove(&mut self, index: usize) -> Option<T> {
        let value = self.values.get_mut(index)?.take()?;
        self.freed.push(index);
        Some(value)
    }

    /// Makes the numbers of removed values available.
    pub(crate) fn recycle(&mut self) {
        self.free.append(&mut self.freed);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.len() == self.free.len() + self.freed.len()
    }

    pub(crate) fn all_indices(&self) -> std::ops::Range<usize> {
        0..self.values.len()
    }

    /// The numbers of those values that fit.
    pub(crate) fn indices(&self, fits: impl Fn(&T) -> bool) -> impl Iterator<Item = usize> {
        let all = self.values.iter().enumerate();
        all.filter(move |(_, value)| value.as_ref().is_some_and(&fits))
            .map(|(index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_used_again_only_after_recycling() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!(slab.remove(a), Some('a'));
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.get_mut(a), None);
        assert_ne!(slab.insert('c'), a);
        slab.recycle();
        assert_eq!(slab.insert('d'), a);
        assert_eq!(slab.indices(|value| *value == 'b').collect::<Vec<_>>(), [b]);
        assert!(!slab.is_empty());
        for index in slab.all_indices() {
            slab.remove(index);
        }
        assert!(slab.is_empty());
    }
}
