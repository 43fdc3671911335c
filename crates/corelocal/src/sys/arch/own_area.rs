//! The library's own area: a TLS object of the initial-exec model, 64 bytes and 34 words.
//!
//! Every address of a thread's area is an offset from the thread pointer, so one process-wide offset is valid for all
//! threads. The area is accessed without a call, and therefore also inside a signal handler and inside malloc. Its
//! initial image has `cpu_id = -1` and `mm_cid = NO_ID`, so a thread looks unregistered from its first instruction on.

use core::arch::global_asm;

use super::{NO_ID, OWN_AREA_ALIGN, OWN_AREA_LEN};
use super::imp::{own_area_offset, read_field, thread_pointer};

// The name carries the version: two versions of this crate in one program must not share one.
global_asm!(
    ".pushsection .tdata.__corelocal_rseq_0_1, \"awT\", %progbits",
    ".hidden __corelocal_rseq_0_1",
    ".globl __corelocal_rseq_0_1",
    ".type __corelocal_rseq_0_1, %object",
    ".size __corelocal_rseq_0_1, 192",
    ".balign {align}",
    "__corelocal_rseq_0_1:",
    ".long 0",  // cpu_id_start
    ".long -1", // cpu_id: RSEQ_CPU_ID_UNINITIALIZED
    ".quad 0",  // rseq_cs
    ".long 0",  // flags
    ".long 0",  // node_id
    ".long {no_id}", // mm_cid: the kernel has not written one
    ".zero 36",
    ".zero 136", // the words of `own_word`: 34, with room for more
    ".popsection",
    no_id = const NO_ID,
    align = const OWN_AREA_ALIGN,
);

/// Returns the address `offset` bytes from the calling thread's thread pointer.
#[inline]
pub(crate) fn thread_address(offset: isize) -> *mut u8 {
    thread_pointer().wrapping_offset(offset)
}

/// Returns where one of the calling thread's own words is, from the thread pointer: see
/// [`own_words`](super::own_words).
#[inline(always)]
fn own_word_offset(at: usize) -> isize {
    own_area_offset() + (OWN_AREA_LEN + 4 * at) as isize
}

/// Returns one of the calling thread's own words beside its area, zero at first.
#[inline(always)]
pub(crate) fn own_word(at: usize) -> Option<&'static crate::primitive::global::AtomicU32> {
    let word = thread_address(own_word_offset(at)).cast::<u32>();
    // SAFETY: static TLS of the calling thread, aligned, behind the area; used by this thread
    // alone, its signal handlers included, while it lives.
    Some(unsafe { crate::primitive::global::AtomicU32::from_ptr(word) })
}

/// Whether threads have such words.
pub(crate) const HAS_OWN_WORDS: bool = true;

/// Returns two neighbouring ones of such words, as one of 64 bits.
#[inline(always)]
pub(crate) fn own_word_pair(at: usize) -> Option<&'static crate::primitive::global::AtomicU64> {
    debug_assert!(at % 2 == 0);
    let word = thread_address(own_word_offset(at)).cast::<u64>();
    // SAFETY: static TLS of the calling thread, aligned since `at` is even, behind the area; used by this thread alone,
    // its signal handlers included, while it lives.
    Some(unsafe { crate::primitive::global::AtomicU64::from_ptr(word) })
}

/// Returns what such a word holds: one load.
#[inline(always)]
pub(crate) fn read_own_word(at: usize) -> u32 {
    // SAFETY: the offset is that of a word behind our own area.
    unsafe { read_field(own_word_offset(at)) }
}
