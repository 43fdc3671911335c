//! A table that finds which of many areas of memory contains an address.
//!
//! Invariants:
//! - If areas overlap, the first one given wins.
//! - A look-up takes logarithmic time, and building the table n log n: a file may list any number of areas.

use std::collections::BTreeSet;

use super::Map;

/// A table of areas.
#[derive(Debug, Default)]
pub struct Areas {
    /// Start, end and value, sorted and without overlaps.
    areas: Vec<(u64, u64, usize)>,
}

impl Areas {
    /// Builds the table. [`find`](Areas::find) returns the value of an area.
    pub fn new(given: impl IntoIterator<Item = (Map, usize)>) -> Areas {
        let given: Vec<(Map, usize)> =
            given.into_iter().filter(|(map, _)| map.start < map.end).collect();
        let borders = |(nth, (map, _)): (usize, &(Map, usize))| [(map.start, nth), (map.end, nth)];
        let mut borders: Vec<(u64, usize)> = given.iter().enumerate().flat_map(borders).collect();
        borders.sort_unstable();
        let mut areas: Vec<(u64, u64, usize)> = Vec::new();
        let (mut open, mut before) = (BTreeSet::new(), 0);
        for (border, nth) in borders {
            if let Some(first) = open.first().filter(|_| before < border) {
                let first: &usize = first;
                areas.push((before, border, given[*first].1));
            }
            before = border;
            if !open.insert(nth) {
                open.remove(&nth);
            }
        }
        Areas { areas }
    }

    /// Returns the value of the first area that contains the address.
    pub fn find(&self, address: u64) -> Option<usize> {
        let after = self.areas.partition_point(|(start, ..)| *start <= address);
        let (_, end, value) = self.areas.get(after.checked_sub(1)?)?;
        (address < *end).then_some(*value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_one_given_is_found() {
        let map = |start, end| Map { start, end, offset: 0 };
        let given = [(10, 20), (5, 12), (0, 100), (50, 60), (100, 110), (7, 7), (120, 130)];
        let given = given.map(|(start, end)| map(start, end));
        let areas = Areas::new(given.into_iter().zip(0..));
        for address in 0..140 {
            let first = given.iter().position(|map| map.contains(address));
            assert_eq!(areas.find(address), first, "{address}");
        }
        assert_eq!(Areas::default().find(0), None);
    }
}
