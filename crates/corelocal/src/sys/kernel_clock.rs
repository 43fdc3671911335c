//! The kernel's clocks, read by the vDSO's function or by a system call: never by libc's function, which a preloaded
//! library may answer with another time, or by allocating.
//!
//! # Invariant
//! 1. [`FUNCTION`] holds 0 (not looked up), or the address of a function of the type [`ClockGettime`] that stays: the vDSO's,
//!    which is mapped as long as the process (a child of fork has it at the same place), or [`by_call`].

use core::ffi::c_int;
use core::mem;

use super::syscall::syscall;
use super::vdso;
use crate::primitive::global::{AtomicUsize, Ordering};

/// The signature of `__vdso_clock_gettime`, by vdso(7).
pub(crate) type ClockGettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int;

/// The function that reads clocks (invariant 1). Relaxed everywhere: every thread finds the same.
static FUNCTION: AtomicUsize = AtomicUsize::new(0);

/// The function's name, by vdso(7).
pub(super) const NAME: &str =
    if cfg!(any(target_arch = "aarch64", target_arch = "powerpc64", target_arch = "s390x")) {
        "__kernel_clock_gettime"
    } else {
        "__vdso_clock_gettime"
    };

/// Returns the function that reads clocks: the vDSO's, or one that makes a system call where there is no vDSO
/// (valgrind, the boot parameter `vdso=0`).
pub(crate) fn function() -> ClockGettime {
    let address = match FUNCTION.load(Ordering::Relaxed) {
        0 => look_up(),
        address => address,
    };
    // SAFETY: invariant 1.
    unsafe { mem::transmute::<*const (), ClockGettime>(address as *const ()) }
}

#[cold]
fn look_up() -> usize {
    let found = if cfg!(any(miri, loom)) { None } else { vdso::symbol(NAME) };
    let address = found.map_or(by_call as ClockGettime as usize, |function| function as usize);
    FUNCTION.store(address, Ordering::Relaxed);
    address
}

/// Calls `clock_gettime(clock, time)`, see clock_gettime(2).
#[doc(alias = "clock_gettime")]
unsafe extern "C" fn by_call(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    if cfg!(miri) {
        // SAFETY: the caller's place for the answer.
        return unsafe { libc::clock_gettime(clock, time) };
    }
    let args = [clock as usize, time as usize, 0, 0, 0, 0];
    // SAFETY: the caller's place for the answer.
    let result = unsafe { syscall(libc::SYS_clock_gettime, args) };
    if result.is_ok() { 0 } else { -1 }
}

/// Returns what the clock shows; 1970, or the zero of the clock, where the kernel does not have it: every kernel since
/// 3.10 has those used here. Async-signal-safe, `errno` stays.
#[inline]
pub(crate) fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the answer.
    unsafe { function()(clock, &mut time) };
    time
}

/// Returns what `read` says, in nanoseconds.
#[inline]
pub fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let time = read(clock);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// Returns milliseconds of a monotonic clock, behind by a few at most.
pub(crate) fn coarse_milliseconds() -> u64 {
    nanoseconds(libc::CLOCK_MONOTONIC_COARSE) / 1_000_000
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
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            let before = nanoseconds(clock);
            // SAFETY: a place for the answer.
            assert_eq!(unsafe { libc::clock_gettime(clock, &mut time) }, 0);
            let by_libc = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
            assert!(before > 0 && before <= by_libc && by_libc <= nanoseconds(clock), "{clock}");
            // SAFETY: a place for the answer.
            assert_eq!(unsafe { by_call(clock, &mut time) }, 0);
        }
    }

    #[test]
    fn an_unknown_clock_is_zero() {
        assert_eq!(nanoseconds(libc::c_int::MAX), 0);
    }
}
