//! An unbounded first-in first-out queue for each core, whose consumers may sleep.
//!
//! # Data flow
//! `push` → one critical section of that name, which stores the item and commits the end after it → one read of a
//! word that says whether a consumer sleeps. If the segment is full: a new one with the item already in it, and the
//! critical section `queue_link`. A consumer takes a slot's lock, reads items up to the end, and frees segments that
//! it has emptied. Where critical sections are unavailable: a lock-free list in a shared slot.
//!
//! ```text
//!   machinery/slot.rs      a core's shard               sleepers.rs   sleeping consumers and wake-ups
//!   segment.rs   blocks of 4 KiB              pool.rs       free segments
//! ```
//!
//! # Invariants
//! 1. From `push` to its consumer an item is in exactly one place: a slot, or the consumer's hands.
//! 2. The items of one slot come out in order. (The slot's own invariants are in `machinery/slot.rs`.)
//! 3. Every push is followed by a check for sleeping consumers (`sleepers.rs`).
//! 4. No lock is held while code of the caller runs.

#[cfg_attr(loom, path = "queue/pool_loom.rs")]
mod pool;
mod segment;
mod sleepers;
mod slot;

use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;

use self::segment::Segment;
use self::sleepers::Sleepers;
use self::slot::{Progress, Slot};
use super::machinery::blocking;
use super::machinery::cursor::Cursor;
use super::machinery::item_words::{DropAll, Words};
use super::machinery::lazy_block::{Fallback, Owned};
use super::push_error::PushError;
use crate::cid::{Cid, SlotIndex};
use crate::rseq::{self, Exit, MAX_ATTEMPTS, Slots};
use crate::sys::futex::Deadline;

/// The number of checks a consumer makes before it goes to sleep: they take a few microseconds.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 64 };
/// The time for which a consumer sleeps while another one has a slot's lock.
const A_MOMENT: Duration = Duration::from_micros(10);

/// Many producers, each on its core, and one or more consumers: first in, first out for each core, bounded by memory
/// only.
///
/// A push costs a few nanoseconds, whatever the number of threads: no locked instruction, no line that another
/// producer writes, no fence. It makes a system call only to wake a sleeping consumer. This suits work that is made
/// everywhere and done by a few threads: log lines, deferred frees, requests to a writer thread.
///
/// Items of up to 8 bytes are the fastest. Larger ones, up to 4064 bytes, are copied in word by word, so box what is
/// large. `I` chooses what indexes the slots; keep the default.
///
/// ```
/// use corelocal::percpu::Queue;
///
/// static LINES: Queue<String> = Queue::new();
///
/// std::thread::scope(|scope| {
///     let writer = scope.spawn(|| (0..4).map(|_| LINES.pop().len()).sum::<usize>());
///     for _ in 0..4 {
///         scope.spawn(|| LINES.push(String::from("line")).unwrap());
///     }
///     assert_eq!(writer.join().unwrap(), 16);
/// });
/// ```
///
/// Items travel between threads, so a queue of items that are not [`Send`] is not `Sync`:
///
/// ```compile_fail,E0277
/// use corelocal::percpu::Queue;
/// use std::rc::Rc;
///
/// static ITEMS: Queue<Rc<()>> = Queue::new(); // `Rc<()>` cannot be sent between threads safely
/// ```
///
/// # Order
/// The items of one slot come out in the order in which they were pushed. So the items of one thread stay in order as
/// long as it keeps its slot ([`crate::cid`]), which usually means as long as it stays on its core. There is no order
/// between slots. Consumers go round them, 64 items at a time.
///
/// # Where it may be used
/// [`push`](Queue::push) and [`try_pop`](Queue::try_pop) work in any thread, in signal handlers, before `main` and
/// during thread exit: they do not block, panic, or allocate from a heap. The forms of `pop` that wait are not for
/// signal handlers. Not in a child of `vfork`: an item may be lost or come out twice.
///
/// A child of `fork` has copies of all items. An item that another thread was taking out at that moment may be
/// missing.
///
/// # Threads without critical sections
/// Where they are unavailable (see [`crate::sys::Refusal`]), threads push to lists in shared shards, lock-free: two
/// compare-exchanges.
///
/// # Memory
/// 128 bytes, and on each core that used it 128 bytes and a segment of 4 KiB, which may hold items, and sometimes a
/// spare one. Further segments are allocated for items and freed with them: to all queues of the process, and from 4
/// MiB on to the kernel.
///
/// # Memory ordering
/// A push happens before the pop that yields its item. All other accesses are unordered.
#[repr(C, align(64))]
pub struct Queue<T, I: SlotIndex = Cid> {
    slots: Owned<Slot, I>,
    sleepers: Sleepers,
    cursor: Cursor,
    /// Invariant in `T`, not `PhantomData<T>`: `push` takes `&self`, so through a covariant queue a shorter-lived
    /// item could be put in and come out as a longer-lived one.
    items: PhantomData<fn(T) -> T>,
}

// SAFETY: items go in by value on one thread and come out by value, once, on another.
unsafe impl<T: Send, I: SlotIndex> Send for Queue<T, I> {}
// SAFETY: items go in and come out by value, and no reference to an item is ever returned.
unsafe impl<T: Send, I: SlotIndex> Sync for Queue<T, I> {}

impl<T, I: SlotIndex> Queue<T, I> {
    const_fn! {
        /// Creates an empty queue.
        pub const fn new() -> Self {
            const { assert!(slot::PlacesOf::<T>::LEAST > 0) };
            Queue {
                slots: Owned::new(),
                sleepers: Sleepers::new(),
                cursor: Cursor::new(),
                items: PhantomData,
            }
        }
    }

    /// Appends an item, and wakes a consumer if one sleeps.
    ///
    /// Constant time, lock-free. A new segment is linked every 500 words or so. The process's first push registers it
    /// with the kernel for `membarrier(2)`, which may take milliseconds. Async-signal-safe.
    ///
    /// # Errors
    /// Returns the item if there is no memory.
    #[inline]
    pub fn push(&self, item: T) -> Result<(), PushError<T>> {
        let words = Words::new(item);
        match self.push_section(&words) {
            Ok(exit) if exit.is_committed() => {
                self.sleepers.notify();
                Ok(())
            }
            ended => self.push_otherwise(ended, words).map_err(PushError),
        }
    }

    /// Takes the oldest item of some slot.
    ///
    /// `None` if all slots seem empty; a slot from which another thread is just taking counts as empty. Constant time
    /// while the slot that gave the last item has more, otherwise linear in the ids in use. Async-signal-safe.
    ///
    /// ```
    /// use corelocal::percpu::Queue;
    ///
    /// let queue: Queue<u32> = Queue::new();
    /// assert_eq!(queue.try_pop(), None);
    /// queue.push(1).unwrap();
    /// assert_eq!(queue.try_pop(), Some(1));
    /// ```
    pub fn try_pop(&self) -> Option<T> {
        // SAFETY: this queue's slots hold its items only.
        let words = self.cursor.take(&self.slots, |slot| unsafe { slot.pop() })?;
        // SAFETY: it was pushed, and taken once.
        Some(unsafe { Words::into_item(words) })
    }

    /// Takes an item, and sleeps while there is none.
    ///
    /// If there is one, like [`try_pop`](Queue::try_pop). Otherwise it checks again for a few microseconds, then
    /// sleeps: one `membarrier(2)` and one `futex(2)`, and as many again after each spurious wake-up. Not for signal
    /// handlers.
    pub fn pop(&self) -> T {
        loop {
            if let Some(item) = self.pop_before(None) {
                return item;
            }
        }
    }

    /// Does what [`pop`](Queue::pop) does, with a deadline. `None` if it passes without an item.
    pub fn pop_until(&self, deadline: Deadline) -> Option<T> {
        self.pop_before(Some(deadline))
    }

    /// Does what [`pop`](Queue::pop) does, with a time limit. `None` if it passes without an item.
    ///
    /// ```
    /// use corelocal::percpu::Queue;
    /// use std::time::Duration;
    ///
    /// let queue: Queue<u32> = Queue::new();
    /// assert_eq!(queue.pop_for(Duration::from_millis(1)), None);
    /// ```
    pub fn pop_for(&self, span: Duration) -> Option<T> {
        self.try_pop().or_else(|| self.pop_before(Some(Deadline::after(span))))
    }

    /// Takes all items, as [`try_pop`](Queue::try_pop) returns them, until that returns `None`. While other threads
    /// push, it may continue for long. Items that the iterator does not yield stay.
    ///
    /// ```
    /// use corelocal::percpu::Queue;
    ///
    /// let queue: Queue<u32> = Queue::new();
    /// (1..=4).for_each(|n| queue.push(n).unwrap());
    /// assert_eq!(queue.drain().sum::<u32>(), 10);
    /// ```
    pub fn drain(&self) -> impl Iterator<Item = T> + '_ {
        core::iter::from_fn(|| self.try_pop())
    }

    /// Does what [`drain`](Queue::drain) does into a vector, with one lock for each slot. For queues that no thread
    /// pushes to at that time, or few.
    #[cfg(all(feature = "std", not(loom)))]
    pub(crate) fn take_all(&self, items: &mut std::vec::Vec<T>) {
        for slot in self.slots.slots().chain(self.slots.shared()) {
            // SAFETY: this queue's slots hold its items only, each of which is taken once.
            unsafe { slot.pop_all(|words: Words<T>| items.push(words.into_item())) };
        }
    }

    /// Returns `true` if the queue was empty at some moment during the call.
    ///
    /// `true`: at that moment no slot held an item. An item that another thread is about to return from a `pop`
    /// counts as taken. `false`: at some moment of the call there was an item. Linear in the ids in use, each of
    /// which is checked twice. Async-signal-safe.
    ///
    /// ```
    /// use corelocal::percpu::Queue;
    ///
    /// let queue: Queue<u32> = Queue::new();
    /// assert!(queue.is_empty());
    /// queue.push(1).unwrap();
    /// assert!(!queue.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        // Each slot was empty at some moment. If there was no push between the two checks, all of them were empty
        // when the first check ended.
        self.look().is_some_and(|first| self.look() == Some(first))
    }

    /// Returns the progress of the consumers, if each slot was empty at some moment of the call.
    fn look(&self) -> Option<Progress> {
        let mut slots = self.slots.slots().chain(self.slots.shared());
        slots.try_fold(Progress::default(), |all, slot| Some(all + slot.look()?))
    }

    #[cold]
    fn pop_before(&self, deadline: Option<Deadline>) -> Option<T> {
        loop {
            for _ in 0..LOOKS {
                if let Some(item) = self.try_pop() {
                    return Some(item);
                }
                core::hint::spin_loop();
            }
            if !self.is_empty() {
                // Another consumer has that slot's lock. Sleeping or giving up would be wrong: it takes one item, and
                // there may be more.
                blocking::nap(A_MOMENT);
            } else if deadline.is_some_and(|deadline| deadline.remaining().is_zero()) {
                return None;
            } else {
                self.sleepers.sleep(deadline, || !self.is_empty());
            }
        }
    }

    /// Runs the critical section `queue_push`.
    #[inline(always)]
    fn push_section(&self, words: &Words<T>) -> Result<Exit, Fallback<Slot>> {
        if Words::<T>::COUNT == 1 {
            let word = words.first();
            return self.slots.run(move |index, slots: &Slots| {
                // SAFETY: `run` gives slots of one kind of id, which begin with an end and a start. By the slot's
                // invariants there is room at the end, unless that is a multiple of a segment's length.
                unsafe { rseq::queue_push(index, slots, word) }
            });
        }
        let (from, n) = (words.as_ptr(), Words::<T>::COUNT as u64);
        self.slots.run(move |index, slots: &Slots| {
            // SAFETY: `run` gives slots of one kind of id, with room for `n` words at the end by the slot's
            // invariants; `n` words are readable at `from`.
            unsafe { rseq::queue_push_words(index, slots, from, n) }
        })
    }

    /// Handles every outcome except a section that committed at once.
    #[cold]
    #[inline(never)]
    fn push_otherwise(
        &self,
        ended: Result<Exit, Fallback<Slot>>,
        words: Words<T>,
    ) -> Result<(), T> {
        match self.push_cold(ended, words) {
            Ok(()) => {
                self.sleepers.notify();
                Ok(())
            }
            // SAFETY: made of the item, which is still there.
            Err(words) => Err(unsafe { words.into_item() }),
        }
    }

    fn push_cold(
        &self,
        mut ended: Result<Exit, Fallback<Slot>>,
        words: Words<T>,
    ) -> Result<(), Words<T>> {
        // A segment that became unnecessary because another thread linked one is kept for the next attempt.
        let mut segment = None;
        for _ in 0..MAX_ATTEMPTS {
            match ended {
                Ok(exit) if exit.is_committed() => return Ok(()),
                Ok(_full) => {}
                Err(Fallback::Shared(slot)) => return slot.push_shared(words),
                Err(Fallback::Unbound) => return Err(words),
            }
            let near = || self.slots.near().and_then(Slot::take_spare);
            let Some(fresh) = segment.take().or_else(near).or_else(Segment::take) else {
                return Err(words);
            };
            let first = fresh.first::<Words<T>>();
            // SAFETY: a place of this thread's own segment; the copy takes effect only if the link commits.
            unsafe { first.copy_from_nonoverlapping(&raw const words, 1) };
            let (first, past) = (first.cast(), first.wrapping_add(1).cast());
            let linked = self.slots.run(move |index, slots: &Slots| {
                // SAFETY: as in `push_section`. It gets a place of this segment and the address after it. An end that
                // is a multiple of the length belongs to a segment of this slot, whose `next` comes first.
                unsafe { rseq::queue_link(index, slots, first, past) }
            });
            if matches!(linked, Ok(exit) if exit.is_committed()) {
                // The commit has made it the slot's.
                fresh.into_raw();
                return Ok(());
            }
            segment = Some(fresh);
            ended = match linked {
                Ok(_) => self.push_section(&words),
                Err(fallback) => Err(fallback),
            };
        }
        match self.slots.share() {
            _ if matches!(ended, Ok(exit) if exit.is_committed()) => Ok(()),
            Some(slot) => slot.push_shared(words),
            None => Err(words),
        }
    }
}

impl<T, I: SlotIndex> Drop for Queue<T, I> {
    fn drop(&mut self) {
        /// Frees the segments when all items have been dropped.
        struct Free<'a, I: SlotIndex>(&'a Owned<Slot, I>);

        impl<I: SlotIndex> Drop for Free<'_, I> {
            fn drop(&mut self) {
                for slot in self.0.slots().chain(self.0.shared()) {
                    // A panic within a panic ends the process. Otherwise all items were taken.
                    if slot.is_empty() {
                        // SAFETY: it holds no items, and `&mut self` excludes all other users.
                        unsafe { slot.free() };
                    }
                }
            }
        }

        let _free = Free(&self.slots);
        // No other thread takes items, so a slot that seems empty is empty.
        drop(DropAll(&mut core::iter::from_fn(|| self.try_pop())));
    }
}

impl<T, I: SlotIndex> Default for Queue<T, I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, I: SlotIndex> fmt::Debug for Queue<T, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("is_empty", &self.is_empty()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
