//! A bounded stack for each core: the cheapest way to keep things for the next one who needs them.
//!
//! # Data's way
//! `push` and `pop` → one section of the same name on the core's own slot, the item in a register
//! (items of more than a word: `push_some` and `pop_some`, the item copied word by word) → done.
//! [`Batch`]es take the latter way too, any number of items at a time. Where sections are unavailable:
//! the lists of a shared slot (`lists.rs`). Where there is no memory: the stack is full, and empty.
//!
//! ```text
//!   item_words.rs   an item as words            batch.rs   items on their way
//!   slot.rs    a core's part               lists.rs   places in a shared part
//!   ways.rs    sections, and without       drain.rs   other cores' items
//! ```
//!
//! # Invariants
//! 1. An item is in exactly one place from `push` to `pop`: a slot, a shared slot, a batch, or a caller's
//!    hands. Whatever aborts, falls back or panics in between moves it once or not at all.
//! 2. What a section pushed happens before what pops it: sections of one slot follow each other on one
//!    cpu, or across a migration, or after a freeze's fence; a section's stores are in order, the count
//!    last.
//! 3. Hooks and drops of items run outside of sections, and while nothing is half done.

mod batch;
mod drain;
mod lists;
mod slot;
mod ways;

pub use batch::Batch;

use core::fmt;

use self::slot::Slot;
use super::item_words::{DropAll, Words};
use super::lazy_block::Owned;
use crate::cid::{Cid, SlotIndex};

/// Up to `CAPACITY` items for each core, last in, first out, that threads on different cores push and
/// pop without disturbing each other.
///
/// What one thread pushes another may pop, when it runs on the same core later. There is no order
/// between cores, and no way to pop what another core has but [`drain`](Stack::drain) and its kin. This
/// suits what is as good as any other of its kind: free buffers, connections, memory of one size. For
/// such objects [`Pool`](super::Pool) is more convenient.
///
/// Items of up to 8 bytes are the fastest; larger ones are copied in and out word by word, so box what is
/// large. `I` chooses what indexes the slots; leave it out: cpus, unlike ids, keep their slots, so nobody else
/// can drain those.
///
/// ```
/// use corelocal::percpu::Stack;
///
/// static FREE: Stack<Box<[u8; 4096]>> = Stack::new();
///
/// let buffer = FREE.pop().unwrap_or_else(|| Box::new([0; 4096]));
/// // … use it …
/// if let Err(surplus) = FREE.push(buffer) {
///     drop(surplus); // this core has enough of them
/// }
/// ```
///
/// Items travel between threads, so they must be [`Send`]:
///
/// ```compile_fail,E0277
/// use corelocal::percpu::Stack;
/// use std::rc::Rc;
///
/// let stack: Stack<Rc<()>> = Stack::new(); // `Rc<()>` cannot be sent between threads safely
/// ```
///
/// # Where it may be used
/// [`push`](Stack::push), [`pop`](Stack::pop), [`push_some`](Stack::push_some) and
/// [`pop_some`](Stack::pop_some) work in any thread, in signal handlers, before `main` and during thread
/// exit, in the child after `fork` (which has copies of all items). Nothing blocks, nothing allocates from
/// a heap, nothing panics. Not in a child of `vfork`: an item may be lost or come out twice.
///
/// # Threads without sections
/// Where the kernel's help is refused (see [`crate::sys::Refusal`]), threads use shared parts of the same
/// capacity, with atomics and without a lock. What they push registered threads pop, too, when their own
/// core has nothing left; they cannot pop what registered threads pushed. What another thread has in its
/// hands at the moment of a `fork` the child does not have.
///
/// # Memory
/// 16 bytes, and on each core that used it `CAPACITY` items, each of a multiple of 8 bytes, and 4 bytes
/// more for each; rounded up to a power of two, 1 MiB at most. Pages that no item reached take nothing.
///
/// When a core is used no longer, or its slot was taken back ([`crate::cid::compact`]), its items stay
/// until a core gets that slot again, or somebody drains them.
///
/// # Memory ordering
/// A push happens before the pop that yields its item. Nothing else is ordered.
pub struct Stack<T: Send + 'static, const CAPACITY: usize = 64, I: SlotIndex = Cid> {
    slots: Owned<Slot<T, CAPACITY>, I>,
}

impl<T: Send + 'static, const CAPACITY: usize, I: SlotIndex> Stack<T, CAPACITY, I> {
    /// An empty one.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Stack { slots: Owned::new() }
    }

    /// An empty one.
    #[cfg(loom)]
    pub fn new() -> Self {
        Stack { slots: Owned::new() }
    }

    /// Puts an item on top of this core's stack.
    ///
    /// Constant time, wait-free but for a capped number of retries. Async-signal-safe.
    ///
    /// # Errors
    /// The item, when this core's stack is full (or there is no memory for one).
    #[inline]
    pub fn push(&self, item: T) -> Result<(), T> {
        if Words::<T>::COUNT == 1 { self.push_word(item) } else { self.push_words(item) }
    }

    /// Takes the item on top of this core's stack.
    ///
    /// `None` when it is empty. Constant time, wait-free but for a capped number of retries; on an empty
    /// stack one look at each shared part, if threads without sections have used the stack.
    /// Async-signal-safe.
    #[inline]
    pub fn pop(&self) -> Option<T> {
        if Words::<T>::COUNT == 1 { self.pop_word() } else { self.pop_words() }
    }

    /// Moves items of the batch onto this core's stack, in their order, the first one first: as many as
    /// there is room for. Returns how many; the others stay in the batch.
    ///
    /// One critical section, linear in what is moved; else as [`push`](Stack::push). Async-signal-safe.
    ///
    /// ```
    /// use corelocal::percpu::{Batch, Stack};
    ///
    /// let stack: Stack<u32, 8> = Stack::new();
    /// let mut batch: Batch<u32, 6> = Batch::new();
    /// batch.fill(1..);
    /// assert_eq!(stack.push_some(&mut batch), 6);
    /// assert!(batch.is_empty());
    /// ```
    #[inline]
    pub fn push_some<const N: usize>(&self, batch: &mut Batch<T, N>) -> usize {
        self.push_batch(batch)
    }

    /// Moves items of this core's stack to the top of the batch, as many as there is room for; the one
    /// that was on top is on top again. Returns how many.
    ///
    /// One critical section, linear in what is moved; else as [`pop`](Stack::pop). Async-signal-safe.
    #[inline]
    pub fn pop_some<const N: usize>(&self, batch: &mut Batch<T, N>) -> usize {
        self.pop_batch(batch.room(), batch)
    }

    /// Pushes an item; when this core's stack is full, takes fewer than `N` others off it, and `spill` gets
    /// them in a batch of `N` and owns them from then on.
    ///
    /// `N` is best half of `CAPACITY`: the next pushes and the next pops then both find what they need.
    /// The hook runs after the push, at most once, outside of any critical section: it may block, lock,
    /// allocate, panic, and use this stack. It gets one item at least: the pushed one itself, when there is
    /// nothing else to be taken. In a signal handler this may be used as far as the hook may.
    ///
    /// ```
    /// use corelocal::percpu::{Batch, Stack};
    /// use std::sync::Mutex;
    ///
    /// static NEAR: Stack<u64, 64> = Stack::new();
    /// static FAR: Mutex<Vec<u64>> = Mutex::new(Vec::new());
    ///
    /// for n in 0..1000 {
    ///     NEAR.push_or_spill(n, |batch: Batch<_, 32>| FAR.lock().unwrap().extend(batch));
    /// }
    /// assert_eq!(NEAR.len() + FAR.lock().unwrap().len(), 1000);
    /// ```
    #[inline]
    pub fn push_or_spill<const N: usize>(&self, item: T, spill: impl FnOnce(Batch<T, N>)) {
        if let Err(item) = self.push(item) {
            self.spill(item, spill);
        }
    }

    /// Pops an item; when there is none, lets `refill` fill a batch, takes the top one of it and pushes the
    /// others.
    ///
    /// `surplus` gets what there is no room for, as can happen when the thread has come to another core
    /// meanwhile, or a signal handler was faster; it is called only then. `None` when `refill` had nothing.
    /// Both hooks run as that of [`push_or_spill`](Stack::push_or_spill).
    ///
    /// ```
    /// use corelocal::percpu::{Batch, Stack};
    /// use std::sync::Mutex;
    ///
    /// static NEAR: Stack<u64, 64> = Stack::new();
    /// static FAR: Mutex<Vec<u64>> = Mutex::new(Vec::new());
    ///
    /// FAR.lock().unwrap().extend(0..100);
    /// let item = NEAR.pop_or_refill(
    ///     |batch: &mut Batch<_, 32>| {
    ///         let mut far = FAR.lock().unwrap();
    ///         batch.fill(std::iter::from_fn(|| far.pop()));
    ///     },
    ///     |surplus| FAR.lock().unwrap().extend(surplus),
    /// );
    /// assert!(item.is_some());
    /// ```
    #[inline]
    pub fn pop_or_refill<const N: usize>(
        &self,
        refill: impl FnOnce(&mut Batch<T, N>),
        surplus: impl FnOnce(Batch<T, N>),
    ) -> Option<T> {
        self.pop().or_else(|| self.refill(refill, surplus))
    }

    /// About how many items there are, on all cores and in shared parts: exact when nobody pushes or
    /// pops. Linear in the ids in use. Async-signal-safe.
    pub fn len(&self) -> usize {
        self.slots.slots().chain(self.slots.shared()).map(Slot::len).sum()
    }

    /// Whether there seem to be no items: as [`len`](Stack::len).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many items a core holds at most.
    pub const fn capacity(&self) -> usize {
        CAPACITY
    }

    /// All items, slot by slot, each from the top down. What the iterator does not yield stays.
    ///
    /// Needs no fence and cannot fail, since nobody else has the stack.
    pub fn drain_mut(&mut self) -> impl Iterator<Item = T> + '_ {
        let own = self.slots.slots().flat_map(|slot| {
            // SAFETY: a slot of sections; `&mut self` proves that nobody else uses the stack.
            core::iter::from_fn(move || unsafe { slot.take() })
        });
        let shared = self.slots.shared().flat_map(|slot| {
            // SAFETY: it was pushed.
            core::iter::from_fn(move || slot.pop_shared().map(|words| unsafe { words.into_item() }))
        });
        own.chain(shared)
    }

    #[cold]
    fn spill<const N: usize>(&self, item: T, spill: impl FnOnce(Batch<T, N>)) {
        const { assert!(N > 0, "a batch needs room for an item") };
        let mut batch = Batch::new();
        self.pop_batch(N - 1, &mut batch);
        // Full once more: the thread has come to another core, or a signal handler was faster.
        if let Err(item) = self.push(item) {
            // There is room for one.
            let _ = batch.push(item);
        }
        if !batch.is_empty() {
            spill(batch);
        }
    }

    #[cold]
    fn refill<const N: usize>(
        &self,
        refill: impl FnOnce(&mut Batch<T, N>),
        surplus: impl FnOnce(Batch<T, N>),
    ) -> Option<T> {
        let mut batch = Batch::new();
        refill(&mut batch);
        let item = batch.pop();
        self.push_some(&mut batch);
        if !batch.is_empty() {
            surplus(batch);
        }
        item
    }
}

impl<T: Send + 'static, const CAPACITY: usize, I: SlotIndex> Drop for Stack<T, CAPACITY, I> {
    fn drop(&mut self) {
        if core::mem::needs_drop::<T>() {
            drop(DropAll(&mut self.drain_mut()));
        }
    }
}

impl<T: Send + 'static, const CAPACITY: usize, I: SlotIndex> Default for Stack<T, CAPACITY, I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + 'static, const CAPACITY: usize, I: SlotIndex> fmt::Debug for Stack<T, CAPACITY, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack").field("len", &self.len()).field("capacity", &CAPACITY).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
