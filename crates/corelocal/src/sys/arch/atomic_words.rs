//! Words of a thread's own where the processor has no instruction that an interrupt of this cpu comes before or after:
//! atomics change them. All are Relaxed: only the thread itself, its signal handlers and the kernel access the words.

use core::arch::asm;

use super::own_area::{own_word, own_word_pair, thread_address};
use crate::primitive::global::{AtomicU32, Ordering};

/// Returns the same number, of which the compiler knows nothing.
#[inline(always)]
pub(crate) fn opaque(mut number: usize) -> usize {
    // SAFETY: no instruction.
    unsafe {
        asm!("/* {} */", inout(reg) number, options(pure, nomem, nostack, preserves_flags));
    }
    number
}

/// Returns what a pair of own words holds: one load.
#[inline(always)]
pub(crate) fn read_own_word_pair<const AT: usize>() -> Option<u64> {
    const { assert!(AT % 2 == 0, "an aligned word of 64 bits") };
    own_word_pair(AT).map(|pair| pair.load(Ordering::Relaxed))
}

/// Adds 1 to such a pair. Atomic, so a signal handler that does the same is counted.
#[inline(always)]
pub(crate) fn increment_own_word_pair<const AT: usize>() {
    const { assert!(AT % 2 == 0, "an aligned word of 64 bits") };
    if let Some(pair) = own_word_pair(AT) {
        pair.fetch_add(1, Ordering::Relaxed);
    }
}

/// Adds 1 to such a word, and returns what it held. Atomic, so a signal handler that does the same draws another
/// number.
#[inline(always)]
pub(crate) fn take_number_of_own_word<const AT: usize>() -> u32 {
    own_word(AT).map_or(0, |word| word.fetch_add(1, Ordering::Relaxed))
}

/// Returns the 32-bit field at `offset` from the thread pointer.
///
/// # Safety
/// - `offset` lies in the rseq area of libc or in our own.
#[inline(always)]
unsafe fn field(offset: isize) -> &'static AtomicU32 {
    // SAFETY: the caller names an aligned field of this thread's TLS.
    unsafe { AtomicU32::from_ptr(thread_address(offset).cast()) }
}

/// Writes the 32-bit field at `offset` from the thread pointer.
///
/// # Safety
/// - `offset` is that of a field in the rseq area of libc or in our own, which the kernel lets the thread write.
#[inline(always)]
pub(crate) unsafe fn write_field(offset: isize, value: u32) {
    // SAFETY: the caller names a writable field.
    unsafe { field(offset) }.store(value, Ordering::Relaxed);
}

/// Clears the lowest bit of such a field; whether it was set. Atomic, so that an interrupt of this cpu comes before it
/// or after: the kernel's return from it ends a pair of instructions that load and store in one.
///
/// # Safety
/// - The conditions of [`write_field`] hold.
#[inline(always)]
pub(crate) unsafe fn take_lowest_bit(offset: isize) -> bool {
    // SAFETY: the caller names a writable field.
    let before = unsafe { field(offset) }.fetch_and(!1, Ordering::Relaxed);
    before & 1 != 0
}
