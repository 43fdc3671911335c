//! Points in time at which a wait ends.
//!
//! # Invariants
//! 1. Seconds are not negative and nanoseconds are below 10^9, which is what the kernel demands of a timeout.
//! 2. No deadline is later than [`Deadline::NEVER`], 136 years after the machine has started. The kernel counts signed
//!    nanoseconds, 292 years of them. In a time namespace whose clock is behind the machine's it adds the difference
//!    and does not notice an overflow: a later deadline may be one that has passed, if the timer is looked at
//!    (`do_timens_ktime_to_host` in `kernel/time/namespace.c`, the soft expiry of `hrtimer_set_expires_range_ns`).

use core::time::Duration;

use crate::sys::kernel_clock;

const NANOS_PER_SEC: u32 = 1_000_000_000;

/// A point in time on `CLOCK_MONOTONIC`, laid out as the kernel's `struct __kernel_timespec`.
///
/// ```
/// use core::time::Duration;
/// use corelocal::sys::futex::Deadline;
///
/// let soon = Deadline::after(Duration::from_millis(20));
/// assert!(soon > Deadline::now());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct Deadline {
    seconds: i64,
    nanoseconds: i64,
}

impl Deadline {
    /// Later than any machine runs. Unlike a wait without a deadline, which the kernel may begin anew after
    /// a signal handler has run, a wait with this one then ends ([`Wake::Interrupted`](super::Wake::Interrupted)).
    pub(crate) const NEVER: Deadline = Deadline { seconds: 1 << 32, nanoseconds: 0 };
    /// The latest deadline that callers can request.
    const LATEST: Deadline = Deadline { seconds: (1 << 32) - 1, nanoseconds: 0 };

    /// Returns now: a wait with this deadline does not sleep.
    pub fn now() -> Deadline {
        Deadline::on(libc::CLOCK_MONOTONIC)
    }

    /// Returns a time span from now, but at most 136 years after the machine has started.
    pub fn after(span: Duration) -> Deadline {
        Deadline::now().plus(span).min(Deadline::LATEST)
    }

    /// Returns the deadline `nanos` nanoseconds after the zero of `CLOCK_MONOTONIC`, within what a deadline can be.
    pub(crate) fn at_nanos(nanos: i64) -> Deadline {
        let nanos = nanos.max(0);
        let per_sec = i64::from(NANOS_PER_SEC);
        let deadline = Deadline { seconds: nanos / per_sec, nanoseconds: nanos % per_sec };
        deadline.min(Deadline::LATEST)
    }

    /// Returns the nanoseconds after the zero of `CLOCK_MONOTONIC`: below 2^63, as no deadline is later than that (2).
    pub(crate) fn as_nanos(self) -> i64 {
        self.seconds * i64::from(NANOS_PER_SEC) + self.nanoseconds
    }

    /// Returns the time span from now to this point; zero once it has passed.
    pub fn remaining(self) -> Duration {
        self.since(Deadline::now())
    }

    /// Returns `true` if this point has come.
    pub(crate) fn has_come(self) -> bool {
        self <= Deadline::now()
    }

    /// Returns the same point in time on `CLOCK_REALTIME`, as both clocks stand now. A later change of the
    /// date moves it.
    pub(super) fn on_realtime(self) -> Deadline {
        let remaining = self.remaining();
        Deadline::on(libc::CLOCK_REALTIME).plus(remaining)
    }

    fn on(clock: libc::clockid_t) -> Deadline {
        // The kernel's own clock, by which it ends waits, whatever a preloaded library makes of libc's.
        let now = kernel_clock::read(clock);
        Deadline { seconds: now.tv_sec, nanoseconds: now.tv_nsec }
    }

    fn plus(self, span: Duration) -> Deadline {
        let nanoseconds = self.nanoseconds as u32 + span.subsec_nanos();
        let carry = i64::from(nanoseconds / NANOS_PER_SEC);
        let span_seconds = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
        let seconds = self.seconds.saturating_add(span_seconds).saturating_add(carry);
        Deadline { seconds, nanoseconds: i64::from(nanoseconds % NANOS_PER_SEC) }
    }

    fn since(self, earlier: Deadline) -> Duration {
        if self <= earlier {
            return Duration::ZERO;
        }
        let span = |point: Deadline| Duration::new(point.seconds as u64, point.nanoseconds as u32);
        span(self) - span(earlier)
    }
}

/// Returns the address of the deadline, null without one: what the kernel takes for a timeout. It is valid
/// as long as the borrow.
pub(super) fn pointer(deadline: &Option<Deadline>) -> *const Deadline {
    deadline.as_ref().map_or(core::ptr::null(), core::ptr::from_ref)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64, nanoseconds: i64) -> Deadline {
        Deadline { seconds, nanoseconds }
    }

    #[test]
    fn arithmetic() {
        assert_eq!(at(1, 999_999_999).plus(Duration::from_nanos(1)), at(2, 0));
        assert_eq!(at(1, 5).plus(Duration::new(2, 999_999_999)), at(4, 4));
        assert_eq!(at(2, 0).since(at(1, 999_999_999)), Duration::from_nanos(1));
        assert_eq!(at(1, 0).since(at(1, 1)), Duration::ZERO);
        assert_eq!(at(1, 999_999_999).plus(Duration::MAX), at(i64::MAX, 999_999_998));
    }

    #[test]
    fn the_latest_is_none_that_the_kernel_wraps() {
        assert_eq!(Deadline::after(Duration::MAX), Deadline::LATEST);
        assert!(Deadline::LATEST < Deadline::NEVER);
        let room = i64::MAX / i64::from(NANOS_PER_SEC) - Deadline::NEVER.seconds;
        // A century more, for a namespace's clock that is behind.
        assert!(room > 100 * 366 * 86_400);
    }

    #[test]
    fn the_clocks_convert() {
        let realtime = Deadline::after(Duration::from_secs(100)).on_realtime();
        let left = realtime.since(Deadline::on(libc::CLOCK_REALTIME));
        assert!(left <= Duration::from_secs(100) && left > Duration::from_secs(50), "{left:?}");
    }
}
