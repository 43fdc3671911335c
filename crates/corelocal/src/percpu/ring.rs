//! A bounded first-in first-out buffer for each core, drained by any thread.
//!
//! # Data flow
//! `push` → one critical section of that name, which reads the head, stores the item, and commits the tail. A
//! consumer takes a slot's lock, reads the tail, copies items out, and stores the head. No fence and no freeze is
//! needed: producers and consumers write different words, on different lines. Where critical sections are
//! unavailable: the same under a lock, in a shared slot. Without memory the ring is full.
//!
//! ```text
//!   machinery/item_words.rs     an item as words             machinery/slot.rs   a core's shard
//!   sys/try_lock.rs   one consumer at a time
//! ```
//!
//! # Invariants
//! 1. From `push` to its consumer an item is in exactly one place: a slot, or a consumer's hands.
//! 2. The items of one slot come out in order, to one consumer at a time. (The slot's own invariants are in
//!    `machinery/slot.rs`.)
//! 3. No lock is held while code of the caller runs: neither a consumer's closure nor an item's drop.

mod slot;

use core::fmt;

use self::slot::{Slot, Taken};
use super::machinery::cursor::Cursor;
use super::machinery::item_words::{DropAll, Words};
use super::machinery::lazy_block::{Fallback, Owned};
use super::push_error::PushError;
use crate::cid::{Cid, SlotIndex};
use crate::rseq::{self, Slots};

/// Up to `CAPACITY` items for each core, first in, first out. Threads push on their cores, and any thread takes from
/// all of them.
///
/// A push costs a few nanoseconds, whatever the number of threads, and never waits: a full ring returns the item.
/// This suits trace records, samples and deferred work: items that are made everywhere, collected now and then, and
/// may be refused. [`Queue`](super::Queue) grows instead, and lets its consumer sleep.
///
/// `CAPACITY` is a power of two. Items of up to 8 bytes are the fastest. Larger ones are copied in word by word, so
/// box what is large. `I` chooses what indexes the slots; keep the default.
///
/// ```
/// use corelocal::percpu::Ring;
///
/// static EVENTS: Ring<u64, 256> = Ring::new();
///
/// let dropped = (0..100).filter(|n| EVENTS.push(*n).is_err()).count();
/// let mut collected = 0;
/// EVENTS.drain(|_event| collected += 1);
/// assert_eq!(collected + dropped, 100);
/// ```
///
/// Items travel between threads, so they must be [`Send`]:
///
/// ```compile_fail,E0277
/// use corelocal::percpu::Ring;
/// use std::rc::Rc;
///
/// let ring: Ring<Rc<()>, 8> = Ring::new(); // `Rc<()>` cannot be sent between threads safely
/// ```
///
/// # Order
/// The items of one slot come out in the order in which they were pushed. So the items of one thread stay in order as
/// long as it keeps its slot ([`crate::cid`]), which usually means as long as it stays on its core. There is no order
/// between slots. Of several consumers each sees its own items in order.
///
/// # Where it may be used
/// [`push`](Ring::push) and [`pop`](Ring::pop) work in any thread, in signal handlers, before `main` and during
/// thread exit. They do not block, panic, or allocate from a heap. Not in a child of `vfork`: an item may be lost or
/// come out twice.
///
/// A child of `fork` has copies of all items. An item that another thread was taking out at that moment may be
/// missing.
///
/// # Threads without critical sections
/// Where they are unavailable (see [`crate::sys::Refusal`]), threads push to shared shards of the same capacity,
/// under a lock that is tried for about a microsecond. If it stays locked the ring counts as full. Consumers take
/// from these shards as from all others.
///
/// # Memory
/// 128 bytes, and on each core that used it 128 bytes and `CAPACITY` items, each of a multiple of 8 bytes; rounded up
/// to a power of two, 1 MiB at most. Pages that no item has reached are not resident.
///
/// # Memory ordering
/// A push happens before its item is taken. All other accesses are unordered.
pub struct Ring<T: Send + 'static, const CAPACITY: usize, I: SlotIndex = Cid> {
    slots: Owned<Slot<T, CAPACITY>, I>,
    /// The shard where the next `pop` begins.
    cursor: Cursor,
}

impl<T: Send + 'static, const CAPACITY: usize, I: SlotIndex> Ring<T, CAPACITY, I> {
    const_fn! {
        /// Creates an empty ring.
        pub const fn new() -> Self {
            const { assert!(Slot::<T, CAPACITY>::MASK < CAPACITY as u64) };
            Ring { slots: Owned::new(), cursor: Cursor::new() }
        }
    }

    /// Appends an item to this core's ring.
    ///
    /// Constant time; wait-free, with a bounded number of retries. Async-signal-safe.
    ///
    /// # Errors
    /// Returns the item if this core's ring is full, or there is no memory for one.
    #[inline]
    pub fn push(&self, item: T) -> Result<(), PushError<T>> {
        let words = Words::new(item);
        let mask = Slot::<T, CAPACITY>::MASK;
        let ended = if Words::<T>::COUNT == 1 {
            let word = words.first();
            self.slots.run(move |index, slots: &Slots| {
                // SAFETY: `run` gives slots of one kind of id, with `mask + 1` places of a word each. Consumers keep
                // the slot's invariants.
                unsafe { rseq::ring_push(index, slots, word, mask) }
            })
        } else {
            let (from, n) = (words.as_ptr(), Words::<T>::COUNT as u64);
            self.slots.run(move |index, slots: &Slots| {
                // SAFETY: `run` gives slots of one kind of id, with `mask + 1` places of `n` words each; `n` words
                // are readable at `from`.
                unsafe { rseq::ring_push_words(index, slots, from, n, mask) }
            })
        };
        let rest = match ended {
            Ok(exit) if exit.is_committed() => return Ok(()),
            Ok(_) => words,
            Err(fallback) => match push_cold(fallback, words) {
                Ok(()) => return Ok(()),
                Err(rest) => rest,
            },
        };
        // SAFETY: made of the item, which is still there.
        Err(PushError(unsafe { rest.into_item() }))
    }

    /// Takes the oldest item of some slot, going round the slots, 64 items at a time.
    ///
    /// `None` if all seem empty; a slot from which another thread is just taking counts as empty. Constant time while
    /// the slot that gave the last item has more, otherwise linear in the ids in use. Async-signal-safe.
    ///
    /// ```
    /// use corelocal::percpu::Ring;
    ///
    /// let ring: Ring<&str, 8> = Ring::new();
    /// assert_eq!(ring.pop(), None);
    /// ring.push("item").unwrap();
    /// assert_eq!(ring.pop(), Some("item"));
    /// ```
    pub fn pop(&self) -> Option<T> {
        let item = self.cursor.take(&self.slots, |slot| {
            let mut item = None;
            slot.take(1, |words| item = Some(words))?;
            item
        })?;
        // SAFETY: it was pushed, and taken once.
        Some(unsafe { item.into_item() })
    }

    /// Calls `f` on the items that are present, slot by slot, each slot's in order. Returns their number.
    ///
    /// A slot from which another thread is just taking is left to that thread. Items are taken out a few at a time,
    /// before `f` gets them: it may block, panic, push to this ring and take from it. It ends even if other threads
    /// keep pushing. Linear in the ids in use and the items.
    ///
    /// If `f` panics, up to 15 more items that were taken out with the current one are dropped.
    pub fn drain(&self, mut f: impl FnMut(T)) -> usize {
        let slots = self.slots.slots().chain(self.slots.shared());
        slots.map(|slot| drain(slot, &mut f)).sum()
    }

    /// Does what [`drain`](Ring::drain) does of one slot: a number below [`crate::cid::high_water`]. 0 for any other
    /// number, and for a slot from which another thread is just taking.
    ///
    /// ```
    /// use corelocal::cid::CpuId;
    /// use corelocal::percpu::Ring;
    ///
    /// let of_cpu: Ring<u64, 64, CpuId> = Ring::new();
    /// of_cpu.push(7).unwrap();
    /// let mut sum = 0;
    /// of_cpu.drain_slot(3, |n| sum += n); // what was pushed on cpu 3
    /// assert!(sum == 0 || sum == 7);
    /// ```
    pub fn drain_slot(&self, slot: u32, mut f: impl FnMut(T)) -> usize {
        self.slots.slot(slot).map_or(0, |slot| drain(slot, &mut f))
    }

    /// Returns the approximate number of items, on all cores and in shared shards. Exact if no thread pushes or takes.
    /// Linear in the ids in use. Async-signal-safe.
    pub fn len(&self) -> usize {
        self.slots.slots().chain(self.slots.shared()).map(Slot::len).sum()
    }

    /// Returns `true` if the ring seems empty. See [`len`](Ring::len).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the maximum number of items on a core.
    pub const fn capacity(&self) -> usize {
        CAPACITY
    }
}

#[cold]
fn push_cold<T, const CAPACITY: usize>(
    fallback: Fallback<Slot<T, CAPACITY>>,
    words: Words<T>,
) -> Result<(), Words<T>> {
    match fallback {
        Fallback::Shared(slot) => slot.push_shared(words),
        Fallback::Unbound => Err(words),
    }
}

fn drain<T, const CAPACITY: usize>(slot: &Slot<T, CAPACITY>, f: &mut impl FnMut(T)) -> usize {
    // At most a kilobyte of stack, unless single items are longer.
    if Words::<T>::COUNT <= 8 {
        drain_by::<T, CAPACITY, 16>(slot, f)
    } else {
        drain_by::<T, CAPACITY, 1>(slot, f)
    }
}

fn drain_by<T, const CAPACITY: usize, const N: usize>(
    slot: &Slot<T, CAPACITY>,
    f: &mut impl FnMut(T),
) -> usize {
    let all = slot.len();
    let mut drained = 0;
    while drained < all {
        let Some(taken) = Taken::<T, N>::from(slot, all - drained) else { break };
        let before = drained;
        for item in taken {
            drained += 1;
            f(item);
        }
        if drained == before {
            break;
        }
    }
    drained
}

impl<T: Send + 'static, const CAPACITY: usize, I: SlotIndex> Drop for Ring<T, CAPACITY, I> {
    fn drop(&mut self) {
        // No other thread takes items, so a slot that seems empty is empty.
        drop(DropAll(&mut core::iter::from_fn(|| self.pop())));
    }
}

impl<T: Send + 'static, const CAPACITY: usize, I: SlotIndex> Default for Ring<T, CAPACITY, I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + 'static, const CAPACITY: usize, I: SlotIndex> fmt::Debug for Ring<T, CAPACITY, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ring = f.debug_struct("Ring");
        ring.field("len", &self.len()).field("capacity", &CAPACITY).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::format;
    use std::vec::Vec;

    #[test]
    fn sizes() {
        assert_eq!((size_of::<Ring<u8, 2>>(), size_of::<Slot<u64, 16>>()), (128, 256));
    }

    #[test]
    fn full_and_empty() {
        let ring: Ring<u32, 4> = Ring::new();
        assert!(ring.is_empty() && ring.pop().is_none());
        let accepted = (0..1000).filter(|n| ring.push(*n).is_ok()).count();
        // The items of one slot, or of several if the thread was migrated meanwhile.
        assert!(accepted >= 4 && accepted % 4 == 0 || accepted > 4, "{accepted}");
        assert_eq!((ring.len(), ring.capacity()), (accepted, 4));
        assert_eq!(format!("{ring:?}"), format!("Ring {{ len: {accepted}, capacity: 4, .. }}"));
        assert_eq!(ring.drain(drop), accepted);
        assert_eq!((ring.len(), ring.drain(drop)), (0, 0));
        ring.push(9).unwrap();
        assert_eq!(ring.pop(), Some(9));
    }

    /// What an unregistered thread does.
    #[test]
    fn shared_slots() {
        let ring: Ring<[u8; 20], 2> = Ring::new();
        let slot = ring.slots.share().expect("memory");
        for n in 0..10u8 {
            for m in 0..2 {
                assert!(slot.push_shared(Words::new([n + m; 20])).is_ok());
            }
            assert!(slot.push_shared(Words::new([99; 20])).is_err());
            assert_eq!(ring.len(), 2);
            assert_eq!(ring.pop(), Some([n; 20]));
            let mut rest = Vec::new();
            assert_eq!(ring.drain(|item| rest.push(item)), 1);
            assert_eq!(rest, [[n + 1; 20]]);
        }
    }

    #[test]
    fn no_memory_is_full() {
        let words = Words::new(7u64);
        let rest = push_cold::<u64, 8>(Fallback::Unbound, words).expect_err("no memory");
        // SAFETY: made of an item, taken once.
        assert_eq!(unsafe { rest.into_item() }, 7);
    }

    /// One consumer at a time; the others find no item.
    #[test]
    fn a_busy_slot_is_passed_over() {
        let ring: Ring<u8, 8> = Ring::new();
        let slot = ring.slots.share().expect("memory");
        assert!((0..3).all(|n| slot.push_shared(Words::new(n)).is_ok()));
        slot.take(2, |_| assert_eq!((ring.pop(), ring.drain(drop)), (None, 0)));
        assert_eq!(ring.pop(), Some(2));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;
    use std::vec::Vec;

    /// Two threads push to a shared slot while a third one takes: every accepted item comes out once, in its thread's
    /// order. Loom checks the places for races.
    #[test]
    fn loom_ring_conserves_items() {
        loom::model(|| {
            let ring = Arc::new(Ring::<u32, 2>::new());
            let other = ring.clone();
            let pusher = thread::spawn(move || {
                (10..13).filter(|n| other.push(*n).is_ok()).collect::<Vec<_>>()
            });
            let mut taken = Vec::new();
            ring.drain(|n| taken.push(n));
            taken.extend(ring.pop());
            let pushed = pusher.join().unwrap();
            ring.drain(|n| taken.push(n));
            assert_eq!(taken, pushed);
        });
    }

    /// Two consumers: each item goes to one of them.
    #[test]
    fn loom_two_consumers_share() {
        loom::model(|| {
            let ring = Arc::new(Ring::<u32, 2>::new());
            assert!(ring.push(1).is_ok() && ring.push(2).is_ok());
            let other = ring.clone();
            let consumer = thread::spawn(move || other.pop());
            let mine = ring.pop();
            let theirs = consumer.join().unwrap();
            assert!(mine.is_none() || mine != theirs);
            assert!(mine.is_some() || theirs.is_some());
            let left = ring.drain(drop);
            assert_eq!(left + usize::from(mine.is_some()) + usize::from(theirs.is_some()), 2);
        });
    }
}
