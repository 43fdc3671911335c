//! Clocks that stand until a test moves them.
//!
//! # Invariants
//! 1. All clocks are in one [`Latch`], so a reader sees each change as a whole: clocks that were advanced together are
//!    never seen apart.
//! 2. Sums that are out of range end at the last moment there is, as those of [`Instant`] do.

#[cfg(not(loom))]
pub(in crate::clock) mod latch;

use core::fmt;
use core::time::Duration;

use super::bounded::{self, State};
use super::{Bounded, Clocks, Instant, Leap, Timestamp, Unbounded};
use latch::Latch;

/// Clocks for tests: they stand until they are advanced or set, and go back only if they are set back.
///
/// Code under test takes its clocks as a type parameter: see [`Clocks`], which has an example. A reference to a mock is
/// clocks, and so is an `Arc` of one; clones of these read the same mock, in any thread. The mock itself cannot be
/// cloned: a copy would go on by itself.
///
/// ```
/// use corelocal::clock::{Clocks, MockClocks, Timestamp};
/// use std::sync::Arc;
/// use std::thread;
/// use std::time::Duration;
///
/// let clocks = Arc::new(MockClocks::new());
/// clocks.set_realtime(Timestamp::from_nanos(1_700_000_000_000_000_000));
/// let of_thread = Arc::clone(&clocks);
/// let start = clocks.now();
/// thread::spawn(move || of_thread.advance(Duration::from_secs(60))).join().unwrap();
/// assert_eq!(clocks.elapsed(start), Duration::from_secs(60));
/// assert_eq!(clocks.realtime(), 1_700_000_060_000_000_000);
/// ```
///
/// # Readings
/// Each sees all changes that happen before it, and each change as a whole. Unordered and coarse readings are the
/// ordered ones. They wait for nothing, and are async-signal-safe. Instants before the zero of the clock are numbers
/// above 2^63 as `u64`, which [`Clocks::now`] turns back.
///
/// # Changes
/// They wait for each other, so they are not async-signal-safe. A sum out of range is the last moment that an
/// [`Instant`] or [`Timestamp`] can tell. A child has a copy of its own after `fork`.
pub struct MockClocks {
    fall_back: Latch<WORDS>,
}

const WORDS: usize = 7;

/// The clocks' times, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Time {
    monotonic: i64,
    realtime: i64,
    /// Boottime minus monotonic, and below it TAI minus realtime.
    slept: i64,
    tai_offset: i64,
    /// The error bound of realtime, and its state as [`bounded::worth`] encodes it.
    error: u64,
    worth: u64,
    epoch: u64,
}

impl Time {
    const START: Time = Time {
        monotonic: 0,
        realtime: 0,
        slept: 0,
        tai_offset: 0,
        error: 0,
        worth: bounded::worth(State::Unsynchronised, Leap::None),
        epoch: 0,
    };

    const fn words(self) -> [u64; WORDS] {
        let Time { monotonic, realtime, slept, tai_offset, error, worth, epoch } = self;
        let [monotonic, realtime] = [monotonic as u64, realtime as u64];
        [monotonic, realtime, slept as u64, tai_offset as u64, error, worth, epoch]
    }

    fn of([monotonic, realtime, slept, tai_offset, error, worth, epoch]: [u64; WORDS]) -> Time {
        let [monotonic, realtime] = [monotonic as i64, realtime as i64];
        let [slept, tai_offset] = [slept as i64, tai_offset as i64];
        Time { monotonic, realtime, slept, tai_offset, error, worth, epoch }
    }
}

/// Returns it as nanoseconds, or the most there is.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl MockClocks {
    /// Clocks that all stand at 0, which is 1970-01-01 00:00:00 UTC for the realtime clock. They have no error bound:
    /// [`now_bounded`](Clocks::now_bounded) is [`Unbounded::Unsynchronised`].
    #[must_use]
    pub const fn new() -> MockClocks {
        MockClocks { fall_back: Latch::new(Time::START.words()) }
    }

    /// Lets time go by: all clocks are so much later.
    pub fn advance(&self, by: Duration) {
        let by = nanos(by);
        self.change(|time| Time {
            monotonic: time.monotonic.saturating_add_unsigned(by),
            realtime: time.realtime.saturating_add_unsigned(by),
            ..time
        });
    }

    /// Lets the machine sleep for so long: all clocks but the monotonic one are later. Another epoch begins.
    pub fn suspend(&self, length: Duration) {
        let by = nanos(length);
        self.change(|time| Time {
            realtime: time.realtime.saturating_add_unsigned(by),
            slept: time.slept.saturating_add_unsigned(by),
            epoch: time.epoch.wrapping_add(1),
            ..time
        });
    }

    /// Sets the monotonic clock, and boottime with it, be it back: no clock of a machine does that, but a test may want
    /// to begin an hour after boot, or twice at the same moment. Another epoch begins.
    pub fn set_monotonic(&self, to: Instant) {
        let monotonic = to.as_nanos();
        self.change(|time| Time { monotonic, epoch: time.epoch.wrapping_add(1), ..time });
    }

    /// Sets the realtime clock, and TAI with it, to a time that may be earlier. Another epoch begins.
    pub fn set_realtime(&self, to: Timestamp) {
        let realtime = to.as_nanos();
        self.change(|time| Time { realtime, epoch: time.epoch.wrapping_add(1), ..time });
    }

    /// Sets by how many seconds TAI is ahead of the realtime clock: 37 since 2017, and 0 at the beginning, as in a
    /// kernel that has not been told.
    pub fn set_tai_offset(&self, seconds: i32) {
        let tai_offset = i64::from(seconds) * 1_000_000_000;
        self.change(|time| Time { tai_offset, ..time });
    }

    /// Sets what [`now_bounded`](Clocks::now_bounded) returns: bounds that are so far from the realtime clock on both
    /// sides, or why there are none. The distance stays until it is set again; that of a machine grows.
    pub fn set_error(&self, error: Result<Duration, Unbounded>) {
        let (error, state) = match error {
            Ok(error) => (nanos(error), State::Bounded),
            Err(Unbounded::Unsynchronised) => (0, State::Unsynchronised),
            Err(Unbounded::Disrupted) => (0, State::Disrupted),
            Err(Unbounded::Untold(errno)) => (0, State::Untold(errno.0)),
        };
        self.change(|time| {
            let (_, leap) = bounded::worth_of(time.worth);
            Time { error, worth: bounded::worth(state, leap), ..time }
        });
    }

    /// Sets the leap second that [`now_bounded`](Clocks::now_bounded) tells of. No clock goes otherwise for it.
    pub fn set_leap(&self, leap: Leap) {
        self.change(|time| {
            let (state, _) = bounded::worth_of(time.worth);
            Time { worth: bounded::worth(state, leap), ..time }
        });
    }

    fn change(&self, next: impl Fn(Time) -> Time) {
        self.fall_back.change(|words| next(Time::of(words)).words());
    }

    fn read(&self) -> Time {
        Time::of(self.fall_back.read())
    }
}

impl Clocks for MockClocks {
    fn monotonic(&self) -> u64 {
        self.read().monotonic as u64
    }

    fn realtime(&self) -> u64 {
        self.read().realtime as u64
    }

    fn boottime(&self) -> u64 {
        let time = self.read();
        time.monotonic.saturating_add(time.slept) as u64
    }

    fn tai(&self) -> u64 {
        let time = self.read();
        time.realtime.saturating_add(time.tai_offset) as u64
    }

    fn now_bounded(&self) -> Result<Bounded, Unbounded> {
        let time = self.read();
        let (state, leap) = bounded::worth_of(time.worth);
        let earliest = time.realtime.saturating_sub_unsigned(time.error);
        let latest = time.realtime.saturating_add_unsigned(time.error);
        bounded::bounded(earliest as u64, latest as u64, state, leap)
    }

    fn epoch(&self) -> u64 {
        self.read().epoch
    }
}

impl Default for MockClocks {
    /// Does what [`MockClocks::new`] does.
    fn default() -> MockClocks {
        MockClocks::new()
    }
}

impl fmt::Debug for MockClocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockClocks")
            .field("now", &self.now())
            .field("timestamp", &self.timestamp())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
