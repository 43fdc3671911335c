//! A core's part of a queue, and the part that threads without sections share.
//!
//! ```text
//!   0    end │ start              written by sections
//!        newest │ room            written by threads without, in shared slots
//!   64   consumer │ read │ limit │ oldest │ spare │ steps
//!
//!   start ──▶ ┌────────┐ next ┌────────┐ next ┌────────┐
//!             │ … items├─────▶│ items  ├─────▶│ items  │ ◀── end
//!             └────────┘      └────────┘      └────────┘
//!                 ▲ read                ▲ limit: so far it needs no look at `end`
//!
//!   newest ──▶ node ──▶ node ──▶ node      by `older`; taken as a whole, and turned round:
//!   oldest ──▶ node ──▶ node               by `newer`
//! ```
//!
//! # Invariants
//! 1. From `read` up to `end` along the segments lie items, each whole, in the order in which they were
//!    pushed. `end` moves by sections alone, `read` by the holder of `consumer`.
//! 2. A segment's `next`, and `start`, are final once `end` has left the segment, or is not null any more.
//!    Before, a section that will be aborted may have written them.
//! 3. A segment belongs to the slot from `queue_link` until `read` and `end` have both left it; the
//!    consumer then gives it away. Without an item, the last one stays.
//! 4. A node is on the list of `newest`, on that of `oldest`, or in one thread's hands. When all of a
//!    segment's nodes were taken out, the consumer gives the segment away. So no node is used twice, and
//!    `room` is in a segment that has places left, or at the end of one, which nobody looks into.
//!    While a list is turned round, `oldest` is the newest node of it, marked; `older` links stay. So whoever
//!    takes the lock from a consumer that a fork left behind turns it round once more, and loses nothing.
//! 5. `steps` grows by two whenever `read` leaves a segment, before that can be used again; it becomes odd before
//!    the list of `newest` is taken, and even before all of it is in `oldest`, which is not null from before the
//!    list is taken until its last item is. So while `steps` stays the same and even, `read` only grows within one
//!    segment and `newest` is not taken; while it is odd there is an item. That shows a moment without items
//!    (`look`).
//! 6. The consumer writes nothing to a slot to which nobody ever pushed: a trim may wipe such a slot.

use core::mem::MaybeUninit;
use core::ptr;

use super::segment::{self, Header, Places, Segment};
use crate::percpu::item_words::Words;
use crate::percpu::slot::Zeroed;
use crate::primitive::atomic::{AtomicPtr, AtomicU64, Ordering};
use crate::primitive::cell::UnsafeCell;
use crate::sys::try_lock::{Locked, TryLock};

/// See the module's text.
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
    /// Where the next node goes.
    room: AtomicPtr<u8>,
}

#[repr(C, align(64))]
struct Consumers {
    consumer: TryLock,
    read: AtomicPtr<u8>,
    limit: AtomicPtr<u8>,
    oldest: AtomicPtr<u8>,
    /// A segment that the consumer is done with, for the next producer.
    spare: AtomicPtr<Header>,
    /// Invariant 5.
    steps: AtomicU64,
}

/// What consumers have done to a slot that was seen without items. Two that are equal enclose a time without a
/// push: see [`Slot::look`]. Those of several slots may be added up.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Progress {
    steps: u64,
    read: u64,
}

impl core::ops::Add for Progress {
    type Output = Progress;

    /// Equal sums are sums of equal parts: while no part's `steps` grows, its `read` grows by 4096 at most, and
    /// there are no 2^52 slots.
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
    /// The one pushed before.
    older: AtomicPtr<u8>,
    /// The one pushed after, once the list has been turned round.
    newer: AtomicPtr<u8>,
    words: UnsafeCell<Words<T>>,
}

/// What `oldest` is while a list is turned round whose newest node this is. Nodes are aligned to 8 bytes.
fn marked(newest: *mut u8) -> *mut u8 {
    newest.map_addr(|at| at | 1)
}

fn is_marked(oldest: *mut u8) -> bool {
    oldest.addr() & 1 != 0
}

fn unmarked(oldest: *mut u8) -> *mut u8 {
    oldest.map_addr(|at| at & !1)
}

/// How many `T`s go into a segment, in a slot of either kind.
pub(super) struct PlacesOf<T>(core::marker::PhantomData<T>);

impl<T> PlacesOf<T> {
    pub(super) const LEAST: usize = {
        let (words, nodes) = (Places::<Words<T>>::COUNT, Places::<Node<T>>::COUNT);
        if words < nodes { words } else { nodes }
    };
}

impl Slot {
    /// Appends an item to a shared slot; gives it back without memory. Lock-free, async-signal-safe; a
    /// fork in the middle leaves the child without a segment at worst.
    pub(super) fn push_shared<T>(&self, item: Words<T>) -> Result<(), Words<T>> {
        let Some(node) = self.take_room::<T>() else { return Err(item) };
        let mut newest = self.producers.newest.load(Ordering::Relaxed);
        let (older, newer) = (AtomicPtr::new(newest), AtomicPtr::new(ptr::null_mut()));
        // SAFETY: a place for a node of our own.
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

    /// A place for a node, now the caller's.
    fn take_room<T>(&self) -> Option<*mut Node<T>> {
        let room = &self.producers.room;
        // Acquire, here and below: partner is the Release of who linked the segment there. What its
        // last owner did to it comes before. (That `room` looks the same again after other values does
        // no harm: then that place is the next one again.)
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

    /// The segment that the consumer left for us.
    pub(super) fn take_spare(&self) -> Option<Segment> {
        let spare = &self.consumers.spare;
        if spare.load(Ordering::Relaxed).is_null() {
            return None;
        }
        // Acquire: partner is the Release in `dispose`.
        let segment = spare.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: from `into_raw`, and ours by the swap.
        (!segment.is_null()).then(|| unsafe { Segment::from_raw(segment) })
    }

    /// Whether it seems to hold nothing. A hint.
    pub(super) fn seems_empty(&self) -> bool {
        let read = self.consumers.read.load(Ordering::Relaxed);
        read == self.consumers.limit.load(Ordering::Relaxed)
            && read == self.producers.end.load(Ordering::Relaxed)
            && self.producers.newest.load(Ordering::Relaxed).is_null()
            && self.consumers.oldest.load(Ordering::Relaxed).is_null()
    }

    /// What consumers have done to it, if it held nothing at some moment of the call but the items with which
    /// consumers were about to return. `None`: at some moment there was an item.
    ///
    /// Of a slot of sections: `read` has a value at a first moment and `end` has it at a second one. `read` never
    /// passes `end`, and in between neither left the segment, so at the first moment both were equal. Of a shared
    /// slot: `newest` is null at the last moment, and was not taken since the first one, so it was null all the
    /// time; in between `oldest` is null. Without `steps` either order of the loads would miss items that move on
    /// from one place to the next between them.
    ///
    /// A second look with an equal result: no item was pushed in between. `read` is the same place, since the
    /// segment is, and so was `end`; nothing was taken from `newest`.
    pub(super) fn look(&self) -> Option<Progress> {
        self.look_pausing(|_| ())
    }

    /// [`look`](Self::look), with something done before each load but the first, for tests.
    #[inline(always)]
    fn look_pausing(&self, mut pause: impl FnMut(u32)) -> Option<Progress> {
        let Producers { end, newest, .. } = &self.producers;
        let Consumers { read, oldest, steps, .. } = &self.consumers;
        // Acquire, all but the last: partners are the Release stores of consumers, and of `newest` the Release
        // in `push_shared`. What is loaded later is no older.
        let before = steps.load(Ordering::Acquire);
        pause(1);
        let at = read.load(Ordering::Acquire);
        pause(2);
        let is_turned = before % 2 == 0 && oldest.load(Ordering::Acquire).is_null();
        pause(3);
        // Acquire, both: a section's commit in a segment that is used again comes after `steps`, by way of
        // `spare` or the pool (for the commit itself see `go_on`); and that `newest` is null again comes after it
        // by the compare-exchange in `take_newest`.
        let is_read = end.load(Ordering::Acquire) == at;
        pause(4);
        let is_taken = newest.load(Ordering::Acquire).is_null();
        pause(5);
        let is_still = steps.load(Ordering::Relaxed) == before;
        let is_empty = is_turned && is_read && is_taken && is_still;
        is_empty.then_some(Progress { steps: before, read: at.addr() as u64 })
    }

    /// Whether it held nothing at some moment of the call; see [`look`](Self::look).
    pub(super) fn is_empty(&self) -> bool {
        self.look().is_some()
    }

    /// Takes the oldest item. `None` when there is none, or another consumer is here.
    ///
    /// # Safety
    /// All items of the slot are `T`s.
    pub(super) unsafe fn pop<T>(&self) -> Option<Words<T>> {
        // Invariant 6.
        if self.seems_empty() {
            return None;
        }
        let locked = self.consumers.consumer.try_lock()?;
        // SAFETY: the caller's promise, and the lock.
        unsafe { self.pop_own(&locked).or_else(|| self.pop_shared(&locked)) }
    }

    /// # Safety
    /// As `pop`.
    unsafe fn pop_own<T>(&self, locked: &Locked<'_>) -> Option<Words<T>> {
        let Consumers { read, limit, .. } = &self.consumers;
        // Relaxed: written under the lock.
        let mut at = read.load(Ordering::Relaxed);
        // One that was left behind may have stored the one and not the other.
        if at == limit.load(Ordering::Relaxed) || locked.recovered {
            // SAFETY: the caller's promise.
            at = unsafe { self.go_on(at) }?;
        }
        // SAFETY: an item by invariant 1, and ours.
        let words = unsafe { at.cast::<MaybeUninit<Words<T>>>().read().assume_init() };
        // Release: partner is the Acquire in `look`.
        read.store(at.wrapping_add(size_of::<Words<T>>()), Ordering::Release);
        Some(words)
    }

    /// Where the next item is, if there is one; sets `limit`.
    ///
    /// # Safety
    /// As `pop`, under the lock.
    unsafe fn go_on(&self, mut at: *mut u8) -> Option<*mut u8> {
        // Acquire: partner is the commit of the section that stored it: stores are not reordered on
        // x86-64; arm64 has to commit with a store-release.
        let end = self.producers.end.load(Ordering::Acquire);
        if at == end {
            self.consumers.limit.store(at, Ordering::Relaxed);
            return None;
        }
        if segment::is_end(at) {
            let first = if at.is_null() {
                // Relaxed: the Acquire came before (invariant 2).
                self.producers.start.load(Ordering::Relaxed)
            } else {
                // SAFETY: `end` has left it (invariants 2 and 3).
                unsafe { segment::next(segment::ending_at(at)) }
            };
            let left = at;
            at = first;
            self.consumers.read.store(at, Ordering::Release);
            self.step(2);
            if !left.is_null() {
                // SAFETY: invariant 3.
                self.dispose(unsafe { Segment::from_raw(segment::ending_at(left)) });
            }
        }
        let segment = segment::containing(at);
        let limit = if segment == segment::ending_at(end) {
            end
        } else {
            segment.cast::<u8>().wrapping_add(crate::rseq::SEGMENT)
        };
        self.consumers.limit.store(limit, Ordering::Relaxed);
        Some(at)
    }

    /// # Safety
    /// As `pop`.
    unsafe fn pop_shared<T>(&self, _locked: &Locked<'_>) -> Option<Words<T>> {
        let oldest = &self.consumers.oldest;
        // Relaxed: written under the lock.
        let mut node = oldest.load(Ordering::Relaxed).cast::<Node<T>>();
        if node.is_null() || is_marked(node.cast()) {
            // SAFETY: the caller's promise.
            node = unsafe { self.turn_round(node.cast()) }?;
        }
        // SAFETY: a node of ours by invariant 4.
        let (newer, words) = unsafe {
            ((*node).newer.load(Ordering::Relaxed), (*node).words.with(|words| words.read()))
        };
        // Release: partner is the Acquire in `look`.
        oldest.store(newer, Ordering::Release);
        let header = segment::containing(node.cast());
        // Relaxed: under the lock.
        // SAFETY: the node's segment, which is there until its last node is done with.
        let done = unsafe { (*header).done.fetch_add(1, Ordering::Relaxed) } + 1;
        if done as usize == Places::<Node<T>>::COUNT {
            // SAFETY: invariant 4.
            self.dispose(unsafe { Segment::from_raw(header) });
        }
        Some(words)
    }

    /// Takes all nodes that were pushed, and links them to newer ones; the oldest of them, where `oldest`
    /// is now. `left` is what was there: null, or marked by a consumer that a fork left behind.
    ///
    /// # Safety
    /// As `pop`, under the lock.
    unsafe fn turn_round<T>(&self, left: *mut u8) -> Option<*mut Node<T>> {
        let left = unmarked(left);
        // SAFETY: the caller's promise.
        let mut node = if !left.is_null() && !unsafe { self.is_listed::<T>(left) } {
            left
        } else {
            self.take_newest()
        }
        .cast::<Node<T>>();
        if node.is_null() {
            return None;
        }
        let mut newer = ptr::null_mut::<Node<T>>();
        while !node.is_null() {
            // SAFETY: ours: the list is not that of `newest` any more.
            let Node { older, newer: link, .. } = unsafe { &*node };
            link.store(newer.cast(), Ordering::Relaxed);
            (newer, node) = (node, older.load(Ordering::Relaxed).cast());
        }
        // Even already, where a consumer that a fork left behind came so far.
        if self.is_turning() {
            self.step(1);
        }
        // Release: partner is the Acquire in `look`.
        self.consumers.oldest.store(newer.cast(), Ordering::Release);
        Some(newer)
    }

    /// Takes the list of `newest`, whose newest node is in `oldest` from then on, marked; null if it is
    /// empty.
    fn take_newest(&self) -> *mut u8 {
        let (newest, oldest) = (&self.producers.newest, &self.consumers.oldest);
        let mut node = newest.load(Ordering::Relaxed);
        while !node.is_null() {
            // Before the list is taken, so that at no moment it is in our hands alone.
            oldest.store(marked(node), Ordering::Relaxed);
            if !self.is_turning() {
                self.step(1);
            }
            // Acquire: partner is the Release in `push_shared`, of all nodes: they follow each other by
            // read-modify-writes. Release: partner is the Acquire in `look`, of the step before.
            match newest.compare_exchange(
                node,
                ptr::null_mut(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => node = now,
            }
        }
        node
    }

    /// Whether a node is on the list of `newest`: then its consumer did not come to take it.
    ///
    /// # Safety
    /// As `pop`, under the lock.
    #[cold]
    unsafe fn is_listed<T>(&self, sought: *mut u8) -> bool {
        // Acquire: partner is the Release in `push_shared`, of all nodes.
        let mut node = self.producers.newest.load(Ordering::Acquire);
        while !node.is_null() && node != sought {
            // SAFETY: nobody takes nodes off but the holder of the lock.
            node = unsafe { (*node.cast::<Node<T>>()).older.load(Ordering::Relaxed) };
        }
        !node.is_null()
    }

    /// Whether `steps` is odd. Under the lock.
    fn is_turning(&self) -> bool {
        self.consumers.steps.load(Ordering::Relaxed) % 2 != 0
    }

    /// Under the lock: invariant 5.
    fn step(&self, by: u64) {
        let steps = &self.consumers.steps;
        // Release: partner is the Acquire in `look`; what was done before is seen with it.
        steps.store(steps.load(Ordering::Relaxed) + by, Ordering::Release);
    }

    /// Leaves a segment to the next producer, or gives it to the pool.
    fn dispose(&self, mut segment: Segment) {
        segment.renew();
        // Release: partner is the Acquire in `take_spare`. Acquire: of the other's, which goes on.
        let before = self.consumers.spare.swap(segment.into_raw(), Ordering::AcqRel);
        if !before.is_null() {
            // SAFETY: from `into_raw`, and ours by the swap.
            drop(unsafe { Segment::from_raw(before) });
        }
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn with_lock_held(&self, f: impl FnOnce()) {
        let _held = self.consumers.consumer.try_lock().expect("free");
        f();
    }

    /// Gives away what memory is left.
    ///
    /// # Safety
    /// There are no items, and nobody uses the slot from here on.
    pub(super) unsafe fn free(&self) {
        drop(self.take_spare());
        let Producers { end, room, .. } = &self.producers;
        let end = end.load(Ordering::Relaxed);
        if !end.is_null() {
            // SAFETY: invariant 3: it stayed.
            drop(unsafe { Segment::from_raw(segment::ending_at(end)) });
        }
        let room = room.load(Ordering::Relaxed);
        if !segment::is_end(room) {
            // SAFETY: invariant 4: it has places left, so it was not given away.
            drop(unsafe { Segment::from_raw(segment::containing(room)) });
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "slot_tests.rs"]
mod tests;

#[cfg(all(test, loom))]
#[path = "slot_loom.rs"]
mod loom_tests;
