//! The address range in which all objects lie, and the map of its chunks.
//!
//! The range is 1 TiB of addresses (`address_range.rs`). Chunks of 64 KiB in it are mapped when first used, from its
//! start on, or from the start of each node's part (`node_ranges.rs`). One byte for each chunk says what the chunk
//! holds. So a subtraction, two shifts and a load yield the class of any pointer, or tell that the pointer is
//! foreign.
//!
//! ```text
//!   │ header │ map │ chunk 0, chunk 1, … │        bitmaps and records: elsewhere (`chunk_metadata.rs`)
//!                  ┃ base
//! ```
//!
//! One byte describes 64 KiB, not 8 KiB: the bytes for a gigabyte of heap then fit in the first-level cache, and
//! every `free` reads one. The cost is that a span is at least a chunk long. Untouched pages of it use no memory.
//!
//! # Invariants
//! 1. `BASE` changes from `UNSET` to its final value once. Header and map are never unmapped.
//! 2. All bytes are 0 at first. The map has bytes for chunks below `LIMIT`, which only grows. A chunk is mapped while
//!    its bit in `open` is set (`mapped_chunks.rs`).
//! 3. No pointer lies within a range of maximum length that begins at `UNSET`.
//! 4. The kernel makes huge pages of the range only where `huge.rs` asks for them.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::address_range;
use super::idle::Sleeper;
use super::node_ranges::{self, MOST_NODES, Stripe};
use crate::sys::arch;
use crate::sys::pages::Ground;

/// The size of a chunk in bytes.
pub(super) const CHUNK: usize = 1 << CHUNK_SHIFT;
const CHUNK_SHIFT: u32 = 16;
/// The maximum length of the range: 1 TiB.
const RANGE_SHIFT: u32 = 40;
pub(super) const MOST_CHUNKS: usize = 1 << (RANGE_SHIFT - CHUNK_SHIFT);
/// The alignment of the range.
pub(super) const HUGE_PAGE: usize = 2 << 20;

/// Value of a map byte, besides class numbers: the chunk is free or not in use by objects.
pub(super) const NOTHING: u8 = 0;
/// The first chunk of a large object.
pub(super) const LARGE: u8 = super::class::CLASSES as u8 + 1;
/// A further chunk of a large object.
pub(super) const INSIDE: u8 = LARGE + 1;
/// A chunk in which objects have pages of their own (`guard.rs`).
pub(super) const GUARDED: u8 = INSIDE + 1;
/// The number of values of a map byte.
pub(super) const KINDS: usize = GUARDED as usize + 1;

const UNSET: usize = 1 << 63;
static BASE: AtomicUsize = AtomicUsize::new(UNSET);
/// The map has bytes for chunks below this one, once the range exists.
pub(super) static LIMIT: AtomicUsize = AtomicUsize::new(address_range::FIRST);

/// The range.
#[derive(Clone, Copy)]
pub(super) struct Range {
    base: usize,
}

/// State of the whole range.
#[repr(C)]
pub(super) struct Header {
    /// Number of chunks.
    pub(super) chunks: AtomicUsize,
    /// 1 if the kernel has reserved the range.
    pub(super) is_reserved: AtomicUsize,
    /// Mapped chunks.
    pub(super) opened: AtomicUsize,
    /// The division among nodes, once it is decided.
    pub(super) division: AtomicUsize,
    pub(super) stripes: [Stripe; MOST_NODES],
    /// Chunks that are dirty and free.
    pub(super) dirty: AtomicUsize,
    /// Chunks of large objects.
    pub(super) large_chunks: AtomicUsize,
    /// Those of them that objects have in reserve, to grow into.
    pub(super) reserve_chunks: AtomicUsize,
    pub(super) large_objects: AtomicUsize,
    /// Bytes given back to the kernel so far.
    pub(super) released: AtomicUsize,
    /// Chunks that were mapped when the kernel refused to map more; 0: it has not (`store.rs`).
    pub(super) refused_at: AtomicUsize,
    /// For each node, the chunks up to the highest one ever used; summed.
    pub(super) high: AtomicUsize,
    /// Spans that lost objects since the last check, or that were not idle then (`release.rs`).
    pub(super) thinned: AtomicUsize,
    /// The thread that sleeps until there is memory to give back.
    pub(super) sleeper: Sleeper,
    /// Huge pages made and still whole (`huge.rs`), all ever made, and refusals.
    pub(super) huge: AtomicUsize,
    pub(super) huge_ever: AtomicUsize,
    pub(super) huge_refused: AtomicUsize,
    /// Huge pages examined since one was made or memory grew.
    pub(super) huge_in_vain: AtomicUsize,
    /// The huge page at which the next scan begins, and `high` at the last scan.
    pub(super) next_huge: AtomicUsize,
    pub(super) high_seen: AtomicUsize,
    /// Bytes that the kernel refused to place on their node.
    pub(super) displaced: AtomicUsize,
}

/// Metadata of the span or large object that begins at a chunk. Undefined for other chunks.
#[repr(C)]
pub(super) struct Record {
    /// Allocated objects of the span: in use by the program or in caches.
    pub(super) out: AtomicU32,
    /// Neighbours on the class's list: their chunk plus one; 0 for none.
    pub(super) next: AtomicU32,
    pub(super) prev: AtomicU32,
    /// The number of the list that the span is on plus one; 0 for none.
    pub(super) list: AtomicU32,
    /// All words of `bits` before this one are full.
    pub(super) hint: AtomicU32,
    /// Chunks of a large object.
    pub(super) chunks: AtomicU32,
    /// Usable bytes of a large object; for spans see [`refused`](Record::refused).
    pub(super) len: AtomicU64,
    /// One bit for each part of a span that the kernel has taken back and that has not been allocated from since
    /// (`subrelease.rs`).
    pub(super) clean: AtomicU64,
    /// `out` at the last check.
    pub(super) out_seen: AtomicU32,
    /// The number of spans that have begun at this chunk.
    pub(super) generation: AtomicU32,
    /// The sample that a large object belongs to: its number plus one, 0 for none (`profile/`).
    pub(super) sample: AtomicU32,
    /// The next span on the deferred list, and the parts of this span whose objects are on it (`deferred_spans.rs`).
    pub(super) next_returned: AtomicU32,
    pub(super) returned: AtomicU64,
    /// One bit for each object, set if the object is allocated.
    pub(super) bits: [AtomicU64; 64],
}

impl Record {
    /// One bit for each part of a span that the kernel refused to take back and that has not been allocated from
    /// since (`subrelease.rs`).
    pub(super) fn refused(&self) -> &AtomicU64 {
        // Spans do not use the length.
        &self.len
    }
}

/// What the map says about a pointer: a class, [`NOTHING`], [`LARGE`], [`INSIDE`] or [`GUARDED`]; `None` for pointers
/// outside of the range.
#[inline]
pub(super) fn kind_of(ptr: *mut u8) -> Option<usize> {
    let (base, chunk) = place_of(ptr)?;
    // SAFETY: the map has a byte for the chunk, as `place_of` has checked.
    let byte = unsafe { at_address::<AtomicU8>(map_byte(base, chunk)) };
    Some(usize::from(byte.load(Ordering::Relaxed)))
}

/// As [`kind_of`], for `free`.
///
/// # Safety
/// - The map's byte for the object's chunk does not change during the call: the object belongs to the caller, or its
///   chunk is neither claimed nor released.
#[inline(always)]
pub(super) unsafe fn kind_of_object(object: *mut u8) -> Option<usize> {
    let (base, chunk) = place_of(object)?;
    // A plain load: an atomic one would cost an instruction in the dependency chain to the object's stack. The byte
    // was stored before the object was allocated, and does not change while the object is in use. SAFETY: the map has
    // a byte for the chunk, and by the function's contract the byte is not written to.
    Some(usize::from(unsafe { *core::ptr::with_exposed_provenance::<u8>(map_byte(base, chunk)) }))
}

/// The base of the range and the chunk of a pointer; `None` unless the map has a byte for that chunk.
#[inline(always)]
fn place_of(ptr: *mut u8) -> Option<(usize, usize)> {
    // Relaxed: a thread that has a pointer into the range has synchronised with its allocation, which saw the base.
    let base = arch::load_here!(BASE);
    let at = (ptr as usize).wrapping_sub(base);
    // Opaque: otherwise the compiler compares the bits above the chunk number and needs a second shift.
    let chunk = arch::opaque(at >> CHUNK_SHIFT);
    // By invariants 2 and 3 the base is set and the map has a byte. Relaxed: as for the base.
    (chunk < arch::load_here!(LIMIT)).then_some((base, chunk))
}

#[inline(always)]
fn map_byte(base: usize, chunk: usize) -> usize {
    base.wrapping_sub(MOST_CHUNKS).wrapping_add(chunk)
}

/// # Safety
/// - The address lies in the range, and a `T` may lie there.
/// - All bytes 0 is a valid `T`.
#[inline(always)]
unsafe fn at_address<T>(address: usize) -> &'static T {
    // SAFETY: by the function's contract a valid `T`; the range is never unmapped (1).
    unsafe { &*core::ptr::with_exposed_provenance::<T>(address) }
}

impl Range {
    /// The range, if it exists.
    #[inline]
    pub(super) fn get() -> Option<Range> {
        // Acquire: partner is the Release in `make`; the header is initialised.
        let base = BASE.load(Ordering::Acquire);
        (base != UNSET).then_some(Range { base })
    }

    /// The range, made now if necessary; `None` if the kernel refuses even a short one.
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

    /// The range with this base.
    pub(super) fn at(base: usize) -> Range {
        Range { base }
    }

    pub(super) fn header(self) -> &'static Header {
        // SAFETY: the header is mapped, and zero is valid for it (2).
        unsafe { at_address(self.base - address_range::HEADER) }
    }

    /// The state of addresses before chunks there are mapped.
    pub(super) fn ground(self) -> Ground {
        match self.header().is_reserved.load(Ordering::Relaxed) {
            0 => Ground::Unmapped,
            _ => Ground::Reserved,
        }
    }

    /// The address of the map's byte for a chunk.
    pub(super) fn map_byte(self, chunk: usize) -> usize {
        map_byte(self.base, chunk)
    }

    /// The maximum number of chunks.
    pub(super) fn chunks(self) -> usize {
        self.header().chunks.load(Ordering::Relaxed)
    }

    /// Bytes from the start of each node's part to its highest chunk ever used, summed.
    pub(super) fn high_water(self) -> usize {
        self.header().high.load(Ordering::Relaxed) * CHUNK
    }

    /// The map's byte for a chunk.
    pub(super) fn kind(self, chunk: usize) -> &'static AtomicU8 {
        debug_assert!(chunk < LIMIT.load(Ordering::Relaxed));
        // SAFETY: the map has a byte for each chunk below `LIMIT` (2).
        unsafe { at_address(map_byte(self.base, chunk)) }
    }

    /// The address of a chunk.
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

    /// As long as the base is unset, every pointer is foreign.
    #[test]
    fn no_pointer_lies_behind_the_unset_base() {
        for address in [0usize, 1, 1 << 30, 1 << 46, (1 << 47) - 1, (1 << 56) - 1, usize::MAX] {
            let at = address.wrapping_sub(UNSET);
            assert_ne!(at >> RANGE_SHIFT, 0, "{address:x}");
        }
    }

    /// The map is read only where it is mapped.
    #[test]
    fn no_pointer_lies_beyond_the_limit() {
        let range = Range::make().unwrap();
        let limit = LIMIT.load(Ordering::Relaxed);
        assert!(limit <= MOST_CHUNKS);
        assert!(kind_of(range.address(MOST_CHUNKS) as *mut u8).is_none());
        // No other test is so large that it needs the last step of the map.
        assert!(
            limit == MOST_CHUNKS || kind_of(range.address(MOST_CHUNKS - 1) as *mut u8).is_none()
        );
    }
}
