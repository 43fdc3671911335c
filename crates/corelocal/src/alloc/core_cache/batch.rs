//! Batches between the calling core's stack and an array.
//!
//! Invariants: those of `slots.rs`.

use super::CoreCache;
use super::slots::{bind, leased};
use crate::alloc::layout::stack::{self, BEFORE_COUNT, MOST_ITEMS};
use crate::cid::private::Sealed as _;
use crate::cid::{self, Cid};
use crate::rseq::{self, Slots, Yielded};

/// Pushes objects onto the stack, beyond its limit if necessary. Returns how many, counted from the first.
pub(super) fn push_some(class: usize, objects: &[u64]) -> usize {
    let Some(slots) = from_counts(class) else { return 0 };
    let attempt = || {
        let (from, most) = (objects.as_ptr().cast(), objects.len() as u64);
        // SAFETY: the slots point to the stack's count; invariants 1 and 2; `objects` has this many words to read.
        unsafe { rseq::push_some(Cid::index(), &slots, from, most, MOST_ITEMS as u64) }
    };
    pushed_or_popped(attempt, |core_cache| {
        let stack = &core_cache.stacks[class];
        objects.iter().take_while(|object| stack.push(**object, MOST_ITEMS as u64)).count()
    })
}

/// Pops objects off the stack, and returns how many.
pub(super) fn pop_some(class: usize, to: &mut [u64]) -> usize {
    let Some(slots) = from_counts(class) else { return 0 };
    let (to, most) = (to.as_mut_ptr(), to.len());
    let attempt = || {
        // SAFETY: the slots point to the stack's count; invariants 1 and 2; `to` has `most` words, which this thread
        // alone writes.
        unsafe { rseq::pop_some(Cid::index(), &slots, to.cast(), most as u64) }
    };
    pushed_or_popped(attempt, |core_cache| {
        let objects = core::iter::from_fn(|| core_cache.stacks[class].pop());
        // SAFETY: `nth` is below `most`, the length of `to`.
        let write = |(nth, object)| unsafe { to.add(nth).write(object) };
        objects.take(most).enumerate().map(write).count()
    })
}

fn pushed_or_popped(
    attempt: impl Fn() -> Yielded,
    without: impl FnOnce(&CoreCache) -> usize,
) -> usize {
    match rseq::retry(attempt(), cid::prepare::<Cid>, &attempt) {
        Some((exit, n)) if exit.is_committed() => n as usize,
        Some(_) => 0,
        None => leased(without).unwrap_or(0),
    }
}

/// Returns the slots, shifted to the count of the class's stack, as batch sections expect.
fn from_counts(class: usize) -> Option<Slots> {
    Some(Slots::bound(bind()?.base().wrapping_add(stack::at(class) + BEFORE_COUNT)))
}
