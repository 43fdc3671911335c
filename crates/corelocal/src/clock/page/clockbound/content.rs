//! What a ClockBound page says: its arithmetic, and what its words mean.

use core::time::Duration;

use crate::clock::page::{Bounds, ReadError, State, Status};

/// The time after a publication for which its status holds. Later the clock counts as free-running.
const GRACE: Duration = Duration::from_secs(5);
/// The most that a publication may appear to lie in the future.
const BLUR: Duration = Duration::from_micros(1);

/// The content of a ClockBound page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The time at which the bound held, by `CLOCK_MONOTONIC_COARSE`.
    pub as_of: Duration,
    /// The time at which it ceases to hold, by the same clock.
    pub void_after: Duration,
    /// The maximum error of `CLOCK_REALTIME`, in nanoseconds; at most `i64::MAX`.
    pub bound_ns: u64,
    /// The number of disruptions, as told by a hypervisor's page, say
    /// ([`vmclock`](crate::clock::page::vmclock)).
    pub disruptions: u64,
    /// The growth of the bound, in parts per billion.
    pub drift_ppb: u32,
    /// The status of the clock: whether it can be trusted.
    pub status: Status,
    /// Whether `disruptions` came from a hypervisor's page. Readers then compare both.
    pub marker_counts: bool,
}

impl Content {
    /// Returns between what times the true one is, when the clocks show these times: `CLOCK_REALTIME`, and
    /// `CLOCK_MONOTONIC_COARSE` read after it.
    ///
    /// Constant time. Async-signal-safe.
    ///
    /// # Errors
    /// [`ReadError::Untrusted`] if the status says that there is no bound; [`ReadError::Expired`] if the bound is
    /// void by now; [`ReadError::Range`] if it was published in the future, as it seems to be from another
    /// time namespace; [`ReadError::Malformed`] if the clock drifts by a second in each.
    #[inline]
    pub fn bounds_at(&self, realtime: Duration, monotonic: Duration) -> Result<Bounds, ReadError> {
        if !self.status.is_trusted() {
            return Err(ReadError::Untrusted(self.status));
        }
        if self.drift_ppb >= 1_000_000_000 {
            return Err(ReadError::Malformed);
        }
        let age = match monotonic.checked_sub(self.as_of) {
            Some(age) => age,
            None if monotonic + BLUR > self.as_of => Duration::ZERO,
            None => return Err(ReadError::Range),
        };
        let status = if age < GRACE {
            self.status
        } else if monotonic < self.void_after {
            Status::FreeRunning
        } else {
            return Err(ReadError::Expired);
        };
        // Below 2^64 seconds * 10^9 * 2^30: no overflow. Rounded up, and more by the rest.
        let drift = u128::from(self.drift_ppb);
        let growth = u128::from(age.as_secs()) * drift
            + (u128::from(age.subsec_nanos()) * drift).div_ceil(1_000_000_000);
        let growth = u64::try_from(growth).map_err(|_| ReadError::Range)?;
        let bound =
            Duration::from_nanos(self.bound_ns.checked_add(growth).ok_or(ReadError::Range)?);
        Ok(Bounds {
            earliest: realtime.saturating_sub(bound),
            latest: realtime.checked_add(bound).ok_or(ReadError::Range)?,
            status,
        })
    }
}

impl From<&State> for Content {
    fn from(state: &State) -> Content {
        Content {
            as_of: state.published,
            void_after: state.published.saturating_add(state.valid_for),
            bound_ns: state.max_error_ns,
            disruptions: state.disruptions,
            drift_ppb: state.drift_ppb,
            status: state.status,
            marker_counts: state.is_hypervisors_marker,
        }
    }
}

/// The words of a copy.
pub(super) struct Raw {
    pub(super) version: u16,
    pub(super) as_of: [u64; 2],
    pub(super) void_after: [u64; 2],
    pub(super) bound_ns: u64,
    pub(super) disruptions: u64,
    pub(super) drift_and_status: u64,
    pub(super) marker_counts: u64,
}

/// Returns the halves of a word, in the order of their addresses.
#[inline(always)]
fn halves(word: u64) -> [u32; 2] {
    let word = if cfg!(target_endian = "little") { word } else { word.rotate_left(32) };
    [word as u32, (word >> 32) as u32]
}

/// Returns the word of such halves.
#[inline(always)]
pub(super) fn of_halves([first, second]: [u32; 2]) -> u64 {
    let word = u64::from(first) | u64::from(second) << 32;
    if cfg!(target_endian = "little") { word } else { word.rotate_left(32) }
}

pub(super) fn decode(raw: &Raw) -> Result<Content, ReadError> {
    let time = |[seconds, nanoseconds]: [u64; 2]| {
        if seconds > i64::MAX as u64 || nanoseconds >= 1_000_000_000 {
            return Err(ReadError::Malformed);
        }
        Ok(Duration::new(seconds, nanoseconds as u32))
    };
    if raw.bound_ns > i64::MAX as u64 {
        return Err(ReadError::Malformed);
    }
    let [drift_ppb, status] = halves(raw.drift_and_status);
    let [marker_counts, ..] = raw.marker_counts.to_ne_bytes();
    Ok(Content {
        as_of: time(raw.as_of)?,
        void_after: time(raw.void_after)?,
        bound_ns: raw.bound_ns,
        disruptions: raw.disruptions,
        drift_ppb,
        status: match status {
            0 => Status::Unknown,
            1 => Status::Synchronized,
            2 => Status::FreeRunning,
            3 => Status::Disrupted,
            _ => return Err(ReadError::Malformed),
        },
        marker_counts: marker_counts != 0,
    })
}
