//! The fields and calls by which a thread asks for a longer time slice: `rseq::slice` says what they mean.
//!
//! Invariants: those of `rseq/slice.rs`. The fields lie within the 32 bytes that every registration has.

use super::{area, field, read, register_this_thread};
use crate::sys::arch;
use crate::sys::errno::Errno;
use crate::sys::syscall::syscall;

/// The bits of the field `flags`, which the kernel writes.
const AVAILABLE: u32 = 1 << 4;
const ENABLED: u32 = 1 << 5;

const PR_RSEQ_SLICE_EXTENSION: usize = 79;
const SET: usize = 2;
const ENABLE: usize = 1;
/// The number of `rseq_slice_yield` on every architecture.
const SYS_RSEQ_SLICE_YIELD: libc::c_long = 471;

/// The value of `request`, and in the byte above that of `granted`.
const REQUEST: u32 = 1;
const GRANTED: u32 = 1 << 8;

fn flags() -> u32 {
    // SAFETY: a field of the area in use.
    unsafe { read(area() + field::FLAGS) }
}

pub(crate) fn is_available() -> bool {
    register_this_thread().is_ok() && flags() & AVAILABLE != 0
}

#[inline]
pub(crate) fn is_enabled() -> bool {
    // Without sections all fields read alike.
    arch::SECTIONS && flags() & ENABLED != 0
}

/// Calls `prctl(PR_RSEQ_SLICE_EXTENSION, PR_RSEQ_SLICE_EXTENSION_SET, PR_RSEQ_SLICE_EXT_ENABLE)`, see prctl(2).
#[doc(alias = "prctl")]
pub(crate) fn enable() -> Result<(), Errno> {
    let args = [PR_RSEQ_SLICE_EXTENSION, SET, ENABLE, 0, 0, 0];
    // SAFETY: no addresses.
    unsafe { syscall(libc::SYS_prctl, args) }.map(drop)
}

/// Requests an extension of the time slice, in a thread for which that is enabled.
#[inline]
pub(crate) fn request() {
    // SAFETY: a field of the area in use, which the kernel left to this thread by enabling it. It grants nothing
    // without a request, so nothing is overwritten.
    unsafe { arch::write_field(area() + field::SLICE, REQUEST) }
}

/// Takes the request back; whether it was there still.
#[inline]
pub(crate) fn take_request() -> bool {
    // SAFETY: as in `request`.
    unsafe { arch::take_lowest_bit(area() + field::SLICE) }
}

#[inline]
pub(crate) fn is_granted() -> bool {
    // SAFETY: a field of the area in use.
    unsafe { read(area() + field::SLICE) & GRANTED != 0 }
}

/// Calls `rseq_slice_yield()`, Linux 7.0, `kernel/rseq.c`.
///
/// Gives up the cpu at the end of an extension (`rseq_slice_yield(2)`).
#[doc(alias = "rseq_slice_yield")]
#[cold]
pub(crate) fn give_back() {
    // SAFETY: no arguments. Refused, the kernel took the time back already.
    let _ = unsafe { syscall(SYS_RSEQ_SLICE_YIELD, [0; 6]) };
}
