//! A hash map whose readers take no lock.
//!
//! # Data flow
//! `get` → the current table → the slots of the key's bucket, or where that has been moved. `insert` and `remove` → the
//! same under the bucket's lock (`change.rs`). A removed or replaced entry → `Domain::defer`. An insertion that finds a
//! full bucket → a longer table, a removal that empties one → a shorter one, to which the thread moves all buckets
//! (`table.rs`).
//!
//! # Invariants
//! 1. `table` is the oldest table that has buckets which are not moved, and leads to the others: a move that has begun is
//!    known by its next table, and by nothing else. It is null before the first insertion.
//! 2. One thread at a time moves buckets: its identity is in `mover`. One that a fork left behind is replaced, and its move
//!    is resumed.
//! 3. All references to entries and tables are used under a guard of the map's domain, by a thread that has the bucket's
//!    lock, by the mover, or with exclusive access to the map.
//! 4. `hasher` is initialised unless `make` is there and `table` is null. It is written by the mover only, before
//!    `table`.

use core::borrow::Borrow;
use core::cell::UnsafeCell;
use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr;
use std::boxed::Box;
use std::hash::RandomState;

use super::entries;
use super::table::{Entry, Table};
use crate::percpu::Gauge;
use crate::primitive::global::{AtomicPtr, AtomicU64, Ordering};
use crate::rcu::domain::Domain;
use crate::rcu::global::GLOBAL;
use crate::rcu::guard::Guard;

/// A hash map that is read all the time and changed now and then.
///
/// Readers take no lock, and write to no cache line that other cores read: a guard, a hash, a bucket and an entry.
/// Writers lock one bucket. The map grows and shrinks while readers run, and waits for none of them. A key that is in
/// the map during a whole call of [`get`](RcuHashMap::get) is found, and [`iter`](RcuHashMap::iter) yields it once.
///
/// ```
/// use corelocal::rcu::{self, RcuHashMap};
///
/// static USERS: RcuHashMap<u32, &str> = RcuHashMap::new();
///
/// USERS.insert(7, "Ada");
/// {
///     let guard = rcu::read();
///     assert_eq!(USERS.get(&7, &guard), Some(&"Ada"));
///     assert_eq!(USERS.insert_under(7, "Grace", &guard), Some(&"Ada"));
///     assert_eq!(USERS.get(&7, &guard), Some(&"Grace"));
/// }
/// assert!(USERS.remove(&7));
/// assert_eq!(USERS.len(), 0);
/// ```
///
/// # Where it may be used
/// Reading: wherever guards may be used, if the key's `Hash` and `Eq` may. Writing allocates memory and takes a lock,
/// so not in signal handlers. `Hash` and `Eq` of keys must not use the map. In a child of `fork` all goes on, also if
/// another thread was just changing the map at the fork: its change has happened or not, and what it was about to free
/// stays allocated.
///
/// # Panics
/// Functions that take a guard panic if it is of another domain than the map's.
///
/// # Memory
/// For each key an entry with its hash, and from 21 to 128 bytes of slots. What is removed is freed after a grace
/// period, within the limits of [`Domain::set_limits`]; functions that take a guard never wait at the hard limit.
///
/// # Memory ordering
/// A reader that finds a key sees everything that happened before it was inserted.
pub struct RcuHashMap<K, V, S = RandomState> {
    pub(super) table: AtomicPtr<Table<K, V>>,
    pub(super) len: Gauge,
    /// The identity of the thread that moves buckets; 0 if there is none. (2)
    pub(super) mover: AtomicU64,
    pub(super) hasher: UnsafeCell<MaybeUninit<S>>,
    /// The function that makes the hasher before the first insertion; `None` if a hasher was given. (4)
    pub(super) make: Option<fn() -> S>,
    pub(super) domain: &'static Domain,
    /// Makes the map own its entries: keys and values go to the threads that free them, and readers share them.
    owned: PhantomData<Entry<K, V>>,
}

// SAFETY: keys and values are moved to other threads, and shared by them. The hasher is shared once it is initialised,
// and is initialised by any thread.
unsafe impl<K: Send + Sync, V: Send + Sync, S: Send + Sync> Sync for RcuHashMap<K, V, S> {}
// SAFETY: it owns keys and values, of which others may have been removed, and are freed elsewhere.
unsafe impl<K: Send + Sync, V: Send + Sync, S: Send> Send for RcuHashMap<K, V, S> {}
impl<K, V, S: UnwindSafe> UnwindSafe for RcuHashMap<K, V, S>
where
    K: RefUnwindSafe,
    V: RefUnwindSafe,
{
}
impl<K, V, S: RefUnwindSafe> RefUnwindSafe for RcuHashMap<K, V, S>
where
    K: RefUnwindSafe,
    V: RefUnwindSafe,
{
}

impl<K, V> RcuHashMap<K, V> {
    /// Creates an empty map, for guards of the global domain. Allocates no memory.
    pub const fn new() -> Self {
        RcuHashMap::new_in(&GLOBAL)
    }

    /// Creates an empty map, for guards of this domain. Allocates no memory.
    pub const fn new_in(domain: &'static Domain) -> Self {
        let hasher = UnsafeCell::new(MaybeUninit::uninit());
        RcuHashMap::from_parts(hasher, Some(RandomState::new), domain)
    }
}

impl<K, V, S: Default> Default for RcuHashMap<K, V, S> {
    fn default() -> Self {
        RcuHashMap::with_hasher(S::default())
    }
}

impl<K, V, S> RcuHashMap<K, V, S> {
    /// Creates an empty map with this hasher, for guards of the global domain.
    pub const fn with_hasher(hasher: S) -> Self {
        RcuHashMap::with_hasher_in(hasher, &GLOBAL)
    }

    /// Creates an empty map with this hasher, for guards of this domain.
    pub const fn with_hasher_in(hasher: S, domain: &'static Domain) -> Self {
        RcuHashMap::from_parts(UnsafeCell::new(MaybeUninit::new(hasher)), None, domain)
    }

    const fn from_parts(
        hasher: UnsafeCell<MaybeUninit<S>>,
        make: Option<fn() -> S>,
        domain: &'static Domain,
    ) -> Self {
        RcuHashMap {
            table: AtomicPtr::new(ptr::null_mut()),
            len: Gauge::new(),
            mover: AtomicU64::new(0),
            hasher,
            make,
            domain,
            owned: PhantomData,
        }
    }

    /// Returns the domain whose guards protect the map.
    pub fn domain(&self) -> &'static Domain {
        self.domain
    }

    /// Returns the number of keys. During changes, the number at some moment, give or take those changes.
    ///
    /// Linear in the number of cores in use.
    pub fn len(&self) -> usize {
        self.len.get().max(0) as usize
    }

    /// Returns `true` if there are no keys: see [`len`](Self::len).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the current table; `None` before the first insertion. The caller has a guard, or exclusive access. (3)
    #[inline(always)]
    pub(super) fn table(&self) -> Option<&Table<K, V>> {
        // Acquire: partner is the Release in `resize.rs`. SAFETY: null, or a table, which is freed after a grace
        // period.
        unsafe { self.table.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the hasher.
    ///
    /// # Safety
    /// - The table is there, or the hasher was given. (4)
    #[inline(always)]
    pub(super) unsafe fn hasher(&self) -> &S {
        // SAFETY: initialised, as the caller guarantees, and not written again.
        unsafe { (*self.hasher.get()).assume_init_ref() }
    }

    #[inline(always)]
    pub(super) fn check(&self, guard: &Guard) {
        if !ptr::eq(guard.domain(), self.domain) {
            wrong_domain();
        }
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
    /// Returns the value of a key, valid as long as the guard.
    #[inline]
    pub fn get<'g, Q>(&'g self, key: &Q, guard: &'g Guard) -> Option<&'g V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.get_key_value(key, guard).map(|(_, value)| value)
    }

    /// Returns the key that is in the map, and its value, valid as long as the guard.
    #[inline]
    pub fn get_key_value<'g, Q>(&'g self, key: &Q, guard: &'g Guard) -> Option<(&'g K, &'g V)>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.check(guard);
        let table = self.table()?;
        // SAFETY: the table is there.
        let hash = unsafe { self.hasher() }.hash_one(key);
        // SAFETY: the caller's guard, of this domain. (3)
        let found = unsafe { table.find(hash, |entry| entry.key.borrow() == key) };
        found.map(|entry| (&entry.key, &entry.value))
    }

    /// Returns `true` if the key is in the map.
    pub fn contains_key<Q>(&self, key: &Q, guard: &Guard) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.get(key, guard).is_some()
    }
}

impl<K: fmt::Debug, V: fmt::Debug, S> fmt::Debug for RcuHashMap<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guard = self.domain.read();
        f.debug_map().entries(self.iter(&guard)).finish()
    }
}

/// An entry or a table that is not part of the map any more. Dropped, it is freed.
pub(super) struct Removed<T>(pub(super) *mut T);

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
        let first = *self.table.get_mut();
        if self.make.is_none() || !first.is_null() {
            // SAFETY: initialised (4), and used no more.
            unsafe { self.hasher.get_mut().assume_init_drop() };
        }
        entries::free(first);
    }
}
