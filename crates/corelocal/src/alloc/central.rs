//! The middle end: per class and NUMA node, a depot of free objects with the spans behind it. Cores' stacks are
//! refilled from here and spill here.
//!
//! Most objects that come are soon needed by another core. They wait as an array of pointers in the depot, from which
//! whole batches are copied without touching an object. Objects that do not fit go back to their spans, and an empty
//! depot is served from a span (`spans.rs`).
//!
//! # No thread waits for itself
//! A class has one lock, which is held for tens of nanoseconds, or longer while a new span is made. A thread tries
//! for it a bounded number of times. It fails if it is a signal handler that interrupted the holder, or if the holder
//! does not run. Then it allocates from a fresh span of its own (`sprout`), or leaves the object on the orphan list,
//! which needs no lock and which the next holder empties.
//!
//! # Invariants
//! 1. Depot and spans change under the lock. The depot's count is stored last, so at whatever store a fork stops the
//!    holder, each pointer below the count is valid and unique (for spans see `spans.rs`). The depot's memory goes
//!    from null to its final address once, and is never unmapped.
//! 2. Orphans are free objects (`orphans.rs`).
//! 3. Depot, spans and orphans of a node hold only objects from that node's part of the range.
//! 4. No operation waits without bound: objects held while their pages are given back return through a list, too
//!    (`deferred_spans.rs`).

mod deferred_spans;
mod orphans;
mod parts;
pub(super) mod place;
pub(super) mod spans;
pub(super) mod thinned;
pub(super) mod thinning;

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;

use super::layout::chunk_metadata::publish;
use super::layout::class::{CLASSES, MOST_BATCH};
use super::layout::node_ranges::{self, STATE};
use super::layout::range::Range;
use super::page_heap::nodes;
use crate::sys::sleep;
use crate::sys::try_lock::{Locked, TryLock};
use deferred_spans::Returned;
use orphans::Orphans;
use place::Place;
use spans::Spans;
use thinning::Look;

/// The middle end of one class on one node. All bytes 0 is an empty one.
#[repr(C)]
pub(super) struct Central {
    lock: TryLock,
    orphans: Orphans,
    returned: Returned,
    spans: Spans,
    /// Objects in the depot.
    pub(super) count: AtomicUsize,
    /// Number of operations on the depot, to detect that it is idle.
    uses: AtomicU64,
    /// `uses` at the last check for idleness.
    uses_seen: AtomicU64,
    /// Room for `Shape::depot` pointers. Null until an object comes: most programs use few classes.
    depot: AtomicPtr<AtomicU64>,
}

pub(super) type Centrals = [Central; CLASSES + 1];

/// The central lists of the first node.
pub(super) static CENTRALS: Centrals = [const { Central::new() }; CLASSES + 1];
// All other nodes have theirs in the states of `layout/node_ranges.rs`.
const _: () = assert!(size_of::<Centrals>() <= STATE);

/// Attempts that only spin, then attempts with pauses in which a preempted holder may run.
const SPINS: u32 = 100;
const TRIES: u32 = SPINS + 40;
const NAP: Duration = Duration::from_micros(20);

const R: Ordering = Ordering::Relaxed;

fn central(place: Place) -> &'static Central {
    let centrals = match place.node {
        0 => &CENTRALS,
        // SAFETY: the node exists, so its state was mapped: enough zeroed bytes, which are a valid `Centrals`, aligned
        // as a page is, and never unmapped.
        node => unsafe { &*node_ranges::state(node).cast::<Centrals>() },
    };
    &centrals[place.class]
}

/// Allocates objects of a class, from the calling thread's node if possible. Returns how many; 0 when out of memory.
/// The object that should be used first, which has the lowest address of its span, comes last.
pub(super) fn take(place: Place, to: &mut [u64]) -> usize {
    let mut taken = nodes::from_here(place.range).map(|node| take_on(place.on(node), to));
    taken.find(|taken| *taken > 0).unwrap_or(0)
}

fn take_on(place: Place, to: &mut [u64]) -> usize {
    let central = central(place);
    match central.lock(place) {
        Some(_locked) => match central.take_from_depot(place, to) {
            0 => central.spans.take(place, to),
            taken => taken,
        },
        None => {
            let (taken, one_more) = spans::sprout(place, to);
            one_more.into_iter().for_each(|object| central.orphan(object as u64));
            taken
        }
    }
}

/// Frees objects of a class, each to its own node.
pub(super) fn give(place: Place, objects: &[u64]) {
    match place.range.nodes() {
        1 => give_on(place.on(0), objects),
        nodes => objects.chunks(GIVEN).for_each(|some| give_home(place, nodes, some)),
    }
}

/// Capacity of `give_home`: a batch, and the object for which the stack had no room.
const GIVEN: usize = MOST_BATCH + 1;

/// Frees at most [`GIVEN`] objects, each to its own node.
#[inline(never)]
fn give_home(place: Place, nodes: usize, objects: &[u64]) {
    let range = place.range;
    let mut homes = [0u8; GIVEN];
    for (home, object) in homes.iter_mut().zip(objects) {
        *home = range.node_of(range.chunk_of(*object as usize)) as u8;
    }
    for node in 0..nodes {
        let mut part = [0; GIVEN];
        let here = objects.iter().zip(&homes).filter(|(_, home)| usize::from(**home) == node);
        let count = part.iter_mut().zip(here).map(|(to, (object, _))| *to = *object).count();
        if count > 0 {
            give_on(place.on(node), &part[..count]);
        }
    }
}

fn give_on(place: Place, objects: &[u64]) {
    let central = central(place);
    match central.lock(place) {
        Some(_locked) => {
            let kept = central.put_into_depot(place, objects);
            central.spans.give(place, &objects[kept..]);
        }
        None => objects.iter().for_each(|object| central.orphan(*object)),
    }
}

/// Moves all objects of the depot to their spans. With `only_resting`, only if the depot has not been used since the
/// last call. Returns how many were moved.
pub(super) fn flush(place: Place, only_resting: bool) -> usize {
    let central = central(place);
    let uses = central.uses.load(R);
    if central.uses_seen.swap(uses, R) != uses && only_resting {
        return 0;
    }
    let mut flushed = 0;
    loop {
        // In small steps: other threads need the lock, too.
        let mut some = [0; 64];
        let Some(_locked) = central.lock(place) else { return flushed };
        let taken = central.take_from_depot(place, &mut some);
        central.spans.give(place, &some[..taken]);
        // Operations of this function do not count as use.
        central.uses.store(uses, R);
        if taken == 0 {
            return flushed;
        }
        flushed += taken;
    }
}

/// Gives those parts of a span back to the kernel in which no object is in use.
pub(super) fn thin_out(place: Place, chunk: usize, only_resting: bool) -> Look {
    let central = central(place);
    let parts = match central.lock(place) {
        Some(_locked) => thinning::begin(&central.spans, place, chunk, only_resting),
        None => None,
    };
    let Some(parts) = parts else {
        // Estimated without the lock, which is contended.
        let is_worth_it = thinning::seems_worth_it(place, chunk);
        return Look { bytes: 0, left: if is_worth_it { place.shape().chunks } else { 0 } };
    };
    if parts == 0 {
        return Look::default();
    }
    // SAFETY: the objects in `parts` are held, so no thread uses those pages.
    let bytes = unsafe { thinning::give_back(place, chunk, parts) };
    central.put_back(place, chunk, parts);
    Look { bytes, left: 0 }
}

/// Returns the number of objects in the depot.
pub(super) fn waiting(place: Place) -> usize {
    central(place).count.load(R)
}

/// Returns a class on each node.
pub(super) fn places_of(range: Range, class: usize) -> impl Iterator<Item = Place> {
    (0..range.nodes()).map(move |node| Place::new(range, class).on(node))
}

/// Returns all classes on all nodes.
pub(super) fn places(range: Range) -> impl Iterator<Item = Place> {
    (1..=CLASSES).flat_map(move |class| places_of(range, class))
}

impl Central {
    const fn new() -> Central {
        Central {
            lock: TryLock::new(),
            orphans: Orphans::new(),
            returned: Returned::new(),
            spans: Spans::new(),
            count: AtomicUsize::new(0),
            uses: AtomicU64::new(0),
            uses_seen: AtomicU64::new(0),
            depot: AtomicPtr::new(null_mut()),
        }
    }

    /// Takes the lock and restores the invariants. `None` if the lock cannot be had.
    #[inline]
    fn lock(&self, place: Place) -> Option<Locked<'_>> {
        let locked = self.lock.try_lock().or_else(|| self.lock_contended())?;
        if locked.recovered {
            self.spans.rebuild(place);
        }
        if !self.orphans.is_empty() {
            self.adopt(place);
        }
        if !self.returned.is_empty() {
            self.take_returned(place);
        }
        Some(locked)
    }

    #[cold]
    fn lock_contended(&self) -> Option<Locked<'_>> {
        for tries in 0..TRIES {
            if self.lock.is_mine() {
                return None;
            }
            if tries < SPINS {
                core::hint::spin_loop();
            } else {
                // The holder does not run.
                sleep::nap(NAP);
            }
            if let Some(locked) = self.lock.try_lock() {
                return Some(locked);
            }
        }
        None
    }

    /// Returns the depot's memory; empty until it is allocated.
    fn depot(&self, place: Place) -> &[AtomicU64] {
        // Acquire: partner is the Release in `publish`.
        let depot = self.depot.load(Ordering::Acquire);
        match depot.is_null() {
            true => &[],
            // SAFETY: `publish` allocated this many zeroed words, which are never unmapped.
            false => unsafe { core::slice::from_raw_parts(depot, place.shape().depot) },
        }
    }

    /// Moves objects from the depot to `to`, and returns how many. The lock must be held.
    fn take_from_depot(&self, place: Place, to: &mut [u64]) -> usize {
        let count = self.count.load(R);
        let taken = count.min(to.len());
        let items = &self.depot(place)[count - taken..count];
        for (item, place) in to[..taken].iter_mut().rev().zip(items) {
            *item = place.load(R);
        }
        self.count.store(count - taken, R);
        self.uses.store(self.uses.load(R).wrapping_add(1), R);
        taken
    }

    /// Moves objects to the depot, and returns for how many there was room. The lock must be held.
    fn put_into_depot(&self, place: Place, objects: &[u64]) -> usize {
        let count = self.count.load(R);
        if self.depot.load(R).is_null() && !publish(&self.depot, place.shape().depot) {
            return 0;
        }
        let depot = self.depot(place);
        let kept = depot.len().saturating_sub(count).min(objects.len());
        for (place, object) in depot[count..].iter().zip(&objects[..kept]) {
            place.store(*object, R);
        }
        // Release: partner is a fork. The child sees every item below the count that it sees (1).
        self.count.store(count + kept, Ordering::Release);
        self.uses.store(self.uses.load(R).wrapping_add(1), R);
        kept
    }

    /// Leaves an object for the next holder of the lock.
    #[cold]
    fn orphan(&self, object: u64) {
        // SAFETY: an object has at least two words and is aligned to them, and this one belongs to the caller.
        let link = |object, next| unsafe { first_word(object).write(next) };
        self.orphans.leave(object, link);
    }

    /// Frees the orphans into their spans. The lock must be held.
    #[cold]
    fn adopt(&self, place: Place) {
        // SAFETY: the object is free (2), and `orphan` initialised its first word.
        let next = |object| unsafe { first_word(object).read() };
        self.orphans.adopt(next).for_each(|object| self.spans.give(place, &[object]));
    }

    /// Releases the objects of a span that the caller holds, those that lie in `parts`. Without the lock, the next
    /// holder does it.
    fn put_back(&self, place: Place, chunk: usize, parts: u64) {
        if let Some(_locked) = self.lock(place) {
            return self.spans.unhold(place, chunk, parts);
        }
        let record = |span: u64| place.range.record(span as usize - 1);
        let link = |span, next| record(span).next_returned.store(next as u32, R);
        let span = chunk as u64 + 1;
        self.returned.leave(span, &record(span).returned, parts, link);
    }

    /// Releases the objects on the deferred list. The lock must be held.
    #[cold]
    fn take_returned(&self, place: Place) {
        let record = |span: u64| place.range.record(span as usize - 1);
        let next = |span| u64::from(record(span).next_returned.load(R));
        let returned = self.returned.adopt(next, |span| &record(span).returned);
        returned.for_each(|(span, parts)| self.spans.unhold(place, span as usize - 1, parts));
    }
}

fn first_word(object: u64) -> *mut u64 {
    core::ptr::with_exposed_provenance_mut(object as usize)
}

#[cfg(test)]
mod tests;
