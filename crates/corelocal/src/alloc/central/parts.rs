//! Parts of a span: up to 64, each of at least a page, which go back to the kernel one by one.
//!
//! # Invariants
//! 1. A bit in `clean` means that no object of that part has been allocated since it was given back. A bit in
//!    `refused` means the same since the kernel refused the part; that is tried again when all idle memory should go
//!    (`trim`, pressure).

use core::sync::atomic::Ordering;

use super::place::Place;
use crate::alloc::layout::bits::IN_A_WORD;
use crate::alloc::layout::chunk::CHUNK;
use crate::alloc::layout::class::Shape;
use crate::alloc::layout::record::Record;
use crate::sys::memory::page_size::page_size;

const R: Ordering = Ordering::Relaxed;

/// Returns the bytes in a part.
pub(super) fn part(shape: &Shape) -> usize {
    (shape.chunks * CHUNK / 64).max(page_size())
}

/// Returns the parts that a range of a span overlaps, as a bit set.
pub(super) fn parts_of(shape: &Shape, from: usize, len: usize) -> u64 {
    let (first, last) = (from / part(shape), (from + len - 1) / part(shape));
    (u64::MAX >> (63 - (last - first))) << first
}

/// Objects in this range of a span have been allocated.
#[inline]
pub(super) fn touched(place: Place, record: &Record, from: usize, len: usize) {
    let clean = record.clean.load(R);
    if clean != 0 {
        record.clean.store(clean & !parts_of(place.shape(), from, len), R);
    }
    if record.refused().load(R) != 0 {
        record.refused().fetch_and(!parts_of(place.shape(), from, len), R);
    }
}

/// Returns the parts of a span without allocated objects that are neither clean nor refused. Exact under the class's
/// lock, otherwise an estimate.
pub(super) fn unused(place: Place, record: &Record) -> u64 {
    let shape = place.shape();
    // Bytes behind the last object are never written to.
    let done = record.clean.load(R) | record.refused().load(R);
    let mut unused = parts_of(shape, 0, shape.capacity * shape.size) & !done;
    for (nth, word) in record.bits.iter().enumerate().take(shape.capacity.div_ceil(IN_A_WORD)) {
        let in_word = (shape.capacity - nth * IN_A_WORD).min(IN_A_WORD);
        // Without the lock, the span may by now be of another class, with more objects.
        let mut out = word.load(R) & (u64::MAX >> (IN_A_WORD - in_word));
        while out != 0 && unused != 0 {
            let index = nth * IN_A_WORD + out.trailing_zeros() as usize;
            unused &= !parts_of(shape, index * shape.size, shape.size);
            out &= out - 1;
        }
    }
    unused
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::layout::class::{CLASSES, shape};

    #[test]
    fn parts() {
        for class in 1..=CLASSES {
            let shape = shape(class);
            let whole = parts_of(shape, 0, shape.chunks * CHUNK);
            assert_eq!(whole.count_ones() as usize * part(shape), shape.chunks * CHUNK);
            let all = (0..shape.capacity).map(|nth| parts_of(shape, nth * shape.size, shape.size));
            assert_eq!(all.fold(0, |all, one| all | one) & !whole, 0);
            assert_eq!((parts_of(shape, 0, 1), parts_of(shape, part(shape) - 1, 2)), (1, 3));
        }
    }
}
