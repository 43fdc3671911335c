#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod layer;

use std::fmt;

use corelocal::clock::{Clocks, Instant, SystemClocks, Timestamp};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

pub use layer::TraceLayer;

/// The number of digits after the seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Digits {
    Seconds = 0,
    Millis = 3,
    #[default]
    Micros = 6,
    Nanos = 9,
}

/// The date and the time of day in UTC, as RFC 3339 has it: `2026-11-21T06:07:13.123456Z`.
///
/// As the default timer of `tracing-subscriber`, for less. Dates from the year 1677 to 2262, as of
/// [`Timestamp`]: those before 1970 are right, too, if clocks show such a time. Digits that
/// have no room are cut off, towards the past.
///
/// ```
/// use corelocal_tracing::Utc;
///
/// let subscriber = tracing_subscriber::fmt().with_timer(Utc::millis()).finish();
/// # let _ = subscriber;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utc<C = SystemClocks> {
    clocks: C,
    digits: Digits,
}

/// Seconds since it was made, of `CLOCK_MONOTONIC`: `   12.345678s`.
///
/// ```
/// use corelocal_tracing::Uptime;
///
/// let subscriber = tracing_subscriber::fmt().with_timer(Uptime::new()).finish();
/// # let _ = subscriber;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uptime<C = SystemClocks> {
    clocks: C,
    since: Instant,
    digits: Digits,
}

macro_rules! digits {
    ($Timer:ident, $with:ident) => {
        impl $Timer {
            /// Creates one that shows time to the microsecond.
            #[must_use]
            pub fn new() -> $Timer {
                $Timer::$with(Digits::Micros)
            }

            /// Creates one that shows time to the second.
            #[must_use]
            pub fn seconds() -> $Timer {
                $Timer::$with(Digits::Seconds)
            }

            /// Creates one that shows time to the millisecond.
            #[must_use]
            pub fn millis() -> $Timer {
                $Timer::$with(Digits::Millis)
            }

            /// Creates one that shows time to the nanosecond.
            #[must_use]
            pub fn nanos() -> $Timer {
                $Timer::$with(Digits::Nanos)
            }
        }
    };
}

digits!(Utc, with);
digits!(Uptime, with);

impl Utc {
    fn with(digits: Digits) -> Utc {
        Utc { clocks: SystemClocks, digits }
    }
}

impl<C> Utc<C> {
    /// Creates one with other clocks: those of a test, say.
    ///
    /// ```
    /// use corelocal::clock::{MockClocks, Timestamp};
    /// use corelocal_tracing::Utc;
    ///
    /// static CLOCKS: MockClocks = MockClocks::new();
    ///
    /// CLOCKS.set_realtime(Timestamp::from_nanos(1_700_000_000_000_000_000));
    /// let timer = Utc::seconds().with_clocks(&CLOCKS); // 2023-11-14T22:13:20Z, until the test moves it
    /// let subscriber = tracing_subscriber::fmt().with_timer(timer).finish();
    /// # let _ = subscriber;
    /// ```
    #[must_use]
    pub fn with_clocks<D: Clocks>(self, clocks: D) -> Utc<D> {
        Utc { clocks, digits: self.digits }
    }
}

impl Uptime {
    fn with(digits: Digits) -> Uptime {
        Uptime { clocks: SystemClocks, since: Instant::now(), digits }
    }
}

impl<C> Uptime<C> {
    /// Creates one with other clocks, by which it counts from now: see [`Utc::with_clocks`].
    #[must_use]
    pub fn with_clocks<D: Clocks>(self, clocks: D) -> Uptime<D> {
        Uptime { since: clocks.now(), clocks, digits: self.digits }
    }
}

impl Default for Utc {
    fn default() -> Utc {
        Utc::new()
    }
}

impl Default for Uptime {
    fn default() -> Uptime {
        Uptime::new()
    }
}

impl<C: Clocks> FormatTime for Utc<C> {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        // Before 1970 a reading is above 2^63, as `Timestamp::now` has it.
        let now = Timestamp::from_nanos(self.clocks.realtime() as i64);
        write!(w, "{now:.*}", self.digits as usize)
    }
}

impl<C: Clocks> FormatTime for Uptime<C> {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        let since = self.clocks.elapsed(self.since);
        let digits = self.digits as usize;
        if digits == 0 {
            return write!(w, "{:>5}s", since.as_secs());
        }
        let fraction = u64::from(since.subsec_nanos()) * 10u64.pow(digits as u32) / 1_000_000_000;
        write!(w, "{:>5}.{fraction:0digits$}s", since.as_secs())
    }
}
