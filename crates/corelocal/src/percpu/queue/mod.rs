//! An unbounded first-in first-out queue for each core, whose consumers may sleep.
//!
//! # Data's way
//! `push` → one section of that name: store the item, commit the end behind it; one look at a word that
//! says whether anybody sleeps → done. When the segment is full: a new one with the item already in it,
//! and the section `queue_link`. A consumer takes a slot's lock, reads items up to the end, and gives
//! away segments that it is done with. Where sections are unavailable: a lock-free list in a shared
//! slot.
//!
//! ```text
//!   slot.rs      a core's part                sleepers.rs   who sleeps, who wakes
//!   segment.rs   pieces of 4 KiB              pool.rs       free ones
//! ```
//!
//! # Invariants
//! 1. An item is in exactly one place from `push` to the consumer: a slot, the consumer's hands.
//! 2. What one slot got comes out in that order. (The slot's own invariants are in `slot.rs`.)
//! 3. Every push is followed by a look at the sleepers (`sleepers.rs`).
//! 4. No lock is held while anything of the user's runs.

#[cfg_attr(loom, path = "pool_loom.rs")]
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
use super::blocking;
use super::cursor::Cursor;
use super::item_words::{DropAll, Words};
use super::lazy_block::{Fallback, Owned};
use crate::cid::{Cid, SlotIndex};
use crate::rseq::{self, Exit, MAX_ATTEMPTS, Slots};
use crate::sys::futex::Deadline;

/// How often a consumer looks before it goes to sleep: a few microseconds.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 64 };
/// How long a consumer lets another one be that has a slot.
const A_MOMENT: Duration = Duration::from_micros(10);

/// Many producers, each on its core, and one or more consumers: first in, first out for each core, and
/// no bound but memory.
///
/// A push costs a few nanoseconds, whatever the number of threads: no locked instruction, no line that
/// another producer writes, no fence, and no system call but the one that wakes a consumer, if one
/// sleeps. That suits work that is made everywhere and done by a few: log lines, deferred frees, requests
/// to a writer thread.
///
/// Items of up to 8 bytes are the fastest; larger ones, up to 4064 bytes, are copied in word by word, so box
/// what is large. `I` chooses what indexes the slots; leave it out.
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
/// Items travel between threads, so a queue of what is not [`Send`] is not `Sync`:
///
/// ```compile_fail,E0277
/// use corelocal::percpu::Queue;
/// use std::rc::Rc;
///
/// static ITEMS: Queue<Rc<()>> = Queue::new(); // `Rc<()>` cannot be sent between threads safely
/// ```
///
/// # Order
/// What goes into one slot comes out of it in that order. So the items of one thread come in the order in
/// which it pushed them, as long as it keeps its slot ([`crate::cid`]): as long as it stays on its core,
/// as a rule. There is no order between slots; consumers go round them, 64 items at a time.
///
/// # Where it may be used
/// [`push`](Queue::push) and [`try_pop`](Queue::try_pop) work in any thread, in signal handlers, before
/// `main` and during thread exit: they do not block, allocate from a heap or panic. The forms of `pop`
/// that wait are not for signal handlers. Not in a child of `vfork`: an item may be lost or come out
/// twice.
///
/// A child of `fork` has copies of all items, but for those that another thread was taking out at that
/// moment: these it may have or not.
///
/// # Threads without sections
/// Where the kernel's help is refused (see [`crate::sys::Refusal`]), threads push to lists in shared parts,
/// lock-free: two compare-exchanges.
///
/// # Memory
/// 128 bytes, and on each core that used it 128 bytes and a segment of 4 KiB, which may hold items, and
/// perhaps one to spare. Further segments come with items and go with them: to all queues of the process,
/// and from 4 MiB on back to the kernel.
///
/// # Memory ordering
/// A push happens before the pop that yields its item. Nothing else is ordered.
#[repr(C, align(64))]
pub struct Queue<T, I: SlotIndex = Cid> {
    slots: Owned<Slot, I>,
    sleepers: Sleepers,
    cursor: Cursor,
    /// Not `PhantomData<T>`: a queue of what lives longer is none of what lives shorter. `push` takes `&self`, so
    /// the shorter-lived could be put in, and come out as the longer-lived.
    items: PhantomData<fn(T) -> T>,
}

// SAFETY: items go in by value on one thread and come out by value, once, on another.
unsafe impl<T: Send, I: SlotIndex> Send for Queue<T, I> {}
// SAFETY: likewise; no reference to an item is ever given.
unsafe impl<T: Send, I: SlotIndex> Sync for Queue<T, I> {}

impl<T, I: SlotIndex> Queue<T, I> {
    /// An empty one.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        const { assert!(slot::PlacesOf::<T>::LEAST > 0) };
        Queue {
            slots: Owned::new(),
            sleepers: Sleepers::new(),
            cursor: Cursor::new(),
            items: PhantomData,
        }
    }

    /// An empty one.
    #[cfg(loom)]
    pub fn new() -> Self {
        Queue {
            slots: Owned::new(),
            sleepers: Sleepers::new(),
            cursor: Cursor::new(),
            items: PhantomData,
        }
    }

    /// Appends an item, and wakes a consumer if one sleeps.
    ///
    /// Constant time, lock-free; every 500 words or so a new segment is linked. The process's first push
    /// registers it with the kernel for `membarrier(2)`, which may take milliseconds. Async-signal-safe.
    ///
    /// # Errors
    /// The item, when there is no memory.
    #[inline]
    pub fn push(&self, item: T) -> Result<(), T> {
        let words = Words::new(item);
        match self.push_section(&words) {
            Ok(exit) if exit.is_committed() => {
                self.sleepers.notify();
                Ok(())
            }
            ended => self.push_otherwise(ended, words),
        }
    }

    /// Takes an item: the oldest one of some slot.
    ///
    /// `None` when all slots seem empty; a slot from which another thread takes just now counts as empty.
    /// Constant time while the slot that gave the last item has more, else linear in the ids in use.
    /// Async-signal-safe.
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
        // SAFETY: this queue's slots hold its items alone.
        let words = self.cursor.take(&self.slots, |slot| unsafe { slot.pop() })?;
        // SAFETY: it was pushed, and taken once.
        Some(unsafe { Words::into_item(words) })
    }

    /// Takes an item, and sleeps while there is none.
    ///
    /// As [`try_pop`](Queue::try_pop) when there is one. Otherwise it looks again for a few microseconds, then
    /// sleeps; one `membarrier(2)` and one `futex(2)`, and as many again after each wake-up for nothing. Not
    /// for signal handlers.
    pub fn pop(&self) -> T {
        loop {
            if let Some(item) = self.pop_before(None) {
                return item;
            }
        }
    }

    /// [`pop`](Queue::pop) until a point in time: `None` when it has passed and there is no item.
    pub fn pop_until(&self, deadline: Deadline) -> Option<T> {
        self.pop_before(Some(deadline))
    }

    /// [`pop`](Queue::pop) for a time span at the longest: `None` when it has passed and there is no item.
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

    /// All items, as [`try_pop`](Queue::try_pop) gives them, until that gives none. While others push it may
    /// go on for long. What the iterator does not yield stays.
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

    /// Whether the queue was empty at some moment of the call.
    ///
    /// `true`: at that moment no item was in it, in any slot. An item that another thread is about to return from
    /// a `pop` counts as taken. `false`: at some moment of the call there was an item. Linear in the ids in
    /// use, each of which is looked at twice. Async-signal-safe.
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
        // Each slot was empty at some moment; where nothing was pushed between the two looks, all of them were
        // when the first look ended.
        self.look().is_some_and(|first| self.look() == Some(first))
    }

    /// What consumers have done, if each slot was empty at some moment of the call.
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
                // Another consumer has that slot just now. To sleep, or to give up, would be wrong: it
                // takes one item, and there may be more.
                blocking::nap(A_MOMENT);
            } else if deadline.is_some_and(|deadline| deadline.remaining().is_zero()) {
                return None;
            } else {
                self.sleepers.sleep(deadline, || !self.is_empty());
            }
        }
    }

    /// Section `queue_push`.
    #[inline(always)]
    fn push_section(&self, words: &Words<T>) -> Result<Exit, Fallback<Slot>> {
        if Words::<T>::COUNT == 1 {
            let word = words.first();
            return self.slots.run(move |index, slots: &Slots| {
                // SAFETY: `run` gives slots of one kind of id, with an end and a start first; by the
                // slot's invariants there is room where the end points to, if it is no multiple.
                unsafe { rseq::queue_push(index, slots, word) }
            });
        }
        let (from, n) = (words.as_ptr(), Words::<T>::COUNT as u64);
        self.slots.run(move |index, slots: &Slots| {
            // SAFETY: likewise; `n` words are at `from`.
            unsafe { rseq::queue_push_words(index, slots, from, n) }
        })
    }

    /// All but a section that committed.
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
            // SAFETY: made of the item, which nobody took.
            Err(words) => Err(unsafe { words.into_item() }),
        }
    }

    fn push_cold(
        &self,
        mut ended: Result<Exit, Fallback<Slot>>,
        words: Words<T>,
    ) -> Result<(), Words<T>> {
        // One that another thread's link made unnecessary is kept for the next attempt.
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
            // SAFETY: a place of our own segment; what is copied counts only if the link commits.
            unsafe { first.copy_from_nonoverlapping(&raw const words, 1) };
            let (first, past) = (first.cast(), first.wrapping_add(1).cast());
            let linked = self.slots.run(move |index, slots: &Slots| {
                // SAFETY: as in `push_section`; a place of this segment, and what comes after it. A
                // multiple as the end is that of a segment of this slot, whose `next` is first.
                unsafe { rseq::queue_link(index, slots, first, past) }
            });
            if matches!(linked, Ok(exit) if exit.is_committed()) {
                // The slot's by the commit.
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
        /// Gives the segments away, when all items are dropped.
        struct Free<'a, I: SlotIndex>(&'a Owned<Slot, I>);

        impl<I: SlotIndex> Drop for Free<'_, I> {
            fn drop(&mut self) {
                for slot in self.0.slots().chain(self.0.shared()) {
                    // A panic within a panic ends the process; else all items were taken.
                    if slot.is_empty() {
                        // SAFETY: no items, and `&mut self` proves that nobody uses it.
                        unsafe { slot.free() };
                    }
                }
            }
        }

        let _free = Free(&self.slots);
        // Nobody else takes: all seem empty when they are.
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
