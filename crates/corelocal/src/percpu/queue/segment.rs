//! The memory of a queue: segments of 4 KiB, aligned to their length, full of places for items.
//!
//! ```text
//!   0      next: the first place of the next segment
//!          number, done
//!   …      (a gap, if the places do not fill the rest)
//!          place place … place
//!   4096
//! ```
//!
//! The last place ends where the segment does. So the address after a place tells whether another one follows: it
//! does not if the address is a multiple of the length.
//!
//! # Invariants
//! 1. A `Segment` is owned memory without other references. It goes back to the pool when it is dropped.
//! 2. Places begin after the header. So an address after a place equals a segment's start only if the previous
//!    segment ends there.

use core::mem::ManuallyDrop;

use super::pool;
use crate::primitive::atomic::{AtomicPtr, AtomicU32, Ordering};
use crate::rseq::SEGMENT;

/// A segment of a queue, owned.
pub(super) struct Segment {
    header: *mut Header,
}

/// `next` lies where the section `queue_link` stores it.
#[repr(C)]
pub(super) struct Header {
    pub(super) next: AtomicPtr<u8>,
    /// Its number in its chunk.
    number: u32,
    /// The number of its places that were emptied, for places that are not emptied in order.
    pub(super) done: AtomicU32,
}

/// The places of a segment, each as long as a `P`.
pub(super) struct Places<P>(core::marker::PhantomData<P>);

impl<P> Places<P> {
    /// The number of places.
    pub(super) const COUNT: usize = {
        let room = SEGMENT - size_of::<Header>();
        assert!(size_of::<P>() <= room, "an item of a queue has at most 4064 bytes: box it");
        assert!(size_of::<P>() % 8 == 0 && align_of::<P>() == 8);
        #[cfg(not(loom))]
        assert!(core::mem::offset_of!(Header, next) == 0);
        room / size_of::<P>()
    };

    /// The offset of the first place.
    const FIRST: usize = SEGMENT - Self::COUNT * size_of::<P>();
}

impl Segment {
    /// Takes a free segment. `None` if the kernel provides no memory. Lock-free, async-signal-safe.
    pub(super) fn take() -> Option<Segment> {
        let (at, number) = pool::take()?;
        let header = at.cast::<Header>();
        let next = AtomicPtr::new(core::ptr::null_mut());
        // SAFETY: ours, long and aligned enough.
        unsafe { header.write(Header { next, number, done: AtomicU32::new(0) }) };
        Some(Segment { header })
    }

    /// Resets a used segment.
    pub(super) fn renew(&mut self) {
        // SAFETY: the segment is owned by `self` (invariant 1).
        unsafe { (*self.header).done.store(0, Ordering::Relaxed) };
    }

    /// Returns its first place.
    pub(super) fn first<P>(&self) -> *mut P {
        self.header.cast::<u8>().wrapping_add(Places::<P>::FIRST).cast()
    }

    /// Gives up the ownership, to be regained by [`Segment::from_raw`].
    pub(super) fn into_raw(self) -> *mut Header {
        ManuallyDrop::new(self).header
    }

    /// # Safety
    /// - It came from `into_raw`, or was [linked](crate::rseq::queue_link), and has no other owner any more.
    pub(super) unsafe fn from_raw(header: *mut Header) -> Segment {
        Segment { header }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the segment is owned by `self` (invariant 1), and the header was written when it was taken.
        unsafe { pool::give(self.header.cast(), (*self.header).number) };
    }
}

/// Returns the segment of the place that ends at `behind`.
pub(super) fn ending_at(behind: *mut u8) -> *mut Header {
    containing(behind.wrapping_sub(1))
}

/// Returns the segment of the place that begins at `place`.
pub(super) fn containing(place: *mut u8) -> *mut Header {
    place.map_addr(|at| at & !(SEGMENT - 1)).cast()
}

/// Returns `true` if no place begins here: the address is null, or the end of a segment.
pub(super) fn is_end(at: *mut u8) -> bool {
    at.addr() % SEGMENT == 0
}

/// Returns the first place of the segment after one whose places are all written.
///
/// # Safety
/// - The segment is in use, and another one was linked to it.
pub(super) unsafe fn next(header: *mut Header) -> *mut u8 {
    // Relaxed: a caller that knows of the link has seen it by an Acquire. SAFETY: the caller guarantees that the
    // segment is in use.
    unsafe { (*header).next.load(Ordering::Relaxed) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn places_end_with_the_segment() {
        fn check<P>() {
            let segment = Segment::take().expect("memory");
            let first = segment.first::<P>();
            let behind = first.wrapping_add(Places::<P>::COUNT).cast::<u8>();
            assert!(is_end(behind) && !is_end(first.cast()));
            let header = segment.into_raw();
            assert_eq!((ending_at(behind), containing(first.cast())), (header, header));
            // SAFETY: from `into_raw`.
            drop(unsafe { Segment::from_raw(header) });
        }
        check::<u64>();
        check::<[u64; 3]>();
        check::<[u64; 100]>();
        check::<[u64; 510]>();
        assert_eq!(Places::<u64>::COUNT, 510);
    }
}
