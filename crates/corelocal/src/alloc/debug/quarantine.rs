//! Quarantine of freed objects in checking mode: they wait before they can be allocated again.
//!
//! Queues with a lock each: several for small objects, of which a thread uses always the same one, and one for large
//! objects.
//!
//! # Invariants
//! 1. A queue changes under its lock. Of an operation's stores, that of a count is last, so after a fork at any point
//!    each item between the two counts is valid and unique.
//! 2. Nothing waits: if the lock is held, the caller keeps its object.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::sys::forks::Identity;
use crate::sys::once::OnceMap;
use crate::sys::try_lock::{Locked, TryLock};

const R: Ordering = Ordering::Relaxed;

/// Capacity of a queue in items.
const ROOM: usize = 1024;
const QUEUES: usize = 16;

/// An item, a number, with the number of bytes that it stands for.
pub(super) type Item = (u64, usize);

/// A queue with room for this many bytes, or at least one item.
pub(super) struct Queue {
    lock: TryLock,
    most_bytes: usize,
    /// Numbers of items that ever left and ever arrived.
    left: AtomicUsize,
    came: AtomicUsize,
    bytes: AtomicUsize,
    /// Mapped when the first item arrives: most processes are not in checking mode.
    items: OnceMap<Items>,
}

type Items = [(AtomicU64, AtomicUsize); ROOM];

/// Objects that have a class: 1 MiB in each queue.
static SMALL: [Queue; QUEUES] = [const { Queue::new(1 << 20) }; QUEUES];
/// Large objects. Their memory is with the kernel, and the bytes are address space.
pub(super) static LARGE: Queue = Queue::new(1 << 28);

/// Returns the queue of the calling thread.
pub(super) fn of_this_thread() -> &'static Queue {
    let thread = crate::alloc::random::mix(Identity::of_this_thread().number());
    &SMALL[thread as usize % QUEUES]
}

/// Returns the queues of small objects.
pub(super) fn small() -> impl Iterator<Item = &'static Queue> {
    SMALL.iter()
}

impl Queue {
    const fn new(most_bytes: usize) -> Queue {
        Queue {
            lock: TryLock::new(),
            most_bytes,
            left: AtomicUsize::new(0),
            came: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            items: OnceMap::new(),
        }
    }

    fn lock(&self) -> Option<Locked<'_>> {
        let locked = self.lock.try_lock()?;
        if locked.recovered {
            let bytes = self.waiting().map(|(_, bytes)| bytes).sum();
            self.bytes.store(bytes, R);
        }
        Some(locked)
    }

    /// Returns all items, oldest first. The lock must be held.
    fn waiting(&self) -> impl Iterator<Item = Item> {
        let mut next = self.left.load(R);
        core::iter::from_fn(move || {
            if next == self.came.load(R) {
                return None;
            }
            let (item, bytes) = &self.items.get()?[next % ROOM];
            next = next.wrapping_add(1);
            Some((item.load(R), bytes.load(R)))
        })
    }

    /// Appends an item; false if the caller must proceed with it at once.
    pub(super) fn push(&self, (item, bytes): Item) -> bool {
        let Some(_locked) = self.lock() else { return false };
        let came = self.came.load(R);
        if came.wrapping_sub(self.left.load(R)) == ROOM {
            return false;
        }
        let none = || [const { (AtomicU64::new(0), AtomicUsize::new(0)) }; ROOM];
        let Some(items) = self.items.get_or_try_init(none) else { return false };
        let place = &items[came % ROOM];
        place.0.store(item, R);
        place.1.store(bytes, R);
        self.bytes.store(self.bytes.load(R) + bytes, R);
        self.came.store(came.wrapping_add(1), R);
        true
    }

    /// Removes the oldest item if the queue is too long.
    pub(super) fn overdue(&self) -> Option<u64> {
        self.pop(|count, bytes| count > 1 && bytes > self.most_bytes || count > ROOM / 4 * 3)
    }

    /// Removes the oldest item.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.pop(|_, _| true)
    }

    /// Removes the oldest item if the number of items and bytes is as wanted.
    fn pop(&self, is_wanted: impl FnOnce(usize, usize) -> bool) -> Option<u64> {
        let _locked = self.lock()?;
        let left = self.left.load(R);
        let count = self.came.load(R).wrapping_sub(left);
        let (item, bytes) = self.waiting().next()?;
        if !is_wanted(count, self.bytes.load(R)) {
            return None;
        }
        self.bytes.store(self.bytes.load(R).saturating_sub(bytes), R);
        self.left.store(left.wrapping_add(1), R);
        Some(item)
    }

    /// Visits all items, which stay.
    pub(super) fn for_each(&self, f: impl FnMut(Item)) {
        if let Some(_locked) = self.lock() {
            self.waiting().for_each(f);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn first_in_first_out() {
        static QUEUE: Queue = Queue::new(100);
        for item in 0..9 {
            assert!(QUEUE.push((item, 20)));
        }
        let overdue: Vec<u64> = core::iter::from_fn(|| QUEUE.overdue()).collect();
        assert_eq!(overdue, [0, 1, 2, 3]);
        let mut waiting = Vec::new();
        QUEUE.for_each(|(item, _)| waiting.push(item));
        assert_eq!(waiting, [4, 5, 6, 7, 8]);
        // A single item is never too much, however large.
        assert!(QUEUE.push((9, 1000)));
        while QUEUE.overdue().is_some() {}
        assert_eq!(QUEUE.bytes.load(R), 1000);
        // A signal handler that interrupted the holder of the lock does not wait.
        let _held = QUEUE.lock().expect("free");
        assert!(!QUEUE.push((10, 1)) && QUEUE.overdue().is_none());
    }

    #[test]
    fn there_is_room_for_so_many() {
        static QUEUE: Queue = Queue::new(usize::MAX);
        assert_eq!((0..2000).filter(|item| QUEUE.push((*item, 1))).count(), ROOM);
        let overdue: Vec<u64> = core::iter::from_fn(|| QUEUE.overdue()).collect();
        assert!(overdue.len() == ROOM / 4 && overdue.is_sorted());
        assert_eq!(QUEUE.oldest(), Some(ROOM as u64 / 4));
        assert!(QUEUE.push((1, 1)));
    }
}
