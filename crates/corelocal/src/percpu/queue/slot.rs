//! A core's shard of a queue, and the shard that threads without critical sections share.
//!
//! ```text
//!   0    end │ start              written by critical sections
//!        newest │ room            written by threads without them, in shared slots
//!   64   consumer │ read │ limit │ oldest │ spare │ steps
//!
//!   start ──▶ ┌────────┐ next ┌────────┐ next ┌────────┐
//!             │ … items├─────▶│ items  ├─────▶│ items  │ ◀── end
//!             └────────┘      └────────┘      └────────┘
//!                 ▲ read                ▲ limit: up to here `end` need not be read
//!
//!   newest ──▶ node ──▶ node ──▶ node      by `older`; taken as a whole and reversed:
//!   oldest ──▶ node ──▶ node               by `newer`
//! ```
//!
//! # Invariants
//! 1. From `read` up to `end` along the segments lie items, each whole, in the order in which they were pushed. `end`
//!    is moved by critical sections only, `read` by the owner of `consumer` only.
//! 2. A segment's `next` is final once `end` has left the segment. `start` is final once `end` is not null. Before
//!    that, a section that is then aborted may have written them.
//! 3. A segment belongs to the slot from `queue_link` until both `read` and `end` have left it. The consumer then
//!    frees it. In an empty slot the last one stays.
//! 4. A node is on the list of `newest`, on that of `oldest`, or owned by one thread. When all of a segment's nodes
//!    have been taken, the consumer frees the segment. So no node is used twice. `room` is in a segment that has
//!    places left, or at the end of one, which is not accessed. While a list is being reversed, `oldest` is its
//!    newest node, marked, and the `older` links stay. So a thread that takes the lock over from a consumer that a
//!    fork left behind reverses it again, and loses no item.
//! 5. `steps` grows by two whenever `read` leaves a segment, before that segment can be reused. It becomes odd before
//!    the list of `newest` is taken, and even before all of it is in `oldest`. `oldest` is not null from before the
//!    list is taken until its last item is. So while `steps` stays the same and even, `read` only grows within one
//!    segment, and `newest` is not taken. While it is odd there is an item. `look` uses this to find a moment without
//!    items.
//! 6. The consumer does not write to a slot that was never pushed to: a trim may wipe such a slot.

mod consume;

use core::mem::MaybeUninit;
use core::ptr;

use super::segment::{self, Header, Places, Segment};
use crate::percpu::machinery::item_words::Words;
use crate::percpu::machinery::slot::Zeroed;
use crate::primitive::atomic::{AtomicPtr, AtomicU64, Ordering};
use crate::primitive::cell::UnsafeCell;
use crate::sys::try_lock::{Locked, TryLock};

/// A shard of a queue.
#[repr(C)]
pub(super) struct Slot {
    producers: Producers,
    consumers: Consumers,
}

#[repr(C, align(64))]
struct Producers {
    end: AtomicPtr<u8>,
    start: AtomicPtr<u8>,
    newest: AtomicPtr<u8>,
    /// The place of the next node.
    room: AtomicPtr<u8>,
}

#[repr(C, align(64))]
struct Consumers {
    consumer: TryLock,
    read: AtomicPtr<u8>,
    limit: AtomicPtr<u8>,
    oldest: AtomicPtr<u8>,
    /// A segment that the consumer has emptied, for the next producer.
    spare: AtomicPtr<Header>,
    /// Counts the consumer's steps (invariant 5).
    steps: AtomicU64,
}

/// The consumers' progress in a slot that was seen empty. Two equal values enclose a time without a push: see
/// [`Slot::look`]. Those of several slots may be added up.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Progress {
    steps: u64,
    read: u64,
}

impl core::ops::Add for Progress {
    type Output = Progress;

    /// Equal sums have equal terms: while `steps` of a slot does not grow, its `read` grows by at most 4096, and
    /// there are fewer than 2^52 slots.
    fn add(self, other: Progress) -> Progress {
        Progress {
            steps: self.steps.wrapping_add(other.steps),
            read: self.read.wrapping_add(other.read),
        }
    }
}

// SAFETY: null pointers and a free lock.
unsafe impl Zeroed for Slot {
    #[cfg(loom)]
    fn zeroed() -> Self {
        fn null<T>() -> AtomicPtr<T> {
            AtomicPtr::new(ptr::null_mut())
        }
        Slot {
            producers: Producers { end: null(), start: null(), newest: null(), room: null() },
            consumers: Consumers {
                consumer: TryLock::new(),
                read: null(),
                limit: null(),
                oldest: null(),
                spare: null(),
                steps: AtomicU64::new(0),
            },
        }
    }
}

/// An item on the list of a shared slot.
struct Node<T> {
    /// The node pushed before this one.
    older: AtomicPtr<u8>,
    /// The node pushed after this one, once the list is reversed.
    newer: AtomicPtr<u8>,
    words: UnsafeCell<Words<T>>,
}

/// The value of `oldest` while a list is being reversed whose newest node this is. Nodes are aligned to 8 bytes.
fn marked(newest: *mut u8) -> *mut u8 {
    newest.map_addr(|at| at | 1)
}

fn is_marked(oldest: *mut u8) -> bool {
    oldest.addr() & 1 != 0
}

fn unmarked(oldest: *mut u8) -> *mut u8 {
    oldest.map_addr(|at| at & !1)
}

/// The number of `T`s that fit in a segment, for a slot of either kind.
pub(super) struct PlacesOf<T>(core::marker::PhantomData<T>);

impl<T> PlacesOf<T> {
    pub(super) const LEAST: usize = {
        let (words, nodes) = (Places::<Words<T>>::COUNT, Places::<Node<T>>::COUNT);
        if words < nodes { words } else { nodes }
    };
}

impl Slot {
    /// Appends an item to a shared slot. Returns the item if there is no memory. Lock-free, async-signal-safe. A fork
    /// in the middle costs the child at most one segment.
    pub(super) fn push_shared<T>(&self, item: Words<T>) -> Result<(), Words<T>> {
        let Some(node) = self.take_room::<T>() else { return Err(item) };
        let mut newest = self.producers.newest.load(Ordering::Relaxed);
        let (older, newer) = (AtomicPtr::new(newest), AtomicPtr::new(ptr::null_mut()));
        // SAFETY: a place that this thread has taken.
        let older = unsafe {
            node.write(Node { older, newer, words: UnsafeCell::new(item) });
            &(*node).older
        };
        // Release: partners are the Acquires in `take_newest` and `is_listed`.
        while let Err(now) = self.producers.newest.compare_exchange_weak(
            newest,
            node.cast(),
            Ordering::Release,
            Ordering::Relaxed,
        ) {
            newest = now;
            older.store(newest, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Takes a place for a node.
    fn take_room<T>(&self) -> Option<*mut Node<T>> {
        let room = &self.producers.room;
        // Acquire, here and below: partner is the Release of the thread that linked the segment. The accesses of the
        // segment's last owner come before. (If `room` has changed and changed back, the same place is the next one
        // again, so that does no harm.)
        let mut at = room.load(Ordering::Acquire);
        loop {
            let mut fresh = None;
            let place = if segment::is_end(at) {
                fresh.insert(self.take_spare().or_else(Segment::take)?).first::<Node<T>>()
            } else {
                at.cast()
            };
            let next = place.wrapping_add(1).cast();
            match room.compare_exchange(at, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    fresh.map(Segment::into_raw);
                    return Some(place);
                }
                Err(now) => at = now,
            }
        }
    }

    /// Takes the segment that the consumer left for producers.
    pub(super) fn take_spare(&self) -> Option<Segment> {
        let spare = &self.consumers.spare;
        if spare.load(Ordering::Relaxed).is_null() {
            return None;
        }
        // Acquire: partner is the Release in `dispose`.
        let segment = spare.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: from `into_raw`, and owned by this thread since the swap.
        (!segment.is_null()).then(|| unsafe { Segment::from_raw(segment) })
    }

    /// Returns `true` if it seems empty. A hint.
    pub(super) fn seems_empty(&self) -> bool {
        let read = self.consumers.read.load(Ordering::Relaxed);
        read == self.consumers.limit.load(Ordering::Relaxed)
            && read == self.producers.end.load(Ordering::Relaxed)
            && self.producers.newest.load(Ordering::Relaxed).is_null()
            && self.consumers.oldest.load(Ordering::Relaxed).is_null()
    }

    /// Returns the consumers' progress, if the slot held no item at some moment of the call, apart from those that
    /// consumers were about to return. `None`: at some moment there was an item.
    ///
    /// For a slot of critical sections: `read` has a value at a first moment, and `end` has it at a second one.
    /// `read` never passes `end`, and in between neither left the segment. So both were equal at the first moment.
    /// For a shared slot: `newest` is null at the last moment, and was not taken since the first one, so it was null
    /// all the time; in between `oldest` is null. Without `steps` either order of the loads would miss items that
    /// move from one list to the other between them.
    ///
    /// If a second call returns the same value, no item was pushed in between: `read` is the same place, since the
    /// segment is the same, and so was `end`; and no list was taken from `newest`.
    pub(super) fn look(&self) -> Option<Progress> {
        self.look_pausing(|_| ())
    }

    /// Does what [`look`](Self::look) does, with a pause before each load except the first, for tests.
    #[inline(always)]
    fn look_pausing(&self, mut pause: impl FnMut(u32)) -> Option<Progress> {
        let Producers { end, newest, .. } = &self.producers;
        let Consumers { read, oldest, steps, .. } = &self.consumers;
        // Acquire, all but the last: partners are the Release stores of consumers, and for `newest` the Release in
        // `push_shared`. Later loads return no older values.
        let before = steps.load(Ordering::Acquire);
        pause(1);
        let at = read.load(Ordering::Acquire);
        pause(2);
        let is_turned = before % 2 == 0 && oldest.load(Ordering::Acquire).is_null();
        pause(3);
        // Acquire, both. A section's commit in a reused segment comes after `steps`, through `spare` or the pool (for
        // the commit itself see `go_on`). And `newest` becomes null again after `steps`, by the compare-exchange in
        // `take_newest`.
        let is_read = end.load(Ordering::Acquire) == at;
        pause(4);
        let is_taken = newest.load(Ordering::Acquire).is_null();
        pause(5);
        let is_still = steps.load(Ordering::Relaxed) == before;
        let is_empty = is_turned && is_read && is_taken && is_still;
        is_empty.then_some(Progress { steps: before, read: at.addr() as u64 })
    }

    /// Returns `true` if it held no item at some moment of the call; see [`look`](Self::look).
    pub(super) fn is_empty(&self) -> bool {
        self.look().is_some()
    }

    /// Takes the oldest item. `None` if there is none, or another consumer has the lock.
    ///
    /// # Safety
    /// - All items of the slot are `T`s.
    pub(super) unsafe fn pop<T>(&self) -> Option<Words<T>> {
        // The consumer must not write to a slot that was never used (invariant 6).
        if self.seems_empty() {
            return None;
        }
        let locked = self.consumers.consumer.try_lock()?;
        // SAFETY: the caller guarantees that all items are `T`s, and the lock is held.
        unsafe { self.pop_own(&locked).or_else(|| self.pop_shared(&locked)) }
    }

    /// Calls `f` on all items, until there are none. `f` runs under the slot's lock.
    ///
    /// # Safety
    /// - All items of the slot are `T`s.
    #[cfg(all(feature = "std", not(loom)))]
    pub(super) unsafe fn pop_all<T>(&self, mut f: impl FnMut(Words<T>)) {
        if self.seems_empty() {
            return;
        }
        let Some(locked) = self.consumers.consumer.try_lock() else { return };
        // SAFETY: the caller guarantees that all items are `T`s, and the lock is held.
        let pop = || unsafe { self.pop_own(&locked).or_else(|| self.pop_shared(&locked)) };
        while let Some(words) = pop() {
            f(words);
        }
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn with_lock_held(&self, f: impl FnOnce()) {
        let _held = self.consumers.consumer.try_lock().expect("free");
        f();
    }

    /// Frees the remaining memory.
    ///
    /// # Safety
    /// - The slot holds no items, and is not used any more.
    pub(super) unsafe fn free(&self) {
        drop(self.take_spare());
        let Producers { end, room, .. } = &self.producers;
        let end = end.load(Ordering::Relaxed);
        if !end.is_null() {
            // SAFETY: the last segment, which stays in an empty slot (invariant 3).
            drop(unsafe { Segment::from_raw(segment::ending_at(end)) });
        }
        let room = room.load(Ordering::Relaxed);
        if !segment::is_end(room) {
            // SAFETY: it has places left, so it was not freed (invariant 4).
            drop(unsafe { Segment::from_raw(segment::containing(room)) });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom;
#[cfg(all(test, loom))]
mod section_loom;
