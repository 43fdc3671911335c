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
//!    that moment sees less, not more, and `moving.rs` tells it to look again.
//! 3. Two trims never meet: the second one is told so.

use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::moving::moving;
use super::region::{self, PAGE, Region, zero};
use super::slot::Kind;
use crate::cid::{self, Busy};
use crate::primitive::global::AtomicU32;
use crate::sys::pages;

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
}

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
pub fn memory() -> Memory {
    region::all().fold(Memory::default(), |sum, region| {
        let taken = region.taken();
        let mut resident = 0;
        pages::for_each_resident(region.start(), region.len(), |_| resident += PAGE);
        Memory {
            regions: sum.regions + 1,
            reserved: sum.reserved + region.len(),
            resident: sum.resident + resident,
            blocks: sum.blocks + taken,
            per_core: sum.per_core + taken * region.block_len(),
        }
    })
}

/// Gives back the memory of cores that this process uses no longer, and returns how many bytes.
///
/// A process that was confined to fewer cpus, or has fewer threads than it had, calls it now and then. All
/// slots beyond the number of cpus that the calling thread may use are taken from their ids, which get
/// lower ones ([`crate::cid::freeze`] has what that costs); what is left in them moves, or stays if it
/// is items of a container. No operation of another thread waits meanwhile. A sum that is read at the
/// very moment may lack what is on the move; the next one has it.
///
/// Linear in the blocks and slots of all containers. Not for signal handlers, and not in two threads at
/// a time. A child forked in the middle of it may lack what was on the move.
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
    trim_from(cid::spare())
}

/// [`trim`] of the slots from `first` on.
fn trim_from(first: u32) -> Result<usize, Busy> {
    static BUSY: AtomicU32 = AtomicU32::new(0);
    // Acquire and Release: each other's partners; one trim after the other.
    if BUSY.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return Err(Busy::Frozen);
    }
    let frozen = cid::freeze_from(first);
    let given_back = frozen.map(|frozen| {
        let compact = region::all().filter(|region| region.kind() != Kind::Fixed);
        compact
            .flat_map(|region| frozen.slots().map(move |slot| (region, slot)))
            // SAFETY: frozen by us, in every region but the fixed ones (invariant 1).
            .map(|(region, slot)| unsafe { give_back(region, slot) })
            .sum()
    });
    BUSY.store(0, Ordering::Release);
    given_back
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
        let blocks = (PAGE / region.block_len()).max(1);
        // A block longer than a page is pinned once for each of its pages; there are few.
        let pinned = |number: &usize| region.pin(*number);
        for number in (first..first + blocks).filter(pinned) {
            // SAFETY: the caller's promise; pinned.
            unsafe { empty(region, slot, number, page) };
            region.unpin(number);
        }
        // SAFETY: a resident page of the region.
        let words = unsafe { core::slice::from_raw_parts(page.cast::<AtomicU64>(), PAGE / 8) };
        let is_clear = words.iter().all(|word| word.load(Ordering::Relaxed) == 0);
        // SAFETY: all zero, and nobody writes to it: the slot is frozen. A container that is dropped
        // meanwhile writes zeros at most.
        if is_clear && unsafe { pages::advise(page, PAGE, libc::MADV_DONTNEED) }.is_ok() {
            bytes += PAGE;
        }
    });
    bytes
}

/// Moves or wipes what a block has in a slot and on a page.
///
/// # Safety
/// The slot is frozen and the block pinned by the caller.
unsafe fn empty(region: &Region, slot: u32, number: usize, page: *mut u8) {
    let at = number * region.block_len();
    let block = region.slot(slot).wrapping_add(at);
    let len = region.block_len().min(PAGE);
    let part = if region.block_len() > PAGE { page } else { block };
    match region.kind() {
        Kind::Opaque | Kind::Fixed => {}
        Kind::Counted => {
            // SAFETY: the block's first word.
            let count = unsafe { &*block.cast::<AtomicU64>() };
            // Acquire: partner is the Release of an owner that is dropped just now, and has read its
            // items before it says that there are none.
            if count.load(Ordering::Acquire) == 0 {
                // SAFETY: what is on this page of a block in a slot that nobody else uses.
                unsafe { zero(part, len, Kind::Counted) };
            }
        }
        kind @ (Kind::Sums | Kind::Maxima) => {
            let shared = region.shared(0).wrapping_add(part as usize - region.slot(slot) as usize);
            for word in (0..len).step_by(8) {
                // SAFETY: words of the block in a slot that nobody else uses, and in the shared slot,
                // which is used by atomics alone.
                let (from, to) = unsafe {
                    (&*part.add(word).cast::<AtomicI64>(), &*shared.add(word).cast::<AtomicI64>())
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
    moving(|| {
        from.store(0, Ordering::Release);
        to.fetch_add(value, Ordering::Release);
    });
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::percpu::{Counter, CounterVec, Max};
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
        for round in 1..=20 {
            counter.add(5);
            max.record(7 * round);
            many.iter().for_each(|counter| counter.add(1));
            assert!(line.add(3, 2).is_ok());
            // Refused without membarrier, and while another test does the same.
            let _ = trim_from(0);
            assert_eq!(counter.get(), 5 * round as i64);
            assert_eq!(max.get(), Some(7 * round));
            assert!(many.iter().all(|counter| counter.get() == round as i64));
            assert_eq!(line.get(3), Ok(2 * round as i64));
        }
        assert_eq!(counter.take(), 100);
    }

    #[test]
    fn counts_among_trims_are_exact() {
        let _alone = alone();
        static COUNTER: Counter = Counter::new();
        static TAKEN: AtomicI64 = AtomicI64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50_000).for_each(|_| COUNTER.add(1)));
            }
            scope.spawn(|| {
                for _ in 0..200 {
                    TAKEN.fetch_add(COUNTER.take(), Ordering::Relaxed);
                }
            });
            for _ in 0..200 {
                let _ = trim_from(0);
            }
        });
        assert_eq!(COUNTER.get() + TAKEN.load(Ordering::Relaxed), 200_000);
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
        if let Ok(bytes) = trim_from(0) {
            assert!(cid::policy() == cid::Policy::Lease || bytes >= 50 * 4096, "{bytes}");
        }
        assert!(vectors.iter().all(|counters| (0..512).all(|i| counters.get(i) == Ok(1))));
    }
}
