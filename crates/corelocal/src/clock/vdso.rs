//! Back-end 4, the one that every other falls back to: the kernel's own function for reading clocks.
//!
//! # Data's way
//! `read(clock)` → the vDSO's `clock_gettime`, called without libc's detour → nanoseconds. Where there is
//! no vDSO (valgrind, the boot parameter `vdso=0`) or it cannot serve the clock source, it is a system call.
//!
//! # Invariant
//! 1. [`FUNCTION`] holds 0 (not looked up), [`LIBC`], or the address of a function of the vDSO of the type
//!    [`ClockGettime`], which stays mapped as long as the process (a child of fork has it at the same place).

use core::mem;

use crate::primitive::global::{AtomicUsize, Ordering};
use crate::sys::vdso;

/// What vdso(7) says of `__vdso_clock_gettime`.
type ClockGettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;

/// See invariant 1. Relaxed everywhere: the word is all there is, and every thread finds the same.
static FUNCTION: AtomicUsize = AtomicUsize::new(0);

/// There is no vDSO: libc knows what to do instead.
const LIBC: usize = 1;

#[cfg(target_arch = "x86_64")]
const NAME: &str = "__vdso_clock_gettime";
#[cfg(not(target_arch = "x86_64"))]
const NAME: &str = "__kernel_clock_gettime";

/// The clock's time in nanoseconds; 0 where the kernel does not have the clock, which every kernel since
/// 3.10 has of those used here. Async-signal-safe.
#[inline]
pub(super) fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let address = match FUNCTION.load(Ordering::Relaxed) {
        0 => look_up(),
        address => address,
    };
    let failed = if address == LIBC {
        // SAFETY: a place for the answer.
        unsafe { libc::clock_gettime(clock, &mut time) }
    } else {
        // SAFETY: invariant 1.
        let read = unsafe { mem::transmute::<*const (), ClockGettime>(address as *const ()) };
        // SAFETY: a place for the answer.
        unsafe { read(clock, &mut time) }
    };
    if failed != 0 {
        return 0;
    }
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

#[cold]
fn look_up() -> usize {
    let found = if cfg!(any(miri, loom)) { None } else { vdso::symbol(NAME) };
    let address = found.map_or(LIBC, |function| function as usize);
    FUNCTION.store(address, Ordering::Relaxed);
    address
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_clock_is_there_and_agrees_with_libc() {
        for clock in [
            libc::CLOCK_REALTIME,
            libc::CLOCK_MONOTONIC,
            libc::CLOCK_BOOTTIME,
            libc::CLOCK_TAI,
            libc::CLOCK_MONOTONIC_COARSE,
            libc::CLOCK_REALTIME_COARSE,
        ] {
            let mut by_libc = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            let before = read(clock);
            // SAFETY: a place for the answer.
            assert_eq!(unsafe { libc::clock_gettime(clock, &mut by_libc) }, 0);
            let by_libc = by_libc.tv_sec as u64 * 1_000_000_000 + by_libc.tv_nsec as u64;
            assert!(before > 0 && before <= by_libc && by_libc <= read(clock), "clock {clock}");
        }
    }

    #[test]
    fn an_unknown_clock_is_zero() {
        assert_eq!(read(libc::c_int::MAX), 0);
    }
}
