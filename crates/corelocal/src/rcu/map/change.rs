//! What changes one key: one store to a slot under the bucket's lock (`put`, `take`), and everything else in terms of
//! these.

use core::borrow::Borrow;
use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::ptr;
use std::boxed::Box;

use super::hash_map::{RcuHashMap, Removed};
use super::table::{Entry, Locked};
use crate::primitive::global::Ordering;
use crate::rcu::guard::Guard;

/// The key is in the map: see [`RcuHashMap::try_insert`].
pub struct Occupied<'g, V> {
    /// The value that is in the map.
    pub current: &'g V,
    /// The value that was not inserted.
    pub not_inserted: V,
}

impl<V> fmt::Debug for Occupied<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Occupied").finish_non_exhaustive()
    }
}

impl<V> fmt::Display for Occupied<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the key is in the map already")
    }
}

impl<V> core::error::Error for Occupied<'_, V> {}

/// The operation that [`RcuHashMap::compute`] performs on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<V, T = ()> {
    /// Inserts this value, or replaces the present one.
    Insert(V),
    /// Removes the key.
    Remove,
    /// Leaves the map as it is, and returns this.
    Abort(T),
}

/// The outcome of [`RcuHashMap::compute`].
#[derive(Debug, PartialEq, Eq)]
pub enum Compute<'g, K, V, T = ()> {
    /// The key was absent, and has been inserted.
    Inserted(&'g K, &'g V),
    /// A value was replaced.
    Updated {
        /// The old key and value.
        old: (&'g K, &'g V),
        /// The new key and value.
        new: (&'g K, &'g V),
    },
    /// The key was removed, with this value.
    Removed(&'g K, &'g V),
    /// The key was to be removed, and is not in the map.
    Missing,
    /// Nothing was changed.
    Aborted(T),
}

/// Which entry a change is meant for.
#[derive(Clone, Copy)]
enum Expected<K, V> {
    Any,
    /// This entry; null means that the key must be absent.
    This(*mut Entry<K, V>),
}

impl<K, V> Expected<K, V> {
    fn is(self, found: *mut Entry<K, V>) -> bool {
        match self {
            Expected::Any => true,
            Expected::This(expected) => expected == found,
        }
    }
}

/// The outcome of a change.
pub(super) struct Changed<K, V> {
    /// The entry that was there, which the caller now owns; null if there was none.
    before: *mut Entry<K, V>,
    /// Whether the bucket suggests that the table has too few or too many buckets.
    is_noteworthy: bool,
}

/// The present entry, which was not the expected one, and the new one.
type NotPut<K, V> = (*mut Entry<K, V>, Box<Entry<K, V>>);

impl<K, V, S> RcuHashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Sets the value of a key. Returns `true` if there was one, which is dropped after a grace period.
    ///
    /// Readers find either of them, never neither. An insertion that makes the map grow moves all keys: time linear in
    /// their number, during which other threads insert and remove. At the hard limit for deferred memory it waits: see
    /// [`Domain::set_limits`](crate::rcu::Domain::set_limits).
    pub fn insert(&self, key: K, value: V) -> bool {
        let guard = self.domain.read();
        let changed = self.put(Expected::Any, self.entry(key, value));
        drop(guard);
        changed.is_ok_and(|changed| self.finish(changed))
    }

    /// Sets the value of a key. Returns the old value, which is valid as long as the guard.
    ///
    /// Like [`insert`](Self::insert), but never waits at the hard limit, since the caller has a guard.
    pub fn insert_under<'g>(&'g self, key: K, value: V, guard: &'g Guard) -> Option<&'g V> {
        self.check(guard);
        let changed = self.put(Expected::Any, self.entry(key, value)).ok()?;
        // SAFETY: an entry that was in the map under the caller's guard.
        unsafe { self.old(changed) }.map(|entry| &entry.value)
    }

    /// Removes a key. Returns `true` if it was there. Its value is dropped after a grace period.
    ///
    /// At the hard limit for deferred memory it waits: see [`Domain::set_limits`](crate::rcu::Domain::set_limits).
    pub fn remove<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let guard = self.domain.read();
        let Some(hash) = self.hash(key) else { return false };
        let changed = self.take(hash, Expected::Any, |known| known.borrow() == key);
        drop(guard);
        changed.is_ok_and(|changed| self.finish(changed))
    }

    /// Removes a key. Returns its value, which is valid as long as the guard.
    ///
    /// Like [`remove`](Self::remove), but never waits at the hard limit, since the caller has a guard.
    pub fn remove_under<'g, Q>(&'g self, key: &Q, guard: &'g Guard) -> Option<&'g V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.check(guard);
        let hash = self.hash(key)?;
        let changed = self.take(hash, Expected::Any, |known| known.borrow() == key).ok()?;
        // SAFETY: an entry that was in the map under the caller's guard.
        unsafe { self.old(changed) }.map(|entry| &entry.value)
    }

    /// Inserts a key that is not there. Returns the new value.
    ///
    /// # Errors
    /// The key is in the map: the value that is there, and the one that was not inserted.
    pub fn try_insert<'g>(
        &'g self,
        key: K,
        value: V,
        guard: &'g Guard,
    ) -> Result<&'g V, Occupied<'g, V>> {
        self.check(guard);
        self.insert_new(self.entry(key, value), guard).map(|entry| &entry.value).map_err(
            |(current, entry)| Occupied { current: &current.value, not_inserted: entry.value },
        )
    }

    /// Returns the value of a key, which is made by `make` if there is none.
    ///
    /// `make` runs without a lock, so several threads may make a value for the same key: the first one to insert it
    /// wins.
    pub fn get_or_insert_with<'g>(
        &'g self,
        key: K,
        make: impl FnOnce() -> V,
        guard: &'g Guard,
    ) -> &'g V {
        if let Some(value) = self.get(&key, guard) {
            return value;
        }
        match self.insert_new(self.entry(key, make()), guard) {
            Ok(entry) | Err((entry, _)) => &entry.value,
        }
    }

    /// Replaces the value of a key by what `change` makes of it. Returns the new value; `None` if the key is not there.
    ///
    /// `change` runs without a lock, and is called again if another thread was faster.
    pub fn update<'g>(
        &'g self,
        key: K,
        mut change: impl FnMut(&V) -> V,
        guard: &'g Guard,
    ) -> Option<&'g V> {
        let change = |known: Option<(&K, &V)>| match known {
            Some((_, value)) => Operation::Insert(change(value)),
            None => Operation::Abort(()),
        };
        match self.compute(key, change, guard) {
            Compute::Updated { new: (_, value), .. } => Some(value),
            _ => None,
        }
    }

    /// Inserts, replaces or removes a key, as `decide` says when it is given the present key and value.
    ///
    /// `decide` runs without a lock, and is called again if another thread was faster.
    ///
    /// ```
    /// use corelocal::rcu::{self, Compute, Operation, RcuHashMap};
    ///
    /// let hits = RcuHashMap::new();
    /// let guard = rcu::read();
    /// let count = |known: Option<(&&str, &u32)>| match known {
    ///     Some((_, 2)) => Operation::Remove,
    ///     Some((_, hits)) => Operation::<u32>::Insert(hits + 1),
    ///     None => Operation::Insert(1),
    /// };
    /// assert_eq!(hits.compute("/", count, &guard), Compute::Inserted(&"/", &1));
    /// assert!(matches!(hits.compute("/", count, &guard), Compute::Updated { .. }));
    /// assert_eq!(hits.compute("/", count, &guard), Compute::Removed(&"/", &2));
    /// ```
    pub fn compute<'g, T>(
        &'g self,
        key: K,
        mut decide: impl FnMut(Option<(&'g K, &'g V)>) -> Operation<V, T>,
        guard: &'g Guard,
    ) -> Compute<'g, K, V, T> {
        self.check(guard);
        let table = self.table_or_new(0);
        // SAFETY: the table is there.
        let hash = unsafe { self.hasher() }.hash_one(&key);
        // SAFETY: the caller's guard, of this domain.
        let found = unsafe { table.find(hash, |entry| entry.key == key) };
        let mut known = found.map_or(ptr::null_mut(), |entry| ptr::from_ref(entry).cast_mut());
        let mut key = key;
        loop {
            // SAFETY: null, or an entry that was found under the caller's guard.
            let before = unsafe { known.as_ref::<'g>() }.map(|entry| (&entry.key, &entry.value));
            match (decide(before), before) {
                (Operation::Abort(value), _) => return Compute::Aborted(value),
                (Operation::Remove, None) => return Compute::Missing,
                (Operation::Remove, Some(old)) => {
                    match self.take(hash, Expected::This(known), |known| *known == key) {
                        Ok(changed) => {
                            self.finish(changed);
                            return Compute::Removed(old.0, old.1);
                        }
                        Err(current) => known = current,
                    }
                }
                (Operation::Insert(value), _) => {
                    let entry = Box::new(Entry { hash, key, value });
                    match self.put_under(Expected::This(known), entry, guard) {
                        Ok(Entry { key, value, .. }) => {
                            return match before {
                                Some(old) => Compute::Updated { old, new: (key, value) },
                                None => Compute::Inserted(key, value),
                            };
                        }
                        Err((current, entry)) => (known, key) = (current, entry.key),
                    }
                }
            }
        }
    }

    /// Does what `put` does, under the caller's guard. Returns the new entry.
    fn put_under<'g>(
        &'g self,
        expected: Expected<K, V>,
        entry: Box<Entry<K, V>>,
        _guard: &'g Guard,
    ) -> Result<&'g Entry<K, V>, NotPut<K, V>> {
        let at = ptr::from_ref(&*entry);
        self.put(expected, entry).map(|changed| {
            self.finish(changed);
            // SAFETY: an entry that was in the map under the caller's guard.
            unsafe { &*at }
        })
    }

    /// Inserts an entry whose key is not there.
    ///
    /// # Errors
    /// The entry that is there, and this one.
    #[allow(clippy::type_complexity, reason = "an entry, or two")]
    fn insert_new<'g>(
        &'g self,
        entry: Box<Entry<K, V>>,
        guard: &'g Guard,
    ) -> Result<&'g Entry<K, V>, (&'g Entry<K, V>, Box<Entry<K, V>>)> {
        let none = Expected::This(ptr::null_mut());
        // SAFETY: not null, and in the map under the caller's guard.
        self.put_under(none, entry, guard).map_err(|(at, entry)| (unsafe { &*at }, entry))
    }

    /// Makes an entry, and the table if there is none. The caller has a guard.
    fn entry(&self, key: K, value: V) -> Box<Entry<K, V>> {
        let _ = self.table_or_new(0);
        // SAFETY: the table is there.
        let hash = unsafe { self.hasher() }.hash_one(&key);
        Box::new(Entry { hash, key, value })
    }

    /// Returns the hash of a key; `None` if there is no table. The caller has a guard.
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> Option<u64> {
        let _ = self.table()?;
        // SAFETY: the table is there.
        Some(unsafe { self.hasher() }.hash_one(key))
    }

    /// Locks the bucket for this hash. The caller has a guard.
    fn locked(&self, hash: u64) -> Locked<'_, K, V> {
        let mut table = self.table_or_new(0);
        loop {
            match table.lock(hash) {
                Some(bucket) if bucket.is_recovered => {
                    drop(bucket);
                    self.count_anew();
                }
                Some(bucket) => return bucket,
                // SAFETY: the caller has a guard. A bucket that has been moved is elsewhere.
                None => table = unsafe { table.next() }.unwrap_or_else(|| self.table_or_new(0)),
            }
        }
    }

    /// Puts an entry in the place of the one with the same key, or where there is none, if that is as expected. The
    /// caller has a guard. Keys are counted under the lock: a child that finds it orphaned counts them anew.
    fn put(
        &self,
        expected: Expected<K, V>,
        entry: Box<Entry<K, V>>,
    ) -> Result<Changed<K, V>, NotPut<K, V>> {
        let bucket = self.locked(entry.hash);
        let found = bucket.find(entry.hash, |known| known.key == entry.key);
        let before = found.map_or(ptr::null_mut(), |slot| slot.load(Ordering::Relaxed));
        if !expected.is(before) {
            return Err((before, entry));
        }
        let Some(slot) = found else {
            bucket.insert(entry);
            self.len.add(1);
            return Ok(Changed { before, is_noteworthy: bucket.is_long() });
        };
        bucket.replace(slot, entry);
        Ok(Changed { before, is_noteworthy: false })
    }

    /// Removes the entry of whose key `is_it` is true, if that is as expected. The caller has a guard.
    ///
    /// # Errors
    /// The entry that is there instead.
    fn take(
        &self,
        hash: u64,
        expected: Expected<K, V>,
        mut is_it: impl FnMut(&K) -> bool,
    ) -> Result<Changed<K, V>, *mut Entry<K, V>> {
        let bucket = self.locked(hash);
        let found = bucket.find(hash, |known| is_it(&known.key));
        let before = found.map_or(ptr::null_mut(), |slot| slot.load(Ordering::Relaxed));
        if !expected.is(before) {
            return Err(before);
        }
        let Some(slot) = found else { return Ok(Changed { before, is_noteworthy: false }) };
        bucket.remove(slot);
        self.len.sub(1);
        Ok(Changed { before, is_noteworthy: bucket.is_empty() })
    }

    /// Counts the keys in a child, where a thread that a fork left behind may have changed the map and not the count.
    #[cold]
    pub(super) fn count_anew(&self) {
        let guard = self.domain.read();
        let keys = self.iter(&guard).count();
        self.len.set(keys as i64);
    }

    /// Resizes the table if it is time, and defers what was replaced. Returns `true` if there was an entry.
    pub(super) fn finish(&self, changed: Changed<K, V>) -> bool {
        let Changed { before, is_noteworthy } = changed;
        if is_noteworthy {
            self.resize();
        }
        if before.is_null() {
            return false;
        }
        let old = Removed(before);
        self.domain.defer_bytes(size_of::<Entry<K, V>>(), move || drop(old));
        true
    }

    /// Does what `finish` does. Returns the old entry.
    ///
    /// # Safety
    /// - The caller has a guard since before the change, for `'g`.
    unsafe fn old<'g>(&self, changed: Changed<K, V>) -> Option<&'g Entry<K, V>> {
        // SAFETY: null, or an entry that was in the map under the caller's guard.
        let old = unsafe { changed.before.as_ref() };
        self.finish(changed);
        old
    }

    /// Removes this entry, if it is still in the map. The caller has a guard.
    pub(super) fn take_entry(&self, entry: &Entry<K, V>) -> Option<Changed<K, V>> {
        let this = Expected::This(ptr::from_ref(entry).cast_mut());
        self.take(entry.hash, this, |key| *key == entry.key).ok()
    }
}
