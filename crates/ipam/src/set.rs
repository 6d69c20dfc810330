//! A set of addresses, kept as intervals.

use std::fmt;
use std::net::Ipv4Addr;

use crate::Range;

/// Addresses, as ranges that are sorted, apart from each other and not adjacent. Its size in memory depends on how
/// scattered the addresses are, never on how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    ranges: Vec<Range>,
}

impl Set {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many addresses it holds.
    pub fn len(&self) -> u64 {
        self.ranges.iter().map(|range| range.len()).sum()
    }

    /// Its ranges, from the lowest to the highest.
    pub fn ranges(&self) -> impl Iterator<Item = Range> + '_ {
        self.ranges.iter().copied()
    }

    /// Whether the address is in it.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        self.overlap(address.into()).is_some()
    }

    /// The lowest addresses that it shares with a range, as far as they are adjacent.
    pub fn overlap(&self, range: Range) -> Option<Range> {
        let at = self.ranges.partition_point(|known| known.last() < range.first());
        self.ranges.get(at)?.intersection(range)
    }

    /// Adds addresses. Those that are in it already do no harm.
    pub fn insert(&mut self, range: impl Into<Range>) {
        let (mut first, mut last) = range.into().bounds();
        // All ranges that overlap the new one or are adjacent to it become one with it.
        let from = self
            .ranges
            .partition_point(|known| known.bounds().1 < first.saturating_sub(1));
        let to = self
            .ranges
            .partition_point(|known| known.bounds().0 <= last.saturating_add(1));
        for known in self.ranges.get(from..to).unwrap_or_default() {
            first = first.min(known.bounds().0);
            last = last.max(known.bounds().1);
        }
        self.ranges
            .splice(from..to.max(from), Range::between(first, last));
    }

    /// Removes addresses. Those that are not in it do no harm.
    pub fn remove(&mut self, range: impl Into<Range>) {
        let (first, last) = range.into().bounds();
        let from = self.ranges.partition_point(|known| known.bounds().1 < first);
        let to = self.ranges.partition_point(|known| known.bounds().0 <= last);
        let mut left = Vec::new();
        for known in self.ranges.get(from..to).unwrap_or_default() {
            let (start, end) = known.bounds();
            left.extend(
                first
                    .checked_sub(1)
                    .and_then(|before| Range::between(start, before.min(end))),
            );
            left.extend(
                last.checked_add(1)
                    .and_then(|after| Range::between(after.max(start), end)),
            );
        }
        self.ranges.splice(from..to.max(from), left);
    }

    /// The address that has `n` lower ones in the set.
    pub fn nth(&self, n: u64) -> Option<Ipv4Addr> {
        let mut left = n;
        for range in &self.ranges {
            if left < range.len() {
                // `left` fits: a range has at most 2³² addresses, and this one has more than `left`.
                let offset = u32::try_from(left).ok()?;
                return range.bounds().0.checked_add(offset).map(Ipv4Addr::from);
            }
            left -= range.len();
        }
        None
    }

    /// The range with the most addresses; of several, the lowest.
    pub fn widest(&self) -> Option<Range> {
        self.ranges().reduce(
            |widest, range| {
                if range.len() > widest.len() { range } else { widest }
            },
        )
    }
}

impl<R: Into<Range>> Extend<R> for Set {
    fn extend<I: IntoIterator<Item = R>>(&mut self, ranges: I) {
        ranges.into_iter().for_each(|range| self.insert(range));
    }
}

impl<R: Into<Range>> FromIterator<R> for Set {
    fn from_iter<I: IntoIterator<Item = R>>(ranges: I) -> Self {
        let mut set = Set::new();
        set.extend(ranges);
        set
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, range) in self.ranges.iter().enumerate() {
            write!(f, "{}{range}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(texts: &[&str]) -> Set {
        texts.iter().map(|text| text.parse::<Range>().unwrap()).collect()
    }

    #[test]
    fn ranges_that_touch_become_one() {
        assert_eq!(
            set(&["10.0.0.1", "10.0.0.3", "10.0.0.2"]).to_string(),
            "10.0.0.1-10.0.0.3"
        );
        assert_eq!(
            set(&["10.0.0.5-10.0.0.9", "10.0.0.1"]).to_string(),
            "10.0.0.1, 10.0.0.5-10.0.0.9"
        );
        assert_eq!(
            set(&["255.255.255.255", "0.0.0.0"]).to_string(),
            "0.0.0.0, 255.255.255.255"
        );
    }

    #[test]
    fn a_hole_splits_a_range() {
        let mut all = set(&["0.0.0.0-255.255.255.255"]);
        all.remove("10.0.0.0-10.255.255.255".parse::<Range>().unwrap());
        assert_eq!(all.to_string(), "0.0.0.0-9.255.255.255, 11.0.0.0-255.255.255.255");
        assert_eq!(all.len(), (1 << 32) - (1 << 24));
        all.remove("0.0.0.0-255.255.255.255".parse::<Range>().unwrap());
        assert!(all.is_empty());
    }

    #[test]
    fn the_widest_range_is_the_lowest_of_the_widest() {
        let set = set(&["10.0.0.1", "10.0.0.3-10.0.0.4", "10.0.0.8-10.0.0.9"]);
        assert_eq!(set.widest().unwrap().to_string(), "10.0.0.3-10.0.0.4");
        assert_eq!(Set::new().widest(), None);
    }
}
