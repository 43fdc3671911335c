//! When buckets move to a longer or a shorter table, and which thread moves them.

use core::hash::{BuildHasher, Hash};
use std::boxed::Box;
use std::thread;

use super::hash_map::{RcuHashMap, Removed};
use super::table::Table;
use crate::primitive::global::Ordering;
use crate::sys::forks::Identity;

/// The fewest buckets.
const FEWEST: usize = 4;
/// A bucket with more keys on average is too full.
const FULL: usize = 3;
/// A table with fewer keys than its buckets divided by this is too long.
const SPARSE: usize = 2;

/// The right to move buckets, which the calling thread has while this exists.
pub(super) struct Mover<'a, K, V, S>(&'a RcuHashMap<K, V, S>);

impl<K, V, S> Drop for Mover<'_, K, V, S> {
    fn drop(&mut self) {
        // Release: partner is the Acquire in `mover`.
        self.0.mover.store(0, Ordering::Release);
    }
}

/// Returns how many buckets so many keys need.
fn buckets_for(keys: usize) -> usize {
    (keys / FULL + 1).next_power_of_two().max(FEWEST)
}

impl<K, V, S> RcuHashMap<K, V, S> {
    /// Returns how many keys the map has room for. With more of them it grows, at the latest when a bucket is full.
    pub fn capacity(&self) -> usize {
        let _guard = self.domain.read();
        self.table().map_or(0, |table| table.len().saturating_mul(FULL))
    }

    /// Makes the calling thread the one that moves; `None` if another one does.
    fn mover(&self) -> Option<Mover<'_, K, V, S>> {
        let me = Identity::of_this_thread();
        let before = self.mover.load(Ordering::Relaxed);
        let is_free = before == 0 || Identity::of_number(before).is_gone(me);
        // Acquire: partner is the Release of the mover before.
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        (is_free && self.mover.compare_exchange(before, me.number(), success, failure).is_ok())
            .then(|| Mover(self))
    }

    /// Makes the calling thread the one that moves, once no other one does.
    fn wait_for_mover(&self) -> Mover<'_, K, V, S> {
        loop {
            match self.mover() {
                Some(mover) => return mover,
                None => thread::yield_now(),
            }
        }
    }

    /// Returns the current table; makes one for so many keys, and the hasher, before the first insertion. The caller
    /// has a guard.
    pub(super) fn table_or_new(&self, keys: usize) -> &Table<K, V> {
        match self.table() {
            Some(table) => table,
            None => self.first_table(keys),
        }
    }

    #[cold]
    fn first_table(&self, keys: usize) -> &Table<K, V> {
        let mover = self.wait_for_mover();
        if self.table().is_none() {
            if let Some(make) = self.make {
                // SAFETY: no thread reads it before the table is there, and only the mover writes it. (4)
                unsafe { (*self.hasher.get()).write(make()) };
            }
            let table = Box::into_raw(Table::new(buckets_for(keys)));
            // Release: partner is the Acquire in `table`, also for the hasher.
            self.table.store(table, Ordering::Release);
        }
        drop(mover);
        // Acquire: partner is the Release above, of this thread or of the mover before.
        // SAFETY: not null any more; the caller has a guard.
        unsafe { &*self.table.load(Ordering::Acquire) }
    }
}

/// Growing, shrinking and moving buckets.
impl<K, V, S> RcuHashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Moves to a table for the present number of keys, if this one is too full or too long. Leaves it to another
    /// thread that moves.
    #[cold]
    #[inline(never)]
    pub(super) fn resize(&self) {
        let Some(mover) = self.mover() else { return };
        self.resize_to(mover, |keys, buckets| match keys {
            _ if keys > buckets * FULL => buckets_for(keys),
            _ if keys < buckets / SPARSE => buckets_for(keys * FULL / SPARSE),
            _ => buckets,
        });
    }

    /// Makes room for so many more keys, so that the map does not grow when they are inserted.
    ///
    /// Linear in the number of keys if it has to grow. Waits while another thread moves buckets.
    pub fn reserve(&self, additional: usize) {
        let guard = self.domain.read();
        let _ = self.table_or_new(additional);
        drop(guard);
        self.resize_to(self.wait_for_mover(), |keys, buckets| {
            buckets_for(keys.saturating_add(additional)).max(buckets)
        });
    }

    /// Gives back memory that the present number of keys does not need.
    ///
    /// Linear in the number of keys if it has to move them. Waits while another thread moves buckets.
    pub fn shrink_to_fit(&self) {
        if self.table.load(Ordering::Relaxed).is_null() {
            return;
        }
        self.resize_to(self.wait_for_mover(), |keys, buckets| buckets_for(keys).min(buckets));
    }

    /// Ends a move that has begun; then moves to as many buckets as `wanted` returns for the number of keys and of
    /// buckets.
    fn resize_to(&self, mover: Mover<'_, K, V, S>, wanted: impl Fn(usize, usize) -> usize) {
        // Relaxed: only the mover replaces it. SAFETY: the current table, which is there, and which only this thread
        // frees.
        let mut table = unsafe { &*self.table.load(Ordering::Relaxed) };
        let mut old = [None, None];
        let mut is_recovered = false;
        if !table.next_raw().is_null() {
            // SAFETY: this thread is the mover; another one that had begun was left behind by a fork. (2)
            is_recovered = unsafe { table.move_all() };
            (table, old[0]) = self.replace(table);
        }
        let buckets = wanted(self.len(), table.len());
        if buckets != table.len() {
            table.begin_move(Table::new(buckets));
            // SAFETY: this thread is the mover, and has just begun.
            is_recovered |= unsafe { table.move_all() };
            old[1] = self.replace(table).1;
        }
        drop(mover);
        if is_recovered {
            self.count_anew();
        }
        for (bytes, table) in old.into_iter().flatten() {
            self.domain.defer_bytes(bytes, move || drop(table));
        }
    }

    /// Makes the next table the current one. Returns it, and the old one.
    #[allow(clippy::type_complexity, reason = "a table, and what is left of another one")]
    fn replace(
        &self,
        table: &Table<K, V>,
    ) -> (&Table<K, V>, Option<(usize, Removed<Table<K, V>>)>) {
        let (old, next) = (core::ptr::from_ref(table).cast_mut(), table.next_raw());
        // Release: partner is the Acquire in `RcuHashMap::table`.
        self.table.store(next, Ordering::Release);
        // SAFETY: not null after a move, and freed by the mover only.
        (unsafe { &*next }, Some((table.bytes(), Removed(old))))
    }
}
