//! Operations on the caches of all cores: drain and count.
//!
//! Invariant: an id's slot is drained while it is frozen, a shared slot under its lock.

use core::sync::atomic::Ordering;

use super::slots::{block, slots};
use super::{COUNTED, CoreCache};
use crate::alloc::layout::range::Range;
use crate::alloc::page_heap;
use crate::cid::{self, Cid};
use crate::percpu::Block;
use crate::rseq::Slots;

const R: Ordering = Ordering::Relaxed;

/// Moves the objects of all caches to the middle end, and returns how many. With `only_resting`, only those of caches
/// that have not been used since the last call.
#[cold]
pub(in crate::alloc) fn drain(range: Range, only_resting: bool) -> usize {
    let Some(block) = block() else { return 0 };
    let is_wanted = |core_cache: &CoreCache| {
        !only_resting && core_cache.bytes() > 0 || only_resting && core_cache.rests()
    };
    let mut objects = 0;
    for slot in 0..cid::high_water::<Cid>() {
        let core_cache = block.slot(slot);
        if is_wanted(core_cache) {
            // The slot is frozen to the end of this block; its id continues in another slot.
            if let Ok(_frozen) = cid::freeze(slot) {
                objects += core_cache.empty(range);
                core_cache.leave_counts();
                let at = (&raw const *core_cache).cast_mut().cast();
                // SAFETY: whole pages of a frozen slot. Its content is as good as zeros now, and zeros are an empty
                // cache. If the kernel refuses, the pages stay.
                unsafe { page_heap::give_back(at, Block::<CoreCache>::len()) };
            }
        }
    }
    for slot in 0..opened_shared() {
        let core_cache = block.shared(slot);
        if is_wanted(core_cache) {
            if let Some(_locked) = core_cache.lock.try_lock() {
                objects += core_cache.empty(range);
            }
        }
    }
    objects
}

/// Returns the number of shared slots that may have been used.
fn opened_shared() -> u32 {
    slots().map_or(0, Slots::opened_shared)
}

/// Returns the caches of all cores, then the shared ones.
fn core_caches() -> impl Iterator<Item = &'static CoreCache> {
    block().into_iter().flat_map(|block| {
        let own = (0..cid::high_water::<Cid>()).map(move |slot| block.slot(slot));
        own.chain((0..opened_shared()).map(move |slot| block.shared(slot)))
    })
}

/// Returns the bytes in each core's cache, then in each shared one.
pub(in crate::alloc) fn cached() -> impl Iterator<Item = usize> {
    core_caches().map(CoreCache::bytes)
}

/// Returns the objects of a class in all caches.
pub(in crate::alloc) fn cached_of(class: usize) -> usize {
    core_caches().map(|core_cache| core_cache.stacks[class].count.load(R) as usize).sum()
}

/// Returns the counts of a class in all caches: see [`COUNTED`].
pub(in crate::alloc) fn counts_of(class: usize) -> [u64; 4] {
    let gone = COUNTED[class].all().map(|count| count.load(R));
    core_caches()
        .map(|core_cache| core_cache.counts_of(class))
        .fold(gone, |sum, counts| core::array::from_fn(|nth| sum[nth].wrapping_add(counts[nth])))
}
