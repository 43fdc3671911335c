//! Where objects wait that were freed, in a process that is checked, lest they be given out again at once.
//!
//! Queues with a lock each: of small objects several, and a thread keeps to one of them; of large ones one.
//!
//! # Invariants
//! 1. A queue is changed under its lock. The count that says so changes last, so of whatever store a fork stops
//!    its holder at, what is between the two counts is there once.
//! 2. Nobody waits: who does not get the lock keeps what he has.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::sys::forks::Identity;
use crate::sys::once::OnceMap;
use crate::sys::try_lock::{Locked, TryLock};

const R: Ordering = Ordering::Relaxed;

/// Items that a queue has room for.
const ROOM: usize = 1024;
const QUEUES: usize = 16;

/// What waits: the item, a number, and how many bytes it stands for.
pub(super) type Item = (u64, usize);

/// A queue that has room for so many bytes, but at least for one item.
pub(super) struct Queue {
    lock: TryLock,
    most_bytes: usize,
    /// Items that ever left, and that ever came.
    left: AtomicUsize,
    came: AtomicUsize,
    bytes: AtomicUsize,
    /// Mapped when the first item comes: most processes are not checked.
    items: OnceMap<Items>,
}

type Items = [(AtomicU64, AtomicUsize); ROOM];

/// Of objects that have a class: a megabyte for each queue.
static SMALL: [Queue; QUEUES] = [const { Queue::new(1 << 20) }; QUEUES];
/// Of large ones: their memory is the kernel's meanwhile, and the bytes are addresses.
pub(super) static LARGE: Queue = Queue::new(1 << 28);

/// That of the calling thread.
pub(super) fn of_this_thread() -> &'static Queue {
    let thread = super::random::mix(Identity::of_this_thread().number());
    &SMALL[thread as usize % QUEUES]
}

/// Those of small objects.
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

    /// All items, the oldest first. Under the lock.
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

    /// Puts an item behind the others; false if it has to go on at once.
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

    /// Takes the oldest item, if there are too many.
    pub(super) fn overdue(&self) -> Option<u64> {
        self.pop(|count, bytes| count > 1 && bytes > self.most_bytes || count > ROOM / 4 * 3)
    }

    /// Takes the oldest item.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.pop(|_, _| true)
    }

    /// Takes the oldest item, if there are so many of so many bytes.
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

    /// Looks at all items, which stay.
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
        // One that is too long alone is not too many.
        assert!(QUEUE.push((9, 1000)));
        while QUEUE.overdue().is_some() {}
        assert_eq!(QUEUE.bytes.load(R), 1000);
        // Who is inside already, as a signal handler finds it, goes his way.
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
