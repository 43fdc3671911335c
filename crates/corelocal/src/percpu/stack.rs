//! A bounded stack for each core: the cheapest way to keep items for the next thread on the core that needs one.
//!
//! # Data flow
//! `push` and `pop` → one critical section of the same name on the core's own slot, with the item in a register.
//! Items of more than a word use `push_some` and `pop_some`, which copy word by word; [`Batch`]es of any number of
//! items do too. Where critical sections are unavailable: the lists of a shared slot (`lists.rs`). Without memory the
//! stack is both full and empty.
//!
//! ```text
//!   machinery/item_words.rs   an item as words            batch.rs   items in transfer
//!   machinery/slot.rs         a core's shard              lists.rs   places in a shared shard
//!   ways.rs         the fast and slow paths     drain.rs   items of other cores
//! ```
//!
//! # Invariants
//! 1. From `push` to `pop` an item is in exactly one place: a slot, a shared slot, a batch, or a caller's hands. An
//!    abort, a fallback or a panic in between moves it once or not at all.
//! 2. A push happens before the pop of its item. Sections of one slot follow each other on one cpu, or across a
//!    migration, or after a freeze's fence, and a section's stores are in order, with the count last.
//! 3. Hooks and drops of items run outside of critical sections, and while no operation is half done.

mod batch;
mod drain;
mod lists;
mod slot;
mod ways;

pub use batch::Batch;

use core::fmt;

use self::slot::Slot;
use super::machinery::item_words::{DropAll, Words};
use super::machinery::lazy_block::Owned;
use super::push_error::PushError;
use crate::cid::{Cid, SlotIndex};

/// Up to `CAPACITY` items for each core, last in, first out. Threads on different cores push and pop without
/// contention.
///
/// An item that one thread pushes may be popped by another thread that runs on the same core later. There is no order
/// between cores, and other cores' items are reached only by [`drain`](Stack::drain) and its variants. This suits
/// interchangeable things: free buffers, connections, memory of one size. For such objects [`Pool`](super::Pool) is
/// more convenient.
///
/// Items of up to 8 bytes are the fastest. Larger ones are copied in and out word by word, so box what is large. `I`
/// chooses what indexes the slots. Keep the default: slots of cpus, unlike those of ids, cannot be frozen, and so not
/// be drained by other threads.
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
/// [`push`](Stack::push), [`pop`](Stack::pop), [`push_some`](Stack::push_some) and [`pop_some`](Stack::pop_some) work
/// in any thread, in signal handlers, before `main`, during thread exit, and in the child after `fork` (which has
/// copies of all items). They do not block, panic, or allocate from a heap. Not in a child of `vfork`: an item may be
/// lost or come out twice.
///
/// # Threads without critical sections
/// Where they are unavailable (see [`crate::sys::Refusal`]), threads use shared shards of the same capacity, with
/// atomics and without a lock. Registered threads pop their items, too, when their own core has none left. The
/// reverse does not hold. An item that another thread is just pushing or popping at a `fork` is missing in the child.
///
/// # Memory
/// 16 bytes, and on each core that used it `CAPACITY` items, each of a multiple of 8 bytes, and 4 bytes more for
/// each; rounded up to a power of two, 1 MiB at most. Pages that no item has reached are not resident.
///
/// When a core is no longer used, or its slot was taken away ([`crate::cid::compact`]), its items stay until a core
/// gets that slot again, or a thread drains them.
///
/// # Memory ordering
/// A push happens before the pop that yields its item. All other accesses are unordered.
pub struct Stack<T: Send + 'static, const CAPACITY: usize = 64, I: SlotIndex = Cid> {
    slots: Owned<Slot<T, CAPACITY>, I>,
}

impl<T: Send + 'static, const CAPACITY: usize, I: SlotIndex> Stack<T, CAPACITY, I> {
    const_fn! {
        /// Creates an empty stack.
        pub const fn new() -> Self {
            Stack { slots: Owned::new() }
        }
    }

    /// Puts an item on top of this core's stack.
    ///
    /// Constant time; wait-free, with a bounded number of retries. Async-signal-safe.
    ///
    /// # Errors
    /// Returns the item if this core's stack is full, or there is no memory for one.
    #[inline]
    pub fn push(&self, item: T) -> Result<(), PushError<T>> {
        let pushed =
            if Words::<T>::COUNT == 1 { self.push_word(item) } else { self.push_words(item) };
        pushed.map_err(PushError)
    }

    /// Takes the item on top of this core's stack.
    ///
    /// `None` if it is empty. Constant time; wait-free, with a bounded number of retries. On an empty stack each
    /// shared shard is checked, if threads without critical sections have used the stack. Async-signal-safe.
    #[inline]
    pub fn pop(&self) -> Option<T> {
        if Words::<T>::COUNT == 1 { self.pop_word() } else { self.pop_words() }
    }

    /// Moves items of the batch onto this core's stack, in order, the first one first, as many as fit. Returns their
    /// number. The others stay in the batch.
    ///
    /// One critical section, linear in the items moved. Otherwise like [`push`](Stack::push). Async-signal-safe.
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

    /// Moves items of this core's stack to the top of the batch, as many as fit. The item on top is on top again.
    /// Returns their number.
    ///
    /// One critical section, linear in the items moved. Otherwise like [`pop`](Stack::pop). Async-signal-safe.
    #[inline]
    pub fn pop_some<const N: usize>(&self, batch: &mut Batch<T, N>) -> usize {
        self.pop_batch(batch.room(), batch)
    }

    /// Pushes an item. If this core's stack is full, takes up to `N - 1` others off it, and passes them to `spill` in
    /// a batch.
    ///
    /// `N` is best half of `CAPACITY`: then both the next pushes and the next pops succeed at once. `spill` owns the
    /// items. It runs after the push, at most once, outside of critical sections: it may block, lock, allocate,
    /// panic, and use this stack. It gets at least one item, which is the pushed one itself if no other could be
    /// taken. It may be called in a signal handler if `spill` may.
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
        if let Err(PushError(item)) = self.push(item) {
            self.spill(item, spill);
        }
    }

    /// Pops an item. If there is none, `refill` fills a batch, whose top item is returned, and the others are pushed.
    ///
    /// `surplus` gets the items for which there is no room. That happens if the thread has moved to another core
    /// meanwhile, or a signal handler has pushed items; otherwise it is not called. `None` if `refill` provided no
    /// item. Both hooks run like that of [`push_or_spill`](Stack::push_or_spill).
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

    /// Returns the approximate number of items, on all cores and in shared shards. Exact if no thread pushes or pops.
    /// Linear in the ids in use. Async-signal-safe.
    pub fn len(&self) -> usize {
        self.slots.slots().chain(self.slots.shared()).map(Slot::len).sum()
    }

    /// Returns `true` if the stack seems empty. See [`len`](Stack::len).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the maximum number of items on a core.
    pub const fn capacity(&self) -> usize {
        CAPACITY
    }

    /// Takes all items, slot by slot, each from the top down. Items that the iterator does not yield stay.
    ///
    /// Needs no fence and cannot fail, since the stack is borrowed exclusively.
    pub fn drain_mut(&mut self) -> impl Iterator<Item = T> + '_ {
        let own = self.slots.slots().flat_map(|slot| {
            // SAFETY: a slot of critical sections; `&mut self` excludes all other users of the stack.
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
        // Full once more: the thread has moved to another core, or a signal handler has pushed items.
        if let Err(PushError(item)) = self.push(item) {
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
