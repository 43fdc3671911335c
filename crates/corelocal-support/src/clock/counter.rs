//! The cpu's counter beside the kernel's clocks, for pages that are read by it.
//!
//! Invariant: the counter is read in order with what comes before and after.

use corelocal::clock::page::vmclock;

use super::offset::kernel;

/// Clock sources under which the cpus' counters agree: the kernel has seen to it.
const TRUSTED: &[&str] = if cfg!(target_arch = "x86_64") {
    &["tsc", "kvm-clock", "hyperv_clocksource_tsc_page"]
} else if cfg!(target_arch = "aarch64") {
    &["arch_sys_counter"]
} else {
    &[]
};

/// What vmclock's pages call this processor's counter.
pub const KIND: u8 = if cfg!(target_arch = "x86_64") {
    vmclock::COUNTER_TSC
} else if cfg!(target_arch = "aarch64") {
    vmclock::COUNTER_ARM
} else {
    vmclock::COUNTER_NONE
};

/// Whether this processor's counter is read.
pub const IS_READ: bool = KIND != vmclock::COUNTER_NONE;

/// Returns why pages that are read by the counter are not for this machine.
pub fn obstacle(clocksource: &str) -> Option<String> {
    if !IS_READ {
        return Some(
            "the counter of this processor is not read; use --encoding clockbound".to_owned(),
        );
    }
    (!TRUSTED.contains(&clocksource)).then(|| {
        let source = if clocksource.is_empty() { "unknown" } else { clocksource };
        format!(
            "the kernel's clock source is {source}, so the cpus' counters may disagree; publish with --encoding \
             clockbound, which needs no counter"
        )
    })
}

/// Returns the counter.
#[cfg(target_arch = "x86_64")]
pub fn read() -> u64 {
    use core::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: part of every x86-64; Linux leaves the counter readable unless the process asked for a
    // fault (PR_SET_TSC), which nothing here does.
    unsafe {
        _mm_lfence();
        let counter = _rdtsc();
        _mm_lfence();
        counter
    }
}

/// Returns the counter.
#[cfg(target_arch = "aarch64")]
pub fn read() -> u64 {
    let counter;
    // SAFETY: Linux lets user space read the virtual counter.
    unsafe {
        core::arch::asm!("isb", "mrs {}, cntvct_el0", "isb", out(reg) counter, options(nostack, preserves_flags));
    }
    counter
}

/// Returns 0: there is none.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn read() -> u64 {
    0
}

/// The counter, the time of one of the kernel's clocks, and `CLOCK_MONOTONIC_RAW`, at one moment.
///
/// `CLOCK_MONOTONIC_RAW` is the counter in nanoseconds: no daemon can slew it, so it shows what was done to the
/// other clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// The counter.
    pub counter: u64,
    /// The time in nanoseconds.
    pub nanos: u64,
    /// The time of `CLOCK_MONOTONIC_RAW`, in nanoseconds.
    pub raw: u64,
    /// The uncertainty of the counter, in ticks.
    pub error: u64,
    /// The uncertainty of `raw`, in nanoseconds.
    pub width: u64,
}

impl Point {
    /// Returns now: the best of some attempts.
    pub fn now(clock: libc::clockid_t) -> Point {
        let attempts = (0..16).map(|_| {
            let raw = kernel(libc::CLOCK_MONOTONIC_RAW);
            let before = read();
            let nanos = kernel(clock);
            let ticks = read().saturating_sub(before);
            let width = kernel(libc::CLOCK_MONOTONIC_RAW).saturating_sub(raw);
            Point {
                counter: before + ticks / 2,
                nanos,
                raw: raw + width / 2,
                error: ticks / 2 + 1,
                width: width / 2 + 1,
            }
        });
        attempts.min_by_key(|point| (point.error, point.width)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_between_two_looks() {
        let before = kernel(libc::CLOCK_MONOTONIC);
        let point = Point::now(libc::CLOCK_MONOTONIC);
        assert!((before..=kernel(libc::CLOCK_MONOTONIC)).contains(&point.nanos));
    }

    #[test]
    fn a_source_that_says_nothing_of_counters() {
        assert!(obstacle("hpet").is_some_and(|why| why.contains("clockbound")));
        assert!(obstacle("").is_some());
        assert_eq!(obstacle("tsc").is_none(), cfg!(target_arch = "x86_64"));
        assert_eq!(obstacle("arch_sys_counter").is_none(), cfg!(target_arch = "aarch64"));
    }
}
