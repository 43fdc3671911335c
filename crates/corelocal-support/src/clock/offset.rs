//! The offset between a clock and the kernel's, as a lower and an upper bound.
//!
//! The kernel's clock is read before and after the other one. If that one is right, its value lies between the two
//! readings; the exact position is unknown.
//!
//! Invariants:
//! 1. `low <= high` for a kernel's clock that does not go back; both are nanoseconds, and wrap.
//! 2. A clock with another epoch is compared only with itself at an earlier time ([`Offset::since`]).

use serde::{Deserialize, Serialize};

/// The number of attempts, of which the narrowest counts: interrupts make the others wide.
const ATTEMPTS: usize = 16;

/// The difference of a clock to the kernel's, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offset {
    /// The least difference.
    pub low: i64,
    /// The greatest difference.
    pub high: i64,
}

impl Offset {
    /// Looks once: the kernel's clock, `read`, the kernel's clock.
    #[inline]
    pub fn once(clock: libc::clockid_t, read: impl FnOnce() -> u64) -> Offset {
        let before = kernel(clock);
        let between = read();
        let after = kernel(clock);
        let ahead = |of: u64| between.wrapping_sub(of) as i64;
        Offset { low: ahead(after), high: ahead(before) }
    }

    /// Returns the narrowest of some looks.
    pub fn of(clock: libc::clockid_t, mut read: impl FnMut() -> u64) -> Offset {
        let looks = (0..ATTEMPTS).map(|_| Offset::once(clock, &mut read));
        looks.min_by_key(Offset::width).unwrap_or_default()
    }

    /// Returns what is not known.
    pub fn width(&self) -> u64 {
        self.high.wrapping_sub(self.low).unsigned_abs()
    }

    /// Returns how far it has moved since an earlier look.
    pub fn since(self, earlier: Offset) -> Offset {
        let less = |a: i64, b: i64| a.wrapping_sub(b);
        Offset { low: less(self.low, earlier.high), high: less(self.high, earlier.low) }
    }

    /// Returns how far it certainly is from the kernel's clock: 0 if it may be the same, else the nearer end.
    pub fn outside(&self) -> i64 {
        if self.low > 0 {
            self.low
        } else if self.high < 0 {
            self.high
        } else {
            0
        }
    }
}

/// Returns the kernel's clock in nanoseconds, as libc gives it.
#[inline]
pub fn kernel(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes. The clocks asked for here exist since Linux 3.10.
    unsafe { libc::clock_gettime(clock, &mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_clock_is_not_outside_of_itself() {
        for clock in [libc::CLOCK_MONOTONIC, libc::CLOCK_BOOTTIME] {
            let offset = Offset::of(clock, || kernel(clock));
            assert!(offset.low <= 0 && offset.high >= 0 && offset.outside() == 0, "{offset:?}");
        }
    }

    #[test]
    fn a_clock_ahead_and_one_behind() {
        const SECOND: i64 = 1_000_000_000;
        let of = |by: i64| {
            Offset::of(libc::CLOCK_MONOTONIC, || {
                kernel(libc::CLOCK_MONOTONIC).wrapping_add_signed(by)
            })
        };
        let (ahead, behind) = (of(SECOND), of(-SECOND));
        assert!(ahead.outside() > SECOND / 2 && ahead.outside() <= SECOND, "{ahead:?}");
        assert!(behind.outside() < -SECOND / 2 && behind.outside() >= -SECOND, "{behind:?}");
        let moved = ahead.since(behind);
        assert!(moved.low <= 2 * SECOND && moved.high >= 2 * SECOND, "{moved:?}");
    }

    #[test]
    fn a_zero_elsewhere_wraps() {
        let first = Offset { low: i64::MAX - 5, high: i64::MAX };
        let later = Offset { low: i64::MIN, high: i64::MIN + 5 };
        assert_eq!(later.since(first), Offset { low: 1, high: 11 });
        assert_eq!(later.since(first).outside(), 1);
    }
}
