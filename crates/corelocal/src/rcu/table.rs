//! The buckets of a hash map, and how they move to another table while readers walk them.
//!
//! ```text
//!   table (4 buckets, link 0)                        next table (8 buckets, link 1)
//!   ├ 0  MOVED                                       ├ 0  ─▶ a            a, b: one node each, with two links:
//!   ├ 1  ─▶ c ─▶ d                                   ├ 4  ─▶ b            the chain of the old table stays for
//!   …                                                …                    readers that are in it already
//! ```
//!
//! # Invariants
//! 1. A bucket's chain is changed under its lock. A node is in one chain of a table, of the bucket that its hash selects.
//! 2. A bucket is moved under its lock: its nodes are linked into the next table's buckets by that table's link, and then
//!    its head is MOVED. Before that no other thread uses these buckets of the next table. From then on the old bucket's
//!    chain is not changed, and no thread enters it.
//! 3. A node that is removed from its chain keeps its links, so that readers go on from there. It is freed after a grace
//!    period.
//! 4. The next move, which uses the former link again, begins when a grace period has passed since the last bucket was
//!    moved. So no thread walks by that link then. And so a thread with a guard meets two tables at most: the one that was
//!    current when it looked, and the next one.

use core::ptr;
use std::boxed::Box;

use crate::primitive::atomic::{AtomicPtr, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// One key with its value.
pub(super) struct Node<K, V> {
    pub(super) hash: u64,
    pub(super) key: K,
    pub(super) value: V,
    /// The next one, by the table's link.
    links: [AtomicPtr<Node<K, V>>; 2],
}

impl<K, V> Node<K, V> {
    pub(super) fn new(hash: u64, key: K, value: V) -> Box<Node<K, V>> {
        let null = || AtomicPtr::new(ptr::null_mut());
        Box::new(Node { hash, key, value, links: [null(), null()] })
    }

    /// The next node of the chain.
    ///
    /// # Safety
    /// - The caller has a guard since it has found this node, or the bucket's lock.
    #[inline(always)]
    pub(super) unsafe fn next(&self, link: usize) -> *mut Node<K, V> {
        // Acquire: partner is the Release that linked it.
        self.links[link].load(Ordering::Acquire)
    }
}

struct Bucket<K, V> {
    lock: Mutex<()>,
    head: AtomicPtr<Node<K, V>>,
}

/// The head of a bucket that has been moved.
fn moved<K, V>() -> *mut Node<K, V> {
    ptr::without_provenance_mut(1)
}

/// A power of two of buckets.
pub(super) struct Table<K, V> {
    buckets: Box<[Bucket<K, V>]>,
    /// Which link of the nodes is that of its chains.
    pub(super) link: usize,
    /// Where buckets are moved.
    next: AtomicPtr<Table<K, V>>,
}

/// A bucket whose lock the caller has, and which has not been moved.
pub(super) struct Locked<'a, K, V> {
    head: &'a AtomicPtr<Node<K, V>>,
    link: usize,
    _lock: MutexGuard<'a, ()>,
}

impl<K, V> Table<K, V> {
    pub(super) fn new(buckets: usize, link: usize) -> Box<Table<K, V>> {
        let bucket = |_| Bucket { lock: Mutex::new(()), head: AtomicPtr::new(ptr::null_mut()) };
        let buckets = (0..buckets.next_power_of_two()).map(bucket).collect();
        Box::new(Table { buckets, link, next: AtomicPtr::new(ptr::null_mut()) })
    }

    pub(super) fn len(&self) -> usize {
        self.buckets.len()
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.buckets)
    }

    /// The number of the bucket for this hash.
    #[inline(always)]
    pub(super) fn index(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    /// The node with this hash that `is_it`, in this table or the next one.
    ///
    /// # Safety
    /// - The caller has a guard since it has found this table, and uses the node while it has the guard.
    #[inline(always)]
    pub(super) unsafe fn find<'g>(
        &self,
        hash: u64,
        is_it: impl Fn(&Node<K, V>) -> bool,
    ) -> Option<&'g Node<K, V>> {
        let mut table = self;
        let mut at = loop {
            match table.head(table.index(hash)) {
                Some(head) => break head,
                // SAFETY: the caller has a guard.
                None => table = unsafe { table.next() }?,
            }
        };
        // SAFETY: null, or a node that the caller has found under its guard.
        while let Some(node) = unsafe { at.as_ref::<'g>() } {
            if node.hash == hash && is_it(node) {
                return Some(node);
            }
            // SAFETY: as above.
            at = unsafe { node.next(table.link) };
        }
        None
    }

    /// The first node of a bucket; `None` if it has been moved.
    #[inline(always)]
    pub(super) fn head(&self, index: usize) -> Option<*mut Node<K, V>> {
        // Acquire: partner is the Release that linked it, or that has moved the bucket.
        let head = self.buckets[index].head.load(Ordering::Acquire);
        (head != moved()).then_some(head)
    }

    /// The table that a bucket has been moved to.
    ///
    /// # Safety
    /// - The caller has a guard since it has found this table, or is the only user.
    #[inline]
    pub(super) unsafe fn next(&self) -> Option<&Table<K, V>> {
        // Acquire: partner is the Release in `move_to`. SAFETY: null, or a table, which is freed after a grace period.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    /// Locks the bucket for this hash; `None` if it has been moved.
    pub(super) fn lock(&self, hash: u64) -> Option<Locked<'_, K, V>> {
        let bucket = &self.buckets[self.index(hash)];
        let lock = bucket.lock.lock();
        let is_moved = bucket.head.load(Ordering::Relaxed) == moved();
        (!is_moved).then_some(Locked { head: &bucket.head, link: self.link, _lock: lock })
    }

    /// Moves all buckets to another table, of twice or half the length, whose link is the other one.
    ///
    /// # Safety
    /// - No other thread moves, and a grace period has passed since the last move. (4)
    /// - `to` stays as long as this table.
    pub(super) unsafe fn move_to(&self, to: *mut Table<K, V>) {
        // Release: partner is the Acquire in `next`.
        self.next.store(to, Ordering::Release);
        // SAFETY: the caller's table, which stays.
        let to = unsafe { &*to };
        let (all, less) = (self.len(), self.len().min(to.len()));
        for first in 0..less {
            // All that have nodes of the same buckets of `to`: one, or two.
            let from = || (first..all).step_by(less).map(|index| &self.buckets[index]);
            // Of the two locks, the lower one first. Others take one at a time.
            let mut locks = from().map(|bucket| bucket.lock.lock());
            let locks = [locks.next(), locks.next()];
            for bucket in from() {
                let mut at = bucket.head.load(Ordering::Relaxed);
                // SAFETY: nodes of the chain, whose lock this thread has.
                while let Some(node) = unsafe { at.as_ref() } {
                    let head = &to.buckets[to.index(node.hash)].head;
                    // Relaxed: MOVED below publishes both.
                    node.links[to.link].store(head.load(Ordering::Relaxed), Ordering::Relaxed);
                    head.store(at, Ordering::Relaxed);
                    // SAFETY: this thread has the lock.
                    at = unsafe { node.next(self.link) };
                }
            }
            // Release: partner is the Acquire in `head`. (2)
            from().for_each(|bucket| bucket.head.store(moved(), Ordering::Release));
            drop(locks);
        }
    }

    /// Takes the nodes of all buckets.
    #[cfg(not(loom))]
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Box<Node<K, V>>> + use<'_, K, V> {
        let link = self.link;
        self.buckets.iter_mut().flat_map(move |bucket| {
            let mut at = *bucket.head.get_mut();
            if at == moved() {
                at = ptr::null_mut();
            }
            core::iter::from_fn(move || {
                // SAFETY: a node of the chain, which this owns: no other thread uses the table.
                let mut node = (!at.is_null()).then(|| unsafe { Box::from_raw(at) })?;
                at = *node.links[link].get_mut();
                Some(node)
            })
        })
    }
}

/// Where a node is, or would be.
pub(super) struct Place<'a, K, V> {
    /// What points to it.
    at: &'a AtomicPtr<Node<K, V>>,
    node: *mut Node<K, V>,
    /// How many nodes come before it.
    pub(super) before: usize,
}

impl<K, V> Locked<'_, K, V> {
    /// The place of the first node that `is_it`; behind the last one if there is none.
    pub(super) fn find(&self, mut is_it: impl FnMut(&Node<K, V>) -> bool) -> Place<'_, K, V> {
        let mut place = Place { at: self.head, node: ptr::null_mut(), before: 0 };
        loop {
            // Relaxed: changed under the lock.
            place.node = place.at.load(Ordering::Relaxed);
            // SAFETY: a node of the chain, whose lock this has.
            match unsafe { place.node.as_ref() } {
                Some(node) if !is_it(node) => {
                    place.at = &node.links[self.link];
                    place.before += 1;
                }
                _ => return place,
            }
        }
    }

    /// Puts a node in this place, instead of the one that is there. Returns that one, which the caller then owns; null if
    /// there was none. (3)
    pub(super) fn put(&self, place: &Place<'_, K, V>, new: Box<Node<K, V>>) -> *mut Node<K, V> {
        // SAFETY: null, or a node of the chain.
        let after = unsafe { place.node.as_ref() }
            .map_or(ptr::null_mut(), |old| old.links[self.link].load(Ordering::Relaxed));
        new.links[self.link].store(after, Ordering::Relaxed);
        // Release: partner is the Acquire of readers.
        place.at.store(Box::into_raw(new), Ordering::Release);
        place.node
    }

    /// Removes the node of this place, which the caller then owns; null if there is none. (3)
    pub(super) fn remove(&self, place: &Place<'_, K, V>) -> *mut Node<K, V> {
        // SAFETY: null, or a node of the chain.
        if let Some(old) = unsafe { place.node.as_ref() } {
            // Release: partner is the Acquire of readers.
            place.at.store(old.links[self.link].load(Ordering::Relaxed), Ordering::Release);
        }
        place.node
    }
}

impl<K, V> Place<'_, K, V> {
    /// The node; null if there is none.
    pub(super) fn node(&self) -> *mut Node<K, V> {
        self.node
    }
}

#[cfg(all(test, loom))]
#[path = "table_loom.rs"]
mod loom_tests;
