//! The front: for each core a stack of free objects of each class.
//!
//! `malloc` pops the class's stack, `free` pushes onto it: one critical section each, on memory of this core
//! alone. All stacks of a core lie in its one slot of 1 MiB, at the class's number times the stack's length,
//! so that the number leads to the stack without a table (`stack::at`).
//!
//! ```text
//!   slot:   stack 0, whose limit is 0 │ stack 1 │ stack 2 │ …         one page or more each, as they are used
//!   stack:  top, limit, count, items …  a line more than two pages long, so that their first lines, which
//!                                     every operation uses, do not fall on each other in the cache
//! ```
//!
//! A stack that is empty is filled from the store with a batch, one that has reached its limit gives one
//! away. `core_cache.rs` says how limits grow.
//!
//! Threads without sections lease shared slots, which have a lock each; who finds it held goes to the store.
//!
//! A process that watches its objects (`debug.rs`) has its slots elsewhere, and `FRONT` stays without any: so
//! the hot paths find nothing, end in the cold ones, and those look. Who does not watch pays nothing for it. One
//! that only counts finds what it frees by the map on the hot path all the same (`FREED`), and what it asks for at the
//! beginning of the cold one (`instrumented.rs`).
//!
//! A process that waits for memory to have been idle long enough, and has no thread to wait, is counted for that while:
//! so the cold path comes at least once in [`TICK`] objects of a class, and can look at the clock (`timed_release.rs`).
//!
//! # Invariants
//! 1. In the slot of an id stacks are changed by sections alone, but for those of a frozen slot; limits and
//!    what is behind the stacks by anybody. In a shared slot they are changed under its lock.
//! 2. A limit is at most the shape's `most`, and of kinds that are no class it is 0. Refills go beyond the
//!    limit, never beyond `MOST_ITEMS`.
//! 3. Items are objects of the stack's class that nobody else has.
//! 4. One of `FRONT` and `WATCHED` has slots, both for moments in between, and all have the same ones: `BLOCK`, which is
//!    final. `FREED` has them, too, or none: none in a process that checks.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::central;
use super::class::{self, CLASSES, MOST_BATCH, MOST_ITEMS};
use super::core_cache::{COUNTED, CoreCache, count};
use super::core_cache_memory;
use super::fault::{self, Fault};
use super::range::{Range, kind_of};
use super::release;
use super::spans::Place;
use super::stack::{self, BEFORE_COUNT};
use super::{ALIGNED, UNKNOWN, debug, instrumented};
use crate::cid::private::Sealed as _;
use crate::cid::{self, Cid};
use crate::percpu::Block;
use crate::rseq::{self, Exit, Slots, Yielded};

const R: Ordering = Ordering::Relaxed;

/// Somebody who checks was asked for an object of the class.
pub(super) fn count_pop(class: usize) {
    if let Some(core_cache) = near() {
        core_cache.counts[class].popped.fetch_add(1, R);
    }
}

/// Likewise, was given one back.
pub(super) fn count_push(class: usize) {
    if let Some(core_cache) = near() {
        core_cache.counts[class].pushed.fetch_add(1, R);
    }
}

/// The slots of all cores, where nobody watches.
static FRONT: Slots = Slots::new();
/// Where somebody does.
static WATCHED: Slots = Slots::new();
/// Where objects go back to that the map says are of a class.
static FREED: Slots = Slots::new();

/// What the slots of all three are.
static BLOCK: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());

/// Objects of a class that a core gives out in a process that is ticked, until its clock is looked at.
const TICK: u64 = 256;

/// Makes the cold path come now and then, or no more; nothing in a process that watches.
#[cold]
pub(super) fn set_ticked(is_ticked: bool) {
    let (Some(block), Some(wishes)) = (block(), debug::wishes()) else { return };
    let (from, to) = if is_ticked { (&FRONT, &WATCHED) } else { (&WATCHED, &FRONT) };
    if wishes.is_any() || from.base().is_null() {
        return;
    }
    to.open_shared(from.opened_shared() - 1);
    to.bind(block.base());
    from.unbind();
}

/// In a process that is ticked, when it was this class's turn: the next tick comes later.
fn has_ticked(class: usize) -> bool {
    if !FRONT.base().is_null() {
        return false;
    }
    if let Some(core_cache) = near() {
        let left = core_cache.left(class);
        let seen = left.load(R);
        // Sections do not write to it as long as it is this (`stack.rs`, 4).
        return seen <= 1 && left.compare_exchange(seen, TICK, R, R).is_ok();
    }
    // Without sections each call of the process comes here, and none has counted.
    leased(|core_cache| {
        let left = core_cache.left(class);
        let seen = left.load(R);
        left.store(if seen <= 1 { TICK } else { seen - 1 }, R);
        seen <= 1
    })
    .unwrap_or(false)
}

/// Those of the two that the process uses; `None` as long as it cannot be known.
pub(super) fn slots() -> Option<&'static Slots> {
    if !FRONT.base().is_null() {
        return Some(&FRONT);
    }
    if !WATCHED.base().is_null() {
        return Some(&WATCHED);
    }
    debug::wishes().map(|wishes| if wishes.is_any() { &WATCHED } else { &FRONT })
}

/// What there is to be returned where there is no memory: null, and something is done perhaps.
pub(super) type Missing = extern "C" fn() -> *mut u8;

/// Pops an object of the class whose stack is there, the one of the alignment and the size; without memory it is
/// `missing`'s.
///
/// The cold functions here have C's convention, in which nothing unwinds: so the hot ones, at their end, jump
/// there without a frame of their own.
#[inline(always)]
pub(super) fn pop(at: usize, align: usize, size: usize, missing: Missing) -> *mut u8 {
    let (exit, item) = pop_section(&FRONT, at);
    if exit.is_straight() {
        // SAFETY: invariant 3: an item, so an initialised word.
        return core::ptr::with_exposed_provenance_mut(unsafe { item.assume_init() } as usize);
    }
    pop_cold(align, size, missing)
}

/// Gives an object back: pushes it, if it is of a class.
///
/// # Safety
/// The map says that the object is of this kind; if it is a class, the caller has the object for himself.
#[inline(always)]
pub(super) unsafe fn push(kind: usize, object: *mut u8) {
    if push_section(&FREED, stack::at(kind), object as u64).is_straight() {
        return;
    }
    push_cold(object, kind);
}

/// [`push`], for callers who know the size that was asked for, which those who watch look at. Instead of the kind,
/// which is found again: one register more, and the hot path would save one.
///
/// # Safety
/// As there.
#[inline(always)]
pub(super) unsafe fn push_sized(kind: usize, object: *mut u8, size: usize) {
    if push_section(&FREED, stack::at(kind), object as u64).is_straight() {
        return;
    }
    push_sized_cold(object, size);
}

/// [`push_sized`], of an object of the class of its size, unless somebody watches.
///
/// # Safety
/// As there.
#[inline(always)]
pub(super) unsafe fn push_of_class(at: usize, object: *mut u8, size: usize) {
    if push_section(&FRONT, at, object as u64).is_straight() {
        return;
    }
    push_of_class_cold(object, size);
}

#[inline(always)]
fn pop_section(slots: &Slots, at: usize) -> rseq::Popped {
    let Some(index) = Cid::settled_index() else { return (Exit::COLD, MaybeUninit::uninit()) };
    // SAFETY: a stack of the core_cache that every slot has, or none yet; invariants 1 and 2.
    unsafe { rseq::pop_at(index, slots, at) }
}

/// [`pop_section`], unless there is nothing [left](CoreCache::left).
#[inline(always)]
fn pop_counted_section(slots: &Slots, at: usize) -> rseq::Popped {
    let Some(index) = Cid::settled_index() else { return (Exit::COLD, MaybeUninit::uninit()) };
    // SAFETY: as in `pop_section`; a class has another stack before it.
    unsafe { rseq::pop_counted_at(index, slots, at) }
}

#[inline(always)]
fn push_section(slots: &Slots, at: usize, object: u64) -> Exit {
    let Some(index) = Cid::settled_index() else { return Exit::COLD };
    // SAFETY: as in `pop_section`.
    unsafe { rseq::push_at(index, slots, at, object) }
}

/// Where those who count come each time.
#[cold]
#[inline(never)]
extern "C" fn pop_cold(align: usize, size: usize, missing: Missing) -> *mut u8 {
    let at = class::stack_of_size(size).filter(|_| align <= ALIGNED && !WATCHED.base().is_null());
    let Some(at) = at else { return pop_slowly(align, size, missing) };
    let (exit, item) = pop_counted_section(&WATCHED, at);
    if exit.is_straight() {
        // SAFETY: as in `pop`.
        return core::ptr::with_exposed_provenance_mut(unsafe { item.assume_init() } as usize);
    }
    // All are aligned so. One register less that is kept over the section.
    pop_slowly(ALIGNED, size, missing)
}

#[cold]
#[inline(never)]
extern "C" fn pop_slowly(align: usize, size: usize, missing: Missing) -> *mut u8 {
    let Some(class) = class::of_aligned(align, size) else { return missing() };
    // Before the range, which takes what address space it finds. Without slots all comes from the store.
    bind();
    let Some(range) = Range::make() else { return missing() };
    let place = Place::new(range, class);
    let attempt = || match debug::wishes() {
        Some(wishes) if wishes.is_any() => debug::allocate(wishes, place, align, size),
        Some(_) => {
            if has_ticked(class) {
                release::after_growth(range);
            }
            pop_or_refill(place)
        }
        None => {
            instrumented::count_early(class);
            pop_or_refill(place)
        }
    };
    match super::or_reclaimed(range, size, attempt) {
        Some(object) => core::ptr::with_exposed_provenance_mut(object as usize),
        None => missing(),
    }
}

/// An object of a class, from its stack or the store; `None` without memory.
pub(super) fn pop_or_refill(place: Place) -> Option<u64> {
    let class = place.class;
    let popped = slots().and_then(|slots| {
        let attempt = || pop_section(slots, stack::at(class));
        let first = attempt();
        if first.0.is_straight() {
            // SAFETY: as in `pop`.
            return Some(unsafe { first.1.assume_init() });
        }
        match rseq::retry(first, cid::prepare::<Cid>, attempt) {
            // SAFETY: likewise.
            Some((exit, item)) if exit.is_committed() => Some(unsafe { item.assume_init() }),
            Some(_) => None,
            None => leased(|core_cache| core_cache.stacks[class].pop()).flatten(),
        }
    });
    popped.or_else(|| refill(place))
}

/// What [`pop_counted`] found.
pub(super) enum Popped<T> {
    /// An object, which is counted.
    Object(u64),
    /// The stack is empty, or nothing is [left](CoreCache::left), or there are no slots.
    Nothing,
    /// What `alone` said.
    Otherwise(T),
}

/// Pops an object of a class, and counts it; `alone` does it on a shared slot, which nobody else uses meanwhile.
pub(super) fn pop_counted<T>(class: usize, alone: impl FnOnce(&CoreCache) -> T) -> Popped<T> {
    let Some(slots) = slots() else { return Popped::Nothing };
    let attempt = || pop_counted_section(slots, stack::at(class));
    match rseq::retry(attempt(), cid::prepare::<Cid>, attempt) {
        // SAFETY: as in `pop`.
        Some((exit, item)) if exit.is_committed() => Popped::Object(unsafe { item.assume_init() }),
        Some(_) => Popped::Nothing,
        None => leased(alone).map_or(Popped::Nothing, Popped::Otherwise),
    }
}

/// The slots, made now if there were none; `None` without memory.
fn bind() -> Option<Block<CoreCache>> {
    let block = match block() {
        Some(block) => block,
        None => bind_fresh()?,
    };
    // By each who comes: the child of a fork may find the one without the others.
    if FRONT.base().is_null() && WATCHED.base().is_null() {
        slots()?.bind(block.base());
    }
    if FREED.base().is_null() && !debug::is_checked() {
        FREED.bind(block.base());
    }
    Some(block)
}

fn bind_fresh() -> Option<Block<CoreCache>> {
    // Not before it is known whose they are.
    slots()?;
    // Release: partner is the Acquire in `block`; the block is ready to be used. Of two threads both have the same one.
    BLOCK.store(core_cache_memory::make()?.base(), Ordering::Release);
    block()
}

pub(super) fn block() -> Option<Block<CoreCache>> {
    // Acquire: partner is the Release in `bind_fresh`.
    // SAFETY: null, or what `bind_fresh` stored, which stays.
    unsafe { Block::from_base(BLOCK.load(Ordering::Acquire)) }
}

/// The slot of the calling thread's id. A hint.
pub(super) fn near() -> Option<&'static CoreCache> {
    let offset = cid::offset_of_this_thread::<Cid>()?;
    Some(block()?.slot_at(offset))
}

/// Runs `f` on the shared slot that the thread leases, unless another thread does the same.
fn leased<R>(f: impl FnOnce(&CoreCache) -> R) -> Option<R> {
    let (block, slots) = (bind()?, slots()?);
    let slot = cid::shared_slot(slots);
    if !core_cache_memory::open_shared(slot) {
        return None;
    }
    let core_cache = block.shared(slot);
    // Recovered after a fork: counts change last, so every state of a stack is one.
    let _locked = core_cache.lock.try_lock()?;
    Some(f(core_cache))
}

/// Takes a batch from the store: the object that is to be used first, and the others onto the stack. `None` without
/// memory.
fn refill(place: Place) -> Option<u64> {
    let near = near();
    let mut batch = [0; MOST_BATCH];
    let batch =
        &mut batch[..near.map_or(place.shape().batch, |core_cache| core_cache.batch(place))];
    let taken = central::take(place, batch);
    release::after_growth(place.range);
    let batch = &mut batch[..taken];
    debug::arrange(batch);
    if let Some(core_cache) = near {
        core_cache.was_empty[place.class].store(1, R);
        count(&core_cache.counts[place.class].refills);
    } else {
        COUNTED[place.class].refills.fetch_add(1, R);
    }
    let (first, others) = batch.split_last_mut()?;
    if !others.is_empty() {
        let pushed = push_some(place.class, others);
        if pushed < others.len() {
            central::give(place, &others[pushed..]);
        }
    }
    Some(*first)
}

/// Pushes objects onto the stack, beyond its limit if need be; how many, the first ones.
fn push_some(class: usize, objects: &[u64]) -> usize {
    let Some(slots) = from_counts(class) else { return 0 };
    let attempt = || {
        let (from, most) = (objects.as_ptr().cast(), objects.len() as u64);
        // SAFETY: a stack of the core_cache, from its count on; invariants 1 and 2; so many words to read.
        unsafe { rseq::push_some(Cid::index(), &slots, from, most, MOST_ITEMS as u64) }
    };
    pushed_or_popped(attempt, |core_cache| {
        let stack = &core_cache.stacks[class];
        objects.iter().take_while(|object| stack.push(**object, MOST_ITEMS as u64)).count()
    })
}

/// Pops objects off the stack; how many.
fn pop_some(class: usize, to: &mut [u64]) -> usize {
    let Some(slots) = from_counts(class) else { return 0 };
    let (to, most) = (to.as_mut_ptr(), to.len());
    let attempt = || {
        // SAFETY: as in `push_some`; so many words to write, used by this thread alone.
        unsafe { rseq::pop_some(Cid::index(), &slots, to.cast(), most as u64) }
    };
    pushed_or_popped(attempt, |core_cache| {
        let objects = core::iter::from_fn(|| core_cache.stacks[class].pop());
        // SAFETY: fewer than `most`.
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

/// The class's stacks from their counts on, as the sections of batches want them.
fn from_counts(class: usize) -> Option<Slots> {
    Some(Slots::bound(bind()?.base().wrapping_add(stack::at(class) + BEFORE_COUNT)))
}

#[cold]
#[inline(never)]
extern "C" fn push_cold(object: *mut u8, kind: usize) {
    push_otherwise(kind, object, UNKNOWN);
}

#[cold]
#[inline(never)]
extern "C" fn push_sized_cold(object: *mut u8, size: usize) {
    push_otherwise(kind_of(object).unwrap_or_default(), object, size);
}

#[cold]
#[inline(never)]
extern "C" fn push_of_class_cold(object: *mut u8, size: usize) {
    if FRONT.base().is_null() {
        // Somebody watches: the map knows what was taken out.
        if let Some(kind) = kind_of(object) {
            if push_section(&FREED, stack::at(kind), object as u64).is_straight() {
                return;
            }
        }
    }
    push_otherwise(class::of_size(size).unwrap_or_default(), object, size);
}

/// What the stack had no room for, or is of no class, or of somebody who watches.
fn push_otherwise(kind: usize, object: *mut u8, size: usize) {
    let Some(range) = Range::get() else { return super::deallocate_other(object) };
    if let Some(wishes) = debug::wishes().filter(|wishes| wishes.is_any()) {
        return debug::deallocate(wishes, range, object, size);
    }
    if kind == 0 || kind > CLASSES {
        return super::deallocate_other(object);
    }
    push_or_spill(Place::new(range, kind), object as u64);
}

/// Gives an object of a class back to its stack, or to the store.
pub(super) fn push_or_spill(place: Place, object: u64) {
    let class = place.class;
    let Some(slots) = slots() else { return central::give(place, &[object]) };
    let attempt = || push_section(slots, stack::at(class), object);
    let first = attempt();
    if first.is_straight() {
        return;
    }
    match rseq::retry(first, cid::prepare::<Cid>, attempt) {
        Some(exit) if exit.is_committed() => {}
        Some(_) => overflow(slots, place, object),
        None => {
            let pushed = leased(|core_cache| {
                let stack = &core_cache.stacks[class];
                stack.limit.store(place.shape().most as u64, R);
                stack.push(object, place.shape().most as u64)
            });
            if pushed != Some(true) {
                spill(place, object);
            }
        }
    }
}

/// The stack is full, has no limit yet, or has the object on top.
fn overflow(slots: &Slots, place: Place, object: u64) {
    if let Some(core_cache) = near() {
        if core_cache.stacks[place.class].top() == object {
            fault::report(Fault::Twice, object as usize);
        }
        if core_cache.grow(place)
            && push_section(slots, stack::at(place.class), object).is_straight()
        {
            return;
        }
    }
    spill(place, object);
}

/// Gives the object, and others of its stack, to the store.
fn spill(place: Place, object: u64) {
    let near = near();
    if let Some(core_cache) = near {
        count(&core_cache.counts[place.class].spills);
    }
    let mut batch = [0; MOST_BATCH + 1];
    let popped = match near.map_or(place.shape().batch, |core_cache| core_cache.batch(place)) {
        1 => 0,
        most => pop_some(place.class, &mut batch[..most]),
    };
    batch[popped] = object;
    central::give(place, &batch[..=popped]);
    release::after_giving(place.range);
}
