//! The store of each class that the fronts are filled from and spill into: one for each NUMA node, where there are
//! several (`nodes.rs`).
//!
//! Most of what comes is soon wanted by another front: so it waits as an array of pointers in the depot, from
//! which whole batches are copied, and no object is touched. What does not fit goes back to its span, what
//! is not there comes from one (`spans.rs`).
//!
//! # Nobody waits for himself
//! A class has one lock, held for tens of nanoseconds (longer by who needs a new span) and tried for a while. Who
//! does not get it, since he interrupted its holder as a signal handler or since the holder does not run, goes
//! another way: he takes from a fresh span of his own (`sprout`), and gives to the orphans, a list that needs no
//! lock and that the next holder finds.
//!
//! # Invariants
//! 1. Depot and spans are changed under the lock. The depot's count changes last, so whatever store a fork
//!    stops its holder at, what is below the count is there once; of the spans see there. The depot's memory goes from
//!    null to its final place once, and is never unmapped.
//! 2. Orphans are objects that nobody uses (`orphans.rs`).
//! 3. Depot, spans and orphans of a node have objects of its stripe alone.
//! 4. Nothing here waits without bound: objects that a thinning holds go back by a list as well (`deferred_spans.rs`).
//! 5. `OTHERS` goes from null to its final value once, before the range is divided.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;

use super::chunk_metadata::publish;
use super::class::{CLASSES, MOST_BATCH};
use super::deferred_spans::Returned;
use super::node_ranges::MOST_NODES;
use super::nodes;
use super::orphans::Orphans;
use super::range::Range;
use super::spans::{self, Place, Spans};
use super::subrelease::{self, Look};
use crate::sys::pages;
use crate::sys::sleep;
use crate::sys::try_lock::{Locked, TryLock};

/// The store of a class on a node. All bytes 0 is an empty one.
pub(super) struct Central {
    lock: TryLock,
    orphans: Orphans,
    returned: Returned,
    spans: Spans,
    /// Objects in the depot.
    count: AtomicUsize,
    /// How often the depot was used, to see whether it rests.
    uses: AtomicU64,
    /// `uses` at the last look.
    uses_seen: AtomicU64,
    /// Room for as many objects as the class's shape says; null until an object comes: most programs use few classes.
    depot: AtomicPtr<AtomicU64>,
}

type Centrals = [Central; CLASSES + 1];

/// The first node's.
static CENTRALS: Centrals = [const { Central::new() }; CLASSES + 1];
/// Those of the other nodes, one behind the other.
static OTHERS: AtomicPtr<Centrals> = AtomicPtr::new(null_mut());

/// Tries without, and with pauses, in which a holder that was preempted may run.
const SPINS: u32 = 100;
const TRIES: u32 = SPINS + 40;
const NAP: Duration = Duration::from_micros(20);

const R: Ordering = Ordering::Relaxed;

/// Makes room for the stores of all nodes that there may be; false without memory.
#[cold]
pub(super) fn make_room() -> bool {
    if !OTHERS.load(R).is_null() {
        return true;
    }
    let len = (MOST_NODES - 1) * size_of::<Centrals>();
    let Some(fresh) = pages::map(len) else { return false };
    // Relaxed: who comes to them has seen the range divided, which comes after.
    if OTHERS.compare_exchange(null_mut(), fresh.cast(), R, R).is_err() {
        // SAFETY: nobody else saw it.
        unsafe { pages::unmap(fresh, len) };
    }
    true
}

fn central(place: Place) -> &'static Central {
    let centrals = match place.node.checked_sub(1) {
        None => &CENTRALS,
        // SAFETY: there are several nodes, so there is room (5); all bytes 0 are stores; never unmapped.
        Some(nth) => unsafe { &*OTHERS.load(R).add(nth) },
    };
    &centrals[place.class]
}

/// Takes objects of a class, of the calling thread's node if there are any; how many, 0 without memory. What is to be
/// used first comes last: of a span the lowest address.
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

/// Gives objects of a class back, each to the node that it is of.
pub(super) fn give(place: Place, objects: &[u64]) {
    match place.range.nodes() {
        1 => give_on(place.on(0), objects),
        nodes => objects.chunks(GIVEN).for_each(|some| give_home(place, nodes, some)),
    }
}

/// What a full stack gives away: a batch, and the object that it had no room for.
const GIVEN: usize = MOST_BATCH + 1;

/// Of at most so many objects.
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

/// Gives all that is in the depot back to the spans; `only_resting`: unless it was used since the last
/// time. How many objects that were.
pub(super) fn flush(place: Place, only_resting: bool) -> usize {
    let central = central(place);
    let uses = central.uses.load(R);
    if central.uses_seen.swap(uses, R) != uses && only_resting {
        return 0;
    }
    let mut flushed = 0;
    loop {
        // Not all at once: others want the lock, too.
        let mut some = [0; 64];
        let Some(_locked) = central.lock(place) else { return flushed };
        let taken = central.take_from_depot(place, &mut some);
        central.spans.give(place, &some[..taken]);
        // Our own uses are none.
        central.uses.store(uses, R);
        if taken == 0 {
            return flushed;
        }
        flushed += taken;
    }
}

/// Gives those parts of a span back to the kernel that no object in use lies in.
pub(super) fn thin_out(place: Place, chunk: usize, only_resting: bool) -> Look {
    let central = central(place);
    let parts = match central.lock(place) {
        Some(_locked) => subrelease::begin(&central.spans, place, chunk, only_resting),
        None => None,
    };
    let Some(parts) = parts else {
        // Without the lock, which others want.
        return Look { bytes: 0, left: usize::from(subrelease::seems_worth_it(place, chunk)) };
    };
    if parts == 0 {
        return Look::default();
    }
    // SAFETY: held.
    let bytes = unsafe { subrelease::give_back(place, chunk, parts) };
    central.put_back(place, chunk, parts);
    Look { bytes, left: 0 }
}

/// Objects in the depot.
pub(super) fn waiting(place: Place) -> usize {
    central(place).count.load(R)
}

/// The places of a class.
pub(super) fn places_of(range: Range, class: usize) -> impl Iterator<Item = Place> {
    (0..range.nodes()).map(move |node| Place::new(range, class).on(node))
}

/// The places of all classes.
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

    /// The lock, with everything in order; `None` if it cannot be had.
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

    /// Of the class; empty as long as it has no memory.
    fn depot(&self, place: Place) -> &[AtomicU64] {
        // Acquire: partner is the Release in `publish`.
        let depot = self.depot.load(Ordering::Acquire);
        match depot.is_null() {
            true => &[],
            // SAFETY: what `publish` made for so many, zeroed, and never unmapped.
            false => unsafe { core::slice::from_raw_parts(depot, place.shape().depot) },
        }
    }

    /// Under the lock.
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

    /// Under the lock; how many there was room for.
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
        // Release: partner is a fork, whose child may find no item below the count that is not there
        // (invariant 1).
        self.count.store(count + kept, Ordering::Release);
        self.uses.store(self.uses.load(R).wrapping_add(1), R);
        kept
    }

    /// Leaves an object to the next one who has the lock.
    #[cold]
    fn orphan(&self, object: u64) {
        // SAFETY: an object is at least two words, aligned to them, and this one is nobody's but ours.
        let link = |object, next| unsafe { first_word(object).write(next) };
        self.orphans.leave(object, link);
    }

    /// Gives the orphans back to their spans. Under the lock.
    #[cold]
    fn adopt(&self, place: Place) {
        // SAFETY: invariant 2: it has been written to by `orphan`.
        let next = |object| unsafe { first_word(object).read() };
        self.orphans.adopt(next).for_each(|object| self.spans.give(place, &[object]));
    }

    /// Gives the objects of a span back that the caller holds, those that lie in these parts: at once, or with the
    /// next holder of the lock.
    fn put_back(&self, place: Place, chunk: usize, parts: u64) {
        if let Some(_locked) = self.lock(place) {
            return self.spans.unhold(place, chunk, parts);
        }
        let record = |span: u64| place.range.record(span as usize - 1);
        let link = |span, next| record(span).next_returned.store(next as u32, R);
        let span = chunk as u64 + 1;
        self.returned.leave(span, &record(span).returned, parts, link);
    }

    /// Gives the objects back that are held for `returned`. Under the lock.
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
mod tests {
    use super::*;
    use crate::alloc::class::shape;
    use crate::scaled::scaled;
    use crate::sys::forks::Identity;
    use std::collections::HashSet;
    use std::vec;
    use std::vec::Vec;

    fn place(class: usize) -> Place {
        Place::new(Range::make().unwrap(), class)
    }

    /// Who holds the lock already, as a signal handler finds it, gets objects and loses none.
    #[test]
    fn whoever_interrupts_the_holder_goes_another_way() {
        let place = place(11);
        let central = central(place);
        let (mut first, mut second) = ([0; 8], [0; 8]);
        let taken = {
            let _held = central.lock(place).expect("not for long");
            assert_eq!(take(place, &mut first), 8);
            let taken = take(place, &mut second);
            give(place, &first[..4]);
            taken
        };
        assert!(!central.orphans.is_empty());
        let all: HashSet<u64> = first.iter().chain(&second[..taken]).copied().collect();
        assert_eq!(all.len(), 8 + taken);
        give(place, &first[4..]);
        give(place, &second[..taken]);
        assert!(central.orphans.is_empty());
    }

    /// While another thread has the lock, and does not run: a thinning leaves its objects to the next holder.
    #[test]
    fn a_thinning_does_not_wait_for_the_lock() {
        // A class that no other test of this process uses.
        let place = place(26);
        let central = central(place);
        let mut objects = vec![0; place.shape().capacity];
        let locked = central.lock(place).expect("not for long");
        assert_eq!(central.spans.take(place, &mut objects), objects.len());
        let (kept, freed) = objects.split_last().expect("one at least");
        central.spans.give(place, freed);
        let chunk = place.range.chunk_of(*kept as usize) & !(place.shape().chunks - 1);
        let parts =
            subrelease::begin(&central.spans, place, chunk, false).expect("it need not rest");
        assert!(parts.count_ones() > 1, "{parts:x}");
        drop(locked);
        let record = place.range.record(chunk);
        let another = Identity::of_this_thread().number() ^ (1 << (Identity::BITS - 1));
        let held = central.lock.lock_as(Identity::of_number(another));
        // In two steps, as two threads do that have thinned different parts.
        let one = parts & parts.wrapping_neg();
        [one, parts & !one].into_iter().for_each(|parts| central.put_back(place, chunk, parts));
        assert!(record.out.load(R) > 1 && !central.returned.is_empty());
        drop(held);
        drop(central.lock(place).expect("not for long"));
        assert!(record.out.load(R) == 1 && central.returned.is_empty());
        assert_eq!((record.clean.load(R), record.returned.load(R)), (parts, 0));
        give(place, &[*kept]);
        flush(place, false);
    }

    #[test]
    fn objects_are_with_one_thread_at_a_time() {
        let rounds = scaled(200).max(60) as usize;
        for class in [3, 30, CLASSES - 10] {
            let place = place(class);
            std::thread::scope(|scope| {
                for name in 1..=4u64 {
                    scope.spawn(move || {
                        let mut held: Vec<u64> = Vec::new();
                        for round in 0..rounds {
                            let mut to = [0; 64];
                            let taken = take(place, &mut to[..1 + round % shape(class).batch]);
                            assert!(taken > 0);
                            for object in &to[..taken] {
                                // SAFETY: taken, so ours.
                                unsafe { (*object as *mut u64).write(name) };
                            }
                            held.extend(&to[..taken]);
                            if round % 3 == 0 {
                                for object in &held {
                                    // SAFETY: likewise.
                                    assert_eq!(unsafe { (*object as *mut u64).read() }, name);
                                }
                                held.chunks(64).for_each(|objects| give(place, objects));
                                held.clear();
                            }
                            if round % 50 == 0 {
                                flush(place, false);
                            }
                        }
                        held.chunks(64).for_each(|objects| give(place, objects));
                    });
                }
            });
        }
    }

    #[test]
    fn a_depot_that_rests_is_flushed() {
        // Of this test alone.
        let place = place(27);
        let mut to = [0; 16];
        assert_eq!(take(place, &mut to), 16);
        give(place, &to);
        assert_eq!(waiting(place), 16);
        assert_eq!(flush(place, true), 0);
        assert_eq!(flush(place, true), 16);
        assert_eq!((waiting(place), flush(place, false)), (0, 0));
    }
}
