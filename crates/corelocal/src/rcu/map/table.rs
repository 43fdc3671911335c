//! The buckets of a hash map, and how they move to another table while readers look into them.
//!
//! ```text
//!   table (2 buckets)                              next table (4 buckets)
//!   ├ 0  MOVED  a b · c ·  ─▶ more                 ├ 0  a · · · ·              slots point to entries, which stay
//!   ├ 1         d · e · ·                          ├ 2  b c · · ·              where they are; old slots stay as
//!                                                  …                           they are until the table is freed
//! ```
//!
//! A bucket is a cache line: five slots, a tag of eight bits for each, a lock, and a pointer to more slots, which few
//! buckets need. A reader compares tags, and looks only at entries whose tag is that of its hash.
//!
//! # Invariants
//! 1. A bucket's slots and tags are changed under its lock. An entry is in one slot of a table, in the bucket that its hash
//!    selects, and stays in that slot as long as it is in the table. A slot whose entry is removed is null; its tag stays.
//! 2. A slot is stored before its tag. So a reader that sees the tag sees the entry. An entry with a foreign tag is one whose
//!    insertion has not ended.
//! 3. A bucket is moved under its lock: its entries are put into the next table's buckets, under their locks, and then it is
//!    MOVED. Before that no other thread looks in the next table for hashes of this bucket. From then on its slots do not
//!    change, and threads that come later go on in the next table.
//! 4. Slots belong to their table, so a move waits for no reader: one that is in an older table finds what was there when the
//!    bucket was moved. Tables are freed after a grace period, and so are entries.
//! 5. Wherever a fork leaves a thread behind, the child can go on. A bucket whose lock belonged to such a thread gets its
//!    tags anew from its entries. If it was being moved, what the next table has of its hashes is cleared before anything
//!    else is done to it, so that no slot outlives its entry: the lock of a bucket with copies in the next table has an
//!    owner until it is MOVED. A move is resumed with the buckets that are not. Threads lock a bucket of the older table
//!    before one of the next.

use core::ptr;
use std::boxed::Box;

use crate::primitive::atomic::{AtomicPtr, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// One key with its value.
pub(super) struct Entry<K, V> {
    pub(super) hash: u64,
    pub(super) key: K,
    pub(super) value: V,
}

const SLOTS: usize = 5;
const TAG_BITS: u32 = 8;
/// Bit 0 of each tag.
const ONES: u64 = 0x01_01_01_01_01;
/// The highest bit of each tag.
const HIGHS: u64 = ONES << (TAG_BITS - 1);
/// The bit in the tags of a chain's first bucket that says that its entries are in the next table.
const MOVED: u64 = 1 << 63;

#[repr(C, align(64))]
struct Bucket<K, V> {
    tags: AtomicU64,
    /// The bucket's lock. The lock of the first bucket protects the whole chain.
    lock: Mutex<()>,
    slots: [AtomicPtr<Entry<K, V>>; SLOTS],
    /// More slots of the same bucket; null if there are none.
    more: AtomicPtr<Bucket<K, V>>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Bucket<u64, u64>>() == 64);

fn tag_of(hash: u64) -> u64 {
    // Not the lowest bits, which select the bucket; of a poor hash, not the highest ones alone.
    hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - TAG_BITS)
}

impl<K, V> Bucket<K, V> {
    fn new() -> Bucket<K, V> {
        let null = || AtomicPtr::new(ptr::null_mut());
        Bucket {
            tags: AtomicU64::new(0),
            lock: Mutex::new(()),
            slots: core::array::from_fn(|_| null()),
            more: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Sets the tags of all entries. The caller has the lock. (5)
    #[cold]
    fn set_all_tags(&self) {
        for (nth, slot) in self.slots.iter().enumerate() {
            // SAFETY: null, or an entry of this table, whose lock this thread has.
            if let Some(entry) = unsafe { slot.load(Ordering::Relaxed).as_ref() } {
                self.set_tag(nth, tag_of(entry.hash));
            }
        }
    }

    /// Empties the slots of these hashes. The caller has the lock.
    #[cold]
    fn clear(&self, class: Class) {
        for slot in self.chain().flat_map(|bucket| &bucket.slots) {
            // SAFETY: null, or an entry, whose lock this thread has.
            let entry = unsafe { slot.load(Ordering::Relaxed).as_ref() };
            if entry.is_some_and(|entry| class.has(entry.hash)) {
                slot.store(ptr::null_mut(), Ordering::Relaxed);
            }
        }
    }

    fn set_tag(&self, nth: usize, tag: u64) {
        let shift = nth as u32 * TAG_BITS;
        let others = self.tags.load(Ordering::Relaxed) & !(((1 << TAG_BITS) - 1) << shift);
        // Release: partner is the Acquire in `find`. (2)
        self.tags.store(others | tag << shift, Ordering::Release);
    }

    fn is_moved(&self) -> bool {
        // Acquire: partner is the Release in `move_all`.
        self.tags.load(Ordering::Acquire) & MOVED != 0
    }

    /// This bucket, and those with more slots.
    fn chain(&self) -> impl Iterator<Item = &Bucket<K, V>> {
        // Acquire: partner is the Release in `put_into_free`.
        // SAFETY: null, or a bucket that is freed with the table.
        core::iter::successors(Some(self), |bucket| unsafe {
            bucket.more.load(Ordering::Acquire).as_ref()
        })
    }

    fn entries(&self) -> impl Iterator<Item = *mut Entry<K, V>> {
        // Acquire: partner is the Release of `put` or `Locked::replace`.
        let slots = self.chain().flat_map(|bucket| &bucket.slots);
        slots.map(|slot| slot.load(Ordering::Acquire)).filter(|entry| !entry.is_null())
    }

    /// Puts an entry with this hash into a free slot. The caller has the lock.
    fn put_into_free(&self, entry: *mut Entry<K, V>, hash: u64) {
        let mut last = self;
        for bucket in self.chain() {
            if let Some(nth) = bucket.free() {
                bucket.put(nth, entry, hash);
                return;
            }
            last = bucket;
        }
        let more = Box::new(Bucket::new());
        more.put(0, entry, hash);
        // Release: partner is the Acquire in `chain` and `find`.
        last.more.store(Box::into_raw(more), Ordering::Release);
    }

    fn free(&self) -> Option<usize> {
        self.slots.iter().position(|slot| slot.load(Ordering::Relaxed).is_null())
    }

    /// Puts an entry with this hash into a free slot.
    fn put(&self, nth: usize, entry: *mut Entry<K, V>, hash: u64) {
        // Release: partner is the Acquire in `find` and `entries`. Before the tag. (2)
        self.slots[nth].store(entry, Ordering::Release);
        self.set_tag(nth, tag_of(hash));
    }
}

impl<K, V> Drop for Bucket<K, V> {
    fn drop(&mut self) {
        // One after the other: a chain of equal hashes may be long.
        let mut more = self.more.load(Ordering::Relaxed);
        while !more.is_null() {
            // SAFETY: from a box, owned by the bucket before it.
            let bucket = unsafe { Box::from_raw(more) };
            more = bucket.more.swap(ptr::null_mut(), Ordering::Relaxed);
        }
    }
}

/// A table of buckets, whose number is a power of two. Dropping it frees the buckets, but no entry.
pub(super) struct Table<K, V> {
    buckets: Box<[Bucket<K, V>]>,
    /// The table that buckets are moved to; null before a move begins. (3)
    next: AtomicPtr<Table<K, V>>,
}

/// A set of hashes: those that are `value` in the bits of `mask`, which are the lowest ones.
#[derive(Clone, Copy)]
pub(super) struct Class {
    mask: usize,
    value: usize,
}

impl Class {
    fn has(self, hash: u64) -> bool {
        hash as usize & self.mask == self.value
    }
}

/// A bucket whose lock the caller has, and which has not been moved.
pub(super) struct Locked<'a, K, V> {
    bucket: &'a Bucket<K, V>,
    /// Whether a fork left the lock's owner behind, whose counts may be incomplete.
    pub(super) is_recovered: bool,
    _lock: MutexGuard<'a, ()>,
}

impl<K, V> Table<K, V> {
    /// Creates a table of so many buckets or more, up to the next power of two.
    pub(super) fn new(buckets: usize) -> Box<Table<K, V>> {
        let buckets = (0..buckets.next_power_of_two()).map(|_| Bucket::new()).collect();
        Box::new(Table { buckets, next: AtomicPtr::new(ptr::null_mut()) })
    }

    pub(super) fn len(&self) -> usize {
        self.buckets.len()
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.buckets)
    }

    /// Returns the number of the bucket for this hash.
    #[inline(always)]
    fn index(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    /// Returns the hashes of a bucket.
    pub(super) fn class(&self, index: usize) -> Class {
        Class { mask: self.len() - 1, value: index }
    }

    /// Finds the entry with this hash that `is_it`, in this table or those after it.
    ///
    /// # Safety
    /// - The caller has a guard since it has found this table, and uses the entry while it has the guard.
    #[inline(always)]
    pub(super) unsafe fn find<'g>(
        &self,
        hash: u64,
        is_it: impl Fn(&Entry<K, V>) -> bool,
    ) -> Option<&'g Entry<K, V>> {
        let mut table = self;
        let (mut bucket, mut tags) = loop {
            let bucket = &table.buckets[table.index(hash)];
            // Acquire: partners are the Releases of `set_tag` and `move_all`. (2, 3)
            let tags = bucket.tags.load(Ordering::Acquire);
            if tags & MOVED == 0 {
                break (bucket, tags);
            }
            // SAFETY: the caller has a guard.
            table = unsafe { table.next() }?;
        };
        let tag = tag_of(hash) * ONES;
        loop {
            // The highest bit of each tag that is equal, and perhaps of others behind one.
            let unequal = tags ^ tag;
            let mut matches = unequal.wrapping_sub(ONES) & !unequal & HIGHS;
            while matches != 0 {
                let slot = &bucket.slots[(matches.trailing_zeros() / TAG_BITS) as usize];
                matches &= matches - 1;
                // Acquire: partner is the Release of `put` or `Locked::replace`.
                // SAFETY: null, or an entry that the caller finds under its guard.
                let entry = unsafe { slot.load(Ordering::Acquire).as_ref::<'g>() };
                if let Some(entry) = entry.filter(|entry| entry.hash == hash && is_it(entry)) {
                    return Some(entry);
                }
            }
            // Acquire: partner is the Release in `put_into_free`. SAFETY: null, or a bucket that is freed with the
            // table.
            bucket = unsafe { bucket.more.load(Ordering::Acquire).as_ref() }?;
            tags = bucket.tags.load(Ordering::Acquire);
        }
    }

    /// Returns the table that buckets have been moved to.
    ///
    /// # Safety
    /// - The caller has a guard since it has found this table, or is the only user.
    #[inline]
    pub(super) unsafe fn next<'g>(&self) -> Option<&'g Table<K, V>> {
        // Acquire: partner is the Release in `begin_move`. SAFETY: null, or a table, which is freed after a grace
        // period.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the table that buckets are moved to, as a pointer; null before a move begins.
    pub(super) fn next_raw(&self) -> *mut Table<K, V> {
        // Acquire: partner is the Release in `begin_move`.
        self.next.load(Ordering::Acquire)
    }

    /// Adds the entries of these hashes to `found`, each once, and what is in the next table to `rest`.
    pub(super) fn collect(
        &self,
        class: Class,
        found: &mut impl Extend<*mut Entry<K, V>>,
        rest: &mut impl Extend<Class>,
    ) {
        let own = self.len() - 1;
        for index in (class.value & own..=own).step_by(class.mask.saturating_add(1)) {
            let bucket = &self.buckets[index];
            // Both a bucket of this table, and the hashes asked for.
            let value = if class.mask > own { class.value } else { index };
            let class = Class { mask: class.mask | own, value };
            if bucket.is_moved() {
                rest.extend([class]);
            } else {
                // SAFETY: an entry that the caller finds under its guard.
                found.extend(bucket.entries().filter(|at| class.has(unsafe { (**at).hash })));
            }
        }
    }

    /// Returns the buckets of another table that may have hashes of a bucket of this one.
    fn targets(&self, index: usize, to: &Table<K, V>) -> impl Iterator<Item = usize> + use<K, V> {
        (index & (to.len() - 1)..to.len()).step_by(self.len())
    }

    /// Locks a bucket. Returns `true` besides if a fork had left its owner behind.
    fn lock_bucket(&self, index: usize) -> (MutexGuard<'_, ()>, bool) {
        match self.buckets[index].lock.lock_checked() {
            Ok(lock) => (lock, false),
            Err(orphaned) => {
                let lock = orphaned.reset(());
                self.repair(index);
                (lock, true)
            }
        }
    }

    /// Ends what the owner of a bucket's lock was doing, which a fork has left behind. The caller has the lock. (5)
    #[cold]
    fn repair(&self, index: usize) {
        let bucket = &self.buckets[index];
        bucket.chain().for_each(Bucket::set_all_tags);
        // SAFETY: the next table is freed after this one, whose user the caller is.
        if let Some(to) = unsafe { self.next() }.filter(|_| !bucket.is_moved()) {
            for target in self.targets(index, to) {
                let _lock = to.lock_bucket(target);
                to.buckets[target].clear(self.class(index));
            }
        }
    }

    /// Locks the bucket for this hash; `None` if it has been moved.
    pub(super) fn lock(&self, hash: u64) -> Option<Locked<'_, K, V>> {
        let index = self.index(hash);
        let bucket = &self.buckets[index];
        let (lock, is_recovered) = self.lock_bucket(index);
        (!bucket.is_moved()).then_some(Locked { bucket, is_recovered, _lock: lock })
    }

    /// Makes `to` the next table. The caller is the only one that moves, and no move has begun.
    pub(super) fn begin_move(&self, to: Box<Table<K, V>>) {
        // Release: partner is the Acquire in `next`.
        self.next.store(Box::into_raw(to), Ordering::Release);
    }

    /// Moves all buckets to the next table, except those that have been moved. Returns `true` if a fork left an owner
    /// of a bucket's lock behind.
    ///
    /// # Safety
    /// - No other thread moves.
    pub(super) unsafe fn move_all(&self) -> bool {
        // SAFETY: tables are freed by the thread that moves.
        let Some(to) = (unsafe { self.next() }) else { return false };
        let mut is_any_recovered = false;
        for (index, from) in self.buckets.iter().enumerate() {
            let (_from_lock, is_recovered) = self.lock_bucket(index);
            is_any_recovered |= is_recovered;
            if from.is_moved() {
                continue;
            }
            for target in self.targets(index, to) {
                let _to_lock = to.lock_bucket(target);
                for entry in from.entries() {
                    // SAFETY: an entry of the chain, whose lock this thread has.
                    let hash = unsafe { (*entry).hash };
                    if to.index(hash) == target {
                        to.buckets[target].put_into_free(entry, hash);
                    }
                }
            }
            let tags = from.tags.load(Ordering::Relaxed);
            // Release: partner is the Acquire in `find` and `is_moved`. (3)
            from.tags.store(tags | MOVED, Ordering::Release);
        }
        is_any_recovered
    }
}

impl<K, V> Locked<'_, K, V> {
    /// Finds the slot of the entry with this hash that `is_it`.
    pub(super) fn find(
        &self,
        hash: u64,
        mut is_it: impl FnMut(&Entry<K, V>) -> bool,
    ) -> Option<&AtomicPtr<Entry<K, V>>> {
        let mut slots = self.bucket.chain().flat_map(|bucket| &bucket.slots);
        // SAFETY: null, or an entry of the chain, whose lock this has.
        slots.find(|slot| unsafe {
            slot.load(Ordering::Relaxed)
                .as_ref()
                .is_some_and(|entry| entry.hash == hash && is_it(entry))
        })
    }

    /// Puts another entry with the same key into a slot, whose entry the caller then owns. (4)
    pub(super) fn replace(&self, slot: &AtomicPtr<Entry<K, V>>, entry: Box<Entry<K, V>>) {
        // Release: partner is the Acquire in `find` and `entries`.
        slot.store(Box::into_raw(entry), Ordering::Release);
    }

    /// Empties a slot, whose entry the caller then owns. (4)
    pub(super) fn remove(&self, slot: &AtomicPtr<Entry<K, V>>) {
        // Relaxed: a reader that still finds the entry has a guard.
        slot.store(ptr::null_mut(), Ordering::Relaxed);
    }

    /// Inserts an entry that is not there.
    pub(super) fn insert(&self, entry: Box<Entry<K, V>>) {
        let hash = entry.hash;
        self.bucket.put_into_free(Box::into_raw(entry), hash);
    }

    /// Returns `true` if the bucket has more entries than one cache line has slots.
    pub(super) fn is_long(&self) -> bool {
        !self.bucket.more.load(Ordering::Relaxed).is_null()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bucket.entries().next().is_none()
    }
}

#[cfg(all(test, loom))]
mod loom;
