//! What a cell that nobody has is filled with, so that whoever writes to it all the same is found out.
//!
//! Invariant: between `fill` and `clear` every piece of a free cell, up to a page long, is all 0 (nobody
//! had changed it, and it may have no page) or all [`PATTERN`].

use core::sync::atomic::Ordering;

use crate::cid;
use crate::percpu::region;
use crate::percpu::slot::Kind;
use crate::primitive::atomic::AtomicU64;
use crate::rseq::{SLOT_SHIFT, offset};
use crate::sys::page_size::SHORTEST_PAGE;

/// Looks like no pointer and no small number. librseq's, too.
const PATTERN: u64 = 0x5555_5555_5555_5555;

/// Fills what was used of a cell in one slot.
///
/// # Safety
/// As [`region::Wipe`].
pub(super) unsafe fn fill(at: *mut u8, len: usize, _: Kind) {
    // SAFETY: the caller's promise.
    for piece in unsafe { pieces(at, len) } {
        if piece.iter().any(|word| word.load(Ordering::Relaxed) != 0) {
            piece.iter().for_each(|word| word.store(PATTERN, Ordering::Relaxed));
        }
    }
}

/// Makes a cell that was just taken 0 in all slots below `used`; false if somebody wrote to it, which is left as it is.
///
/// # Safety
/// `base` is that of a block of this length that the caller has allocated.
pub(super) unsafe fn clear(base: *mut u8, len: usize, used: u32) -> bool {
    let slots = (0..used).map(|slot| offset(slot) as usize);
    let shared = (0..cid::shared_capacity()).map(|slot| (slot as usize) << SLOT_SHIFT);
    let places = slots.chain(shared).map(|distance| base.wrapping_add(distance));
    // SAFETY: the block's bytes in a slot that every region has; the caller's promise.
    let is_intact = |at: *mut u8| unsafe { pieces(at, len) }.all(is_intact);
    if !places.clone().all(is_intact) {
        return false;
    }
    for at in places {
        // SAFETY: likewise. Words that may be looked at, as those of sums may.
        unsafe { region::zero(at, len, Kind::Sums) };
    }
    true
}

fn is_intact(piece: &[AtomicU64]) -> bool {
    let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
    let first = piece.first().map_or(0, word);
    [0, PATTERN].contains(&first) && piece.iter().map(word).all(|word| word == first)
}

/// A cell in one slot, in pieces of a page at most.
///
/// # Safety
/// The bytes are those of one block in one slot, and the caller's as long as the result is used.
unsafe fn pieces<'a>(at: *mut u8, len: usize) -> impl Iterator<Item = &'a [AtomicU64]> {
    // SAFETY: the caller's promise; blocks are aligned to their length, at least a word.
    unsafe { core::slice::from_raw_parts(at.cast::<AtomicU64>(), len / 8) }
        .chunks(SHORTEST_PAGE / 8)
}
