//! Time, read in place.
//!
//! The kernel publishes in memory what its clocks need: when the last tick was, and how fast the cpu's counter runs.
//! libc and the vDSO read it behind two calls and a choice among clocks. Reading it directly costs a quarter less, to
//! the same nanosecond; unordered, half of it.
//!
//! ```
//! use corelocal::clock;
//!
//! let start = clock::now();
//! let took = start.elapsed();
//!
//! let since_boot: u64 = clock::monotonic(); // nanoseconds of CLOCK_MONOTONIC
//! let cheaper = clock::monotonic_unordered();
//! let date = clock::Timestamp::now();
//! # let _ = (took, since_boot, cheaper, date);
//! ```
//!
//! # Ordered and unordered
//! An ordered reading is made after all earlier reads of the thread: if one thread reads the clock and passes the
//! time to another, which then reads it, the second time is not earlier than the first. An unordered one saves the
//! fence, 6 ns of 15. The cpu may make it a few nanoseconds early, so two threads that compare readings may, rarely,
//! see time go back by that much. Within a thread both rise.
//!
//! # Back-ends
//! The fast ways rely on interfaces that are not stable, so each is verified first:
//!
//! | | reads | compared with the vDSO | used if |
//! |---|---|---|---|
//! | 1 | the vDSO's own data | exact | its layout is known and a thousand readings lay between the vDSO's |
//! | 2 | KVM's page for its guest, between samples of the vDSO | some 20 ns | the page exists and is valid for all cpus |
//! | 3 | the cpu's counter, between samples of the vDSO | some 20 ns | the kernel's clock source is that counter |
//! | 4 | the vDSO | | always |
//!
//! At first the vDSO is used, while the best of the others is compared with it in passing; [`settle`] does the
//! comparisons at once. Any inconsistency leads to the next back-end, permanently: [`status()`] counts them.
//! Back-ends 2 and 3 take a sample every 32 ms, and are off by up to 16 us for two of these periods after NTP changed
//! the clock's rate by its maximum. A step of the realtime clock shows with the next sample.
//!
//! `CORELOCAL_CLOCK=vdso` in the environment (or `anchor`, `paravirtual`) sets the best back-end that is tried.
//! `CORELOCAL_CLOCK=libc` reads clocks by libc's `clock_gettime`, for programs under libfaketime and similar tools,
//! whose time only `std::time` sees otherwise.
//!
//! # More than the time
//! [`Ticks`] are the bare counter, to be stored in events. A [`Converter`] converts them to times later, many at
//! once, or reports that a time is unknown. [`now_bounded`] returns the earliest and latest time that it may be now.
//! [`check`] and [`epoch`] report that a clock was set, or that the machine slept, was moved or restored.
//!
//! # In tests
//! Code that takes its [`Clocks`] as a type parameter reads [`SystemClocks`] in a program, without additional
//! instructions, and [`MockClocks`] in its tests, which stand still until the test moves them.
//!
//! # Where it may be used
//! In any thread, in signal handlers, before `main`, in the child after `fork`. The exceptions are a [`Watcher`],
//! which a child must make again, and changes to [`MockClocks`], which wait for each other. No other function blocks,
//! panics, allocates from a heap, or installs a signal handler. The first reading makes a dozen system calls
//! (`pipe2`, `write`, `read`, `close`, `openat`): a program that forbids itself system calls should read the clock,
//! or call [`settle`], before. A process that enters another time namespace by `setns` sees its time at once in
//! back-ends 1 and 4, and within 32 ms in 2 and 3; a forked child at once in all of them.
//!
//! # Ranges
//! Times are `u64` nanoseconds: 584 years from boot, or from 1970. [`Instant`] and [`Timestamp`] are signed.

pub mod page;

#[cfg(any(
    loom,
    all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux", not(miri))
))]
mod anchor;
mod bounded;
mod clocks;
mod convert;
mod counter;
mod events;
mod instant;
mod kernel;
#[cfg(not(loom))]
mod mock;
#[cfg_attr(
    not(all(
        any(target_arch = "x86_64", target_arch = "aarch64"),
        target_os = "linux",
        not(any(miri, loom))
    )),
    path = "clock/selector/portable.rs"
)]
mod selector;
mod status;
#[cfg(all(
    test,
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_os = "linux",
    not(any(miri, loom))
))]
mod synthetic;
mod ticks;

pub use bounded::{Bounded, Leap, Unbounded, now_bounded};
pub use clocks::{Clocks, SystemClocks};
pub use convert::{Converter, NoTime, Unknown};
pub use counter::Fence;
#[cfg(target_os = "linux")]
pub use events::watcher::Watcher;
pub use events::{Change, Epoch, check, epoch};
#[cfg(feature = "std")]
pub use instant::OutOfRange;
pub use instant::{Instant, Timestamp};
#[cfg(not(loom))]
pub use mock::MockClocks;
pub use status::{Backend, Cause, Fallbacks, Source, Status};
#[cfg(not(any(miri, loom)))]
pub(crate) use ticks::are_counted as ticks_are_counted;
pub use ticks::{Stamp, Ticks};

use selector::{Selector, Truth};

/// The kernel's clocks, by the kernel's numbers, which are their places in the vDSO's data too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
enum Clock {
    Realtime = libc::CLOCK_REALTIME,
    Monotonic = libc::CLOCK_MONOTONIC,
    RealtimeCoarse = libc::CLOCK_REALTIME_COARSE,
    MonotonicCoarse = libc::CLOCK_MONOTONIC_COARSE,
    Boottime = libc::CLOCK_BOOTTIME,
    Tai = libc::CLOCK_TAI,
}

/// The cpu's counter and the monotonic clock at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// The counter.
    pub(crate) ticks: u64,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) nanos: u64,
    /// The uncertainty of `ticks`: the clock was read within so many ticks of it. 0 means exactly then.
    pub(crate) width: u64,
    /// Nanoseconds per tick, times 2^32, if the rate is known.
    pub(crate) rate: Option<u64>,
    /// The realtime clock minus the monotonic one, wrapping, if both were read at the same moment.
    pub(crate) ahead: Option<u64>,
}

struct Kernel;

impl Truth for Kernel {
    #[inline(always)]
    fn read(clock: Clock) -> u64 {
        kernel::vdso::read(clock as libc::clockid_t)
    }
}

static SELECTOR: Selector<Kernel> = Selector::new();

/// Returns now, as an [`Instant`]: see [`Instant::now`].
#[inline]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

macro_rules! clocks {
    ($($(#[$doc:meta])* $ordered:ident, $unordered:ident, $clock:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// Ordered: never earlier than a reading that happens before, on whatever cpu, by whichever
            /// thread. Constant time. Async-signal-safe.
            #[inline]
            #[must_use]
            pub fn $ordered() -> u64 {
                SELECTOR.read::<true>(Clock::$clock)
            }

            #[doc = concat!("As [`", stringify!($ordered), "`], and cheaper, but the cpu may read the clock")]
            /// some nanoseconds before it is done with what comes first in the program. Within a thread
            /// readings rise; between threads they may be off by that much.
            #[inline]
            #[must_use]
            pub fn $unordered() -> u64 {
                SELECTOR.read::<false>(Clock::$clock)
            }
        )*
    };
}

clocks! {
    /// Nanoseconds of `CLOCK_MONOTONIC`: time that is never set, and stands while the machine is suspended.
    ///
    /// ```
    /// let before = corelocal::clock::monotonic();
    /// assert!(before <= corelocal::clock::monotonic());
    /// ```
    monotonic, monotonic_unordered, Monotonic;
    /// Nanoseconds of `CLOCK_REALTIME`: since 1970-01-01 00:00:00 UTC, by a clock that is set now and then,
    /// and then may be earlier than it was.
    realtime, realtime_unordered, Realtime;
    /// Nanoseconds of `CLOCK_BOOTTIME`: as [`monotonic`], with the time the machine was suspended.
    boottime, boottime_unordered, Boottime;
    /// Nanoseconds of `CLOCK_TAI`: as [`realtime`], without leap seconds, if the machine was told how many
    /// there were.
    tai, tai_unordered, Tai;
}

/// Returns `CLOCK_MONOTONIC` at the last timer tick, in nanoseconds: up to some milliseconds ago, for the cost of
/// reading memory. Async-signal-safe.
#[inline]
#[must_use]
pub fn coarse() -> u64 {
    SELECTOR.read_coarse(Clock::MonotonicCoarse)
}

/// Does what [`coarse`] does without a call of a function. `None` now and then, and where the vDSO's data is not read.
#[inline(always)]
pub(crate) fn coarse_fast() -> Option<u64> {
    SELECTOR.read_coarse_fast(Clock::MonotonicCoarse)
}

/// Returns `CLOCK_REALTIME` at the last timer tick, in nanoseconds, as [`coarse`].
#[inline]
#[must_use]
pub fn realtime_coarse() -> u64 {
    SELECTOR.read_coarse(Clock::RealtimeCoarse)
}

/// Returns which back-end serves, and why better ones do not.
///
/// Before the first reading nothing was tried, and the vDSO is named.
#[must_use]
pub fn status() -> Status {
    Status { epoch: epoch(), ..SELECTOR.status() }
}

/// Validates the best back-end now instead of in passing, and returns the one that serves then.
///
/// Takes some ticks of the kernel, 20 ms say, 100 ms at most. Where doubts led to a lower back-end it looks
/// again whether a better one is to be had, which otherwise never happens. For programs that want the best
/// from the first reading on, or that are about to forbid themselves system calls: afterwards readings, [`epoch`],
/// [`check`] and [`status()`] make none, unless the vDSO does.
///
/// Not for seccomp's strict mode (`SECCOMP_MODE_STRICT`), which forbids the `rdtsc` instruction as well: every reading ends
/// the process there, by `SIGSEGV`, and so does the vDSO's. So it does after `prctl(PR_SET_TSC, PR_TSC_SIGSEGV)`. A filter
/// (`SECCOMP_MODE_FILTER`) forbids system calls alone.
///
/// ```
/// use corelocal::clock::{self, Backend};
///
/// if clock::settle() == Backend::Vdso {
///     println!("no faster than libc here: {:?}", clock::status().fallbacks);
/// }
/// ```
pub fn settle() -> Backend {
    let backend = SELECTOR.settle();
    // The first look opens a device.
    let _ = epoch();
    backend
}
