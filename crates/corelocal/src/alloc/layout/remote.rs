//! The memory of another process, by a function that reads it.
//!
//! Invariant: whatever is read is a value of its type, and addresses are only given to that function.

use core::mem::MaybeUninit;
use core::slice;

/// Types of which any bytes are a value: integers, atomic ones, and structures and arrays of them.
///
/// # Safety
/// - That is so.
pub(in crate::alloc) unsafe trait Plain {}
// SAFETY: integers and atomics (pointers among them, which are not followed).
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl Plain for usize {}
// SAFETY: an array of such.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Memory that cannot be read, or whose process has ended.
#[derive(Clone, Copy, Debug)]
pub(in crate::alloc) struct Unreadable;

/// Reads bytes at an address; false if that fails.
pub(in crate::alloc) type Read<'a> = &'a mut dyn FnMut(usize, &mut [u8]) -> bool;

/// The memory of the process.
pub(in crate::alloc) struct Remote<'a>(pub(in crate::alloc) Read<'a>);

impl Remote<'_> {
    /// Returns the value at an address.
    pub(in crate::alloc) fn get<T: Plain>(&mut self, at: usize) -> Result<T, Unreadable> {
        let mut value = MaybeUninit::<T>::zeroed();
        // SAFETY: the bytes of the value, which are initialised, and of which any are valid.
        let bytes = unsafe { slice::from_raw_parts_mut(value.as_mut_ptr().cast(), size_of::<T>()) };
        match (self.0)(at, bytes) {
            // SAFETY: initialised, and any bytes are a value.
            true => Ok(unsafe { value.assume_init() }),
            false => Err(Unreadable),
        }
    }
}
