//! Whether a clock is to be trusted.
//!
//! Invariant: the numbers (but the last) are those of a `vmclock` page.

use core::fmt;

/// Whether a clock is to be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// Unknown.
    #[default]
    Unknown = 0,
    /// Not yet.
    Initializing = 1,
    /// Yes: it is kept right.
    Synchronized = 2,
    /// Yes, within bounds that grow: it is not corrected at present.
    FreeRunning = 3,
    /// No: it is broken.
    Unreliable = 4,
    /// Not synchronised: it was disrupted, and has not been set since.
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
