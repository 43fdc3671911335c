//! The front end: for each core and size class, a stack of free objects.
//!
//! `malloc` pops from the class's stack and `free` pushes onto it: one critical section each, on memory that only
//! this core uses. All stacks of a core lie in its slot of 1 MiB, at the class number times the length of a stack, so
//! a stack is found without a table (`stack::at`).
//!
//! ```text
//!   slot:   stack 0, with limit 0 │ stack 1 │ stack 2 │ …     one page or more each, populated on use
//!   stack:  top, limit, count, items …                        one cache line more than two pages long, so that the
//!                                                             first lines of stacks, which every operation uses,
//!                                                             fall into different cache sets
//! ```
//!
//! An empty stack is refilled with a batch from the middle end (`central.rs`). A stack that has reached its limit
//! spills a batch. `core_cache.rs` says how limits grow.
//!
//! Threads without critical sections lease shared slots, which have a lock each. If the lock is held, they go to the
//! middle end.
//!
//! # Debugging costs nothing when it is off
//! There are three references to the slots. Hot paths allocate through `FRONT` and free through `FREED`. A process
//! that checks, counts, samples or guards its objects (`debug.rs`) has its slots in `WATCHED` and leaves `FRONT`
//! empty: the hot paths then fail over to the cold ones, which do the extra work. If it only counts, `FREED` is set
//! all the same, so that frees stay on the hot path, and allocations are counted at the start of the cold path
//! (`instrumented.rs`).
//!
//! A process that waits for memory to become old enough to be released, and has no background thread, counts for that
//! time: the cold path then runs at least once in [`TICK`] objects of a class, and looks at the clock
//! (`timed_release.rs`).
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

/// Counts an allocation of the class, in checking mode.
pub(super) fn count_pop(class: usize) {
    if let Some(core_cache) = near() {
        core_cache.counts[class].popped.fetch_add(1, R);
    }
}

/// Counts a free of the class, in checking mode.
pub(super) fn count_push(class: usize) {
    if let Some(core_cache) = near() {
        core_cache.counts[class].pushed.fetch_add(1, R);
    }
}

/// The slots of all cores, unless objects are checked, counted, sampled or guarded.
static FRONT: Slots = Slots::new();
/// The slots of all cores, if they are.
static WATCHED: Slots = Slots::new();
/// The slots that objects are freed to whose class the map tells.
static FREED: Slots = Slots::new();

/// The slots themselves.
static BLOCK: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());

/// How many objects of a class a core allocates between two looks at the clock, in a process that ticks.
const TICK: u64 = 256;

/// Switches ticking on or off. Does nothing in a process that checks, counts, samples or guards.
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

/// Whether this class's turn to look at the clock has come, in a process that ticks. If so, restarts its count.
fn has_ticked(class: usize) -> bool {
    if !FRONT.base().is_null() {
        return false;
    }
    if let Some(core_cache) = near() {
        let left = core_cache.left(class);
        let seen = left.load(R);
        // Sections do not change values of 0 and 1 (`stack.rs`, 4).
        return seen <= 1 && left.compare_exchange(seen, TICK, R, R).is_ok();
    }
    // Without sections, every call comes here, and nothing else counts down.
    leased(|core_cache| {
        let left = core_cache.left(class);
        let seen = left.load(R);
        left.store(if seen <= 1 { TICK } else { seen - 1 }, R);
        seen <= 1
    })
    .unwrap_or(false)
}

/// The slots that this process allocates from; `None` until the environment could be read.
pub(super) fn slots() -> Option<&'static Slots> {
    if !FRONT.base().is_null() {
        return Some(&FRONT);
    }
    if !WATCHED.base().is_null() {
        return Some(&WATCHED);
    }
    debug::wishes().map(|wishes| if wishes.is_any() { &WATCHED } else { &FRONT })
}

/// Called when out of memory: returns null, and may do something else, such as set `errno`.
pub(super) type Missing = extern "C" fn() -> *mut u8;

/// Pops an object from the stack at offset `at`, which must be the stack of this size and alignment. Returns
/// `missing()` when out of memory.
///
/// The cold functions use the C calling convention, which does not unwind, so that the hot function ends in a jump to
/// them and needs no stack frame.
#[inline(always)]
pub(super) fn pop(at: usize, align: usize, size: usize, missing: Missing) -> *mut u8 {
    let (exit, item) = pop_section(&FRONT, at);
    if exit.is_straight() {
        // SAFETY: the section committed, so the item is an initialised word.
        return core::ptr::with_exposed_provenance_mut(unsafe { item.assume_init() } as usize);
    }
    pop_cold(align, size, missing)
}

/// Frees an object: pushes it onto its class's stack, or takes a cold path.
///
/// # Safety
/// - `kind` is what the map says of the object.
/// - If `kind` is a class, the object belongs to the caller alone.
#[inline(always)]
pub(super) unsafe fn push(kind: usize, object: *mut u8) {
    if push_section(&FREED, stack::at(kind), object as u64).is_straight() {
        return;
    }
    push_cold(object, kind);
}

/// As [`push`], for callers that know the size that was asked for, which the debugging modes check. The cold path
/// gets the size instead of the kind and looks the kind up again: the hot path would have to save a register to pass
/// both.
///
/// # Safety
/// - The conditions of [`push`].
#[inline(always)]
pub(super) unsafe fn push_sized(kind: usize, object: *mut u8, size: usize) {
    if push_section(&FREED, stack::at(kind), object as u64).is_straight() {
        return;
    }
    push_sized_cold(object, size);
}

/// As [`push_sized`], for an object of its size's class, unless a debugging mode has replaced it.
///
/// # Safety
/// - The object belongs to the caller alone.
/// - Unless a debugging mode is on, it is of the class whose stack is at `at`.
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
    // SAFETY: `at` is the offset of a stack in every slot; invariants 1 and 2 are those that the section needs.
    unsafe { rseq::pop_at(index, slots, at) }
}

/// As [`pop_section`], but fails if no objects are [left](CoreCache::left) to give out without a look.
#[inline(always)]
fn pop_counted_section(slots: &Slots, at: usize) -> rseq::Popped {
    let Some(index) = Cid::settled_index() else { return (Exit::COLD, MaybeUninit::uninit()) };
    // SAFETY: as in `pop_section`; every class's stack follows another one, which has the count.
    unsafe { rseq::pop_counted_at(index, slots, at) }
}

#[inline(always)]
fn push_section(slots: &Slots, at: usize, object: u64) -> Exit {
    let Some(index) = Cid::settled_index() else { return Exit::COLD };
    // SAFETY: `at` is the offset of a stack in every slot; invariants 1 and 2 are those that the section needs.
    unsafe { rseq::push_at(index, slots, at, object) }
}

/// Cold path of [`pop`]; in a process that counts, the path of every allocation.
#[cold]
#[inline(never)]
extern "C" fn pop_cold(align: usize, size: usize, missing: Missing) -> *mut u8 {
    let at = class::stack_of_size(size).filter(|_| align <= ALIGNED && !WATCHED.base().is_null());
    let Some(at) = at else { return pop_slowly(align, size, missing) };
    let (exit, item) = pop_counted_section(&WATCHED, at);
    if exit.is_straight() {
        // SAFETY: the section committed, so the item is an initialised word.
        return core::ptr::with_exposed_provenance_mut(unsafe { item.assume_init() } as usize);
    }
    // Objects of this path have no larger alignment. A constant here keeps a register free across the section.
    pop_slowly(ALIGNED, size, missing)
}

#[cold]
#[inline(never)]
extern "C" fn pop_slowly(align: usize, size: usize, missing: Missing) -> *mut u8 {
    let Some(class) = class::of_aligned(align, size) else { return missing() };
    // Bind the slots before the range is made, which may use up the address space. Without slots, the middle end
    // serves.
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

/// Allocates an object of a class from its stack or from the middle end; `None` when out of memory.
pub(super) fn pop_or_refill(place: Place) -> Option<u64> {
    let class = place.class;
    let popped = slots().and_then(|slots| {
        let attempt = || pop_section(slots, stack::at(class));
        let first = attempt();
        if first.0.is_straight() {
            // SAFETY: the section committed, so the item is an initialised word.
            return Some(unsafe { first.1.assume_init() });
        }
        match rseq::retry(first, cid::prepare::<Cid>, attempt) {
            // SAFETY: the section committed, so the item is an initialised word.
            Some((exit, item)) if exit.is_committed() => Some(unsafe { item.assume_init() }),
            Some(_) => None,
            None => leased(|core_cache| core_cache.stacks[class].pop()).flatten(),
        }
    });
    popped.or_else(|| refill(place))
}

/// The outcome of [`pop_counted`].
pub(super) enum Popped<T> {
    /// An object, which has been counted.
    Object(u64),
    /// The stack is empty, no objects are [left](CoreCache::left), or there are no slots.
    Nothing,
    /// The result of `alone`.
    Otherwise(T),
}

/// Pops an object of a class and counts it. In a thread without sections, runs `alone` on the leased shared slot.
pub(super) fn pop_counted<T>(class: usize, alone: impl FnOnce(&CoreCache) -> T) -> Popped<T> {
    let Some(slots) = slots() else { return Popped::Nothing };
    let attempt = || pop_counted_section(slots, stack::at(class));
    match rseq::retry(attempt(), cid::prepare::<Cid>, attempt) {
        // SAFETY: the section committed, so the item is an initialised word.
        Some((exit, item)) if exit.is_committed() => Popped::Object(unsafe { item.assume_init() }),
        Some(_) => Popped::Nothing,
        None => leased(alone).map_or(Popped::Nothing, Popped::Otherwise),
    }
}

/// The slots, which are made now if necessary; `None` when out of memory.
fn bind() -> Option<Block<CoreCache>> {
    let block = match block() {
        Some(block) => block,
        None => bind_fresh()?,
    };
    // Every caller binds: a forked child may have the block without the references to it.
    if FRONT.base().is_null() && WATCHED.base().is_null() {
        slots()?.bind(block.base());
    }
    if FREED.base().is_null() && !debug::is_checked() {
        FREED.bind(block.base());
    }
    Some(block)
}

fn bind_fresh() -> Option<Block<CoreCache>> {
    // Only once it is known which reference the slots belong to.
    slots()?;
    // Release: partner is the Acquire in `block`; the block is initialised. Two threads that race get the same block.
    BLOCK.store(core_cache_memory::make()?.base(), Ordering::Release);
    block()
}

pub(super) fn block() -> Option<Block<CoreCache>> {
    // Acquire: partner is the Release in `bind_fresh`. SAFETY: null, or the block that `bind_fresh` stored, which is
    // never freed.
    unsafe { Block::from_base(BLOCK.load(Ordering::Acquire)) }
}

/// The slot of the calling thread's id. A hint: the thread may move at any time.
pub(super) fn near() -> Option<&'static CoreCache> {
    let offset = cid::offset_of_this_thread::<Cid>()?;
    Some(block()?.slot_at(offset))
}

/// Runs `f` on the shared slot that the thread leases; `None` if its lock is held.
fn leased<R>(f: impl FnOnce(&CoreCache) -> R) -> Option<R> {
    let (block, slots) = (bind()?, slots()?);
    let slot = cid::shared_slot(slots);
    if !core_cache_memory::open_shared(slot) {
        return None;
    }
    let core_cache = block.shared(slot);
    // A lock recovered after a fork needs no repair: counts are stored last, so every state of a stack is valid.
    let _locked = core_cache.lock.try_lock()?;
    Some(f(core_cache))
}

/// Fetches a batch from the middle end, returns the object that should be used first, and pushes the others onto the
/// stack. `None` when out of memory.
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

/// Pushes objects onto the stack, beyond its limit if necessary. Returns how many, counted from the first.
fn push_some(class: usize, objects: &[u64]) -> usize {
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
fn pop_some(class: usize, to: &mut [u64]) -> usize {
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

/// The slots, shifted to the count of the class's stack, as batch sections expect.
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
        // A debugging mode is on: the map says whether the object was replaced.
        if let Some(kind) = kind_of(object) {
            if push_section(&FREED, stack::at(kind), object as u64).is_straight() {
                return;
            }
        }
    }
    push_otherwise(class::of_size(size).unwrap_or_default(), object, size);
}

/// Frees an object for which the stack had no room, which has no class, or which a debugging mode handles.
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

/// Pushes an object onto its class's stack, or spills to the middle end.
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

/// Handles a push that failed: the stack is full, has no limit yet, or has this very object on top.
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

/// Moves the object, and others of its stack, to the middle end.
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
