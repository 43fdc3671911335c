//! The memory of all cores' caches: one slot for each possible id, writable from the id's first use on.
//!
//! ```text
//!   … │ slot 1 │ slot 0 ┃ shared 0 │ shared 1 …       as in a region of `percpu`
//!                       ┃ base
//! ```
//!
//! The kernel charges a process for writable memory, used or not: under strict overcommit (`vm.overcommit_memory=2`),
//! by `RLIMIT_DATA`, and in `VmData`. So the mapping is read-only at first, and a slot becomes writable ("open")
//! before an id gets it. Sections need no check for that: they reach a slot only through an id that has it.
//!
//! # Invariants
//! 1. If a thread can find the block (`slots.rs`), every slot that an id has, or is about to get, is open. Either the
//!    thread that assigns the slot sees `OPENER`, or the thread that makes the block sees the slot
//!    (`cid/high_water.rs`).
//! 2. A slot that is not open reads as zeros, which are an empty cache, and nothing writes to it.
//! 3. A shared slot is open before a thread takes its lock.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::CoreCache;
use crate::cid;
use crate::percpu::Block;
use crate::rseq::{SLOT_SHIFT, offset};
use crate::sys::memory::page_size::page_size;
use crate::sys::memory::{lazy_mapping, pages};
use crate::sys::thread::LEASES;

/// The base of the mapping; null until it is made, then constant.
static BASE: AtomicPtr<u8> = AtomicPtr::new(null_mut());
/// One bit for each open shared slot.
static SHARED: AtomicU64 = AtomicU64::new(0);
const _: () = assert!(LEASES <= u64::BITS);
const _: () =
    assert!(Block::<CoreCache>::len() == 1 << SLOT_SHIFT, "a core_cache has a slot for itself");

/// Makes the block, with the slots of all assigned ids open; `None` when out of memory.
#[cold]
pub(in crate::alloc) fn make() -> Option<Block<CoreCache>> {
    let base = match BASE.load(Ordering::Acquire) {
        base if base.is_null() => map()?,
        base => base,
    };
    let is_open = cid::open_slots_with(open).all(|slot| open_at(base, offset(slot) as usize));
    // SAFETY: a mapping with a zeroed `CoreCache` in each slot, which is never unmapped.
    is_open.then(|| unsafe { Block::from_base(base) }).flatten()
}

/// Maps the slots. Two threads that race get the same mapping.
fn map() -> Option<*mut u8> {
    let own = (cid::capacity() as usize) << SLOT_SHIFT;
    let len = own + ((cid::shared_capacity() as usize) << SLOT_SHIFT);
    let start = lazy_mapping::map_readable(len)?;
    // SAFETY: the mapping just made. If the kernel refuses, core dumps are larger.
    let _ = unsafe { pages::advise(start, len, libc::MADV_DONTDUMP) };
    let fresh = start.wrapping_add(own);
    // Release: partner is the Acquire here and in `open`. On failure Acquire, for the winner's mapping.
    match BASE.compare_exchange(null_mut(), fresh, Ordering::Release, Ordering::Acquire) {
        Ok(_) => Some(fresh),
        Err(winner) => {
            // SAFETY: this mapping lost the race and was never published.
            unsafe { pages::unmap(start, len) };
            Some(winner)
        }
    }
}

/// Opens a slot that an id is about to get; false when out of memory.
fn open(slot: u32) -> bool {
    // Acquire: partner is the Release in `map`.
    open_at(BASE.load(Ordering::Acquire), offset(slot) as usize)
}

/// Opens a shared slot; false when out of memory.
pub(in crate::alloc) fn open_shared(slot: u32) -> bool {
    let bit = 1 << slot;
    // Relaxed: a thread that sees the bit runs after the system call that opened the slot.
    if SHARED.load(Ordering::Relaxed) & bit != 0 {
        return true;
    }
    let base = BASE.load(Ordering::Acquire);
    let is_open = open_at(base, (slot as usize) << SLOT_SHIFT);
    if is_open {
        SHARED.fetch_or(bit, Ordering::Relaxed);
    }
    is_open
}

/// Opens the cache at this offset. Does nothing if it is open.
fn open_at(base: *mut u8, offset: usize) -> bool {
    let len = size_of::<CoreCache>().next_multiple_of(page_size());
    // SAFETY: whole pages of the mapping, whose access is only ever extended.
    unsafe { pages::open_reserved(base.wrapping_add(offset), len) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Returns `true` if the page at this address is writable.
    fn is_writable(at: usize) -> bool {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().any(|line| {
            let (range, access) = line.split_once(' ').unwrap();
            let (from, to) = range.split_once('-').unwrap();
            let [from, to] = [from, to].map(|end| usize::from_str_radix(end, 16).unwrap());
            (from..to).contains(&at) && access.starts_with("rw")
        })
    }

    #[test]
    fn slots_of_ids_are_open_and_those_of_none_are_not() {
        let block = make().expect("memory");
        assert_eq!(make().map(Block::base), Some(block.base()));
        // Other threads may get slots meanwhile; an open slot stays open.
        let given = crate::cid::high_water::<crate::cid::Cid>();
        for slot in 0..given {
            let core_cache = (&raw const *block.slot(slot)).addr();
            assert!(
                is_writable(core_cache) && is_writable(core_cache + size_of::<CoreCache>() - 1),
                "{slot}"
            );
        }
        let (last, len) = (cid::capacity(), size_of::<CoreCache>());
        let beyond = block.base().wrapping_add(offset(last - 1) as usize).addr() + len;
        assert!(!is_writable(beyond.next_multiple_of(page_size())), "{beyond:x}");
    }

    #[test]
    fn a_shared_slot_is_open_when_it_is_used() {
        let block = make().expect("memory");
        let slot = cid::shared_capacity() - 1;
        assert!(open_shared(slot) && open_shared(slot));
        let core_cache = block.shared(slot);
        assert!(is_writable((&raw const *core_cache).addr()));
        assert!(!core_cache.rests());
    }
}
