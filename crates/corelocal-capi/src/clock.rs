//! Time, read in place.

use core::ffi::c_int;
use core::time::Duration;

use corelocal::clock;
use corelocal::clock::Unbounded;

/// Returns a time span of C's; `None` for a negative number, which stands for no limit.
pub fn span(nanoseconds: i64) -> Option<Duration> {
    u64::try_from(nanoseconds).ok().map(Duration::from_nanos)
}

/// Returns CLOCK_MONOTONIC in nanoseconds. Never earlier than a reading that happens before, on whatever cpu, by whichever
/// thread.
///
/// All functions of this header take constant time and may be called by any thread, in signal handlers, before main, and in
/// children of fork. No system call where the kernel's clock page or the vDSO can be read.
///
/// Source: clock_gettime(2), the vDSO's data page.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_clock_monotonic() -> u64 {
    clock::monotonic()
}

/// Returns CLOCK_MONOTONIC in nanoseconds. Cheaper: the cpu may read the clock some nanoseconds before it is done with what
/// comes first in the program.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_clock_monotonic_unordered() -> u64 {
    clock::monotonic_unordered()
}

/// Returns CLOCK_REALTIME in nanoseconds since 1970-01-01 00:00:00 UTC.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_clock_realtime() -> u64 {
    clock::realtime()
}

/// Returns CLOCK_BOOTTIME in nanoseconds: CLOCK_MONOTONIC, and the time the machine was suspended.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_clock_boottime() -> u64 {
    clock::boottime()
}

/// Returns CLOCK_TAI in nanoseconds.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_clock_tai() -> u64 {
    clock::tai()
}

/// Returns CLOCK_MONOTONIC at the last timer tick, in nanoseconds: up to some milliseconds ago.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_clock_coarse() -> u64 {
    clock::coarse()
}

/// Returns CLOCK_REALTIME at the last timer tick, in nanoseconds.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_clock_realtime_coarse() -> u64 {
    clock::realtime_coarse()
}

/// The bounds of the true time, in nanoseconds since 1970-01-01 00:00:00 UTC.
#[repr(C)]
pub struct corelocal_bounded_time {
    earliest: i64,
    latest: i64,
}

/// Stores the bounds between which the true time is, by what the kernel's time daemon says of its error.
///
/// Returns 0, -ENODATA if the clock is not synchronised, -ESTALE if the machine slept or was moved since it was, or the
/// error of a refused clock_adjtime(2).
///
/// # Safety
/// - See the crate's invariant 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_clock_bounded(now: *mut corelocal_bounded_time) -> c_int {
    let bounded = match clock::now_bounded() {
        Ok(bounded) => bounded,
        Err(Unbounded::Unsynchronised) => return -libc::ENODATA,
        Err(Unbounded::Disrupted) => return -libc::ESTALE,
        Err(Unbounded::Untold(errno)) => return -errno.0,
        Err(_) => return -libc::EIO,
    };
    let bounds = corelocal_bounded_time {
        earliest: bounded.earliest.as_nanos(),
        latest: bounded.latest.as_nanos(),
    };
    // SAFETY: by the contract.
    unsafe { now.write(bounds) };
    0
}

/// Finds the best way to read the clock now instead of in passing: some 20 ms, 100 ms at most. Afterwards readings make no
/// system call, unless the vDSO does. Not for signal handlers.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_clock_settle() {
    let _ = clock::settle();
}
