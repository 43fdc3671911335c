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
//!    its bit in `open` is set (`page_heap/mapped_chunks.rs`).
//! 3. No pointer lies within a range of maximum length that begins at `UNSET`.
//! 4. The kernel makes huge pages of the range only where `page_heap/huge.rs` asks for them.

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use super::chunk::{CHUNK, CHUNK_SHIFT, MOST_CHUNKS};
use super::header::{self, Header};
use crate::sys::arch;
use crate::sys::memory::pages::Ground;

pub(in crate::alloc) const UNSET: usize = 1 << 63;
pub(in crate::alloc) static BASE: AtomicUsize = AtomicUsize::new(UNSET);
/// The map has bytes for chunks below this one, once the range exists.
pub(in crate::alloc) static LIMIT: AtomicUsize = AtomicUsize::new(header::FIRST);

/// The range.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::alloc) struct Range {
    base: usize,
}

/// Returns what the map says about a pointer (`class.rs`); `None` for pointers outside of the range.
#[inline]
pub(in crate::alloc) fn kind_of(ptr: *mut u8) -> Option<usize> {
    let (base, chunk) = place_of(ptr)?;
    // SAFETY: the map has a byte for the chunk, as `place_of` has checked.
    let byte = unsafe { at_address::<AtomicU8>(map_byte(base, chunk)) };
    Some(usize::from(byte.load(Ordering::Relaxed)))
}

/// Does what [`kind_of`] does, for `free`.
///
/// # Safety
/// - The map's byte for the object's chunk does not change during the call: the object belongs to the caller, or its
///   chunk is neither claimed nor released.
#[inline(always)]
pub(in crate::alloc) unsafe fn kind_of_object(object: *mut u8) -> Option<usize> {
    let (base, chunk) = place_of(object)?;
    // A plain load: an atomic one would cost an instruction in the dependency chain to the object's stack. The byte
    // was stored before the object was allocated, and does not change while the object is in use. SAFETY: the map has
    // a byte for the chunk, and by the function's contract the byte is not written to.
    Some(usize::from(unsafe { *core::ptr::with_exposed_provenance::<u8>(map_byte(base, chunk)) }))
}

/// Returns the base of the range and the chunk of a pointer; `None` unless the map has a byte for that chunk.
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
    /// Returns the range, if it exists.
    #[inline]
    pub(in crate::alloc) fn get() -> Option<Range> {
        // Acquire: partner is the Release in `publish`; the header is initialised.
        let base = BASE.load(Ordering::Acquire);
        (base != UNSET).then_some(Range { base })
    }

    /// Makes this range known to all threads, unless another one is already. Returns the one that is.
    pub(in crate::alloc) fn publish(self) -> Range {
        // Release: partner is the Acquire in `get`. On failure Acquire, for the winner's header.
        match BASE.compare_exchange(UNSET, self.base, Ordering::Release, Ordering::Acquire) {
            Ok(_) => self,
            Err(winner) => Range { base: winner },
        }
    }

    /// Returns the range with this base.
    pub(in crate::alloc) fn at(base: usize) -> Range {
        Range { base }
    }

    pub(in crate::alloc) fn header(self) -> &'static Header {
        // SAFETY: the header is mapped, and zero is valid for it (2).
        unsafe { at_address(self.base - header::HEADER) }
    }

    /// The state of addresses before chunks there are mapped.
    pub(in crate::alloc) fn ground(self) -> Ground {
        match self.header().is_reserved.load(Ordering::Relaxed) {
            0 => Ground::Unmapped,
            _ => Ground::Reserved,
        }
    }

    /// Returns the address of the map's byte for a chunk.
    pub(in crate::alloc) fn map_byte(self, chunk: usize) -> usize {
        map_byte(self.base, chunk)
    }

    /// Returns the maximum number of chunks.
    pub(in crate::alloc) fn chunks(self) -> usize {
        self.header().chunks.load(Ordering::Relaxed)
    }

    /// Returns the bytes from the start of each node's part to its highest chunk ever used, summed.
    pub(in crate::alloc) fn high_water(self) -> usize {
        self.header().high.load(Ordering::Relaxed) * CHUNK
    }

    /// Returns the map's byte for a chunk.
    pub(in crate::alloc) fn kind(self, chunk: usize) -> &'static AtomicU8 {
        debug_assert!(chunk < LIMIT.load(Ordering::Relaxed));
        // SAFETY: the map has a byte for each chunk below `LIMIT` (2).
        unsafe { at_address(map_byte(self.base, chunk)) }
    }

    /// Returns the address of a chunk.
    pub(in crate::alloc) fn address(self, chunk: usize) -> usize {
        self.base + (chunk << CHUNK_SHIFT)
    }

    /// Returns the chunk of an address in the range.
    pub(in crate::alloc) fn chunk_of(self, address: usize) -> usize {
        address.wrapping_sub(self.base) >> CHUNK_SHIFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::layout::chunk::{HUGE_PAGE, RANGE_SHIFT};

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
