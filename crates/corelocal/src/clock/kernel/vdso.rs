//! Back-end 4, the one that every other falls back to: the kernel's own function for reading clocks.
//!
//! # Data's way
//! `read(clock)` → the vDSO's `clock_gettime`, called without libc's detour → nanoseconds (`sys/kernel_clock.rs`). With
//! `CORELOCAL_CLOCK=libc` in the environment → libc's function, which a preloaded library such as libfaketime may
//! answer.

use crate::primitive::global::{AtomicU32, Ordering};
use crate::sys::kernel_clock;
use crate::sys::process::environment;

/// The function that reads the clock, once it is known: the kernel's or libc's. Relaxed everywhere: every thread finds
/// the same.
static WHOSE: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = 0;
const KERNELS: u32 = 1;
const LIBCS: u32 = 2;

/// Returns the clock's time in nanoseconds; 0 where the kernel does not have the clock, which every kernel since
/// 3.10 has of those used here. Async-signal-safe.
#[inline]
pub(in crate::clock) fn read(clock: libc::clockid_t) -> u64 {
    match WHOSE.load(Ordering::Relaxed) {
        KERNELS => kernel_clock::nanoseconds(clock),
        _ => read_cold(clock),
    }
}

#[cold]
fn read_cold(clock: libc::clockid_t) -> u64 {
    if !is_libcs() {
        return kernel_clock::nanoseconds(clock);
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the answer.
    match unsafe { libc::clock_gettime(clock, &mut time) } {
        0 => (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64),
        _ => 0,
    }
}

/// Returns `true` if libc's function is to be asked.
pub(in crate::clock) fn is_libcs() -> bool {
    match WHOSE.load(Ordering::Relaxed) {
        UNKNOWN => {
            // SAFETY: used at once.
            let is_wanted = unsafe { environment::variable(c"CORELOCAL_CLOCK") } == Some(c"libc");
            let whose = if is_wanted { LIBCS } else { KERNELS };
            // Before libc has an environment nothing is decided.
            if environment::is_there() {
                WHOSE.store(whose, Ordering::Relaxed);
            }
            is_wanted
        }
        known => known == LIBCS,
    }
}
