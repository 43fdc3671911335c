//! Size classes. An object has the smallest class that its size fits in.
//!
//! ```text
//!   16 … 128      in steps of 16             at most 15 bytes wasted
//!   … 1 KiB       8 per doubling             at most 1/8 wasted
//!   … 1 MiB       4 per doubling             at most 1/4 wasted; untouched pages of it use no memory
//! ```
//! Larger objects have no class (`page_heap/large.rs`). The map has one byte for each chunk: the class of its objects,
//! or one of the values [`NOTHING`], [`LARGE`], [`INSIDE`] and [`GUARDED`].
//!
//! # Invariants
//! 1. Class sizes are multiples of 16 and grow with the class number. Number 0 is not a class.
//! 2. A span is a power of two of chunks, aligned to its own length, and at least as long as an object. Objects are
//!    therefore aligned to the largest power of two that divides their size.
//! 3. All tables are computed at compile time.

use super::chunk::CHUNK;
use super::stack::{self, MOST_ITEMS};
use crate::sys::arch::address_here;

/// The alignment of all objects.
pub(in crate::alloc) const ALIGNED: usize = 16;
/// Classes are numbered from 1 to `CLASSES`.
pub(in crate::alloc) const CLASSES: usize = 72;
/// The largest size that has a class.
pub(in crate::alloc) const LARGEST: usize = 1 << 20;
/// A value of a map byte, besides class numbers: the chunk is free or not in use by objects.
pub(in crate::alloc) const NOTHING: u8 = 0;
/// The first chunk of a large object.
pub(in crate::alloc) const LARGE: u8 = CLASSES as u8 + 1;
/// A further chunk of a large object.
pub(in crate::alloc) const INSIDE: u8 = LARGE + 1;
/// A chunk in which objects have pages of their own (`debug/guard.rs`).
pub(in crate::alloc) const GUARDED: u8 = INSIDE + 1;
/// The number of values of a map byte.
pub(in crate::alloc) const KINDS: usize = GUARDED as usize + 1;
/// Classes of sizes up to this one come from a table; those of larger sizes are computed.
const LOOKED_UP: usize = 1024;
/// The most objects that move at once between a core's stack and the middle end.
pub(in crate::alloc) const MOST_BATCH: usize = 128;
/// The same limit while a stack has its first size.
const FIRST_BATCH: usize = 64;
/// The capacity of a depot.
const MOST_DEPOT: usize = 2048;
/// The most bytes of one class on a core's stack; one object is always allowed.
const FRONT_BYTES: usize = 256 << 10;
/// The most bytes that move at once; one object is always allowed. A stack's first size is twice that.
const BATCH_BYTES: usize = 32 << 10;
/// The most bytes of one class in a depot; one object is always allowed.
const DEPOT_BYTES: usize = 512 << 10;

/// Returns the object size of a class.
const fn size_of_class(class: usize) -> usize {
    match class {
        0..=8 => 16 * class,
        9..=32 => {
            let base = 128 << ((class - 9) / 8);
            base + base / 8 * ((class - 9) % 8 + 1)
        }
        _ => {
            let base = 1024 << ((class - 33) / 4);
            base + base / 4 * ((class - 33) % 4 + 1)
        }
    }
}

/// Precomputed properties of a class.
#[derive(Clone, Copy)]
pub(in crate::alloc) struct Shape {
    pub(in crate::alloc) size: usize,
    /// Chunks in a span.
    pub(in crate::alloc) chunks: usize,
    /// Objects in a span.
    pub(in crate::alloc) capacity: usize,
    /// Objects that move at once between a core's stack and the middle end, at first.
    pub(in crate::alloc) batch: usize,
    /// The most objects that a core's stack keeps.
    pub(in crate::alloc) most: usize,
    /// The most objects that the depot keeps.
    pub(in crate::alloc) depot: usize,
    /// 2^44 / size, rounded up: divides an offset by the size.
    reciprocal: u64,
    /// 2^32 · [`FULLNESSES`] / capacity, rounded down: see `fullness_of`.
    fullness: u64,
}

/// Degrees of fullness by which spans are sorted.
pub(in crate::alloc) const FULLNESSES: usize = 4;

const fn clamp(n: usize, least: usize, most: usize) -> usize {
    match n {
        n if n < least => least,
        n if n > most => most,
        n => n,
    }
}

impl Shape {
    const fn of(class: usize) -> Shape {
        let size = size_of_class(class);
        let chunks = match size {
            0..=0x2000 => 1,
            0x2001..=0x8000 => 4,
            0x8001..=0x20000 => 16,
            _ => 32,
        };
        let by = if size == 0 { 1 } else { size };
        let capacity = chunks * CHUNK / by;
        Shape {
            size,
            chunks,
            capacity,
            batch: clamp(BATCH_BYTES / by, 1, FIRST_BATCH),
            most: clamp(FRONT_BYTES / by, 1, MOST_ITEMS - FIRST_BATCH),
            depot: clamp(DEPOT_BYTES / by, 1, MOST_DEPOT),
            reciprocal: (1u64 << 44).div_ceil(by as u64),
            fullness: ((FULLNESSES as u64) << 32) / capacity as u64,
        }
    }

    /// Returns the degree of fullness of a span with `out` objects in use, which must not be all of them; below
    /// [`FULLNESSES`].
    #[inline]
    pub(in crate::alloc) fn fullness_of(&self, out: usize) -> usize {
        ((out as u64 * self.fullness) >> 32) as usize
    }

    /// Returns the index of the object that begins `offset` bytes into a span; `None` if none does.
    ///
    /// The quotient is exact. Offsets are below 2^21 and sizes at most 2^20, so the rounding of the reciprocal adds
    /// less than 2^-23, and a quotient that is not whole is at least 2^-20 below the next whole number.
    #[inline]
    pub(in crate::alloc) fn index_of(&self, offset: usize) -> Option<usize> {
        let index = ((offset as u64 * self.reciprocal) >> 44) as usize;
        (index * self.size == offset && index < self.capacity).then_some(index)
    }
}

static SHAPES: [Shape; CLASSES + 1] = {
    let mut shapes = [Shape::of(0); CLASSES + 1];
    let mut class = 1;
    while class <= CLASSES {
        shapes[class] = Shape::of(class);
        class += 1;
    }
    shapes
};

/// For each size up to `LOOKED_UP`: the offset of its class's stack in a slot. By size, and not by sixteenths of it: that
/// would be two instructions more, and a program uses few lines of the table.
static SMALL: [u32; LOOKED_UP + 1] = {
    let mut small = [stack::at(1) as u32; LOOKED_UP + 1];
    let (mut class, mut size) = (1, 1);
    while size < small.len() {
        while size_of_class(class) < size {
            class += 1;
        }
        small[size] = stack::at(class) as u32;
        size += 1;
    }
    small
};

/// Returns the properties of a class, at most [`CLASSES`].
#[inline]
pub(in crate::alloc) fn shape(class: usize) -> &'static Shape {
    &SHAPES[class]
}

/// Returns the class of a size; `None` for a large size.
#[inline(always)]
pub(in crate::alloc) fn of_size(size: usize) -> Option<usize> {
    stack_of_size(size).map(stack::class_of)
}

/// Returns the offset in a slot of the stack of a size's class; `None` for a large size.
#[inline(always)]
pub(in crate::alloc) fn stack_of_size(size: usize) -> Option<usize> {
    if size <= LOOKED_UP {
        // SAFETY: the table, which has an entry for each such size.
        return Some(unsafe { *address_here!(SMALL).cast::<u32>().add(size) } as usize);
    }
    rarely();
    if size <= LARGEST {
        // The doubling that the size lies in, and its quarter of that doubling: 4 to 7.
        let doubling = (size - 1).ilog2() as usize;
        return Some(stack::at(4 * doubling + ((size - 1) >> (doubling - 2)) - 11));
    }
    None
}

/// Marks a path as unlikely, so that the compiler moves it out of line.
#[cold]
fn rarely() {}

/// Returns the offset in a slot of the stack for this size and alignment; `None` if no class fits, or `align` is not a
/// power of two.
///
/// The class is that of the size rounded up to the alignment. Between two powers of two, classes are a quarter of the
/// smaller power apart, so they are multiples of that quarter. A larger alignment is a multiple of it as well, and
/// then the rounded size is itself a class.
#[inline(always)]
pub(in crate::alloc) fn stack_of_aligned(align: usize, size: usize) -> Option<usize> {
    // Both are below twice the largest size: so the sum does not overflow, and `stack_of_size` refuses what is too large.
    if !align.is_power_of_two() || (align | size) >= 2 * LARGEST {
        return None;
    }
    stack_of_size((size.max(1) + (align - 1)) & !(align - 1))
}

/// Returns the smallest class for this size and alignment; `None` if no class fits.
pub(in crate::alloc) fn of_aligned(align: usize, size: usize) -> Option<usize> {
    stack_of_aligned(align, size).map(stack::class_of)
}

#[cfg(test)]
mod tests;
