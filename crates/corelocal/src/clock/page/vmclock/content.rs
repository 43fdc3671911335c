//! What a vmclock page says: its arithmetic, and its short fields' places in words.

use core::time::Duration;

use super::{COUNTER_NONE, NOTHING, VERSION, flags};
use crate::clock::page::units::{
    SKEW_NS, duration_of, duration_of_ceil, duration_of_nearest, fixed_of_nanoseconds,
};
use crate::clock::page::{Bounds, Leap, ReadError, Scale, Smearing, State, Status};

/// For how long after the point the status is what was published, and for how long the time is believed: as
/// ClockBound has it. No page has a place for these.
const GRACE_NS: u64 = 5_000_000_000;
const BELIEVED_NS: u64 = 1_000_000_000_000;

/// The content of a page.
// In the page's order, so that neighbours are copied together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Content {
    /// The kind of counter: [`COUNTER_TSC`](super::COUNTER_TSC) and so on.
    pub counter_kind: u8,
    /// The scale of the time.
    pub scale: Scale,
    /// The status of the clock: whether it can be trusted.
    pub status: Status,
    /// The way in which other clocks of the site smear leap seconds; the time of this page is never smeared.
    pub smearing: Smearing,
    /// TAI - UTC in seconds.
    pub tai_offset: i16,
    /// A leap second nearby.
    pub leap: Leap,
    /// The shift of the three periods.
    pub period_shift: u8,
    /// The disruption marker. When it changes, earlier measurements of the counter are void.
    pub disruptions: u64,
    /// The valid fields, and more: see [`flags`].
    pub flags: u64,
    /// The counter at the point.
    pub counter: u64,
    /// The period of the counter, in 2^-(64 + `period_shift`) seconds.
    pub period: u64,
    /// The period's estimated error, in the same unit.
    pub period_estimated_error: u64,
    /// The period's maximum error, in the same unit.
    pub period_max_error: u64,
    /// The time at the point: whole seconds since the scale's epoch.
    pub seconds: u64,
    /// The rest of the time at the point, in 2^-64 seconds.
    pub fraction: u64,
    /// The estimated error of the time at the point, in nanoseconds.
    pub estimated_error_ns: u64,
    /// The maximum error of the time at the point, in nanoseconds.
    pub max_error_ns: u64,
    /// The machine's generation. It changes when the machine is restored from a snapshot or cloned.
    pub generation: u64,
}

impl Default for Content {
    /// Returns one with no counter, no time, of unknown status.
    fn default() -> Content {
        decode(&Raw { kinds: NOTHING, ..Raw::default() })
    }
}

impl Content {
    /// Returns the time at `counter`, since the scale's epoch, rounded to the nearest nanosecond.
    ///
    /// A counter up to a microsecond behind the point is taken for the point. Constant time.
    /// Async-signal-safe.
    ///
    /// # Errors
    /// [`ReadError::Untrusted`] if the clock's status says that its time is void; [`ReadError::Expired`] if the point
    /// is a thousand seconds old: the page's writer has ended; [`ReadError::Range`] if the counter is further
    /// behind the point: it was set back since; [`ReadError::Blank`] if the page tells no time;
    /// [`ReadError::Malformed`] or [`ReadError::Range`] if its fields lead to none.
    #[inline]
    pub fn time_at(&self, counter: u64) -> Result<Duration, ReadError> {
        duration_of_nearest(self.fixed_at(counter)?.time)
    }

    /// Returns between what times the true one is at `counter`: by the greatest errors of the point and the period.
    ///
    /// The status is what the writer said for five seconds after the point; from then on the clock runs free.
    /// From two seconds before a midnight that may have a leap second, bounds are wider by a second on both
    /// sides, until the page is published after it. Constant time. Async-signal-safe.
    ///
    /// # Errors
    /// As for [`time_at`](Content::time_at); [`ReadError::Unbounded`] if a greatest error is not given.
    #[inline]
    pub fn bounds_at(&self, counter: u64) -> Result<Bounds, ReadError> {
        let needed = flags::MAX_ERROR_VALID | flags::PERIOD_MAX_ERROR_VALID;
        let At { time, passed, ticks, behind } = self.fixed_at(counter)?;
        if self.flags & needed != needed {
            return Err(ReadError::Unbounded);
        }
        let growth = u128::from(ticks) * u128::from(self.period_max_error);
        let growth = (growth >> self.period_shift) + 1;
        let mut error = fixed_of_nanoseconds(self.max_error_ns).saturating_add(growth);
        if self.may_leap() {
            error = error.saturating_add(self.leap_error(time, error));
        }
        let is_fresh = passed < fixed_of_nanoseconds(GRACE_NS);
        Ok(Bounds {
            earliest: duration_of(time.saturating_sub(error).saturating_sub(behind))?,
            latest: duration_of_ceil(time.checked_add(error).ok_or(ReadError::Range)?)?,
            status: if is_fresh { self.status } else { Status::FreeRunning },
        })
    }

    /// Returns the time at `counter`, and how far it is from the point.
    #[inline]
    fn fixed_at(&self, counter: u64) -> Result<At, ReadError> {
        if !self.status.is_trusted() {
            return Err(ReadError::Untrusted(self.status));
        }
        if self.counter_kind == COUNTER_NONE || self.period == 0 {
            return Err(ReadError::Blank);
        }
        if self.period_shift >= 64 || self.scale == Scale::Unknown {
            return Err(ReadError::Malformed);
        }
        let distance =
            |ticks: u64| (u128::from(ticks) * u128::from(self.period)) >> self.period_shift;
        let point = u128::from(self.seconds) << 64 | u128::from(self.fraction);
        let Some(ticks) = counter.checked_sub(self.counter) else {
            // (1)
            let behind = distance(self.counter - counter).saturating_add(1);
            let is_skew = behind <= fixed_of_nanoseconds(SKEW_NS);
            let at = At { time: point, passed: 0, ticks: 0, behind };
            return if is_skew { Ok(at) } else { Err(ReadError::Range) };
        };
        let passed = distance(ticks);
        if passed >= fixed_of_nanoseconds(BELIEVED_NS) {
            return Err(ReadError::Expired);
        }
        let time = point.checked_add(passed).ok_or(ReadError::Range)?;
        Ok(At { time, passed, ticks, behind: 0 })
    }

    /// Returns `true` if a leap second is near that the time here does not know of.
    #[inline]
    fn may_leap(&self) -> bool {
        let is_over = matches!(self.leap, Leap::None | Leap::Inserted | Leap::Deleted);
        self.scale == Scale::Utc && !is_over
    }

    /// Returns what the time may be off by since a midnight between the point and now, or near either.
    #[cold]
    fn leap_error(&self, time: u128, error: u128) -> u128 {
        const SECOND: u128 = 1 << 64;
        const DAY: u128 = 86_400 * SECOND;
        let near = error.saturating_add(2 * SECOND);
        let point = u128::from(self.seconds) << 64;
        let (first, last) = (point.saturating_sub(near), time.saturating_add(near));
        if first / DAY == last / DAY { 0 } else { SECOND }
    }
}

/// A time, and its distance from the point in seconds and ticks.
struct At {
    time: u128,
    passed: u128,
    ticks: u64,
    behind: u128,
}

impl From<&State> for Content {
    fn from(state: &State) -> Content {
        let period_max_error = state.period.error(state.drift_ppb).fraction;
        let time = fixed_of_nanoseconds(u64::from(state.time.subsec_nanos()));
        Content {
            counter_kind: state.counter_kind,
            scale: state.scale,
            disruptions: state.disruptions,
            flags: flags::MAX_ERROR_VALID
                | flags::PERIOD_MAX_ERROR_VALID
                | state.estimated_error_ns.map_or(0, |_| flags::ESTIMATED_ERROR_VALID)
                | state.tai_offset.map_or(0, |_| flags::TAI_OFFSET_VALID)
                | state.generation.map_or(0, |_| flags::GENERATION_PRESENT),
            status: state.status,
            smearing: state.smearing,
            tai_offset: state.tai_offset.unwrap_or(0),
            leap: state.leap,
            period_shift: state.period.shift,
            counter: state.counter,
            period: state.period.fraction,
            period_estimated_error: 0,
            period_max_error,
            seconds: state.time.as_secs(),
            fraction: time as u64,
            estimated_error_ns: state.estimated_error_ns.unwrap_or(0),
            max_error_ns: state.max_error_ns,
            generation: state.generation.unwrap_or(0),
        }
    }
}

/// The words of a copy, in the machine's byte order.
#[derive(Default)]
pub(super) struct Raw {
    pub(super) kinds: u32,
    pub(super) disruptions: u64,
    pub(super) flags: u64,
    pub(super) small: u64,
    pub(super) counter: u64,
    pub(super) period: u64,
    pub(super) period_estimated_error: u64,
    pub(super) period_max_error: u64,
    pub(super) seconds: u64,
    pub(super) fraction: u64,
    pub(super) estimated_error_ns: u64,
    pub(super) max_error_ns: u64,
    pub(super) generation: u64,
}

pub(super) fn decode(raw: &Raw) -> Content {
    let [_, _, counter_kind, scale] = raw.kinds.to_le_bytes();
    let [_, _, status, smearing, tai_low, tai_high, leap, period_shift] = raw.small.to_le_bytes();
    Content {
        counter_kind,
        scale: match scale {
            0 => Scale::Utc,
            1 => Scale::Tai,
            2 => Scale::Monotonic,
            _ => Scale::Unknown,
        },
        disruptions: raw.disruptions,
        flags: raw.flags,
        status: match status {
            1 => Status::Initializing,
            2 => Status::Synchronized,
            3 => Status::FreeRunning,
            4 => Status::Unreliable,
            _ => Status::Unknown,
        },
        smearing: match smearing {
            0 => Smearing::Strict,
            1 => Smearing::NoonLinear,
            2 => Smearing::UtcSls,
            _ => Smearing::Unknown,
        },
        tai_offset: i16::from_le_bytes([tai_low, tai_high]),
        leap: match leap {
            0 => Leap::None,
            1 => Leap::InsertionAhead,
            2 => Leap::DeletionAhead,
            3 => Leap::Inserting,
            4 => Leap::Inserted,
            5 => Leap::Deleted,
            _ => Leap::Unknown,
        },
        period_shift,
        counter: raw.counter,
        period: raw.period,
        period_estimated_error: raw.period_estimated_error,
        period_max_error: raw.period_max_error,
        seconds: raw.seconds,
        fraction: raw.fraction,
        estimated_error_ns: raw.estimated_error_ns,
        max_error_ns: raw.max_error_ns,
        generation: raw.generation,
    }
}

#[inline]
pub(super) fn kinds_of(content: &Content) -> u32 {
    u32::from_le_bytes([VERSION as u8, 0, content.counter_kind, content.scale as u8])
}

#[inline]
pub(super) fn small_of(content: &Content) -> u64 {
    // No page has a number for what comes after that.
    let status = (content.status as u8).min(Status::Unreliable as u8);
    let [tai_low, tai_high] = content.tai_offset.to_le_bytes();
    let (smearing, leap) = (content.smearing as u8, content.leap as u8);
    u64::from_le_bytes([0, 0, status, smearing, tai_low, tai_high, leap, content.period_shift])
}
