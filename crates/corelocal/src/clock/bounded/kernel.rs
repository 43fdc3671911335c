//! What the kernel was told of the clock's error, by `adjtimex(2)`.

use core::mem::MaybeUninit;

use crate::sys::Errno;

/// The kernel's answer to `adjtimex`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::clock) struct Answer {
    /// The clock's state, or the number of the error.
    pub(in crate::clock) state: Result<i32, i32>,
    /// The realtime clock at the call, in nanoseconds.
    pub(in crate::clock) time: u64,
    pub(in crate::clock) status: i32,
    /// The maximum error, in microseconds.
    pub(in crate::clock) max_error: u32,
    /// The nanoseconds by which the kernel is still going to slew the clock.
    pub(in crate::clock) offset: u64,
}

/// Asks the kernel. Changes nothing, needs no privilege.
#[allow(clippy::unnecessary_cast, reason = "a long has 32 bits elsewhere")]
pub(in crate::clock) fn ask() -> Answer {
    // SAFETY: integers, of which zero is a value; `modes` of 0 changes nothing.
    let mut answer: libc::timex = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: a valid request, into which the answer goes.
    let state = unsafe { libc::adjtimex(&mut answer) };
    let is_nano = answer.status & libc::STA_NANO != 0;
    let unit = if is_nano { 1 } else { 1000 };
    let rest = (answer.time.tv_usec as u64).wrapping_mul(unit);
    Answer {
        state: if state < 0 { Err(Errno::last().0) } else { Ok(state) },
        time: (answer.time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(rest),
        status: answer.status,
        max_error: u32::try_from(answer.maxerror).unwrap_or(u32::MAX),
        offset: (answer.offset as i64).unsigned_abs().saturating_mul(unit),
    }
}
