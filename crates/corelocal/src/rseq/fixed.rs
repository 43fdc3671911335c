//! Sections of the tracer whose number of words is known to the compiler.

use super::arch;
use super::exit::Exit;
use super::operand::{Index, Slots};

/// Does what [`trace_push`](super::trace_push) does of 1 to 4 words.
///
/// # Safety
/// - As [`trace_push`](super::trace_push).
#[inline(always)]
pub(crate) unsafe fn trace_push_fixed<const N: usize>(
    index: Index,
    object: &Slots,
    thread: u64,
    words: [u64; N],
) -> Exit {
    const { assert!(N >= 1 && N <= 4) };
    // SAFETY: the caller guarantees what the section needs.
    unsafe { arch::trace_push_fixed(index, object, thread, words) }
}

/// Does what [`trace_push_timed`](super::trace_push_timed) does of 1 to 4 words.
///
/// # Safety
/// - As [`trace_push`](super::trace_push).
#[inline(always)]
pub(crate) unsafe fn trace_push_timed_fixed<const N: usize>(
    index: Index,
    object: &Slots,
    thread: u64,
    time: u64,
    words: [u64; N],
) -> Exit {
    const { assert!(N >= 1 && N <= 4) };
    // SAFETY: the caller guarantees what the section needs.
    unsafe { arch::trace_push_timed_fixed(index, object, thread, time, words) }
}
