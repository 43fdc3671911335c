//! The status of a clock: whether it can be trusted.
//!
//! Invariant: the numbers (but the last) are those of a `vmclock` page.

use core::fmt;

/// The status of a clock: whether it can be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// The status is unknown.
    #[default]
    Unknown = 0,
    /// Not yet trusted: it is being set for the first time.
    Initializing = 1,
    /// Trusted: it is synchronized with a time source.
    Synchronized = 2,
    /// Trusted within bounds that grow: it is not corrected at present.
    FreeRunning = 3,
    /// Not trusted: it is broken.
    Unreliable = 4,
    /// Not trusted: it was disrupted, and has not been set since.
    Disrupted = 5,
}

impl Status {
    /// Returns `true` if times and bounds mean anything.
    pub const fn is_trusted(self) -> bool {
        matches!(self, Status::Synchronized | Status::FreeRunning)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Unknown => "unknown",
            Status::Initializing => "initializing",
            Status::Synchronized => "synchronized",
            Status::FreeRunning => "free-running",
            Status::Unreliable => "unreliable",
            Status::Disrupted => "disrupted",
        })
    }
}
