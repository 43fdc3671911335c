//! Reads recordings of [`corelocal::trace`]: events in the order of time.
//!
//! ```no_run
//! let recording = corelocal_trace::Recording::open("server.trace")?;
//! for event in recording.events() {
//!     println!("{} {} {:?}", event.time, event.name, event.fields);
//! }
//! for problem in recording.problems() {
//!     eprintln!("{problem}");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Invariants
//! 1. Nothing in a file is believed: each number is checked once, where it is read. A damaged part is left out, and is
//!    reported by its place; what is whole is delivered.
//! 2. The memory in use is that of the buffers that were in use at the same time, and a few words for each buffer and site.
//!
//! The layout is in [`corelocal::trace::format`].

#![forbid(unsafe_code)]

pub mod chrome;
mod clock;
pub mod ctf;
mod events;
mod file;
mod identities;
pub mod json_lines;
mod names;
#[cfg(feature = "export")]
pub mod otlp;
#[cfg(feature = "export")]
pub mod parquet;
pub mod perfetto;
mod spans;
mod value;

use std::{fmt, io};

pub use corelocal::trace::format::Kind;
pub use events::{Event, Events, Progress, What};
pub use file::{Overwritten, Recording, Site};
pub use identities::Identity;
pub use value::{Value, hex};

/// The reason why a file cannot be read at all.
#[derive(Debug)]
pub enum OpenError {
    /// The kernel refuses.
    Io(io::Error),
    /// It is no recording.
    Parse(ParseError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Io(error) => error.fmt(f),
            OpenError::Parse(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

/// The reason why a file cannot be read at all.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseError {
    /// It does not begin as a recording does.
    NotARecording,
    /// It ends within the header.
    TooShort {
        /// Its length in bytes.
        len: usize,
    },
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseError::NotARecording => f.write_str(
                "not a recording of corelocal's tracer: corelocal::trace::dump writes one",
            ),
            ParseError::TooShort { len } => {
                write!(f, "a recording of {len} bytes, which ends within its header")
            }
        }
    }
}

impl std::error::Error for ParseError {}

/// A part of a file that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The offset of the damage, in bytes.
    pub at: u64,
    /// The description of the damage.
    pub what: &'static str,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.at, self.what)
    }
}

/// Returns year, month and day of a day since 1970 (Howard Hinnant, "chrono-compatible low-level date algorithms").
pub(crate) fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + 400 * era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn dates() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(19_782), (2024, 2, 29));
        assert_eq!(date(20_783), (2026, 11, 26));
    }
}
