//! What a reading says: bounds, or why there are none.

use core::fmt;

use crate::clock::Timestamp;
use crate::sys::Errno;

/// The realtime clock and the bounds of its error: see [`now_bounded`](super::now_bounded).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounded {
    /// The earliest time that it can be.
    pub earliest: Timestamp,
    /// The latest time that it can be.
    pub latest: Timestamp,
    /// A leap second nearby.
    pub leap: Leap,
}

impl Bounded {
    /// Returns `true` if the moment is surely over: it lies before the earliest time that it can be now.
    #[must_use]
    pub fn is_after(&self, moment: Timestamp) -> bool {
        moment < self.earliest
    }

    /// Returns `true` if the moment is surely to come.
    #[must_use]
    pub fn is_before(&self, moment: Timestamp) -> bool {
        self.latest < moment
    }

    /// Returns the middle.
    #[must_use]
    pub fn middle(&self) -> Timestamp {
        let width = self.latest.as_nanos().wrapping_sub(self.earliest.as_nanos());
        Timestamp::from_nanos(self.earliest.as_nanos().wrapping_add(width / 2))
    }
}

/// A leap second, as the kernel knows of it.
///
/// A word wide: a [`Bounded`] that is copied right after it was written would otherwise wait for the cpu to
/// put a byte and its neighbours together, for longer than reading the clock takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u64)]
pub enum Leap {
    /// No leap second is near.
    #[default]
    None,
    /// A leap second is inserted at the end of the day.
    Insertion,
    /// A leap second is left out at the end of the day.
    Deletion,
    /// It is 23:59:60, which the clock shows as 23:59:59.
    InProgress,
    /// A leap second has passed, and the kernel still has its flag.
    Over,
}

/// The reason why the error of the realtime clock is unknown.
///
/// Encoded as words, like [`Leap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u64)]
pub enum Unbounded {
    /// No daemon disciplines the clock: the kernel says that it is unsynchronised.
    Unsynchronised,
    /// The machine slept, was stopped, moved or restored from a snapshot, and no daemon has set the clock
    /// right since.
    Disrupted,
    /// The kernel does not tell the error: a seccomp filter forbids the call, with this error.
    Untold(Errno),
}

impl fmt::Display for Unbounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unbounded::Unsynchronised => f.write_str(
                "the realtime clock is not synchronised: start a time daemon (chrony, ntpd, ptp4l)",
            ),
            Unbounded::Disrupted => f.write_str(
                "the machine slept or was moved, and the realtime clock was not set right since",
            ),
            Unbounded::Untold(error) => {
                write!(f, "the kernel does not tell the clock's error: {error}")
            }
        }
    }
}

impl core::error::Error for Unbounded {}
