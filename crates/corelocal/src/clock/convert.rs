//! Converts ticks to times, by a short history of counter and clock.
//!
//! A tick is a value of the counter. Its time depends on how fast the clock ran over the counter, which NTP changes,
//! and on the absence of discontinuities, such as a sleep of the machine. Both are known only from readings at that
//! time. So a converter takes readings now and then ([`Converter::refresh`]), and stores segments:
//!
//! ```text
//!   time │                      ,-x   x  readings of counter and clock
//!        │           in   ,x---´      -  segments: a tick below one has its time
//!        │         doubt
//!        │  x---x----x                   between two readings that contradict each other,
//!        └─────────────────── counter    times are unknown
//! ```
//!
//! A segment is extended while the clock, at every reading, is within 10 ns of it. Otherwise the next one begins
//! where the last ended and leads back to the clock. So while the clock's rate is steady few segments cover hours,
//! and while it is slewed each covers one interval between readings. Times between two readings are interpolated,
//! never extrapolated: a tick after the last reading has to wait for the next.
//!
//! # Invariants
//! 1. Segments of a *stretch* (without a discontinuity) are adjacent in ticks, and time rises along them. They have
//!    the same first epoch. No two cover the same tick.
//! 2. A segment's line never changes, it is only extended. So a tick is converted to the same time every time, until
//!    its segment is discarded.
//! 3. A tick has a time only by a segment that covers it and includes its epoch. It was then taken between two
//!    consistent readings, or at the same instant as one.

pub(in crate::clock) mod history;
pub(in crate::clock) mod segment;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(in crate::clock) mod x86_64;

use super::events::{self, Change, Epoch};
use super::ticks::{self, Stamp, Ticks};
use super::{Clock, SELECTOR};
use core::fmt;
use segment::{ONE, Segment};

/// A sample of the counter and the clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) ticks: u64,
    /// The monotonic clock, in nanoseconds.
    pub(super) nanos: u64,
    /// The uncertainty of `nanos`, in nanoseconds.
    pub(super) doubt: u64,
    /// The present rate in nanoseconds per tick, as [`segment::rate`] encodes it, if it is known.
    pub(super) rate: Option<u64>,
    /// The realtime clock minus the monotonic one.
    pub(super) ahead: Option<u64>,
}

/// An event between two samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// No event is known.
    Quiet,
    /// An event may have disturbed the counter: the sample must be as expected.
    Suspicious,
    /// The counter was set or stopped.
    Broken,
}

/// The reason why a tick has no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unknown {
    /// It was taken after the last [`Converter::refresh`].
    Later,
    /// It was taken before what the converter remembers, or before there was a converter.
    Forgotten,
    /// It was taken between two looks that contradict each other, while the machine slept or was moved, or
    /// is of another epoch.
    Doubtful,
    /// The realtime clock was set between the looks before and after, so only its monotonic time is known.
    RealtimeSet,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unknown::Later => "the tick was taken after the converter's last refresh",
            Unknown::Forgotten => "the tick was taken before what the converter remembers",
            Unknown::Doubtful => {
                "the tick was taken while the counter was disrupted, or in another epoch"
            }
            Unknown::RealtimeSet => "the realtime clock was set when the tick was taken",
        })
    }
}

impl core::error::Error for Unknown {}

/// The first of many ticks that has no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NoTime {
    /// The index of that tick. All before it have been converted.
    pub at: usize,
    /// The reason.
    pub why: Unknown,
}

impl fmt::Display for NoTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "number {}: {}", self.at, self.why)
    }
}

impl core::error::Error for NoTime {}

/// Converts [`Ticks`] to times, one or very many at once.
///
/// It stores `HISTORY` segments of time: hours while the clock's rate is steady, and `HISTORY` intervals between
/// refreshes while it is slewed. Then it [`is_full`](Converter::is_full), and discards the oldest segment for each
/// new one. 72 bytes each, no heap, no thread.
///
/// # Accuracy
/// At a reading it is exact; in the first milliseconds, in which the vDSO is used, it is off by the time that takes,
/// some 30 ns. Between readings the clock's rate is assumed constant. A line is abandoned when it is more than 10 ns
/// off at a reading. Between two readings the error is at most a quarter of the change of rate by NTP times the
/// interval (10 ppm within a second: 2.5 us). Later ticks of an unbroken stretch never get earlier times.
///
/// One case cannot be detected: after the counter was set back and before the next check, a tick looks like an
/// earlier one, and gets that one's time. It takes a machine that was suspended or restored in a way that resets the
/// counter, and lasts at most until the next [`refresh`](Converter::refresh) or [`check`](super::check).
///
/// ```
/// use corelocal::clock::{self, Converter, Ticks};
///
/// let mut converter = Converter::new();
/// let epoch = clock::epoch();
/// let ticks = [Ticks::now(), Ticks::now_ordered()];
/// converter.refresh();
///
/// let mut dates = [0; 2]; // nanoseconds since 1970
/// converter.realtime_all(epoch, &ticks, &mut dates)?;
/// # Ok::<(), clock::NoTime>(())
/// ```
#[derive(Clone)]
pub struct Converter<const HISTORY: usize = 64> {
    history: History<HISTORY>,
    /// The epoch at the last sample, with the unit of its ticks.
    seen: Epoch,
    word: Option<events::Word>,
}

impl Converter {
    /// Returns one that remembers 64 segments, and knows of ticks from now on. Some ten microseconds at most.
    #[must_use]
    pub fn new() -> Converter {
        Converter::with_history()
    }
}

impl<const HISTORY: usize> Converter<HISTORY> {
    /// Returns one that remembers `HISTORY` segments, and knows of ticks from now on.
    ///
    /// ```
    /// let converter = corelocal::clock::Converter::<1000>::with_history();
    /// ```
    #[must_use]
    pub fn with_history() -> Converter<HISTORY> {
        let seen = events::check();
        let mut converter = Converter { history: History::new(), seen, word: None };
        converter.refresh();
        converter
    }

    /// Looks at the counter and the clock: ticks that were taken before can be converted then.
    ///
    /// To be called before converting, and now and then while ticks are taken, once a second say, or with
    /// each buffer that is handed over. Some hundred nanoseconds, no system call (but see
    /// [`check`](super::check)). Async-signal-safe.
    pub fn refresh(&mut self) {
        /// The time between the two samples that give a first rate where no page tells one, in nanoseconds.
        const APART: u64 = 20_000;
        self.take_look();
        if !self.history.has_rate() {
            let start = SELECTOR.read::<false>(Clock::Monotonic);
            // A clock that stands still is waited for no longer than this.
            for _ in 0..100_000 {
                if SELECTOR.read::<false>(Clock::Monotonic).wrapping_sub(start) >= APART {
                    break;
                }
            }
            self.take_look();
        }
    }

    fn take_look(&mut self) {
        let mut before = events::check();
        for _ in 0..4 {
            let word = events::word();
            let look = look(word);
            let now = events::check();
            // What happens between the two might be before or after the look.
            if now == before && events::word() == word {
                self.add(look, word, &now);
                return;
            }
            before = now;
        }
        // Things happen all the time. The next refresh will contradict this one's predecessor.
    }

    fn add(&mut self, look: Look, word: events::Word, now: &Epoch) {
        let happened = |change| now.has(change, &self.seen);
        let counts_otherwise = self.word.is_some_and(|last| last.counter() != word.counter());
        let before = if counts_otherwise || happened(Change::Suspend) {
            Before::Broken
        } else if now.since(&self.seen).any(|(change, _)| change != Change::Realtime) {
            Before::Suspicious
        } else {
            Before::Quiet
        };
        self.seen = *now;
        if self.history.len == 0 || before == Before::Broken {
            self.history.begin(&look, now.number());
        } else if self.history.breaks(&look, before) {
            self.seen = events::counter_broke();
            self.history.begin(&look, self.seen.number());
        } else {
            self.history.go_on(&look, now.number());
        }
        self.word = Some(word);
    }

    /// Returns `true` if it remembers as much as it can: what was before that is forgotten.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.history.len == HISTORY
    }

    /// Returns the monotonic clock when a stamp was taken, in nanoseconds.
    ///
    /// # Errors
    /// [`Unknown`] if the time is unknown.
    pub fn monotonic(&self, stamp: Stamp) -> Result<u64, Unknown> {
        let tick = stamp.ticks.as_raw();
        Ok(self.history.find(tick, stamp.epoch)?.at(tick))
    }

    /// Returns the realtime clock when a stamp was taken, in nanoseconds since 1970.
    ///
    /// # Errors
    /// [`Unknown`] if the time is unknown.
    pub fn realtime(&self, stamp: Stamp) -> Result<u64, Unknown> {
        let tick = stamp.ticks.as_raw();
        let segment = self.history.find(tick, stamp.epoch)?;
        Ok(segment.at(tick).wrapping_add(segment.ahead.ok_or(Unknown::RealtimeSet)?))
    }

    /// Writes for each tick what the monotonic clock was, in nanoseconds. If the slices differ in length, the
    /// longer one's rest is left alone.
    ///
    /// `epoch` is [`epoch`](super::epoch) as it was before the first of them was taken. Ticks may be in any
    /// order; ticks near each other are converted many at once, for less than 0.1 ns each.
    ///
    /// # Errors
    /// [`NoTime`], with the place of the first one that has none. Those before it are written; what is
    /// written behind it means nothing.
    pub fn monotonic_all(
        &self,
        epoch: u64,
        ticks: &[Ticks],
        times: &mut [u64],
    ) -> Result<(), NoTime> {
        self.history.convert(epoch, ticks, times, |_| Ok(0))
    }

    /// Writes for each tick what the realtime clock was, in nanoseconds since 1970, as
    /// [`monotonic_all`](Converter::monotonic_all).
    ///
    /// # Errors
    /// As for [`monotonic_all`](Converter::monotonic_all).
    pub fn realtime_all(
        &self,
        epoch: u64,
        ticks: &[Ticks],
        times: &mut [u64],
    ) -> Result<(), NoTime> {
        let ahead = |segment: &Segment| segment.ahead.ok_or(Unknown::RealtimeSet);
        self.history.convert(epoch, ticks, times, ahead)
    }
}

impl<const HISTORY: usize> Default for Converter<HISTORY> {
    fn default() -> Self {
        Converter::with_history()
    }
}

impl<const HISTORY: usize> fmt::Debug for Converter<HISTORY> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Converter")
            .field("segments", &self.history.len)
            .field("is_full", &self.is_full())
            .field("epoch", &self.seen)
            .finish_non_exhaustive()
    }
}

/// Reads the counter and the clocks, as ticks are counted in.
fn look(word: events::Word) -> Look {
    if word.counter().is_some() {
        if let Some(point) = SELECTOR.point() {
            let rate = point.rate.map(|rate| segment::rate(rate, 1 << 32));
            // A width that is no number of ticks, but what one gets for want of any.
            let width = point.width.min(1 << 40);
            // A tick is at most a microsecond, and a nanosecond for want of a rate.
            let doubt = segment::nanos(width, rate.unwrap_or(ONE));
            let ahead = point.ahead.or_else(events::realtime_ahead);
            return Look { ticks: point.ticks, nanos: point.nanos, doubt, rate, ahead };
        }
    }
    let ticks = ticks::read::<true>(word).as_raw();
    Look { ticks, nanos: ticks, doubt: 0, rate: Some(ONE), ahead: events::realtime_ahead() }
}

use history::History;

#[cfg(all(test, not(loom)))]
mod tests;
