//! A bounded first-in first-out buffer for each core, emptied by anybody.
//!
//! # Data's way
//! `push` → one section of that name: look at the head, store the item, commit the tail → done. A
//! consumer takes a slot's lock, reads the tail, copies items out, stores the head. No fence and no
//! freeze: who pushes and who takes write different words, on different lines. Where sections are
//! unavailable: the same under a lock, in a shared slot. Where there is no memory: full.
//!
//! ```text
//!   item_words.rs          an item as words          slot.rs   a core's part
//!   sys/try_lock.rs   one consumer at a time
//! ```
//!
//! # Invariants
//! 1. An item is in exactly one place from `push` to the consumer: a slot, a consumer's hands.
//! 2. What one slot got comes out in that order, to one consumer at a time. (The slot's own invariants
//!    are in `slot.rs`.)
//! 3. No lock is held while anything of the user's runs: not a consumer's closure, not an item's drop.

mod slot;

use core::fmt;

use self::slot::{Slot, Taken};
use super::cursor::Cursor;
use super::item_words::{DropAll, Words};
use super::lazy_block::{Fallback, Owned};
use crate::cid::{Cid, SlotIndex};
use crate::rseq::{self, Slots};

/// Up to `CAPACITY` items for each core, first in, first out: threads push on their cores, and any
/// thread takes from all of them.
///
/// A push costs a few nanoseconds, whatever the number of threads, and never waits: a full ring gives the
/// item back. That suits trace records, samples, deferred work: what is made everywhere, collected now
/// and then, and may be refused. [`Queue`](super::Queue) grows instead, and lets its consumer sleep.
///
/// `CAPACITY` is a power of two. Items of up to 8 bytes are the fastest; larger ones are copied in word by
/// word, so box what is large. `I` chooses what indexes the slots; leave it out.
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
/// What goes into one slot comes out of it in that order. So the items of one thread come in the order in
/// which it pushed them, as long as it keeps its slot ([`crate::cid`]): as long as it stays on its core,
/// as a rule. There is no order between slots. Of several consumers each sees its own items in order.
///
/// # Where it may be used
/// [`push`](Ring::push) and [`pop`](Ring::pop) work in any thread, in signal handlers, before `main` and
/// during thread exit. Nothing blocks, nothing allocates from a heap, nothing panics. Not in a child of
/// `vfork`: an item may be lost or come out twice.
///
/// A child of `fork` has copies of all items, but for those that another thread was taking out at that
/// moment: these it may have or not.
///
/// # Threads without sections
/// Where the kernel's help is refused (see [`crate::sys::Refusal`]), threads push to shared parts of the
/// same capacity, under a lock that is tried for about a microsecond: to find it held counts as full.
/// Consumers take from these like from any other.
///
/// # Memory
/// 128 bytes, and on each core that used it 128 bytes and `CAPACITY` items, each of a multiple of 8 bytes;
/// rounded up to a power of two, 1 MiB at most. Pages that no item reached take nothing.
///
/// # Memory ordering
/// A push happens before its item is taken. Nothing else is ordered.
pub struct Ring<T: Send + 'static, const CAPACITY: usize, I: SlotIndex = Cid> {
    slots: Owned<Slot<T, CAPACITY>, I>,
    /// Where the next `pop` begins to look.
    cursor: Cursor,
}

impl<T: Send + 'static, const CAPACITY: usize, I: SlotIndex> Ring<T, CAPACITY, I> {
    /// An empty one.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        const { assert!(Slot::<T, CAPACITY>::MASK < CAPACITY as u64) };
        Ring { slots: Owned::new(), cursor: Cursor::new() }
    }

    /// An empty one.
    #[cfg(loom)]
    pub fn new() -> Self {
        Ring { slots: Owned::new(), cursor: Cursor::new() }
    }

    /// Appends an item to this core's ring.
    ///
    /// Constant time, wait-free but for a capped number of retries. Async-signal-safe.
    ///
    /// # Errors
    /// The item, when this core's ring is full (or there is no memory for one).
    #[inline]
    pub fn push(&self, item: T) -> Result<(), T> {
        let words = Words::new(item);
        let mask = Slot::<T, CAPACITY>::MASK;
        let ended = if Words::<T>::COUNT == 1 {
            let word = words.first();
            self.slots.run(move |index, slots: &Slots| {
                // SAFETY: `run` gives slots of one kind of id, with `mask + 1` places of a word each;
                // who takes keeps to the slot's invariants.
                unsafe { rseq::ring_push(index, slots, word, mask) }
            })
        } else {
            let (from, n) = (words.as_ptr(), Words::<T>::COUNT as u64);
            self.slots.run(move |index, slots: &Slots| {
                // SAFETY: likewise, of `n` words each, as many as are at `from`.
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
        // SAFETY: made of the item, which nobody took.
        Err(unsafe { rest.into_item() })
    }

    /// Takes an item: the oldest one of some slot, going round the slots, 64 items at a time.
    ///
    /// `None` when all seem empty; a slot from which another thread takes just now counts as empty.
    /// Constant time while the slot that gave the last item has more, else linear in the ids in use.
    /// Async-signal-safe.
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

    /// Calls `f` on the items that are there now, slot by slot, each slot's in order; returns how many
    /// they were.
    ///
    /// A slot from which another thread takes just now is left to that one. Items are taken out a few at a
    /// time, before `f` sees them: it may block, panic, push to this ring and take from it. Does not go on
    /// for ever while others push. Linear in the ids in use and the items.
    ///
    /// Should `f` panic, up to 15 items that were taken out with the one at hand are dropped.
    pub fn drain(&self, mut f: impl FnMut(T)) -> usize {
        let slots = self.slots.slots().chain(self.slots.shared());
        slots.map(|slot| drain(slot, &mut f)).sum()
    }

    /// [`drain`](Ring::drain) of one slot: a number below [`crate::cid::high_water`]. 0 of any other, and
    /// of a slot from which another thread takes just now.
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

    /// About how many items there are, on all cores and in shared parts: exact when nobody pushes or
    /// takes. Linear in the ids in use. Async-signal-safe.
    pub fn len(&self) -> usize {
        self.slots.slots().chain(self.slots.shared()).map(Slot::len).sum()
    }

    /// Whether there seem to be no items: as [`len`](Ring::len).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many items a core holds at most.
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
    // No more than a kilobyte of stack, but for items that are that long themselves.
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
        // Nobody else takes: all seem empty when they are.
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
        // One slot's, or more if the thread was moved meanwhile.
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

    /// One consumer at a time; the others find nothing.
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

    /// Two threads push to a shared slot while a third takes: all that was accepted comes out once, in
    /// each thread's order. Loom watches the places for races.
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

    /// Two consumers: an item goes to one of them.
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
