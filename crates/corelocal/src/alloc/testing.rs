//! For tests and `corelocal-lab`: a bounded stack outside of a malloc, whose sections can be disturbed, and emulated
//! NUMA nodes.
//!
//! Invariant: those of `core_cache/slots.rs`.

use core::marker::PhantomData;
use core::sync::atomic::Ordering;

use super::layout::range::{self, Range};
use super::layout::stack::{MOST_ITEMS, STACK, Stack};
use super::page_heap::nodes;
use crate::cid::{self, SlotIndex};
use crate::percpu::{Block, Kind, Zeroed};
use crate::rseq::{self, Slots};
use crate::sys::try_lock::TryLock;

/// Makes the malloc emulate this many nodes, at most 8; `here` returns the calling thread's. False if the malloc has
/// used more than a little memory, or has too few addresses.
pub fn emulate_nodes(nodes: usize, here: fn() -> usize) -> bool {
    nodes::emulate(nodes, here)
}

/// Returns the node of an object; `None` if it is not an object of the malloc.
pub fn node_of(object: *mut u8) -> Option<usize> {
    let range = Range::get().filter(|_| range::kind_of(object).is_some())?;
    Some(range.node_of(range.chunk_of(object as usize)))
}

/// A core's slot: a stack that is used only for its `left_of_next`, and the stack itself.
#[repr(C)]
struct Part {
    unused: Stack,
    stack: Stack,
    lock: TryLock,
}

// SAFETY: atomics and a free lock, for which zero is valid.
unsafe impl Zeroed for Part {
    const KIND: Kind = Kind::Opaque;
}

/// A bounded stack per core. Items are numbers other than 0.
pub struct Limited<I: SlotIndex> {
    slots: Slots,
    kind: PhantomData<I>,
}

/// The count that a counted stack starts with: see [`Limited::pop_counted`].
pub const COUNTED: u64 = 3;

/// The most times that one call starts its count again.
const MOST_ROUNDS: u32 = 8;

impl<I: SlotIndex> core::fmt::Debug for Limited<I> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Limited").field("len", &self.len()).finish()
    }
}

impl<I: SlotIndex> Default for Limited<I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I: SlotIndex> Limited<I> {
    /// Creates a stack without room.
    pub const fn new() -> Self {
        Limited { slots: Slots::new(), kind: PhantomData }
    }

    /// Empties the stacks, and gives each core room for `limit` items, as far as a slot can hold them; false when out
    /// of memory.
    pub fn reset(&mut self, limit: u64) -> bool {
        let limit = limit.min(MOST_ITEMS as u64);
        if self.slots.base().is_null() {
            let Some(block) = Block::<Part>::allocate::<I>() else { return false };
            self.slots.bind(block.base());
        }
        let Some(block) = self.block() else { return false };
        let own = (0..cid::capacity_of::<I>()).map(|slot| block.slot(slot));
        own.chain((0..cid::shared_capacity()).map(|slot| block.shared(slot))).for_each(|part| {
            part.unused.left_of_next.store(COUNTED, Ordering::Relaxed);
            part.stack.count.store(0, Ordering::Relaxed);
            part.stack.limit.store(limit, Ordering::Relaxed);
        });
        true
    }

    /// Makes the next counted pop on each core find that nothing is left.
    pub fn leave_none(&mut self) {
        let Some(block) = self.block() else { return };
        let parts = (0..cid::high_water::<I>()).map(|slot| block.slot(slot));
        parts.for_each(|part| part.unused.left_of_next.store(1, Ordering::Relaxed));
    }

    /// Makes the next pop on each core find its item without a guess.
    pub fn forget_tops(&mut self) {
        self.stacks().for_each(Stack::forget_top);
    }

    /// Pushes an item, unless it is on top or there is no room.
    #[inline]
    pub fn push(&self, item: u64) -> bool {
        // SAFETY: each slot has two stacks, or no slots are bound.
        let attempt = || unsafe { rseq::push_at(I::index(), &self.slots, STACK, item) };
        let ended = attempt();
        if ended.is_straight() {
            return true;
        }
        match rseq::retry(ended, cid::prepare::<I>, attempt) {
            Some(ended) => ended.is_committed(),
            None => self.leased(|stack, limit| stack.push(item, limit)).unwrap_or(false),
        }
    }

    /// Pops the top item. Not inlined: [`pop_counted`](Self::pop_counted) calls it as its cold path.
    #[inline(never)]
    pub fn pop(&self) -> Option<u64> {
        // SAFETY: each slot has two stacks, or no slots are bound.
        let attempt = || unsafe { rseq::pop_at(I::index(), &self.slots, STACK) };
        let (exit, item) = attempt();
        if exit.is_straight() {
            // SAFETY: the section committed, so the item is initialised.
            return Some(unsafe { item.assume_init() });
        }
        match rseq::retry((exit, item), cid::prepare::<I>, attempt) {
            // SAFETY: the section committed, so the item is initialised.
            Some((exit, item)) => exit.is_committed().then(|| unsafe { item.assume_init() }),
            None => self.leased(|stack, _| stack.pop()).flatten(),
        }
    }

    /// Does what [`pop`](Self::pop) does, and counts: after every [`COUNTED`] items nothing is left, and the count
    /// restarts.
    #[inline]
    pub fn pop_counted(&self) -> Option<u64> {
        // SAFETY: each slot has two stacks, and the first one has the count.
        let attempt = || unsafe { rseq::pop_counted_at(I::index(), &self.slots, STACK) };
        for _ in 0..MOST_ROUNDS {
            let (exit, item) = attempt();
            if exit.is_straight() {
                // SAFETY: the section committed, so the item is initialised.
                return Some(unsafe { item.assume_init() });
            }
            match rseq::retry((exit, item), cid::prepare::<I>, attempt) {
                Some((exit, item)) if exit.is_committed() => {
                    // SAFETY: the section committed, so the item is initialised.
                    return Some(unsafe { item.assume_init() });
                }
                // The thread may be on another core by now; restarting that core's count is as good.
                Some(_) if self.say_what_is_left() => {}
                _ => break,
            }
        }
        // `pop` finds out whether the stack is empty.
        self.pop()
    }

    /// Restarts the count of this core; whether nothing was left.
    #[cold]
    fn say_what_is_left(&self) -> bool {
        let offset = cid::offset_of_this_thread::<I>();
        let Some((block, offset)) = self.block().zip(offset) else { return false };
        let left = &block.slot_at(offset).unused.left_of_next;
        let seen = left.load(Ordering::Relaxed);
        // Sections do not change values of 0 and 1. If another thread restarted it meanwhile, that will do.
        seen <= 1 && {
            let _ = left.compare_exchange(seen, COUNTED, Ordering::Relaxed, Ordering::Relaxed);
            true
        }
    }

    /// Returns the approximate number of items.
    pub fn len(&self) -> usize {
        let count = |stack: &Stack| stack.count.load(Ordering::Relaxed) as usize;
        self.stacks().map(count).sum()
    }

    /// Returns `true` if the stacks seem empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all items, from the top down on each core.
    pub fn drain_mut(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.stacks().flat_map(|stack| core::iter::from_fn(|| stack.pop()))
    }

    fn block(&self) -> Option<Block<Part>> {
        // SAFETY: null, or the block that `reset` made, which is never freed.
        unsafe { Block::from_base(self.slots.base()) }
    }

    fn stacks(&self) -> impl Iterator<Item = &'static Stack> + use<I> {
        let (own, shared) = (cid::high_water::<I>(), self.slots.opened_shared());
        self.block().into_iter().flat_map(move |block| {
            let own = (0..own).map(move |slot| &block.slot(slot).stack);
            own.chain((0..shared).map(move |slot| &block.shared(slot).stack))
        })
    }

    #[cold]
    fn leased<R>(&self, f: impl FnOnce(&Stack, u64) -> R) -> Option<R> {
        let part = self.block()?.shared(cid::shared_slot(&self.slots));
        let _locked = part.lock.try_lock()?;
        let limit = part.stack.limit.load(Ordering::Relaxed);
        Some(f(&part.stack, limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cid::{Cid, CpuId};
    use std::vec::Vec;

    fn is_a_stack<I: SlotIndex>() {
        let mut stack: Limited<I> = Limited::new();
        assert!(!stack.push(1) && stack.pop().is_none() && stack.is_empty());
        assert!(stack.reset(3));
        // The thread may move: an item that one core does not have is on another.
        let pushed: Vec<u64> = (1..=40).filter(|item| stack.push(*item)).collect();
        assert!(pushed.len() >= 3 && pushed[..3] == [1, 2, 3]);
        assert_eq!(stack.len(), pushed.len());
        let mut all: Vec<u64> = stack.drain_mut().collect();
        all.sort_unstable();
        assert_eq!(all, pushed);
        assert!(stack.reset(0) && !stack.push(7));
    }

    #[test]
    fn items_that_are_counted() {
        let mut stack: Limited<Cid> = Limited::new();
        assert_eq!(stack.pop_counted(), None);
        assert!(stack.reset(16));
        for _ in 0..20 {
            // Items of a core come out in order; and whatever the counts are, all come out.
            let pushed: Vec<u64> = (1..=10).filter(|item| stack.push(*item)).collect();
            let mut all: Vec<u64> = core::iter::from_fn(|| stack.pop_counted()).collect();
            all.extend(stack.drain_mut());
            all.sort_unstable();
            assert_eq!(all, pushed);
        }
        stack.leave_none();
        assert!(stack.pop_counted().is_none() && stack.is_empty());
    }

    #[test]
    fn stacks_with_a_limit() {
        is_a_stack::<Cid>();
        is_a_stack::<CpuId>();
    }

    /// The top item is not pushed twice; deeper ones are not compared.
    #[test]
    fn the_same_item_twice() {
        let mut stack: Limited<Cid> = Limited::new();
        assert!(stack.reset(8));
        // On another core it is not on top, and without sections there is no check.
        let refused = (1..=100).filter(|item| stack.push(*item) && !stack.push(*item)).count();
        if cid::policy() != cid::Policy::Lease {
            assert!(refused >= 1, "{refused}");
        }
    }
}
