//! What the containers' memory is, and how a process that uses fewer cores than it did gives it back.
//!
//! # Data's way
//! `trim` freezes every slot that a process on this thread's cpus can do without: their ids get lower
//! slots. What is left in the frozen slots of sums and maxima goes to the first shared slot, where
//! readers look anyway; an emptied stack's leftovers are wiped. Pages that are all zero then go back to
//! the kernel.
//!
//! # Invariants
//! 1. A frozen slot is used by its freezer alone (`cid/frozen.rs`), a pinned block is not reused
//!    (`region.rs`). So a word that is moved was its container's before and after.
//! 2. A value is in its slot or in the shared one. In between it is in neither, never in both: a reader at
//!    that moment sees less, not more, and `in_transit.rs` tells it to look again.
//! 3. Two trims never meet: the second one is told so. A child that was forked in the middle of one ends
//!    it with its next: it takes the lock from the thread that is gone, and its pin and its frozen slots.

use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, Ordering};

use super::in_transit::while_in_transit;
use super::region::{self, Region, zero};
use super::slot::Kind;
use crate::cid::{self, Busy, Cid, NodeCid, SlotIndex};
use crate::sys::page_size::page_size;
use crate::sys::pages;
use crate::sys::try_lock::TryLock;

/// How much memory the containers of this process have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Memory {
    /// Mappings made.
    pub regions: usize,
    /// Bytes of address space. No more than that: pages exist where a core has written.
    pub reserved: usize,
    /// Bytes that are resident.
    pub resident: usize,
    /// Containers that have memory.
    pub blocks: usize,
    /// Bytes that these take on each core that uses all of them.
    pub per_core: usize,
    /// Of the resident bytes, those under slots that go by node ([`NodeCid`]), by the node that they lie on;
    /// the last number is that of node 15 and all after it. 0 where the kernel does not say.
    pub on_nodes: [usize; NODES],
    /// Mappings by node in which the kernel refused to place pages on the node of their first use
    /// (`mbind(2)`, behind a filter): they follow the process's memory policy.
    pub displaced: usize,
}

const NODES: usize = 16;

/// How much memory the containers of this process have now. Asks the kernel about each page of their
/// address space (`mincore(2)`, milliseconds for a large machine); no allocation.
///
/// ```
/// use corelocal::percpu::{self, Counter};
///
/// let hits: Counter = Counter::new();
/// hits.add(1);
/// assert!(percpu::memory().resident > 0);
/// ```
///
/// Without [areas](super::Area), which tell their own.
pub fn memory() -> Memory {
    of_regions(region::all())
}

/// How much memory these regions are.
pub(super) fn of_regions<'a>(regions: impl Iterator<Item = &'a Region>) -> Memory {
    regions.fold(Memory::default(), |mut sum, region| {
        let taken = region.taken();
        sum.regions += 1;
        sum.reserved += region.len();
        sum.blocks += taken;
        sum.per_core += taken * region.block_len();
        sum.displaced += usize::from(region.is_displaced());
        pages::for_each_resident(region.start(), region.len(), |_| sum.resident += page_size());
        if region.class().by_node {
            for slot in 0..cid::high_water::<NodeCid>() {
                pages::for_each_placed(region.slot(slot), region::SLOT_LEN, |node| {
                    sum.on_nodes[(node as usize).min(NODES - 1)] += page_size();
                });
            }
        }
        sum
    })
}

/// Gives back the memory of cores that this process uses no longer, and returns how many bytes.
///
/// A process that was confined to fewer cpus, or has fewer threads than it had, calls it now and then. All
/// slots beyond the number of cpus that the calling thread may use (so many on each node, where slots go by
/// node) are taken from their ids, which get lower ones ([`crate::cid::freeze`] has what that costs); what is left in them moves, or stays if it
/// is items of a container. No operation of another thread waits meanwhile. Who reads a sum
/// at the very moment looks again until nothing is on the move; a signal handler that interrupts the trim
/// itself does not, and may miss what is.
///
/// Linear in the blocks and slots of all containers. Not for signal handlers, and not in two threads at
/// a time. A child forked in the middle of it may lack what was on the move, and the memory of a
/// container that it drops before its own first trim.
///
/// # Errors
/// [`Busy`]: another trim is under way, or `membarrier(2)` is refused.
///
/// ```
/// use corelocal::percpu;
///
/// match percpu::trim() {
///     Ok(bytes) => println!("{bytes} bytes given back"),
///     Err(busy) => println!("not now: {busy}"),
/// }
/// ```
pub fn trim() -> Result<usize, Busy> {
    trim_from(cid::spare::<Cid>(), cid::spare::<NodeCid>())
}

/// [`trim`] of the slots from `first` on, and of those from `first_by_node` on where they go by node.
fn trim_from(first: u32, first_by_node: u32) -> Result<usize, Busy> {
    static ALONE: TryLock = TryLock::new();
    let alone = ALONE.try_lock().ok_or(Busy::Frozen)?;
    if alone.recovered {
        unpin_left();
    }
    Ok(trim_of::<Cid>(first)? + trim_of::<NodeCid>(first_by_node)?)
}

/// [`trim`] of the slots of a kind. One at a time (invariant 3).
fn trim_of<I: SlotIndex>(first: u32) -> Result<usize, Busy> {
    let frozen = cid::freeze_from::<I>(first)?;
    let is_of_slots = |region: &&Region| {
        region.class().by_node == I::BY_NODE && region.class().kind != Kind::Fixed
    };
    let given_back = region::all()
        .filter(is_of_slots)
        .flat_map(|region| frozen.slots().map(move |slot| (region, slot)))
        // SAFETY: frozen by us, in every region but the fixed ones (invariant 1).
        .map(|(region, slot)| unsafe { give_back(region, slot) })
        .sum();
    Ok(given_back)
}

/// The block that is pinned, or about to be: its region and number.
static PINNED: (AtomicPtr<Region>, AtomicU64) =
    (AtomicPtr::new(core::ptr::null_mut()), AtomicU64::new(0));

/// Runs `f` while a block is pinned; not if it has no owner. One at a time (invariant 3).
fn with_pinned(region: &Region, number: usize, f: impl FnOnce()) {
    // Relaxed: read in a forked child alone, where `pin` comes after these and `unpin` before the next
    // ones. Halves of two pins name a block that is not pinned.
    PINNED.1.store(number as u64, Ordering::Relaxed);
    PINNED.0.store((&raw const *region).cast_mut(), Ordering::Relaxed);
    if region.pin(number) {
        f();
        region.unpin(number);
    }
}

/// Ends the pin of a trim whose thread a fork left behind.
fn unpin_left() {
    // SAFETY: null or a region, which is never unmapped.
    if let Some(region) = unsafe { PINNED.0.load(Ordering::Relaxed).as_ref() } {
        region.unpin_left(PINNED.1.load(Ordering::Relaxed) as usize);
    }
}

/// Empties a slot of a region as far as that can be done, and gives back the pages that are.
///
/// # Safety
/// The slot is frozen by the caller.
unsafe fn give_back(region: &Region, slot: u32) -> usize {
    let start = region.slot(slot);
    let mut bytes = 0;
    pages::for_each_resident(start, region::SLOT_LEN, |page| {
        let first = (page as usize - start as usize) / region.block_len();
        let blocks = (page_size() / region.block_len()).max(1);
        // A block longer than a page is pinned once for each of its pages; there are few.
        for number in first..first + blocks {
            // SAFETY: the caller's promise; pinned.
            with_pinned(region, number, || unsafe { empty(region, slot, number, page) });
        }
        // SAFETY: a resident page in a slot that is frozen by the caller.
        bytes += unsafe { give_back_page(page) };
    });
    bytes
}

/// Gives back the pages of a region's slot that are all zero, and leaves the others as they are.
///
/// # Safety
/// The slot is frozen by the caller.
pub(super) unsafe fn give_back_clear(region: &Region, slot: u32) -> usize {
    let mut bytes = 0;
    pages::for_each_resident(region.slot(slot), region::SLOT_LEN, |page| {
        // SAFETY: a resident page in a slot that is frozen by the caller.
        bytes += unsafe { give_back_page(page) };
    });
    bytes
}

/// Gives a page back if it is all zero; how many bytes that is.
///
/// # Safety
/// A resident page of a region, in a slot that is frozen by the caller.
unsafe fn give_back_page(page: *mut u8) -> usize {
    // SAFETY: the caller's promise.
    let words = unsafe { core::slice::from_raw_parts(page.cast::<AtomicU64>(), page_size() / 8) };
    let is_clear = words.iter().all(|word| word.load(Ordering::Relaxed) == 0);
    // SAFETY: all zero, and nobody writes to it: the slot is frozen. A container that is dropped
    // meanwhile writes zeros at most.
    if is_clear && unsafe { pages::advise(page, page_size(), libc::MADV_DONTNEED) }.is_ok() {
        return page_size();
    }
    0
}

/// Moves or wipes what a block has in a slot and on a page.
///
/// # Safety
/// The slot is frozen and the block pinned by the caller.
unsafe fn empty(region: &Region, slot: u32, number: usize, page: *mut u8) {
    let at = number * region.block_len();
    let block = region.slot(slot).wrapping_add(at);
    let len = region.block_len().min(page_size());
    let shard = if region.block_len() > page_size() { page } else { block };
    match region.class().kind {
        Kind::Opaque | Kind::Fixed => {}
        Kind::Counted => {
            // SAFETY: the block's first word.
            let count = unsafe { &*block.cast::<AtomicU64>() };
            // Acquire: partner is the Release of an owner that is dropped just now, and has read its
            // items before it says that there are none.
            if count.load(Ordering::Acquire) == 0 {
                // SAFETY: what is on this page of a block in a slot that nobody else uses.
                unsafe { zero(shard, len, Kind::Counted) };
            }
        }
        kind @ (Kind::Sums | Kind::Maxima) => {
            let shared = region.shared(0).wrapping_add(shard as usize - region.slot(slot) as usize);
            for word in (0..len).step_by(8) {
                // SAFETY: words of the block in a slot that nobody else uses, and in the shared slot,
                // which is used by atomics alone.
                let (from, to) = unsafe {
                    (&*shard.add(word).cast::<AtomicI64>(), &*shared.add(word).cast::<AtomicI64>())
                };
                move_word(kind, from, to);
            }
        }
    }
}

fn move_word(kind: Kind, from: &AtomicI64, to: &AtomicI64) {
    let value = from.load(Ordering::Relaxed);
    if value == 0 {
        return;
    }
    if kind == Kind::Maxima {
        // It does no harm in both places. Release: a reader that finds it gone here finds it there.
        to.fetch_max(value, Ordering::Release);
        from.store(0, Ordering::Release);
        return;
    }
    while_in_transit(|| {
        from.store(0, Ordering::Release);
        to.fetch_add(value, Ordering::Release);
    });
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::percpu::{Counter, CounterVec, Max};
    use crate::scaled::scaled;
    use std::vec::Vec;

    /// One test's trim would take another's pages.
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    fn alone() -> std::sync::MutexGuard<'static, ()> {
        ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Everything that sections hold moves, since no slot is spared, and is there all the same.
    #[test]
    fn nothing_is_lost_by_a_trim() {
        let _alone = alone();
        let (counter, max) = (Counter::<cid::Cid>::new(), Max::<cid::Cid>::new());
        let many: Vec<Counter> = (0..1000).map(|_| Counter::new()).collect();
        let line: CounterVec<16> = CounterVec::new();
        let rounds = scaled(20);
        for round in 1..=rounds {
            counter.add(5);
            max.record(7 * round);
            many.iter().for_each(|counter| counter.add(1));
            assert!(line.add(3, 2).is_ok());
            // Refused without membarrier, and while another test does the same.
            let _ = trim_from(0, 0);
            assert_eq!(counter.get(), 5 * round as i64);
            assert_eq!(max.get(), Some(7 * round));
            assert!(many.iter().all(|counter| counter.get() == round as i64));
            assert_eq!(line.get(3), Ok(2 * round as i64));
        }
        assert_eq!(counter.take(), 5 * rounds as i64);
    }

    #[test]
    fn counts_among_trims_are_exact() {
        let _alone = alone();
        static COUNTER: Counter = Counter::new();
        static TAKEN: AtomicI64 = AtomicI64::new(0);
        let (each, trims) = (scaled(50_000), scaled(200));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..each).for_each(|_| COUNTER.add(1)));
            }
            scope.spawn(|| {
                for _ in 0..trims {
                    TAKEN.fetch_add(COUNTER.take(), Ordering::Relaxed);
                }
            });
            for _ in 0..trims {
                let _ = trim_from(0, 0);
            }
        });
        assert_eq!(COUNTER.get() + TAKEN.load(Ordering::Relaxed), 4 * each as i64);
    }

    /// What moves while it is read is not missed, whoever is preempted in the middle of it.
    #[test]
    fn readers_among_trims_see_everything() {
        let _alone = alone();
        static COUNTER: Counter = Counter::new();
        static ADDED: AtomicI64 = AtomicI64::new(0);
        let all = scaled(2000) as i64;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(move || {
                    loop {
                        let added = ADDED.load(Ordering::Acquire);
                        let seen = COUNTER.get();
                        assert!(seen >= added, "{seen} of {added}");
                        if added == all {
                            break;
                        }
                    }
                });
            }
            for added in 1..=all {
                COUNTER.add(1);
                ADDED.store(added, Ordering::Release);
                let _ = trim_from(0, 0);
            }
        });
    }

    #[test]
    fn memory_comes_back() {
        let _alone = alone();
        let vectors: Vec<CounterVec<512>> = (0..100).map(|_| CounterVec::new()).collect();
        for counters in &vectors {
            (0..512).for_each(|i| assert!(counters.add(i, 1).is_ok()));
        }
        let before = memory();
        assert!(before.blocks >= 100 && before.per_core >= 100 * 4096, "{before:?}");
        assert!(before.resident >= 100 * 4096 && before.resident <= before.reserved, "{before:?}");
        if let Ok(bytes) = trim_from(0, 0) {
            assert!(cid::policy() == cid::Policy::Lease || bytes >= 50 * 4096, "{bytes}");
        }
        assert!(vectors.iter().all(|counters| (0..512).all(|i| counters.get(i) == Ok(1))));
    }
}
