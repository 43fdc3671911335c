//! What a core has: its stacks, how far each may grow, and what was counted.
//!
//! Limits begin low, and grow for a stack that comes to both ends, as far as the core's budget goes; then at the cost
//! of the others, which lose half of what they have beyond the beginning, in turns.
//!
//! Invariants: those of `front.rs`. What is not a stack is changed by any thread at any time: a limit that two
//! change at once is one of theirs, and the sum of limits is as it should be but for that.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::central;
use super::class::{self, CLASSES, MOST_BATCH, Shape};
use super::range::{KINDS, Range};
use super::spans::Place;
use super::stack::Stack;
use crate::percpu::{Kind, Zeroed};
use crate::sys::try_lock::TryLock;

/// Bytes that the limits of a core's stacks add up to, at most, beyond what they begin with.
const BUDGET: usize = 5 << 18;

const R: Ordering = Ordering::Relaxed;

/// What a core has.
#[repr(C)]
pub(super) struct CoreCache {
    pub(super) stacks: [Stack; KINDS],
    /// Of a shared slot.
    pub(super) lock: TryLock,
    /// Bytes of the budget that are used up, about.
    spent: AtomicU64,
    /// The class whose limit was looked at last, for another one's sake.
    turn: AtomicU8,
    /// What a look at the stacks told the last time.
    seen: AtomicU64,
    /// Whether a stack was empty since it last was full.
    pub(super) was_empty: [AtomicU8; KINDS],
    /// What the slot's threads did, class by class.
    pub(super) counts: [Counts; KINDS],
}

// SAFETY: numbers, and a lock that is free.
unsafe impl Zeroed for CoreCache {
    const KIND: Kind = Kind::Opaque;
}

/// What a stack may hold to begin with.
fn first_limit(shape: &Shape) -> usize {
    2 * shape.batch
}

/// How often something was done with a class in a slot, at least: what two threads count at once may be counted
/// as one, but in a process that watches.
#[repr(C)]
pub(super) struct Counts {
    /// Objects that were asked for, in a process that watches, and those that are [left](CoreCache::left).
    pub(super) popped: AtomicU64,
    /// Objects that were given back, in a process that checks.
    pub(super) pushed: AtomicU64,
    /// Batches that came from the store, and went there.
    pub(super) refills: AtomicU64,
    pub(super) spills: AtomicU64,
}

/// What was counted in slots whose pages went back to the kernel.
pub(super) static COUNTED: [Counts; KINDS] = [const { Counts::new() }; KINDS];

impl Counts {
    const fn new() -> Counts {
        Counts {
            popped: AtomicU64::new(0),
            pushed: AtomicU64::new(0),
            refills: AtomicU64::new(0),
            spills: AtomicU64::new(0),
        }
    }

    pub(super) fn all(&self) -> [&AtomicU64; 4] {
        [&self.popped, &self.pushed, &self.refills, &self.spills]
    }
}

/// One more, on a cold path of a thread that has nobody beside it in the slot as a rule.
pub(super) fn count(what: &AtomicU64) {
    what.store(what.load(R).wrapping_add(1), R);
}

impl CoreCache {
    /// How many objects of a class go out until one is looked at, that one included; 0 if nobody has said so yet. Only
    /// in a process that counts: see `instrumented.rs`.
    pub(super) fn left(&self, class: usize) -> &AtomicU64 {
        &self.stacks[class - 1].left_of_next
    }

    /// Raises the limit of a stack: a first time, and once each time that it was empty before it was full.
    pub(super) fn grow(&self, place: Place) -> bool {
        let (stack, shape) = (&self.stacks[place.class], place.shape());
        let limit = stack.limit.load(R) as usize;
        let was_empty = self.was_empty[place.class].swap(0, R) != 0;
        if limit >= shape.most || limit > 0 && !was_empty {
            return false;
        }
        let next = match limit {
            0 => first_limit(shape),
            limit => limit + shape.batch,
        };
        let next = next.min(shape.most);
        let more = (next - limit) * shape.size;
        if limit > 0 {
            let spent = self.spent.load(R) as usize;
            let over = (spent + more).saturating_sub(BUDGET);
            let taken = if over > 0 { self.take_limits(place.class, over) } else { 0 };
            if taken < over {
                self.spent.store(spent.saturating_sub(taken) as u64, R);
                return false;
            }
            self.spent.store((spent + more).saturating_sub(taken) as u64, R);
        }
        stack.limit.store(next as u64, R);
        true
    }

    /// Items of a class to move between its stack and the store at once: a quarter of what there is room for, when that
    /// has become more than there was to begin with.
    pub(super) fn batch(&self, place: Place) -> usize {
        let limit = self.stacks[place.class].limit.load(R) as usize;
        (limit / 4).clamp(place.shape().batch, MOST_BATCH)
    }

    /// Halves what other stacks may hold beyond what they began with, in turns, until there are so many bytes; how
    /// many there are. Who needs it gets it back likewise.
    fn take_limits(&self, except: usize, wanted: usize) -> usize {
        let mut taken = 0;
        for _ in 0..CLASSES {
            let class = self.turn.load(R) as usize % CLASSES + 1;
            self.turn.store(class as u8, R);
            let (limit, shape) = (&self.stacks[class].limit, class::shape(class));
            let (now, least) = (limit.load(R) as usize, first_limit(shape).min(shape.most));
            if class != except && now > least {
                let next = least.max(now / 2);
                limit.store(next as u64, R);
                taken += (now - next) * shape.size;
            }
            if taken >= wanted {
                break;
            }
        }
        taken
    }

    /// Takes everything out; how many objects.
    pub(super) fn empty(&self, range: Range) -> usize {
        let mut objects = 0;
        for place in (1..=CLASSES).map(|class| Place::new(range, class)) {
            let stack = &self.stacks[place.class];
            loop {
                let mut batch = [0; MOST_BATCH];
                let popped = core::iter::from_fn(|| stack.pop());
                let n = batch.iter_mut().zip(popped).map(|(to, object)| *to = object).count();
                if n == 0 {
                    break;
                }
                central::give(place, &batch[..n]);
                objects += n;
            }
            stack.limit.store(0, R);
        }
        self.spent.store(0, R);
        objects
    }

    /// Adds what was counted here to [`COUNTED`].
    pub(super) fn leave_counts(&self) {
        for (class, sum) in COUNTED.iter().enumerate().skip(1) {
            let pairs = self.counts[class].all().into_iter().zip(sum.all());
            pairs.for_each(|(count, sum)| _ = sum.fetch_add(count.swap(0, R), R));
            sum.popped.fetch_sub(self.left(class).swap(0, R), R);
        }
    }

    /// What was counted of a class: asked for, given back, batches that came and went.
    pub(super) fn counts_of(&self, class: usize) -> [u64; 4] {
        let [popped, others @ ..] = self.counts[class].all().map(|count| count.load(R));
        let [pushed, refills, spills] = others;
        [popped.wrapping_sub(self.left(class).load(R)), pushed, refills, spills]
    }

    /// Whether it has anything, and nothing has changed since the last look, as far as counts tell.
    pub(super) fn rests(&self) -> bool {
        let counts = self.stacks.iter().map(|stack| stack.count.load(R));
        let look = counts.fold(0u64, |look, count| look.wrapping_mul(31).wrapping_add(count));
        if look == 0 {
            // Without a store where there was none: the slot may be one that nothing may write to (`core_cache_memory.rs`).
            if self.seen.load(R) != 0 {
                self.seen.store(0, R);
            }
            return false;
        }
        self.seen.swap(look, R) == look
    }

    /// Bytes in the stacks.
    pub(super) fn bytes(&self) -> usize {
        let stacks = self.stacks.iter().enumerate().skip(1).take(CLASSES);
        stacks.map(|(class, stack)| stack.count.load(R) as usize * class::shape(class).size).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::pages;

    /// A core_cache that no core has.
    fn core_cache() -> &'static CoreCache {
        let at = pages::map(size_of::<CoreCache>()).unwrap().cast::<CoreCache>();
        // SAFETY: zeroed pages, which are never unmapped.
        unsafe { &*at }
    }

    fn limit(core_cache: &CoreCache, class: usize) -> usize {
        core_cache.stacks[class].limit.load(R) as usize
    }

    /// Grows a class's stack as far as it goes, as if it came to both ends again and again.
    fn grow_all(core_cache: &CoreCache, class: usize) {
        let place = Place::new(Range::make().unwrap(), class);
        loop {
            core_cache.was_empty[class].store(1, R);
            if !core_cache.grow(place) {
                break;
            }
        }
    }

    #[test]
    fn limits_grow_within_the_budget_and_move_to_who_needs_them() {
        let core_cache = core_cache();
        let beyond = |class: usize| {
            let shape = class::shape(class);
            limit(core_cache, class).saturating_sub(first_limit(shape)) * shape.size
        };
        let all = || (1..=CLASSES).map(beyond).sum::<usize>();
        // More than the budget has room for.
        for class in 1..=CLASSES {
            grow_all(core_cache, class);
            assert!(
                limit(core_cache, class)
                    >= first_limit(class::shape(class)).min(class::shape(class).most)
            );
        }
        assert!(all() <= BUDGET, "{}", all());
        assert_eq!(all(), core_cache.spent.load(R) as usize);
        // The last ones are not left with what others have not used.
        let class = class::of_size(128).unwrap();
        grow_all(core_cache, class);
        assert_eq!(limit(core_cache, class), class::shape(class).most);
        assert!(all() <= BUDGET && all() == core_cache.spent.load(R) as usize);
        // Once full without having been empty in between, it stays as it is.
        let other = class::of_size(256).unwrap();
        core_cache.was_empty[other].store(0, R);
        assert!(!core_cache.grow(Place::new(Range::make().unwrap(), other)));
    }
}
