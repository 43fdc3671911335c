//! What a writer knows of a clock at one moment, whatever the encoding; and what readers get of it.
//!
//! Invariant: the numbers of [`Scale`], [`Leap`] and [`Smearing`] are those of a `vmclock` page.

use core::time::Duration;

use super::status::Status;
use super::units::Period;

/// The counter kind that means "no counter".
pub(super) const NO_COUNTER: u8 = 0xff;

/// The scale of a time: its epoch, and whether leap seconds count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Scale {
    /// Seconds since 1970, without leap seconds.
    #[default]
    Utc = 0,
    /// Seconds since 1970, with leap seconds.
    Tai = 1,
    /// Time since an unspecified moment.
    Monotonic = 2,
    /// A scale that readers do not know, such as a smeared one.
    Unknown = 4,
}

/// A leap second nearby.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Leap {
    /// No leap second is known.
    #[default]
    None = 0,
    /// A second is inserted at the end of this month.
    InsertionAhead = 1,
    /// A second is left out at the end of this month.
    DeletionAhead = 2,
    /// It is 23:59:60.
    Inserting = 3,
    /// A second was inserted at the end of last month.
    Inserted = 4,
    /// A second was left out at the end of last month.
    Deleted = 5,
    /// A value that is not known.
    Unknown = 0xff,
}

/// The way in which other clocks of the site smear a leap second. The page's own time is never smeared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Smearing {
    /// They do not smear it.
    #[default]
    Strict = 0,
    /// They change their rate by a constant from noon to noon.
    NoonLinear = 1,
    /// They use UTC-SLS: the last thousand seconds are stretched.
    UtcSls = 2,
    /// A value that is not known.
    Unknown = 0xff,
}

/// A writer's knowledge of a clock at one moment.
///
/// `From<&State>` makes it the content of a page of each encoding, which takes what it has a place for.
///
/// ```
/// use corelocal::clock::page::{Period, State, clockbound, pvclock};
/// use std::time::Duration;
///
/// let state = State {
///     counter: 10,
///     time: Duration::from_nanos(77),
///     period: Period::from_hertz(1_000_000_000).unwrap(),
///     max_error_ns: 40_000,
///     published: Duration::from_secs(5),
///     valid_for: Duration::from_secs(1000),
///     ..State::default()
/// };
/// assert_eq!(pvclock::Content::from(&state).nanoseconds_at(1_000_010), Ok(1_000_076));
/// assert_eq!(clockbound::Content::from(&state).void_after, Duration::from_secs(1005));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The kind of counter: [`COUNTER_TSC`](super::vmclock::COUNTER_TSC) and so on.
    pub counter_kind: u8,
    /// The counter at the point.
    pub counter: u64,
    /// The time at the point, since the scale's epoch.
    pub time: Duration,
    /// The scale of the time.
    pub scale: Scale,
    /// The period of the counter.
    pub period: Period,
    /// The maximum error of the time at the point, in nanoseconds.
    pub max_error_ns: u64,
    /// The estimated error at the point, in nanoseconds, if there is an estimate.
    pub estimated_error_ns: Option<u64>,
    /// The growth of the maximum error, in parts per billion.
    pub drift_ppb: u32,
    /// The status of the clock: whether it can be trusted.
    pub status: Status,
    /// The number of times that the counter or the clock was disrupted. Must not fall, not even when the writer begins
    /// anew ([`Publisher::last`](super::Publisher::last)); publishers add the deaths of writers.
    pub disruptions: u64,
    /// Whether that number is the marker of a hypervisor's page, with which readers compare it. Then
    /// nothing is added.
    pub is_hypervisors_marker: bool,
    /// TAI - UTC in seconds, if it is known.
    pub tai_offset: Option<i16>,
    /// A leap second nearby.
    pub leap: Leap,
    /// The way in which other clocks of the site smear leap seconds.
    pub smearing: Smearing,
    /// The generation of the virtual machine, if a hypervisor tells it.
    pub generation: Option<u64>,
    /// The time of this state, by `CLOCK_MONOTONIC_COARSE`.
    pub published: Duration,
    /// The time span for which readers may use it.
    pub valid_for: Duration,
    /// Whether all cpus' counters agree.
    pub is_stable: bool,
}

impl Default for State {
    /// Returns one without a counter, of unknown status. `is_stable` is set: a counter that is published to all cpus
    /// is.
    fn default() -> State {
        State {
            counter_kind: NO_COUNTER,
            counter: 0,
            time: Duration::ZERO,
            scale: Scale::Utc,
            period: Period::default(),
            max_error_ns: 0,
            estimated_error_ns: None,
            drift_ppb: 0,
            status: Status::Unknown,
            disruptions: 0,
            is_hypervisors_marker: false,
            tai_offset: None,
            leap: Leap::None,
            smearing: Smearing::Strict,
            generation: None,
            published: Duration::ZERO,
            valid_for: Duration::ZERO,
            is_stable: true,
        }
    }
}

/// Bounds of the true time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The earliest possible time, since the scale's epoch.
    pub earliest: Duration,
    /// The latest possible time.
    pub latest: Duration,
    /// [`Status::Synchronized`] or [`Status::FreeRunning`].
    pub status: Status,
}
