//! The fill pattern of free cells, by which writes to a dropped cell are detected.
//!
//! Invariant: between `fill` and `clear` every piece of a free cell, up to a page long, is either all 0 (it was never
//! changed, and may have no page) or all [`PATTERN`].

use core::sync::atomic::Ordering;

use crate::cid;
use crate::percpu::machinery::region;
use crate::percpu::machinery::slot::Kind;
use crate::primitive::atomic::AtomicU64;
use crate::rseq::{SLOT_SHIFT, offset};
use crate::sys::memory::page_size::SHORTEST_PAGE;

/// Unlike a pointer or a small number. librseq uses the same one.
const PATTERN: u64 = 0x5555_5555_5555_5555;

/// Fills a cell in one slot, as far as it was used.
///
/// # Safety
/// - As [`region::Wipe`].
pub(super) unsafe fn fill(at: *mut u8, len: usize, _: Kind) {
    // SAFETY: the caller guarantees the bytes of one block in one slot, which no other thread uses.
    for piece in unsafe { pieces(at, len) } {
        if piece.iter().any(|word| word.load(Ordering::Relaxed) != 0) {
            piece.iter().for_each(|word| word.store(PATTERN, Ordering::Relaxed));
        }
    }
}

/// Clears a cell that was just taken, in all slots below `used`. False if it was written to; then it stays as it is.
///
/// # Safety
/// - `base` is that of a block of this length that the caller has allocated.
pub(super) unsafe fn clear(base: *mut u8, len: usize, used: u32) -> bool {
    let slots = (0..used).map(|slot| offset(slot) as usize);
    let shared = (0..cid::shared_capacity()).map(|slot| (slot as usize) << SLOT_SHIFT);
    let places = slots.chain(shared).map(|distance| base.wrapping_add(distance));
    // SAFETY: the bytes of the caller's block, in a slot that every region has.
    let is_intact = |at: *mut u8| unsafe { pieces(at, len) }.all(is_intact);
    if !places.clone().all(is_intact) {
        return false;
    }
    for at in places {
        // SAFETY: the bytes of the caller's block. Its words may be read, like those of sums.
        unsafe { region::zero(at, len, Kind::Sums) };
    }
    true
}

fn is_intact(piece: &[AtomicU64]) -> bool {
    let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
    let first = piece.first().map_or(0, word);
    [0, PATTERN].contains(&first) && piece.iter().map(word).all(|word| word == first)
}

/// Returns a cell in one slot, in pieces of at most a page.
///
/// # Safety
/// - The bytes are those of one block in one slot, and belong to the caller while the result is used.
unsafe fn pieces<'a>(at: *mut u8, len: usize) -> impl Iterator<Item = &'a [AtomicU64]> {
    // SAFETY: the caller owns the bytes; blocks are aligned to their length, at least a word.
    unsafe { core::slice::from_raw_parts(at.cast::<AtomicU64>(), len / 8) }
        .chunks(SHORTEST_PAGE / 8)
}
