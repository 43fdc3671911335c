//! The one range of addresses that all objects lie in, and what is written down of each part of it.
//!
//! The range is a window of 1 TiB of addresses (`address_range.rs`), in which chunks of 64 KiB are mapped as they are used, from
//! its beginning or those of its stripes (`node_ranges.rs`) on. A byte for each chunk says what it holds; so one subtraction,
//! two shifts and a load tell the class of any pointer, and that a foreign one is none.
//!
//! ```text
//!   │ header │ map │ chunk 0, chunk 1, … │        bitmaps and records: elsewhere (`chunk_metadata.rs`)
//!                  ┃ base
//! ```
//!
//! Why a byte for 64 KiB and not for 8: the bytes of a gigabyte then fit in the first-level cache, which
//! every `free` looks into. Spans are no shorter than a chunk. What of it nobody has written to is no memory.
//!
//! # Invariants
//! 1. `BASE` goes from `UNSET` to its final value once. Header and map are never unmapped.
//! 2. All bytes start out as 0. The map has bytes for chunks below `LIMIT`, which only grows. A chunk is mapped while its
//!    bit in `open` is set (`mapped_chunks.rs`).
//! 3. No pointer is within the longest range that begins at `UNSET`.
//! 4. The kernel makes no huge page of any of it by itself; of which parts it is to make some `huge.rs` knows.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::address_range;
use super::idle::Sleeper;
use super::node_ranges::{self, MOST_NODES, Stripe};
use crate::sys::arch;
use crate::sys::pages::Ground;

/// Bytes of a chunk.
pub(super) const CHUNK: usize = 1 << CHUNK_SHIFT;
const CHUNK_SHIFT: u32 = 16;
/// The longest range: 1 TiB.
const RANGE_SHIFT: u32 = 40;
pub(super) const MOST_CHUNKS: usize = 1 << (RANGE_SHIFT - CHUNK_SHIFT);
/// What the range begins on a multiple of.
pub(super) const HUGE_PAGE: usize = 2 << 20;

/// What the map says of a chunk besides the number of a class: nothing is there.
pub(super) const NOTHING: u8 = 0;
/// The first chunk of a large object.
pub(super) const LARGE: u8 = super::class::CLASSES as u8 + 1;
/// Another one.
pub(super) const INSIDE: u8 = LARGE + 1;
/// Of the chunks in which objects have pages of their own (`guard.rs`).
pub(super) const GUARDED: u8 = INSIDE + 1;
/// The map has bytes below this.
pub(super) const KINDS: usize = GUARDED as usize + 1;

const UNSET: usize = 1 << 63;
static BASE: AtomicUsize = AtomicUsize::new(UNSET);
/// The map has bytes for chunks below this one, once there is a range.
pub(super) static LIMIT: AtomicUsize = AtomicUsize::new(address_range::FIRST);

/// The range.
#[derive(Clone, Copy)]
pub(super) struct Range {
    base: usize,
}

/// Of the whole range.
#[repr(C)]
pub(super) struct Header {
    /// How many chunks it has.
    pub(super) chunks: AtomicUsize,
    /// 1 if the kernel has reserved it.
    pub(super) is_reserved: AtomicUsize,
    /// Chunks that are open.
    pub(super) opened: AtomicUsize,
    /// How it is divided, once that was decided.
    pub(super) division: AtomicUsize,
    pub(super) stripes: [Stripe; MOST_NODES],
    /// Chunks that are dirty and not used.
    pub(super) dirty: AtomicUsize,
    /// Chunks that large objects have, and how many these are.
    pub(super) large_chunks: AtomicUsize,
    /// Of these, chunks that objects have in reserve, to grow into.
    pub(super) reserve_chunks: AtomicUsize,
    pub(super) large_objects: AtomicUsize,
    /// Bytes given back to the kernel so far.
    pub(super) released: AtomicUsize,
    /// Chunks up to the highest one of each stripe that was ever used.
    pub(super) high: AtomicUsize,
    /// Spans that came to have fewer objects since somebody looked at them, or did not rest then (`release.rs`).
    pub(super) thinned: AtomicUsize,
    /// Who sleeps until there is something dirty, or thinned.
    pub(super) sleeper: Sleeper,
    /// Huge pages that were made and are still whole (`huge.rs`), those ever made, and refusals.
    pub(super) huge: AtomicUsize,
    pub(super) huge_ever: AtomicUsize,
    pub(super) huge_refused: AtomicUsize,
    /// How many were looked at since one was made, or there was a new one.
    pub(super) huge_in_vain: AtomicUsize,
    /// The huge page to begin with at the next look, and what `high` was at the last one.
    pub(super) next_huge: AtomicUsize,
    pub(super) high_seen: AtomicUsize,
    /// Bytes that the kernel would not place on their node.
    pub(super) displaced: AtomicUsize,
}

/// Of the span, or the large object, that begins with a chunk. Of other chunks it means nothing.
#[repr(C)]
pub(super) struct Record {
    /// Objects that are not in the span, but in a program's hands or in caches.
    pub(super) out: AtomicU32,
    /// Neighbours on the list of the class: one more than their chunk.
    pub(super) next: AtomicU32,
    pub(super) prev: AtomicU32,
    /// One more than the list it is on; 0 if it is on none.
    pub(super) list: AtomicU32,
    /// No object before this word of bits is in the span.
    pub(super) hint: AtomicU32,
    /// Chunks of a large object.
    pub(super) chunks: AtomicU32,
    /// Bytes that a large object may use; of a span see [`refused`](Record::refused).
    pub(super) len: AtomicU64,
    /// A bit for each part of a span that the kernel has got back, and nobody has taken from since (`subrelease.rs`).
    pub(super) clean: AtomicU64,
    /// What `out` was at the last look.
    pub(super) out_seen: AtomicU32,
    /// Spans that ever began with this chunk.
    pub(super) generation: AtomicU32,
    /// The sample that a large object is of: one more than its number, 0 for none (`profile/`).
    pub(super) sample: AtomicU32,
    /// The span that follows on the list of those whose objects go back later (`deferred_spans.rs`), and the parts of this
    /// one whose objects do.
    pub(super) next_returned: AtomicU32,
    pub(super) returned: AtomicU64,
    /// A bit for each object: it is out.
    pub(super) bits: [AtomicU64; 64],
}

impl Record {
    /// A bit for each part of a span that the kernel would not take, and nobody has taken from since (`subrelease.rs`).
    pub(super) fn refused(&self) -> &AtomicU64 {
        // A span has no use for the length.
        &self.len
    }
}

/// What the map says of a pointer: the number of its class, or [`NOTHING`], [`LARGE`], [`INSIDE`] or [`GUARDED`];
/// `None` outside of the range.
#[inline]
pub(super) fn kind_of(ptr: *mut u8) -> Option<usize> {
    let (base, chunk) = place_of(ptr)?;
    // SAFETY: in the range, as `place_of` says.
    let byte = unsafe { at_address::<AtomicU8>(map_byte(base, chunk)) };
    Some(usize::from(byte.load(Ordering::Relaxed)))
}

/// [`kind_of`], as `free` needs it.
///
/// # Safety
/// The object is the caller's, or in no chunk that somebody takes or releases now.
#[inline(always)]
pub(super) unsafe fn kind_of_object(object: *mut u8) -> Option<usize> {
    let (base, chunk) = place_of(object)?;
    // Not atomic, which costs an instruction in the chain that the object's stack is found by. What the map
    // says of an object was stored before it was given out, and is not changed while somebody has it.
    // SAFETY: as in `kind_of`; by the caller's promise nobody writes to the byte.
    Some(usize::from(unsafe { *core::ptr::with_exposed_provenance::<u8>(map_byte(base, chunk)) }))
}

/// The base, and the chunk of a pointer into the range, or beyond it where the map has a byte.
#[inline(always)]
fn place_of(ptr: *mut u8) -> Option<(usize, usize)> {
    // Relaxed: who has a pointer into the range saw the base, by whatever way the pointer came.
    let base = arch::load_here!(BASE);
    let at = (ptr as usize).wrapping_sub(base);
    // Opaque, or the compiler compares what lies above the chunk's number, and shifts twice for it.
    let chunk = arch::opaque(at >> CHUNK_SHIFT);
    // By invariants 2 and 3 the base is set, and the map has a byte. Relaxed: as the base.
    (chunk < arch::load_here!(LIMIT)).then_some((base, chunk))
}

#[inline(always)]
fn map_byte(base: usize, chunk: usize) -> usize {
    base.wrapping_sub(MOST_CHUNKS).wrapping_add(chunk)
}

/// # Safety
/// A `T` lies at the address, in the range, and all bytes 0 is one.
#[inline(always)]
unsafe fn at_address<T>(address: usize) -> &'static T {
    // SAFETY: the caller's promise; the range is never unmapped (invariant 1).
    unsafe { &*core::ptr::with_exposed_provenance::<T>(address) }
}

impl Range {
    /// The range, if there is one already.
    #[inline]
    pub(super) fn get() -> Option<Range> {
        // Acquire: partner is the Release in `make`; the header is filled in.
        let base = BASE.load(Ordering::Acquire);
        (base != UNSET).then_some(Range { base })
    }

    /// The range, reserved now if there was none; `None` when the kernel refuses even a short one.
    #[cold]
    pub(super) fn make() -> Option<Range> {
        if let Some(range) = Range::get() {
            return Some(range);
        }
        let fresh = address_range::make()?;
        // Release: partner is the Acquire in `get`. On failure Acquire, for the winner's header.
        match BASE.compare_exchange(UNSET, fresh.base, Ordering::Release, Ordering::Acquire) {
            Ok(_) => {
                if fresh.chunks() < 2 * node_ranges::LEAST {
                    fresh.divide(1);
                }
                Some(fresh)
            }
            Err(winner) => {
                address_range::discard(fresh);
                Some(Range { base: winner })
            }
        }
    }

    /// The range that begins there.
    pub(super) fn at(base: usize) -> Range {
        Range { base }
    }

    pub(super) fn header(self) -> &'static Header {
        // SAFETY: invariant 2.
        unsafe { at_address(self.base - address_range::HEADER) }
    }

    /// What its addresses are before they are opened.
    pub(super) fn ground(self) -> Ground {
        match self.header().is_reserved.load(Ordering::Relaxed) {
            0 => Ground::Unmapped,
            _ => Ground::Reserved,
        }
    }

    /// Where the map's byte for a chunk lies.
    pub(super) fn map_byte(self, chunk: usize) -> usize {
        map_byte(self.base, chunk)
    }

    /// How many chunks there can be.
    pub(super) fn chunks(self) -> usize {
        self.header().chunks.load(Ordering::Relaxed)
    }

    /// Bytes from the beginning of each stripe to its highest chunk that was ever used.
    pub(super) fn high_water(self) -> usize {
        self.header().high.load(Ordering::Relaxed) * CHUNK
    }

    /// What the map says of a chunk.
    pub(super) fn kind(self, chunk: usize) -> &'static AtomicU8 {
        debug_assert!(chunk < LIMIT.load(Ordering::Relaxed));
        // SAFETY: invariant 2.
        unsafe { at_address(map_byte(self.base, chunk)) }
    }

    /// Where a chunk begins.
    pub(super) fn address(self, chunk: usize) -> usize {
        self.base + (chunk << CHUNK_SHIFT)
    }

    /// The chunk of an address in the range.
    pub(super) fn chunk_of(self, address: usize) -> usize {
        address.wrapping_sub(self.base) >> CHUNK_SHIFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_range_and_what_is_not() {
        let range = Range::make().unwrap();
        let first = range.address(0);
        assert_eq!(range.chunk_of(first + CHUNK), 1);
        assert!(kind_of(first as *mut u8).is_some());
        assert!(kind_of((first - 1) as *mut u8).is_none());
        assert!(kind_of(core::ptr::null_mut()).is_none());
        assert!(kind_of((&raw const range).cast_mut().cast()).is_none());
        assert!(first % HUGE_PAGE == 0);
    }

    /// Whatever is unset is foreign.
    #[test]
    fn no_pointer_lies_behind_the_unset_base() {
        for address in [0usize, 1, 1 << 30, 1 << 46, (1 << 47) - 1, (1 << 56) - 1, usize::MAX] {
            let at = address.wrapping_sub(UNSET);
            assert_ne!(at >> RANGE_SHIFT, 0, "{address:x}");
        }
    }

    /// The map is read no further than it is mapped.
    #[test]
    fn no_pointer_lies_beyond_the_limit() {
        let range = Range::make().unwrap();
        let limit = LIMIT.load(Ordering::Relaxed);
        assert!(limit <= MOST_CHUNKS);
        assert!(kind_of(range.address(MOST_CHUNKS) as *mut u8).is_none());
        // No other test is as large as the map's last step.
        assert!(
            limit == MOST_CHUNKS || kind_of(range.address(MOST_CHUNKS - 1) as *mut u8).is_none()
        );
    }
}
