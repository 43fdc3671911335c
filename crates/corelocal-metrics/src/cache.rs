//! What a core has looked up already: a program that writes `counter!("hits").increment(1)` looks the
//! counter up each time, and would share a lock and a reference count with all others that do.
//!
//! # Data's way
//! `get` → the table of the core → the entry of the key → its handle, cloned: the count that cloning
//! increments is that of a small object made for this core. What is not there yet → `make`, once for each
//! core and key.
//!
//! ```text
//!   core 0: table ──► entry { key, handle } ──► Own ─┐
//!   core 1: table ──► entry { key, handle } ──► Own ─┴─► the counter
//! ```
//!
//! # Invariants
//! 1. Places are filled in the order in which they are looked at, and never emptied. So a key stands before
//!    the first empty place of its row, or nowhere.
//! 2. Which core it is matters to speed only: every table is right for everybody.

use std::sync::{Arc, OnceLock};

use corelocal::{cid, rseq};
use metrics::{CounterFn, GaugeFn, HistogramFn, Key};

/// Places of a table, a power of two: 16 KiB.
const PLACES: usize = 1024;
/// Places that a key may be in.
const ROW: usize = 8;
/// Tables: more cores than that share them.
const CORES: usize = 1024;

struct Entry<H> {
    key: Key,
    handle: H,
}

/// A core's; made at its first lookup.
type Table<H> = Box<[OnceLock<Box<Entry<H>>>]>;

/// The handles that a core has looked up.
pub(crate) struct Cache<H> {
    tables: Box<[OnceLock<Table<H>>]>,
}

impl<H: Clone> Cache<H> {
    pub(crate) fn new() -> Self {
        let cores = (cid::capacity() as usize).clamp(1, CORES);
        Cache { tables: empty(cores) }
    }

    /// Returns the handle for a key; `make` makes it where this core has none. Where the key's row is full, it is
    /// made each time.
    #[inline]
    pub(crate) fn get(&self, key: &Key, make: impl Fn() -> H) -> H {
        let core = rseq::cid() as usize % self.tables.len();
        let table = self.tables[core].get_or_init(|| empty(PLACES));
        let start = spread(key.get_hash());
        for step in 0..ROW {
            let place = &table[(start + step) % PLACES];
            let fill = || Box::new(Entry { key: key.to_retained(), handle: make() });
            let entry = place.get_or_init(fill);
            if entry.key == *key {
                return entry.handle.clone();
            }
        }
        make()
    }
}

/// Returns the first place of a row. The hash of a key is not evenly spread by itself.
fn spread(hash: u64) -> usize {
    (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % PLACES
}

fn empty<T>(len: usize) -> Box<[OnceLock<T>]> {
    (0..len).map(|_| OnceLock::new()).collect()
}

/// A core's own handle of what all cores share. Nothing else is in its lines, so that its reference count
/// is a core's own as well.
///
/// Each method is that of `S`: the implementation in `metrics` for `Arc` has no `record_many`, so the trait's, a loop, would
/// be called.
#[repr(align(64))]
pub(crate) struct Own<S>(pub(crate) Arc<S>);

impl<S: CounterFn> CounterFn for Own<S> {
    #[inline]
    fn increment(&self, value: u64) {
        (*self.0).increment(value);
    }

    #[inline]
    fn absolute(&self, value: u64) {
        (*self.0).absolute(value);
    }
}

impl<S: GaugeFn> GaugeFn for Own<S> {
    #[inline]
    fn increment(&self, value: f64) {
        (*self.0).increment(value);
    }

    #[inline]
    fn decrement(&self, value: f64) {
        (*self.0).decrement(value);
    }

    #[inline]
    fn set(&self, value: f64) {
        (*self.0).set(value);
    }
}

impl<S: HistogramFn> HistogramFn for Own<S> {
    #[inline]
    fn record(&self, value: f64) {
        (*self.0).record(value);
    }

    #[inline]
    fn record_many(&self, value: f64, count: usize) {
        (*self.0).record_many(value, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_key_is_made_once_for_each_core() {
        let cache = Cache::new();
        let made = AtomicUsize::new(0);
        let keys: Vec<Key> = (0..100).map(|n| Key::from_name(format!("k{n}"))).collect();
        for _ in 0..1000 {
            for (number, key) in keys.iter().enumerate() {
                let handle = cache.get(key, || {
                    made.fetch_add(1, Ordering::Relaxed);
                    number
                });
                assert_eq!(handle, number);
            }
        }
        let cores = cid::capacity() as usize;
        assert!(made.into_inner() <= keys.len() * cores);
    }

    /// More keys than places: each still gets its own.
    #[test]
    fn full_tables_are_right() {
        let cache = Cache::new();
        let keys: Vec<Key> = (0..3 * PLACES).map(|n| Key::from_name(format!("k{n}"))).collect();
        for _ in 0..2 {
            for (number, key) in keys.iter().enumerate() {
                assert_eq!(cache.get(key, || number), number);
            }
        }
    }

    #[test]
    fn threads_share_a_table() {
        let cache = Cache::new();
        let keys: Vec<Key> = (0..200).map(|n| Key::from_name(format!("k{n}"))).collect();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        for (number, key) in keys.iter().enumerate() {
                            assert_eq!(cache.get(key, || number), number);
                        }
                    }
                });
            }
        });
    }
}
