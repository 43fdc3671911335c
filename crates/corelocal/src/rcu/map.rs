//! A hash map whose readers take no lock.
//!
//! # Data flow
//! `get` → the current table → the chain of the key's bucket, or where that has been moved. `insert` and `remove` → the same
//! under the bucket's lock. A removed or replaced node → `Domain::defer`. An insertion that finds a long chain → a longer
//! table, to which the inserting thread moves all buckets (`table.rs`).
//!
//! # Invariants
//! 1. `table` is the current table: no bucket of any other one, except the one that it is moved to, has nodes.
//! 2. One thread at a time moves buckets: it has the lock of `last`, the ticket of the last move.
//! 3. All references to nodes and tables are used under a guard of the map's domain, by a thread that has the node's lock,
//!    or with exclusive access to the map.

use core::borrow::Borrow;
use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::marker::PhantomData;
use core::ptr;
use std::boxed::Box;
use std::hash::RandomState;

use super::domain::{Domain, Guard, Ticket};
use super::global::GLOBAL;
use super::table::{Locked, Node, Table};
use crate::percpu::Gauge;
use crate::primitive::global::{AtomicPtr, Ordering};
use crate::sync::Mutex;

/// The fewest buckets.
const FEWEST: usize = 16;
/// An insertion behind so many nodes looks whether there are more keys than buckets.
const LONG: usize = 3;
/// A removal of a key whose hash is a multiple of this looks whether there are far fewer keys than buckets.
const RARE: u64 = 64;

/// A hash map that is read all the time and changed now and then.
///
/// Readers take no lock, and write to no cache line that other cores read: a guard, a hash, and a walk along a short chain.
/// Writers lock one bucket. The map grows and shrinks while readers run. A key that is in the map during a whole call of
/// [`get`](RcuHashMap::get) is found, and [`iter`](RcuHashMap::iter) yields it once.
///
/// ```
/// use corelocal::rcu::{self, RcuHashMap};
///
/// let users = RcuHashMap::new();
/// users.insert(7, "Ada");
/// {
///     let guard = rcu::read();
///     assert_eq!(users.get(&7, &guard), Some(&"Ada"));
///     users.insert(7, "Grace");
///     assert_eq!(users.get(&7, &guard), Some(&"Grace"));
/// }
/// assert!(users.remove(&7));
/// assert_eq!(users.len(), 0);
/// ```
///
/// # Where it may be used
/// Reading: wherever guards may be used, if the key's `Hash` and `Eq` may. Writing allocates memory and takes a lock, so not
/// in signal handlers. `Hash` and `Eq` of keys must not use the map. In a child of `fork`, `insert` and `remove` panic if
/// another thread was just changing the key's bucket at the fork, as a [`Mutex`] does. Reading goes on.
///
/// # Memory
/// 16 bytes for each bucket, of which there are about as many as keys or up to eight times as many. What is removed is freed
/// after a grace period, within the limits of [`Domain::set_limits`]. A reader that stays also keeps the map from growing.
///
/// # Memory ordering
/// A reader that finds a key sees everything that happened before it was inserted.
pub struct RcuHashMap<K, V, S = RandomState> {
    table: AtomicPtr<Table<K, V>>,
    len: Gauge,
    last: Mutex<Last>,
    hasher: S,
    domain: &'static Domain,
    /// Keys and values go to the threads that free them, and readers share them.
    owned: PhantomData<Node<K, V>>,
}

/// The last move, and when to try again.
struct Last {
    ticket: Option<Ticket>,
    /// With fewer keys than this it is not worth a look whether the map may grow.
    grows_from: usize,
}

// SAFETY: keys and values are moved to other threads, and shared by them.
unsafe impl<K: Send + Sync, V: Send + Sync, S: Sync> Sync for RcuHashMap<K, V, S> {}
// SAFETY: it owns keys and values, of which others may have been removed, and are freed elsewhere.
unsafe impl<K: Send + Sync, V: Send + Sync, S: Send> Send for RcuHashMap<K, V, S> {}

impl<K, V> RcuHashMap<K, V> {
    /// An empty map, for guards of the global domain.
    pub fn new() -> Self {
        RcuHashMap::new_in(&GLOBAL)
    }

    /// An empty map, for guards of this domain.
    pub fn new_in(domain: &'static Domain) -> Self {
        RcuHashMap::with_hasher_in(RandomState::new(), domain)
    }
}

impl<K, V> Default for RcuHashMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V, S> RcuHashMap<K, V, S> {
    /// An empty map with this hasher, for guards of this domain.
    pub fn with_hasher_in(hasher: S, domain: &'static Domain) -> Self {
        let table = AtomicPtr::new(Box::into_raw(Table::new(FEWEST, 0)));
        let last = Mutex::new(Last { ticket: None, grows_from: 0 });
        RcuHashMap { table, len: Gauge::new(), last, hasher, domain, owned: PhantomData }
    }

    /// The domain whose guards protect it.
    pub fn domain(&self) -> &'static Domain {
        self.domain
    }

    /// The number of keys. During changes, the number at some moment, give or take those changes.
    ///
    /// Linear in the number of cores in use.
    pub fn len(&self) -> usize {
        self.len.get().max(0) as usize
    }

    /// Whether there are no keys: see [`len`](Self::len).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The current table. The caller has a guard, or exclusive access. (3)
    #[inline(always)]
    fn table(&self) -> &Table<K, V> {
        // Acquire: partner is the Release in `resize`. SAFETY: a table, which is freed after a grace period.
        unsafe { &*self.table.load(Ordering::Acquire) }
    }

    #[inline(always)]
    fn check(&self, guard: &Guard) {
        if !ptr::eq(guard.domain(), self.domain) {
            wrong_domain();
        }
    }

    /// All keys and values.
    ///
    /// A key that is in the map until the iterator has ended, and was when it began, is yielded once. Others may be yielded.
    ///
    /// # Panics
    /// If the guard is of another domain.
    pub fn iter<'g>(&'g self, guard: &'g Guard) -> Iter<'g, K, V> {
        self.check(guard);
        let table = self.table();
        Iter { table, index: 0, walked: table, second: None, at: ptr::null_mut() }
    }
}

#[cold]
#[inline(never)]
fn wrong_domain() -> ! {
    panic!(
        "the guard is of another domain than this map: begin it with the read of the map's own domain(), since grace \
         periods of one domain do not wait for guards of another"
    )
}

impl<K: Hash + Eq, V, S: BuildHasher> RcuHashMap<K, V, S> {
    /// The value of a key, valid as long as the guard.
    ///
    /// # Panics
    /// If the guard is of another domain.
    #[inline]
    pub fn get<'g, Q>(&'g self, key: &Q, guard: &'g Guard) -> Option<&'g V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.check(guard);
        let hash = self.hasher.hash_one(key);
        let is_it = |node: &Node<K, V>| node.key.borrow() == key;
        // SAFETY: the caller's guard, of this domain. (3)
        unsafe { self.table().find(hash, is_it) }.map(|node| &node.value)
    }

    /// Whether the key is in the map.
    ///
    /// # Panics
    /// If the guard is of another domain.
    pub fn contains_key<Q>(&self, key: &Q, guard: &Guard) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.get(key, guard).is_some()
    }

    /// Calls `change` with the locked bucket of this hash, and the number of buckets. The caller has a guard.
    fn locked<R>(&self, hash: u64, change: impl FnOnce(Locked<'_, K, V>, usize) -> R) -> R {
        let mut table = self.table();
        loop {
            if let Some(locked) = table.lock(hash) {
                return change(locked, table.len());
            }
            // SAFETY: this thread has a guard. A bucket that has been moved is elsewhere.
            table = unsafe { table.next() }.unwrap_or_else(|| self.table());
        }
    }
}

/// What changes the map.
impl<K, V, S> RcuHashMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Sets the value of a key. Returns whether there was one, which is dropped after a grace period.
    ///
    /// Readers find either of them, never neither. An insertion that makes the map grow moves all keys: time linear in their
    /// number, during which other threads insert and remove. At the hard limit for deferred memory it waits: see
    /// [`Domain::set_limits`].
    pub fn insert(&self, key: K, value: V) -> bool {
        let hash = self.hasher.hash_one(&key);
        let new = Node::new(hash, key, value);
        let guard = self.domain.read();
        let (old, is_long, buckets) = self.locked(hash, |bucket, buckets| {
            let place = bucket.find(|node| node.hash == hash && node.key == new.key);
            let is_long = place.before >= LONG;
            (bucket.put(&place, new), is_long, buckets)
        });
        drop(guard);
        self.changed(old, true, is_long.then_some(buckets))
    }

    /// Removes a key. Returns whether it was there. Its value is dropped after a grace period.
    ///
    /// At the hard limit for deferred memory it waits: see [`Domain::set_limits`].
    pub fn remove<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        let guard = self.domain.read();
        let (old, buckets) = self.locked(hash, |bucket, buckets| {
            let place = bucket.find(|node| node.hash == hash && node.key.borrow() == key);
            (bucket.remove(&place), buckets)
        });
        drop(guard);
        // Multiples of the number of buckets would all be in one bucket.
        let is_rare = (hash >> 32) % RARE == 0;
        self.changed(old, false, is_rare.then_some(buckets))
    }

    /// The value of a key, which is made by `make` if there is none.
    ///
    /// `make` runs without a lock, so several threads may make a value for the same key: the first one to insert it wins.
    ///
    /// # Panics
    /// If the guard is of another domain.
    pub fn get_or_insert_with<'g>(
        &'g self,
        key: K,
        make: impl FnOnce() -> V,
        guard: &'g Guard,
    ) -> &'g V {
        if let Some(value) = self.get(&key, guard) {
            return value;
        }
        let hash = self.hasher.hash_one(&key);
        let new = Node::new(hash, key, make());
        let (at, is_new, is_long, buckets) = self.locked(hash, |bucket, buckets| {
            let place = bucket.find(|node| node.hash == hash && node.key == new.key);
            if !place.node().is_null() {
                return (place.node(), false, false, buckets);
            }
            let is_long = place.before >= LONG;
            let at = ptr::from_ref(&*new).cast_mut();
            bucket.put(&place, new);
            (at, true, is_long, buckets)
        });
        if is_new {
            self.changed(ptr::null_mut(), true, is_long.then_some(buckets));
        }
        // SAFETY: a node that was in the map under the caller's guard. (3)
        unsafe { &(*at).value }
    }

    /// A node has been replaced or removed, or one has been inserted. Whether there was an old one.
    fn changed(&self, old: *mut Node<K, V>, is_insertion: bool, look_at: Option<usize>) -> bool {
        let is_old = !old.is_null();
        match (is_insertion, is_old) {
            (true, false) => self.len.add(1),
            (false, true) => self.len.sub(1),
            _ => {}
        }
        if let Some(buckets) = look_at {
            self.look(buckets);
        }
        if is_old {
            let old = Removed(old);
            self.domain.defer_bytes(size_of::<Node<K, V>>(), move || drop(old));
        }
        is_old
    }

    /// Resizes the table of so many buckets, if it is time.
    #[cold]
    fn look(&self, buckets: usize) {
        let len = self.len();
        let wanted = if len > buckets {
            buckets * 2
        } else if len < buckets / 8 {
            buckets / 2
        } else {
            return;
        };
        if wanted >= FEWEST {
            self.resize(buckets, wanted, len);
        }
    }

    /// Moves to a table of `wanted` buckets, unless another thread is at it, or the last move is too recent.
    fn resize(&self, buckets: usize, wanted: usize, len: usize) {
        let Some(mut last) = self.last.try_lock() else { return };
        if wanted > buckets && len < last.grows_from {
            return;
        }
        // Refused: the table stays as it is.
        if !last.ticket.as_ref().is_none_or(|ticket| ticket.is_complete() == Ok(true)) {
            last.grows_from = len + len / 8;
            return;
        }
        // Relaxed: changed under the lock of `last`.
        let from = self.table.load(Ordering::Relaxed);
        // SAFETY: the current table, which only the thread with this lock replaces. (2)
        let table = unsafe { &*from };
        if table.len() != buckets {
            return;
        }
        let to = Box::into_raw(Table::new(wanted, table.link ^ 1));
        // SAFETY: only this thread moves, after a grace period. The new table is the current one afterwards, and freed
        // after another one.
        unsafe { table.move_to(to) };
        // Release: partner is the Acquire in `table`.
        self.table.store(to, Ordering::Release);
        *last = Last { ticket: Some(self.domain.start_poll()), grows_from: 0 };
        drop(last);
        let (bytes, from) = (table.bytes(), Removed(from));
        self.domain.defer_bytes(bytes, move || drop(from));
    }
}

/// A node or a table that is not part of the map any more. Dropped, it is freed.
struct Removed<T>(*mut T);

// SAFETY: it stands for a `T` in a box.
unsafe impl<T: Send> Send for Removed<T> {}

impl<T> Drop for Removed<T> {
    fn drop(&mut self) {
        // SAFETY: from `Box::into_raw`, once.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl<K, V, S> Drop for RcuHashMap<K, V, S> {
    fn drop(&mut self) {
        // SAFETY: the current table, which this owns. References borrow the map, so there are none.
        let mut table = unsafe { Box::from_raw(*self.table.get_mut()) };
        table.drain().for_each(drop);
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S> fmt::Debug for RcuHashMap<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guard = self.domain.read();
        f.debug_map().entries(self.iter(&guard)).finish()
    }
}

/// The keys and values of a map: see [`RcuHashMap::iter`].
pub struct Iter<'g, K, V> {
    /// The table that was current in the beginning. Its buckets are visited in turn, wherever they are.
    table: &'g Table<K, V>,
    index: usize,
    /// The table whose chain is being walked, and its second bucket for the same bucket of `table`.
    walked: &'g Table<K, V>,
    second: Option<usize>,
    at: *mut Node<K, V>,
}

// SAFETY: it has a guard's lifetime, and refers to keys and values.
unsafe impl<K: Sync, V: Sync> Send for Iter<'_, K, V> {}
// SAFETY: as above.
unsafe impl<K: Sync, V: Sync> Sync for Iter<'_, K, V> {}

impl<'g, K, V> Iter<'g, K, V> {
    /// Goes to the next chain. False after the last one.
    fn go_on(&mut self) -> bool {
        if let Some(index) = self.second.take() {
            // Not moved: see `table.rs`, invariant 4.
            self.at = self.walked.head(index).unwrap_or(ptr::null_mut());
            return true;
        }
        let index = self.index;
        if index == self.table.len() {
            return false;
        }
        self.index += 1;
        self.walked = self.table;
        if let Some(head) = self.table.head(index) {
            self.at = head;
            // SAFETY: a guard has been there since the table was found.
        } else if let Some(next) = unsafe { self.table.next() } {
            self.walked = next;
            self.at = next.head(index % next.len()).unwrap_or(ptr::null_mut());
            self.second = (next.len() > self.table.len()).then_some(index + self.table.len());
        }
        true
    }
}

impl<'g, K, V> Iterator for Iter<'g, K, V> {
    type Item = (&'g K, &'g V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            // SAFETY: null, or a node that was found under the guard. (3)
            while let Some(node) = unsafe { self.at.as_ref::<'g>() } {
                // SAFETY: as above.
                self.at = unsafe { node.next(self.walked.link) };
                // A shorter table has two of this one's buckets in one.
                if self.table.index(node.hash) == self.index - 1 {
                    return Some((&node.key, &node.value));
                }
            }
            if !self.go_on() {
                return None;
            }
        }
    }
}

impl<K, V> fmt::Debug for Iter<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}
