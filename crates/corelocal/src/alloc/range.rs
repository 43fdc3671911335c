//! The one range of addresses that all objects lie in, and what is written down of each part of it.
//!
//! The range is reserved once, lazily, as long as the process's limits allow, and opened from its beginning,
//! or those of its stripes (`stripes.rs`), as far as it is used. It is divided into chunks of 64 KiB. A byte for each
//! chunk says what it holds; so one subtraction, two shifts and a load tell the class of any pointer, and that a
//! foreign one is none.
//!
//! ```text
//!   │ record … record 0 │ header │ huge │ dense │ aged │ dirty │ used │ map │ chunk 0, chunk 1, … │
//!                                                                           ┃ base
//! ```
//!
//! Why a byte for 64 KiB and not for 8: the bytes of a gigabyte then fit in the first-level cache, which
//! every `free` looks into. Spans are no shorter than a chunk. What of it nobody has written to is no memory.
//!
//! # Invariants
//! 1. `BASE` goes from `UNSET` to its final value once. The range is never unmapped.
//! 2. All bytes start out as 0. The map, the bitmaps and the header are open from the start; chunks and
//!    their records below `committed` of their stripe are.
//! 3. No pointer is within the range that begins at `UNSET`.
//! 4. The kernel makes no huge page of any of it by itself; of which parts it is to make some `huge.rs` knows.

use core::ops;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::bits::{IN_A_WORD, Words};
use super::idle::Sleeper;
use super::stripes::{self, MOST_NODES, Stripe};
use crate::sys::{arch, huge_pages, pages};

/// Bytes of a chunk.
pub(super) const CHUNK: usize = 1 << CHUNK_SHIFT;
const CHUNK_SHIFT: u32 = 16;
/// The longest range: 1 TiB.
const RANGE_SHIFT: u32 = 40;
const MOST_CHUNKS: usize = 1 << (RANGE_SHIFT - CHUNK_SHIFT);
/// Chunks that are opened at least.
pub(super) const LEAST_STEP: usize = 128;
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

const BITMAP: usize = MOST_CHUNKS / 8;
const USED: usize = MOST_CHUNKS + BITMAP;
const DIRTY: usize = USED + BITMAP;
const AGED: usize = DIRTY + BITMAP;
/// A bit for each huge page.
const HUGE_BITMAP: usize = (MOST_CHUNKS << CHUNK_SHIFT) / HUGE_PAGE / 8;
const DENSE: usize = AGED + HUGE_BITMAP;
const HUGE: usize = DENSE + HUGE_BITMAP;
const HEADER: usize = HUGE + 4096;

const UNSET: usize = 1 << 63;
static BASE: AtomicUsize = AtomicUsize::new(UNSET);

/// The reserved range.
#[derive(Clone, Copy)]
pub(super) struct Range {
    base: usize,
}

/// Of the whole range.
#[repr(C)]
pub(super) struct Header {
    /// How many chunks it has.
    chunks: AtomicUsize,
    /// How it is divided, once that was decided.
    pub(super) division: AtomicUsize,
    pub(super) stripes: [Stripe; MOST_NODES],
    /// Chunks that are dirty and not used.
    pub(super) dirty: AtomicUsize,
    /// Chunks that large objects have, and how many these are.
    pub(super) large_chunks: AtomicUsize,
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
    /// Bytes that a large object may use.
    pub(super) len: AtomicU64,
    /// A bit for each part of a span that the kernel has got back, and nobody has taken from since (`thin.rs`).
    pub(super) clean: AtomicU64,
    /// What `out` was at the last look.
    pub(super) out_seen: AtomicU32,
    /// Spans that ever began with this chunk.
    pub(super) generation: AtomicU32,
    /// The sample that a large object is of: one more than its number, 0 for none (`profile/`).
    pub(super) sample: AtomicU32,
    _room: [AtomicU32; 3],
    /// A bit for each object: it is out.
    pub(super) bits: [AtomicU64; 64],
}

const RECORD: usize = size_of::<Record>();
const _: () = assert!(RECORD * LEAST_STEP % 4096 == 0 && HEADER % 4096 == 0);
const _: () = assert!(size_of::<Header>() <= HEADER - HUGE);

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

/// The base, and the chunk of a pointer into the longest range.
#[inline(always)]
fn place_of(ptr: *mut u8) -> Option<(usize, usize)> {
    // Relaxed: who has a pointer into the range saw the base, by whatever way the pointer came.
    let base = arch::load_here!(BASE);
    let at = (ptr as usize).wrapping_sub(base);
    // By invariant 3 the base is set; the map has a byte for each chunk of the longest range.
    // Opaque, or the compiler compares what lies above the chunk's number, and shifts twice for it.
    let chunk = arch::opaque(at >> CHUNK_SHIFT);
    (chunk < MOST_CHUNKS).then_some((base, chunk))
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
        let (fresh, start, len) = reserve()?;
        // Release: partner is the Acquire in `get`. On failure Acquire, for the winner's header.
        match BASE.compare_exchange(UNSET, fresh.base, Ordering::Release, Ordering::Acquire) {
            Ok(_) => Some(fresh),
            Err(winner) => {
                // SAFETY: nobody else saw it.
                unsafe { pages::unmap(start, len) };
                Some(Range { base: winner })
            }
        }
    }

    pub(super) fn header(self) -> &'static Header {
        // SAFETY: invariant 2.
        unsafe { at_address(self.base - HEADER) }
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
        debug_assert!(chunk < MOST_CHUNKS);
        // SAFETY: invariant 2.
        unsafe { at_address(self.base - MOST_CHUNKS + chunk) }
    }

    /// Of a chunk that is open.
    pub(super) fn record(self, chunk: usize) -> &'static Record {
        debug_assert!(self.is_open(chunk));
        // SAFETY: invariant 2.
        unsafe { at_address(self.base - HEADER - (chunk + 1) * RECORD) }
    }

    fn word(self, bitmap: usize, word: usize) -> &'static AtomicU64 {
        debug_assert!(word < MOST_CHUNKS / IN_A_WORD);
        // SAFETY: invariant 2.
        unsafe { at_address(self.base - bitmap + word * 8) }
    }

    /// The bits of 64 chunks.
    pub(super) fn words(self, nth: usize) -> Words<'static> {
        Words {
            used: self.word(USED, nth),
            dirty: self.word(DIRTY, nth),
            aged: self.word(AGED, nth),
        }
    }

    /// 64 huge pages: a bit says that all chunks were used at the last look.
    pub(super) fn dense(self, nth: usize) -> &'static AtomicU64 {
        self.word(DENSE, nth)
    }

    /// 64 huge pages: a bit says that it is one.
    pub(super) fn huge(self, nth: usize) -> &'static AtomicU64 {
        self.word(HUGE, nth)
    }

    /// Where a chunk begins.
    pub(super) fn address(self, chunk: usize) -> usize {
        self.base + (chunk << CHUNK_SHIFT)
    }

    /// The chunk of an address in the range.
    pub(super) fn chunk_of(self, address: usize) -> usize {
        address.wrapping_sub(self.base) >> CHUNK_SHIFT
    }

    /// Opens chunks, and their records; false without memory.
    ///
    /// # Safety
    /// The range has them, and they begin and end with a multiple of [`LEAST_STEP`].
    pub(super) unsafe fn open(self, chunks: ops::Range<usize>) -> bool {
        let records = self.base - HEADER - chunks.end * RECORD;
        // SAFETY: the caller's promise: records end with a page there.
        unsafe {
            pages::open(self.address(chunks.start) as *mut u8, chunks.len() * CHUNK)
                && pages::open(records as *mut u8, chunks.len() * RECORD)
        }
    }
}

/// Reserves a range: it, and the mapping that it lies in.
fn reserve() -> Option<(Range, *mut u8, usize)> {
    // Near a limit the program's stacks and files need something, too.
    let ours = (pages::address_space_left() / 4 * 3).saturating_sub(HEADER + HUGE_PAGE);
    let mut chunks = (ours / (CHUNK + RECORD)).clamp(LEAST_STEP, MOST_CHUNKS);
    loop {
        chunks -= chunks % LEAST_STEP;
        if chunks == 0 {
            return None;
        }
        let below = chunks * RECORD + HEADER;
        let len = below + HUGE_PAGE + chunks * CHUNK;
        let Some(start) = pages::reserve(len) else {
            chunks /= 2;
            continue;
        };
        let base = (start as usize + below).next_multiple_of(HUGE_PAGE);
        let range = Range { base };
        // SAFETY: within the mapping just made, whole pages.
        let is_open = unsafe {
            let header = (base - HEADER) as *mut u8;
            // Written here and there: a huge page would be a waste, but where it is made on purpose (invariant 4).
            huge_pages::forbid(start, len);
            pages::open(header, HEADER)
        };
        if !is_open {
            // SAFETY: nobody else saw it.
            unsafe { pages::unmap(start, len) };
            return None;
        }
        range.header().chunks.store(chunks, Ordering::Relaxed);
        if chunks < 2 * stripes::LEAST {
            range.divide(1);
        }
        return Some((range, start, len));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_range_and_what_is_not() {
        let range = Range::make().unwrap();
        assert!(range.commit(0..1));
        let first = range.address(0);
        assert_eq!(range.chunk_of(first + CHUNK), 1);
        assert!(kind_of(first as *mut u8).is_some());
        assert!(kind_of((first - 1) as *mut u8).is_none());
        assert!(kind_of(core::ptr::null_mut()).is_none());
        assert!(kind_of((&raw const range).cast_mut().cast()).is_none());
        assert!(first % HUGE_PAGE == 0 && range.committed() > 0);
    }

    /// Whatever is unset is foreign.
    #[test]
    fn no_pointer_lies_behind_the_unset_base() {
        for address in [0usize, 1, 1 << 30, 1 << 46, (1 << 47) - 1, (1 << 56) - 1, usize::MAX] {
            let at = address.wrapping_sub(UNSET);
            assert_ne!(at >> RANGE_SHIFT, 0, "{address:x}");
        }
    }
}
