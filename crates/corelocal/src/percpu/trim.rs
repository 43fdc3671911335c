//! Memory use of the containers, and how a process that uses fewer cores than before gives memory back.
//!
//! # Data flow
//! `trim` freezes every slot that a process on this thread's cpus does not need; their ids get lower slots. The
//! values of sums and maxima in the frozen slots are moved to the first shared slot, which readers read anyway. The
//! remains of an emptied stack are wiped. Pages that are all zero then go back to the kernel.
//!
//! # Invariants
//! 1. Only the thread that froze a slot uses it (`cid/frozen.rs`), and a pinned block is not reused (`machinery/region.rs`). So
//!    a word that is moved belongs to its container before and after.
//! 2. A value is in its slot or in the shared one. During the move it is in neither, never in both. A reader at that
//!    moment sees less, not more, and `machinery/in_transit.rs` tells it to read again.
//! 3. Only one trim runs at a time: a second one fails. A child that was forked in the middle of one completes it
//!    with its next: it takes over the lock of the gone thread, and its pin and its frozen slots.

use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, Ordering};

use super::machinery::in_transit::while_in_transit;
use super::machinery::region::{self, Region, zero};
use super::machinery::slot::Kind;
use crate::cid::{self, Busy, Cid, NodeCid, SlotIndex};
use crate::sys::memory::page_size::page_size;
use crate::sys::memory::pages;
use crate::sys::try_lock::TryLock;

/// The memory use of this process's containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Memory {
    /// The number of mappings.
    pub regions: usize,
    /// Bytes of address space. Pages are resident only where a core has written.
    pub reserved: usize,
    /// Resident bytes.
    pub resident: usize,
    /// The number of containers that have memory.
    pub blocks: usize,
    /// The bytes of these on each core that uses all of them.
    pub per_core: usize,
    /// The part of the resident bytes that is under slots that go by node ([`NodeCid`]), for each node that it lies
    /// on. The last number is for node 15 and all after it. 0 where the kernel does not say.
    pub on_nodes: [usize; NODES],
    /// The number of mappings by node in which the kernel refused to place pages on the node of their first use
    /// (`mbind(2)` is filtered): they follow the process's memory policy.
    pub displaced: usize,
}

const NODES: usize = 16;

/// Returns the memory use of this process's containers. Asks the kernel about each page of their address space
/// (`mincore(2)`, milliseconds on a large machine). Does not allocate.
///
/// ```
/// use corelocal::percpu::{self, Counter};
///
/// let hits: Counter = Counter::new();
/// hits.add(1);
/// assert!(percpu::memory().resident > 0);
/// ```
///
/// [Areas](super::Area) are not included; they report their own.
pub fn memory() -> Memory {
    of_regions(region::all())
}

/// Returns the memory use of these regions.
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

/// Gives back the memory of cores that this process no longer uses. Returns the number of bytes.
///
/// Call it now and then in a process that was confined to fewer cpus, or has fewer threads than before. All slots
/// beyond the number of cpus that the calling thread may use are taken from their ids, which get lower ones; where
/// slots go by node, this number applies to each node. ([`crate::cid::freeze`] says what that costs.) Values in those
/// slots are moved; items of containers stay. No operation of another thread waits meanwhile. A thread that reads a
/// sum during a move reads again. A signal handler that interrupts the trim itself does not, and may miss the value
/// that is being moved.
///
/// Linear in the blocks and slots of all containers. Not for signal handlers, and not in two threads at a time. A
/// child forked in the middle of it may lack the value that was being moved, and the memory of a container that it
/// drops before its own first trim.
///
/// # Errors
/// [`Busy`]: another trim is running, or `membarrier(2)` is refused.
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

/// Does what [`trim`] does of the slots from `first` on, and from `first_by_node` on where they go by node.
fn trim_from(first: u32, first_by_node: u32) -> Result<usize, Busy> {
    static ALONE: TryLock = TryLock::new();
    let alone = ALONE.try_lock().ok_or(Busy::Frozen)?;
    if alone.recovered {
        unpin_left();
    }
    Ok(trim_of::<Cid>(first)? + trim_of::<NodeCid>(first_by_node)?)
}

/// Does what [`trim`] does of the slots of one kind. One thread at a time (invariant 3).
fn trim_of<I: SlotIndex>(first: u32) -> Result<usize, Busy> {
    let frozen = cid::freeze_from::<I>(first)?;
    let is_of_slots = |region: &&Region| {
        region.class().by_node == I::BY_NODE && region.class().kind != Kind::Fixed
    };
    let given_back = region::all()
        .filter(is_of_slots)
        .flat_map(|region| frozen.slots().map(move |slot| (region, slot)))
        // SAFETY: this thread has the slot frozen, in every region except the fixed ones (invariant 1).
        .map(|(region, slot)| unsafe { give_back(region, slot) })
        .sum();
    Ok(given_back)
}

/// The block that is pinned, or about to be: its region and its number.
static PINNED: (AtomicPtr<Region>, AtomicU64) =
    (AtomicPtr::new(core::ptr::null_mut()), AtomicU64::new(0));

/// Runs `f` while a block is pinned. Does nothing if the block is free. One thread at a time (invariant 3).
fn with_pinned(region: &Region, number: usize, f: impl FnOnce()) {
    // Relaxed: only a forked child reads them, where `pin` comes after these stores and `unpin` before the next ones.
    // A mixture of two pins names a block that is not pinned.
    PINNED.1.store(number as u64, Ordering::Relaxed);
    PINNED.0.store((&raw const *region).cast_mut(), Ordering::Relaxed);
    if region.pin(number) {
        f();
        region.unpin(number);
    }
}

/// Ends the pin of a trim whose thread a fork left behind.
fn unpin_left() {
    // SAFETY: null, or a region, which is never unmapped.
    if let Some(region) = unsafe { PINNED.0.load(Ordering::Relaxed).as_ref() } {
        region.unpin_left(PINNED.1.load(Ordering::Relaxed) as usize);
    }
}

/// Empties a slot of a region as far as possible, and gives back its empty pages.
///
/// # Safety
/// - The caller has the slot frozen.
unsafe fn give_back(region: &Region, slot: u32) -> usize {
    let start = region.slot(slot);
    let mut bytes = 0;
    pages::for_each_resident(start, region::SLOT_LEN, |page| {
        let first = (page as usize - start as usize) / region.block_len();
        let blocks = (page_size() / region.block_len()).max(1);
        // A block longer than a page is pinned once for each of its pages; there are few.
        for number in first..first + blocks {
            // SAFETY: the caller has the slot frozen, and the block is pinned.
            with_pinned(region, number, || unsafe { empty(region, slot, number, page) });
        }
        // SAFETY: a resident page in a slot that the caller has frozen.
        bytes += unsafe { give_back_page(page) };
    });
    bytes
}

/// Gives back the pages of a region's slot that are all zero, and leaves the others as they are.
///
/// # Safety
/// - The caller has the slot frozen.
pub(super) unsafe fn give_back_clear(region: &Region, slot: u32) -> usize {
    let mut bytes = 0;
    pages::for_each_resident(region.slot(slot), region::SLOT_LEN, |page| {
        // SAFETY: a resident page in a slot that the caller has frozen.
        bytes += unsafe { give_back_page(page) };
    });
    bytes
}

/// Gives a page back if it is all zero. Returns the number of bytes.
///
/// # Safety
/// - It is a resident page of a region, in a slot that the caller has frozen.
unsafe fn give_back_page(page: *mut u8) -> usize {
    // SAFETY: the caller guarantees a resident page in a frozen slot.
    let words = unsafe { core::slice::from_raw_parts(page.cast::<AtomicU64>(), page_size() / 8) };
    let is_clear = words.iter().all(|word| word.load(Ordering::Relaxed) == 0);
    // SAFETY: the page is all zero, and no section writes to it, since the slot is frozen. A container that is
    // dropped meanwhile writes zeros only.
    if is_clear && unsafe { pages::advise(page, page_size(), libc::MADV_DONTNEED) }.is_ok() {
        return page_size();
    }
    0
}

/// Moves or wipes the part of a block in a slot that lies on a page.
///
/// # Safety
/// - The caller has the slot frozen and the block pinned.
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
            // Acquire: partner is the Release of an owner that is being dropped, which reads its items before it
            // stores 0.
            if count.load(Ordering::Acquire) == 0 {
                // SAFETY: the block's bytes on this page, in a slot that no other thread uses.
                unsafe { zero(shard, len, Kind::Counted) };
            }
        }
        kind @ (Kind::Sums | Kind::Maxima) => {
            let shared = region.shared(0).wrapping_add(shard as usize - region.slot(slot) as usize);
            for word in (0..len).step_by(8) {
                // SAFETY: words of the block in a slot that no other thread uses, and in the shared slot, which is
                // used by atomics only.
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
        // A maximum may be in both places. Release: a reader that finds it gone here finds it there.
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
mod tests;
