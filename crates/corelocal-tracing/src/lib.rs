#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod date;

use std::fmt;

use corelocal::clock::{self, Instant};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use date::{NANOS, Text};

/// How many digits follow the seconds.
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
/// As the default timer of `tracing-subscriber`, for less. Dates up to the year 2554.
///
/// ```
/// use corelocal_tracing::Utc;
///
/// let subscriber = tracing_subscriber::fmt().with_timer(Utc::millis()).finish();
/// # let _ = subscriber;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Utc {
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
pub struct Uptime {
    since: Instant,
    digits: Digits,
}

macro_rules! digits {
    ($Timer:ident, $with:ident) => {
        impl $Timer {
            /// To the microsecond.
            #[must_use]
            pub fn new() -> $Timer {
                $Timer::$with(Digits::Micros)
            }

            /// To the second.
            #[must_use]
            pub fn seconds() -> $Timer {
                $Timer::$with(Digits::Seconds)
            }

            /// To the millisecond.
            #[must_use]
            pub fn millis() -> $Timer {
                $Timer::$with(Digits::Millis)
            }

            /// To the nanosecond.
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
        Utc { digits }
    }
}

impl Uptime {
    fn with(digits: Digits) -> Uptime {
        Uptime { since: Instant::now(), digits }
    }
}

impl Default for Uptime {
    fn default() -> Uptime {
        Uptime::new()
    }
}

impl FormatTime for Utc {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        w.write_str(Text::date(clock::realtime(), self.digits as usize).as_str())
    }
}

impl FormatTime for Uptime {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        let since = self.since.elapsed();
        let digits = self.digits as usize;
        if digits == 0 {
            return write!(w, "{:>5}s", since.as_secs());
        }
        let fraction = u64::from(since.subsec_nanos()) * 10u64.pow(digits as u32) / NANOS;
        write!(w, "{:>5}.{fraction:0digits$}s", since.as_secs())
    }
}
