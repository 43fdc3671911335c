//! The slabs of all cores: emptied, and counted.
//!
//! Invariant: a slot of an id is emptied while it is frozen, a shared one under its lock.

use core::sync::atomic::Ordering;

use super::core_cache::{COUNTED, Slab};
use super::front::{block, slots};
use super::page_release;
use super::range::Range;
use crate::cid::{self, Cid};
use crate::percpu::Block;
use crate::rseq::Slots;

const R: Ordering = Ordering::Relaxed;

/// Empties the stacks of cores; `only_resting`: of those alone that nobody seems to have used since the last
/// time. How many objects went to the store.
#[cold]
pub(super) fn drain(range: Range, only_resting: bool) -> usize {
    let Some(block) = block() else { return 0 };
    let is_wanted = |slab: &Slab| !only_resting && slab.bytes() > 0 || only_resting && slab.rests();
    let mut objects = 0;
    for slot in 0..cid::high_water::<Cid>() {
        let slab = block.slot(slot);
        if is_wanted(slab) {
            // Nobody is in it until the end of this block; the id goes on in another one.
            if let Ok(_frozen) = cid::freeze(slot) {
                objects += slab.empty(range);
                slab.leave_counts();
                let at = (&raw const *slab).cast_mut().cast();
                // SAFETY: the block's slot, whole pages of it, used by nobody; what it holds now is as good as
                // zeros. Refused, the pages stay.
                unsafe { page_release::give_back(at, Block::<Slab>::len()) };
            }
        }
    }
    for slot in 0..opened_shared() {
        let slab = block.shared(slot);
        if is_wanted(slab) {
            if let Some(_locked) = slab.lock.try_lock() {
                objects += slab.empty(range);
            }
        }
    }
    objects
}

/// Shared slots below this one may have been used.
fn opened_shared() -> u32 {
    slots().map_or(0, Slots::opened_shared)
}

/// The slabs of all cores, and the shared ones.
fn slabs() -> impl Iterator<Item = &'static Slab> {
    block().into_iter().flat_map(|block| {
        let own = (0..cid::high_water::<Cid>()).map(move |slot| block.slot(slot));
        own.chain((0..opened_shared()).map(move |slot| block.shared(slot)))
    })
}

/// Bytes that the cores have in their stacks, core by core, the shared slots behind them.
pub(super) fn cached() -> impl Iterator<Item = usize> {
    slabs().map(Slab::bytes)
}

/// Objects of a class in the stacks of all cores.
pub(super) fn cached_of(class: usize) -> usize {
    slabs().map(|slab| slab.stacks[class].count.load(R) as usize).sum()
}

/// What was done with a class on all cores: see [`COUNTED`].
pub(super) fn counts_of(class: usize) -> [u64; 4] {
    let gone = COUNTED[class].all().map(|count| count.load(R));
    slabs()
        .map(|slab| slab.counts_of(class))
        .fold(gone, |sum, counts| core::array::from_fn(|nth| sum[nth].wrapping_add(counts[nth])))
}
