//! A moment of the monotonic clock, with the methods of std's.
//!
//! `std::time::Instant` asks libc each time. This one has the same names, so that a `use` is all that a
//! program changes. What differs: a sum out of range is the last moment there is (std panics), and it can be
//! sent to another process of this machine as a number.
//!
//! # Invariant
//! 1. The number is of nanoseconds since the zero of `CLOCK_MONOTONIC`. It may be negative: an hour before
//!    a moment shortly after boot.

pub(in crate::clock) mod date;

use core::fmt::Alignment;
use core::ops::{Add, AddAssign, Sub, SubAssign};
use core::time::Duration;

use crate::sys::futex::Deadline;
use date::Text;

/// A moment of `CLOCK_MONOTONIC`: for measuring how long something takes.
///
/// Moments 292 years before and after boot can be told. 8 bytes.
///
/// ```
/// use corelocal::clock::Instant; // was: std::time::Instant
/// use std::time::Duration;
///
/// let start = Instant::now();
/// let took: Duration = start.elapsed();
/// assert!(start + took <= Instant::now());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
#[repr(transparent)]
pub struct Instant(i64);

impl Instant {
    /// Returns now: never earlier than an instant that was taken before, on whatever cpu. As
    /// [`monotonic`](super::monotonic). Async-signal-safe.
    #[inline]
    #[must_use]
    pub fn now() -> Instant {
        Instant(super::monotonic() as i64)
    }

    /// Returns now, give or take what the cpu has in flight: as [`monotonic_unordered`](super::monotonic_unordered).
    #[inline]
    #[must_use]
    pub fn now_unordered() -> Instant {
        Instant(super::monotonic_unordered() as i64)
    }

    /// Returns the moment of the last timer tick, which is at most some milliseconds ago: as
    /// [`coarse`](super::coarse).
    #[inline]
    #[must_use]
    pub fn coarse() -> Instant {
        Instant(super::coarse() as i64)
    }

    /// Returns the moment so many nanoseconds after the zero of `CLOCK_MONOTONIC`.
    #[inline]
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Instant {
        Instant(nanos)
    }

    /// Returns the nanoseconds since the zero of `CLOCK_MONOTONIC`.
    #[inline]
    #[must_use]
    pub const fn as_nanos(self) -> i64 {
        self.0
    }
}

/// A moment of `CLOCK_REALTIME`: a date and time of day.
///
/// Dates from the year 1677 to 2262 can be told. 8 bytes. Its text is that of RFC 3339, in UTC, with nine digits after
/// the seconds or as many as the precision says; digits that have no room are cut off, towards the past.
///
/// ```
/// use corelocal::clock::Timestamp;
///
/// let now = Timestamp::now();
/// assert!(now.as_nanos() > 1_600_000_000_000_000_000);
/// assert!(now.duration_since_epoch().unwrap().as_secs() > 1_600_000_000);
///
/// let then = Timestamp::from_nanos(1_700_000_000_123_456_789);
/// assert_eq!(then.to_string(), "2023-11-14T22:13:20.123456789Z");
/// assert_eq!(format!("{then:.3}"), "2023-11-14T22:13:20.123Z");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
#[repr(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// 1970-01-01 00:00:00 UTC.
    pub const UNIX_EPOCH: Timestamp = Timestamp(0);

    /// Returns the current time, like [`realtime`](super::realtime). An administrator may set the clock back.
    /// Async-signal-safe.
    #[inline]
    #[must_use]
    pub fn now() -> Timestamp {
        Timestamp(super::realtime() as i64)
    }

    /// Returns now, give or take what the cpu has in flight: as [`realtime_unordered`](super::realtime_unordered).
    #[inline]
    #[must_use]
    pub fn now_unordered() -> Timestamp {
        Timestamp(super::realtime_unordered() as i64)
    }

    /// Returns the time of the last timer tick: as [`realtime_coarse`](super::realtime_coarse).
    #[inline]
    #[must_use]
    pub fn coarse() -> Timestamp {
        Timestamp(super::realtime_coarse() as i64)
    }

    /// Returns the moment so many nanoseconds after 1970-01-01 00:00:00 UTC.
    #[inline]
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Timestamp {
        Timestamp(nanos)
    }

    /// Returns the nanoseconds since 1970-01-01 00:00:00 UTC.
    #[inline]
    #[must_use]
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Returns the time since 1970-01-01 00:00:00 UTC; `None` before it.
    #[inline]
    #[must_use]
    pub const fn duration_since_epoch(self) -> Option<Duration> {
        if self.0 < 0 { None } else { Some(Duration::from_nanos(self.0 as u64)) }
    }
}

impl core::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let text = Text::date(self.0, f.precision().unwrap_or(9));
        // Not by `pad`: the precision would cut the text off.
        let (text, width) = (text.as_str(), f.width().unwrap_or(0));
        match f.align() {
            Some(Alignment::Right) => write!(f, "{text:>width$}"),
            Some(Alignment::Center) => write!(f, "{text:^width$}"),
            _ => write!(f, "{text:width$}"),
        }
    }
}

/// As a point for locks and queues to wait until. A moment before boot becomes boot, one 136 years later than that the
/// latest deadline there is.
///
/// ```
/// use core::time::Duration;
/// use corelocal::clock::Instant;
/// use corelocal::sync::AutoEvent;
///
/// let event = AutoEvent::new(false);
/// let deadline = Instant::now() + Duration::from_millis(1);
/// assert!(event.wait_until(deadline.into()).timed_out());
/// assert!(Instant::now() >= deadline);
/// ```
impl From<Instant> for Deadline {
    fn from(instant: Instant) -> Deadline {
        Deadline::at_nanos(instant.0)
    }
}

/// Converts to the same moment of the same clock.
impl From<Deadline> for Instant {
    fn from(deadline: Deadline) -> Instant {
        Instant(deadline.as_nanos())
    }
}

/// Implements the arithmetic that `Instant` and `Timestamp` share.
macro_rules! arithmetic {
    ($Moment:ident) => {
        impl $Moment {
            /// Returns the time since an earlier moment; zero if it is later.
            #[inline]
            #[must_use]
            pub const fn duration_since(self, earlier: $Moment) -> Duration {
                self.saturating_duration_since(earlier)
            }

            /// Returns the time since an earlier moment; `None` if it is later.
            #[inline]
            #[must_use]
            pub const fn checked_duration_since(self, earlier: $Moment) -> Option<Duration> {
                // The difference of two i64 in order fits a u64 whatever its sign bit says.
                if self.0 >= earlier.0 {
                    Some(Duration::from_nanos(self.0.wrapping_sub(earlier.0) as u64))
                } else {
                    None
                }
            }

            /// Returns the time since an earlier moment; zero if it is later.
            #[inline]
            #[must_use]
            pub const fn saturating_duration_since(self, earlier: $Moment) -> Duration {
                match self.checked_duration_since(earlier) {
                    Some(since) => since,
                    None => Duration::ZERO,
                }
            }

            /// Returns the time that went by since; zero if this moment is still to come.
            #[inline]
            #[must_use]
            pub fn elapsed(self) -> Duration {
                Self::now().saturating_duration_since(self)
            }

            /// Returns the moment so much later; `None` beyond what can be told.
            #[inline]
            #[must_use]
            pub const fn checked_add(self, duration: Duration) -> Option<$Moment> {
                let nanos = duration.as_nanos();
                if nanos > u64::MAX as u128 {
                    return None;
                }
                match self.0.checked_add_unsigned(nanos as u64) {
                    Some(moment) => Some($Moment(moment)),
                    None => None,
                }
            }

            /// Returns the moment so much earlier; `None` beyond what can be told.
            #[inline]
            #[must_use]
            pub const fn checked_sub(self, duration: Duration) -> Option<$Moment> {
                let nanos = duration.as_nanos();
                if nanos > u64::MAX as u128 {
                    return None;
                }
                match self.0.checked_sub_unsigned(nanos as u64) {
                    Some(moment) => Some($Moment(moment)),
                    None => None,
                }
            }

            /// Returns the moment so much later, or the last one that can be told.
            #[inline]
            #[must_use]
            pub const fn saturating_add(self, duration: Duration) -> $Moment {
                match self.checked_add(duration) {
                    Some(moment) => moment,
                    None => $Moment(i64::MAX),
                }
            }

            /// Returns the moment so much earlier, or the first one that can be told.
            #[inline]
            #[must_use]
            pub const fn saturating_sub(self, duration: Duration) -> $Moment {
                match self.checked_sub(duration) {
                    Some(moment) => moment,
                    None => $Moment(i64::MIN),
                }
            }
        }

        /// As `saturating_add`: std's would panic.
        impl Add<Duration> for $Moment {
            type Output = $Moment;

            #[inline]
            fn add(self, duration: Duration) -> $Moment {
                self.saturating_add(duration)
            }
        }

        impl AddAssign<Duration> for $Moment {
            #[inline]
            fn add_assign(&mut self, duration: Duration) {
                *self = *self + duration;
            }
        }

        /// As `saturating_sub`: std's would panic.
        impl Sub<Duration> for $Moment {
            type Output = $Moment;

            #[inline]
            fn sub(self, duration: Duration) -> $Moment {
                self.saturating_sub(duration)
            }
        }

        impl SubAssign<Duration> for $Moment {
            #[inline]
            fn sub_assign(&mut self, duration: Duration) {
                *self = *self - duration;
            }
        }

        /// As `duration_since`: zero if the other is later.
        impl Sub<$Moment> for $Moment {
            type Output = Duration;

            #[inline]
            fn sub(self, earlier: $Moment) -> Duration {
                self.duration_since(earlier)
            }
        }
    };
}

arithmetic!(Instant);
arithmetic!(Timestamp);

#[cfg(feature = "std")]
mod with_std {
    //! Conversions to and from std's types.

    use super::{Instant, Timestamp};
    use std::time::{Duration, SystemTime};

    impl Instant {
        /// Returns the same moment as std's type; `None` if that cannot tell it.
        ///
        /// std keeps to itself which moment of the clock it holds, so both clocks are read, and the result is off by
        /// up to half the time that takes: at most 250 ns, and usually some tens. It is off by more if each of eight
        /// tries takes longer than 500 ns: the thread is interrupted in each, or readings are slow system calls.
        #[must_use]
        pub fn to_std(self) -> Option<std::time::Instant> {
            let (ours, theirs) = both_now();
            match self.checked_duration_since(ours) {
                Some(later) => theirs.checked_add(later),
                None => theirs.checked_sub(ours.duration_since(self)),
            }
        }

        /// Returns the same moment as one of std's, as exactly as [`to_std`](Instant::to_std); `None` if this type
        /// cannot tell it.
        #[must_use]
        pub fn from_std(instant: std::time::Instant) -> Option<Instant> {
            let (ours, theirs) = both_now();
            match instant.checked_duration_since(theirs) {
                Some(later) => ours.checked_add(later),
                None => ours.checked_sub(theirs.duration_since(instant)),
            }
        }
    }

    /// Returns one moment in both types: std's reading lies between two of ours that are as close together as can be
    /// had.
    fn both_now() -> (Instant, std::time::Instant) {
        /// The longest time between two readings around a third one that is accepted. The result is off by half of it
        /// at most.
        const CLOSE: Duration = Duration::from_nanos(500);
        const TRIES: u32 = 8;
        let look = || {
            let (before, theirs) = (Instant::now(), std::time::Instant::now());
            let apart = Instant::now().duration_since(before);
            (apart, before, theirs)
        };
        let mut best = look();
        for _ in 1..TRIES {
            if best.0 <= CLOSE {
                break;
            }
            let next = look();
            if next.0 < best.0 {
                best = next;
            }
        }
        let (apart, before, theirs) = best;
        (before.checked_add(apart / 2).unwrap_or(before), theirs)
    }

    impl From<Timestamp> for SystemTime {
        /// Converts exactly.
        fn from(timestamp: Timestamp) -> SystemTime {
            let distance = Duration::from_nanos(timestamp.as_nanos().unsigned_abs());
            // Either is within what std can tell: it counts seconds in 64 bits.
            let moment = if timestamp.as_nanos() < 0 {
                SystemTime::UNIX_EPOCH.checked_sub(distance)
            } else {
                SystemTime::UNIX_EPOCH.checked_add(distance)
            };
            moment.unwrap_or(SystemTime::UNIX_EPOCH)
        }
    }

    /// The error for a date before 1677 or after 2262.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OutOfRange;

    impl core::fmt::Display for OutOfRange {
        fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            f.write_str("a date before 1677 or after 2262 is no timestamp of nanoseconds")
        }
    }

    impl core::error::Error for OutOfRange {}

    impl TryFrom<SystemTime> for Timestamp {
        type Error = OutOfRange;

        /// Converts exactly.
        fn try_from(time: SystemTime) -> Result<Timestamp, OutOfRange> {
            let moment = match time.duration_since(SystemTime::UNIX_EPOCH) {
                Ok(since) => Timestamp::UNIX_EPOCH.checked_add(since),
                Err(before) => Timestamp::UNIX_EPOCH.checked_sub(before.duration()),
            };
            moment.ok_or(OutOfRange)
        }
    }
}

#[cfg(feature = "std")]
pub use with_std::OutOfRange;

#[cfg(all(test, not(loom)))]
mod tests;
