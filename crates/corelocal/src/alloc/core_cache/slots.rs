//! The slots of all cores: where the hot paths find them, and the sections that use them.
//!
//! # Debugging costs nothing when it is off
//! There are three references to the slots. Hot paths allocate through `FRONT` and free through `FREED`. A process
//! that checks, counts, samples or guards its objects (`config.rs`) has its slots in `WATCHED` and leaves `FRONT`
//! empty: the hot paths then fail over to the cold ones, which do the extra work. If it only counts, `FREED` is set
//! all the same, so that frees stay on the hot path, and allocations are counted at the start of the cold path
//! (`debug/instrumented.rs`).
//!
//! A process that waits for memory to become old enough to be released, and has no background thread, counts for that
//! time: the cold path then runs at least once in [`MOST_TICK`] objects of a class, and looks at the clock
//! (`background/by_time.rs`).
//!
//! # Invariants
//! 1. The stacks in an id's slot change only by sections, except while the slot is frozen; limits, and what follows
//!    the stacks, are changed by any thread. The stacks in a shared slot change under its lock.
//! 2. A limit is at most the class's `most`. Stacks that belong to no class have limit 0. Refills go beyond the
//!    limit, but never beyond `MOST_ITEMS`.
//! 3. The items are free objects of the stack's class.
//! 4. `FRONT` or `WATCHED` has the slots, for a moment both. They are always those of `BLOCK`, which does not change
//!    once set. `FREED` has the same slots or none; in checking mode it has none.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use super::CoreCache;
use super::memory;
use crate::alloc::config;
use crate::alloc::layout::class::CLASSES;
use crate::cid::private::Sealed as _;
use crate::cid::{self, Cid};
use crate::percpu::Block;
use crate::rseq::hot::{self, FREED, FRONT};
use crate::rseq::{self, Exit, Slots};
use crate::sys::try_lock::TryLock;

const R: Ordering = Ordering::Relaxed;

/// The slots of all cores, if objects are checked, counted, sampled or guarded: else they are in `FRONT`. `FREED` has those
/// that objects are freed to whose class the map tells.
pub(in crate::alloc) static WATCHED: Slots = Slots::new();

/// Set once objects may be freed by their size alone, as `CoreLocal` does.
static FREED_BY_SIZE: AtomicBool = AtomicBool::new(false);

/// Says that objects may be freed by their size alone from here on; false if that was said before.
pub(in crate::alloc) fn free_by_size() -> bool {
    !FREED_BY_SIZE.swap(true, R)
}

/// Returns `true` if objects may be freed by their size alone: then those of a class in its slots lie in its spans while
/// `FRONT` is set.
#[inline]
pub(in crate::alloc) fn are_freed_by_size() -> bool {
    FREED_BY_SIZE.load(R)
}

/// The slots themselves.
pub(in crate::alloc) static BLOCK: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());

/// Returns the slots that this process allocates from; `None` until the environment could be read.
pub(in crate::alloc) fn slots() -> Option<&'static Slots> {
    if !FRONT.base().is_null() {
        return Some(&FRONT);
    }
    if !WATCHED.base().is_null() {
        return Some(&WATCHED);
    }
    config::modes().map(|modes| if modes.is_any() { &WATCHED } else { &FRONT })
}

/// Returns the slots, which are made now if necessary; `None` when out of memory.
pub(in crate::alloc) fn bind() -> Option<Block<CoreCache>> {
    let block = match block() {
        Some(block) => block,
        None => bind_fresh()?,
    };
    // Every caller binds: a forked child may have the block without the references to it.
    if FRONT.base().is_null() && WATCHED.base().is_null() {
        slots()?.bind(block.base());
    }
    if FREED.base().is_null() && !config::is_checked() {
        FREED.bind(block.base());
    }
    Some(block)
}

fn bind_fresh() -> Option<Block<CoreCache>> {
    // Only once it is known which reference the slots belong to.
    slots()?;
    // Release: partner is the Acquire in `block`; the block is initialised. Two threads that race get the same block.
    BLOCK.store(memory::make()?.base(), Ordering::Release);
    block()
}

pub(in crate::alloc) fn block() -> Option<Block<CoreCache>> {
    // Acquire: partner is the Release in `bind_fresh`. SAFETY: null, or the block that `bind_fresh` stored, which is
    // never freed.
    unsafe { Block::from_base(BLOCK.load(Ordering::Acquire)) }
}

/// Returns the slot of the calling thread's id. A hint: the thread may move at any time.
pub(in crate::alloc) fn near() -> Option<&'static CoreCache> {
    let offset = cid::offset_of_this_thread::<Cid>()?;
    Some(block()?.slot_at(offset))
}

/// Runs `f` on the shared slot that the thread leases; `None` if its lock is held.
pub(in crate::alloc) fn leased<R>(f: impl FnOnce(&CoreCache) -> R) -> Option<R> {
    let (block, slots) = (bind()?, slots()?);
    let slot = cid::shared_slot(slots);
    if !memory::open_shared(slot) {
        return None;
    }
    let core_cache = block.shared(slot);
    // A lock recovered after a fork needs no repair: counts are stored last, so every state of a stack is valid.
    let _locked = core_cache.lock.try_lock()?;
    Some(f(core_cache))
}

/// Runs the hot section that pops an object off the stack at offset `at`.
#[inline(always)]
pub(in crate::alloc) fn pop_front(at: usize) -> rseq::Popped {
    let Some(index) = Cid::settled_index() else { return (Exit::COLD, MaybeUninit::uninit()) };
    // SAFETY: as in `pop_section`.
    unsafe { hot::pop_front(index, at) }
}

/// Runs the hot section that pushes an object of the class whose stack is at offset `at`.
#[inline(always)]
pub(in crate::alloc) fn push_front(at: usize, object: u64) -> Exit {
    let Some(index) = Cid::settled_index() else { return Exit::COLD };
    // SAFETY: as in `push_section`.
    unsafe { hot::push_front(index, at, object) }
}

/// Runs the hot section that pushes an object whose class the map told.
#[inline(always)]
pub(in crate::alloc) fn push_freed(at: usize, object: u64) -> Exit {
    let Some(index) = Cid::settled_index() else { return Exit::COLD };
    // SAFETY: as in `push_section`.
    unsafe { hot::push_freed(index, at, object) }
}

/// Runs the section that pops an object off the stack at offset `at`.
#[inline(always)]
pub(in crate::alloc) fn pop_section(slots: &Slots, at: usize) -> rseq::Popped {
    let Some(index) = Cid::settled_index() else { return (Exit::COLD, MaybeUninit::uninit()) };
    // SAFETY: `at` is the offset of a stack in every slot; invariants 1 and 2 are those that the section needs.
    unsafe { rseq::pop_at(index, slots, at) }
}

/// Does what [`pop_section`] does, but fails if no objects are [left](CoreCache::left) to give out without a look.
#[inline(always)]
pub(in crate::alloc) fn pop_counted_section(slots: &Slots, at: usize) -> rseq::Popped {
    let Some(index) = Cid::settled_index() else { return (Exit::COLD, MaybeUninit::uninit()) };
    // SAFETY: as in `pop_section`; every class's stack follows another one, which has the count.
    unsafe { rseq::pop_counted_at(index, slots, at) }
}

/// Runs the section that pushes an object onto the stack at offset `at`.
#[inline(always)]
pub(in crate::alloc) fn push_section(slots: &Slots, at: usize, object: u64) -> Exit {
    let Some(index) = Cid::settled_index() else { return Exit::COLD };
    // SAFETY: `at` is the offset of a stack in every slot; invariants 1 and 2 are those that the section needs.
    unsafe { rseq::push_at(index, slots, at, object) }
}

/// Counts an allocation of the class, in checking mode.
pub(in crate::alloc) fn count_pop(class: usize) {
    if let Some(core_cache) = near() {
        core_cache.counts[class].popped.fetch_add(1, R);
    }
}

/// Counts a free of the class, in checking mode.
pub(in crate::alloc) fn count_push(class: usize) {
    if let Some(core_cache) = near() {
        core_cache.counts[class].pushed.fetch_add(1, R);
    }
}

/// The most objects of a class that a core allocates between two looks at the clock, in a process that ticks.
pub(in crate::alloc) const MOST_TICK: u64 = 256;
/// The number of objects that it allocates between the next two.
static TICK: AtomicU64 = AtomicU64::new(1);

/// Adapts the distance between two looks to the program: one object if the last look was `long_ago`, and twice as many as
/// now if the look found nothing to do.
pub(in crate::alloc) fn set_tick_distance(long_ago: bool, is_due: bool) {
    let now = TICK.load(R);
    let next = match (long_ago, is_due) {
        (true, _) => 1,
        (false, true) => now,
        (false, false) => MOST_TICK.min(now * 2),
    };
    // No store unless necessary: all cores read it.
    if next != now {
        TICK.store(next, R);
    }
}

/// Whether the process ticks, unless it counts for another purpose.
static IS_TICKED: AtomicBool = AtomicBool::new(false);

/// Returns `true` if the process ticks, or will again once it does not count for another purpose.
pub(in crate::alloc) fn is_ticked() -> bool {
    IS_TICKED.load(R)
}

/// Switches ticking on or off. That has no effect while a process checks, counts, samples or guards.
#[cold]
pub(in crate::alloc) fn set_ticked(is_ticked: bool) {
    let Some(_mine) = SWITCHES.try_lock() else { return };
    IS_TICKED.store(is_ticked, R);
    if config::modes().is_some_and(|modes| !modes.is_any()) {
        set_watched(is_ticked);
    }
}

/// Held by the thread that has allocations take another path. So the modes that it goes by do not change meanwhile.
pub(in crate::alloc) static SWITCHES: TryLock = TryLock::new();

/// Has allocations take the cold path from now on, or the hot one. The caller holds [`SWITCHES`].
#[cold]
pub(in crate::alloc) fn set_watched(is_watched: bool) {
    let Some(block) = block() else { return };
    let (from, to) = if is_watched { (&FRONT, &WATCHED) } else { (&WATCHED, &FRONT) };
    if from.base().is_null() {
        return;
    }
    to.open_shared(from.opened_shared() - 1);
    to.bind(block.base());
    from.unbind();
}

/// Forgets how many objects are left, for a process that begins to count for another purpose.
#[cold]
pub(in crate::alloc) fn forget_left() {
    let Some(block) = block() else { return };
    for slot in 0..cid::high_water::<Cid>() {
        for class in 1..=CLASSES {
            let left = block.slot(slot).left(class);
            // No store unless necessary: the slot may be read-only (`memory.rs`), and its pages untouched.
            if left.load(R) != 0 {
                left.store(0, R);
            }
        }
    }
}

/// Returns `true` if this class's turn to look at the clock has come, in a process that ticks. Then restarts its count.
pub(in crate::alloc) fn has_ticked(class: usize) -> bool {
    if !FRONT.base().is_null() {
        return false;
    }
    if let Some(core_cache) = near() {
        let left = core_cache.left(class);
        let seen = left.load(R);
        // Sections do not change values of 0 and 1 (`layout/stack.rs`, 4).
        return seen <= 1 && left.compare_exchange(seen, TICK.load(R), R, R).is_ok();
    }
    // Without sections, every call comes here, and nothing else counts down.
    leased(|core_cache| {
        let left = core_cache.left(class);
        let seen = left.load(R);
        left.store(if seen <= 1 { TICK.load(R) } else { seen - 1 }, R);
        seen <= 1
    })
    .unwrap_or(false)
}
