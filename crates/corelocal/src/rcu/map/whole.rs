//! What is about all keys of a map: iterators, `clear` and `retain`, conversions.

use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::iter::FusedIterator;
use core::panic::{RefUnwindSafe, UnwindSafe};
use std::hash::RandomState;
use std::vec::Vec;

use super::change::Changed;
use super::entries::Entries;
use super::hash_map::RcuHashMap;
use crate::rcu::global::GLOBAL;
use crate::rcu::guard::Guard;

impl<K, V, S> RcuHashMap<K, V, S> {
    /// Returns an iterator over all keys and values.
    ///
    /// A key that is in the map until the iterator has ended, and was when it began, is yielded once. Others may be
    /// yielded.
    pub fn iter<'g>(&'g self, guard: &'g Guard) -> Iter<'g, K, V> {
        self.check(guard);
        // SAFETY: the caller's guard.
        Iter(unsafe { Entries::new(self.table()) })
    }

    /// Returns an iterator over all keys: see [`iter`](Self::iter).
    pub fn keys<'g>(&'g self, guard: &'g Guard) -> Keys<'g, K, V> {
        Keys(self.iter(guard))
    }

    /// Returns an iterator over all values: see [`iter`](Self::iter).
    pub fn values<'g>(&'g self, guard: &'g Guard) -> Values<'g, K, V> {
        Values(self.iter(guard))
    }
}

impl<K, V, S> RcuHashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Removes the keys of which `keeps` returns `false`. A key whose value is replaced meanwhile stays.
    ///
    /// What is removed is deferred at the end, without a guard, or when `keeps` panics. So it waits at the hard limit
    /// for deferred memory, unless the caller has a guard.
    pub fn retain(&self, mut keeps: impl FnMut(&K, &V) -> bool) {
        // Dropped after the guard.
        let mut removed = AllRemoved { map: self, changes: Vec::new() };
        let guard = self.domain().read();
        let mut entries = self.iter(&guard).0;
        while let Some(entry) = entries.next() {
            // SAFETY: an entry that was found under the guard.
            let entry = unsafe { &*entry };
            if !keeps(&entry.key, &entry.value) {
                removed.changes.extend(self.take_entry(entry));
            }
        }
    }

    /// Removes all keys that are in the map when it is called.
    pub fn clear(&self) {
        self.retain(|_, _| false);
    }
}

/// The entries that `retain` has removed. Dropping this defers their freeing.
struct AllRemoved<'a, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    map: &'a RcuHashMap<K, V, S>,
    changes: Vec<Changed<K, V>>,
}

impl<K, V, S> Drop for AllRemoved<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    fn drop(&mut self) {
        self.changes.drain(..).for_each(|changed| _ = self.map.finish(changed));
    }
}

impl<K, V> RcuHashMap<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Creates an empty map with room for so many keys, for guards of the global domain.
    pub fn with_capacity(capacity: usize) -> Self {
        RcuHashMap::with_capacity_and_hasher(capacity, RandomState::new())
    }
}

impl<K, V, S> RcuHashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Creates an empty map with room for so many keys and with this hasher, for guards of the global domain.
    pub fn with_capacity_and_hasher(capacity: usize, hasher: S) -> Self {
        let map = RcuHashMap::with_hasher_in(hasher, &GLOBAL);
        map.reserve(capacity);
        map
    }
}

impl<K, V, S> FromIterator<(K, V)> for RcuHashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Default,
{
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut map = RcuHashMap::with_hasher(S::default());
        map.extend(pairs);
        map
    }
}

impl<K, V, S> Extend<(K, V)> for RcuHashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, pairs: I) {
        let pairs = pairs.into_iter();
        self.reserve(pairs.size_hint().0);
        pairs.for_each(|(key, value)| _ = self.insert(key, value));
    }
}

/// Extends a map through a shared reference: `(&map).extend(…)`.
impl<K, V, S> Extend<(K, V)> for &RcuHashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, pairs: I) {
        pairs.into_iter().for_each(|(key, value)| _ = self.insert(key, value));
    }
}

/// The keys and values of a map: see [`RcuHashMap::iter`].
pub struct Iter<'g, K, V>(Entries<'g, K, V>);

// SAFETY: it has a guard's lifetime, and refers to keys and values.
unsafe impl<K: Sync, V: Sync> Send for Iter<'_, K, V> {}
// SAFETY: it has a guard's lifetime, and refers to keys and values.
unsafe impl<K: Sync, V: Sync> Sync for Iter<'_, K, V> {}

impl<'g, K, V> Iterator for Iter<'g, K, V> {
    type Item = (&'g K, &'g V);

    fn next(&mut self) -> Option<Self::Item> {
        // SAFETY: an entry that was found under the guard.
        let entry = unsafe { &*self.0.next()? };
        Some((&entry.key, &entry.value))
    }
}

impl<K, V> FusedIterator for Iter<'_, K, V> {}

/// The keys of a map: see [`RcuHashMap::keys`].
pub struct Keys<'g, K, V>(Iter<'g, K, V>);

impl<'g, K, V> Iterator for Keys<'g, K, V> {
    type Item = &'g K;

    fn next(&mut self) -> Option<&'g K> {
        self.0.next().map(|(key, _)| key)
    }
}

impl<K, V> FusedIterator for Keys<'_, K, V> {}

/// The values of a map: see [`RcuHashMap::values`].
pub struct Values<'g, K, V>(Iter<'g, K, V>);

impl<'g, K, V> Iterator for Values<'g, K, V> {
    type Item = &'g V;

    fn next(&mut self) -> Option<&'g V> {
        self.0.next().map(|(_, value)| value)
    }
}

impl<K, V> FusedIterator for Values<'_, K, V> {}

macro_rules! traits {
    ($($name:ident)+) => {
        $(
            impl<K: RefUnwindSafe, V: RefUnwindSafe> UnwindSafe for $name<'_, K, V> {}
            impl<K: RefUnwindSafe, V: RefUnwindSafe> RefUnwindSafe for $name<'_, K, V> {}

            impl<K, V> fmt::Debug for $name<'_, K, V> {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.debug_struct(stringify!($name)).finish_non_exhaustive()
                }
            }
        )+
    };
}

traits!(Iter Keys Values);
