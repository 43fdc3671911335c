//! All entries of a map, and its end.
//!
//! A visit goes over the buckets of the table that was current when it began. A bucket that has been moved since,
//! perhaps several times, stands for a set of hashes, whose entries are collected from the next tables. So each key is
//! visited in one bucket.

use std::boxed::Box;
use std::vec::Vec;

use super::table::{Class, Entry, Table};

/// The entries of a table and of those after it, each once.
pub(super) struct Entries<'g, K, V> {
    /// The table that was current in the beginning; `None` for an empty map.
    table: Option<&'g Table<K, V>>,
    index: usize,
    /// Hashes whose buckets have been moved to this table.
    rest: Vec<(&'g Table<K, V>, Class)>,
    found: Vec<*mut Entry<K, V>>,
}

impl<'g, K, V> Entries<'g, K, V> {
    /// For a table and those after it.
    ///
    /// # Safety
    /// - The caller has a guard for `'g`, or is the only user of the table.
    pub(super) unsafe fn new(table: Option<&'g Table<K, V>>) -> Self {
        Entries { table, index: 0, rest: Vec::new(), found: Vec::new() }
    }

    /// Returns the next entry, if there is one.
    pub(super) fn next(&mut self) -> Option<*mut Entry<K, V>> {
        loop {
            if let Some(entry) = self.found.pop() {
                return Some(entry);
            }
            let (table, class) = match self.rest.pop() {
                Some(rest) => rest,
                None => {
                    let table = self.table.filter(|table| self.index < table.len())?;
                    self.index += 1;
                    (table, table.class(self.index - 1))
                }
            };
            let mut moved = Vec::new();
            table.collect(class, &mut self.found, &mut moved);
            if !moved.is_empty() {
                // SAFETY: a guard is there since the table was found, or this is the only user.
                let next = unsafe { table.next() };
                self.rest.extend(
                    next.into_iter().flat_map(|next| moved.iter().map(move |class| (next, *class))),
                );
            }
        }
    }
}

/// Drops all keys and values of a map, and frees its tables. All of them, also if a drop panics.
pub(super) fn free<K, V>(mut first: *mut Table<K, V>) {
    // SAFETY: null, or a table of a map that no other thread uses. Ends moves that a fork has cut short, so that
    // entries are in one table.
    while let Some(next) = unsafe { first.as_ref() }.map(Table::next_raw).filter(|at| !at.is_null())
    {
        // SAFETY: the same; the table is not used any more when its buckets have been moved.
        let table = unsafe { Box::from_raw(first) };
        // SAFETY: no other thread moves.
        unsafe { table.move_all() };
        first = next;
    }
    struct All<'g, K, V> {
        entries: Entries<'g, K, V>,
        first: *mut Table<K, V>,
    }
    impl<K, V> All<'_, K, V> {
        fn drop_entries(&mut self) {
            while let Some(entry) = self.entries.next() {
                // SAFETY: from a box, and of no other table: entries are found once.
                drop(unsafe { Box::from_raw(entry) });
            }
        }
    }
    impl<K, V> Drop for All<'_, K, V> {
        fn drop(&mut self) {
            // Again, after a panic.
            self.drop_entries();
            if !self.first.is_null() {
                // SAFETY: from a box; no reference to it is used any more.
                drop(unsafe { Box::from_raw(self.first) });
            }
        }
    }
    // SAFETY: null, or the table of a map that no other thread uses.
    let entries = unsafe { Entries::new(first.as_ref()) };
    All { entries, first }.drop_entries();
}
