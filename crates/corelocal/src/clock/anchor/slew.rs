//! The slope of an anchored clock: straight lines that join without jumps.
//!
//! Between two samples of the true clock, time is a straight line over the counter. A line has an end. The first
//! thread that reads the counter beyond it takes a sample and computes the next line, from the point where the last
//! one ended, such that it meets the true clock one period later:
//!
//! ```text
//!   time │                  ,x   the next line aims at the true time
//!        │             ,o--´
//!        │        ,o--´  o ends and beginnings are one point
//!        │  o----´
//!        └──────────────────── counter
//! ```
//!
//! So time is a function of the counter alone, continuous and rising, whichever thread reads it and however long it
//! is interrupted in between. That makes readings of all threads comparable.
//!
//! If there was no reading for more than a period, no thread saw the line continue, and the next one begins at the
//! true time.
//!
//! # Invariants
//! 1. A line is never read beyond its `end`; before its `base` it has the value at its base.
//! 2. At every counter value the next line is at least the value of the last line at its end.
//! 3. `(end - base) * rate` is below 2^63.
//!
//! # Accuracy
//! A line continues straight while the true time, as far as a sample can tell (some 20 ns), is on it. A change of the
//! true clock's rate is noticed at the next sample. A change of 500 ppm, the maximum by which NTP slews, leads to 16
//! us within a period of 32 ms, which are gone two periods later.

use crate::clock::status::Cause;
use crate::sys::arch::counter;

/// The longest time between two samples, in nanoseconds.
const LONGEST: u64 = 32_000_000;

/// The time between the first two samples. Periods grow with what is known about the rate.
pub(in crate::clock) const SHORTEST: u64 = 20_000;

/// The error of a line, in nanoseconds, from which on it is a discontinuity and not a matter of rates: NTP's largest
/// slew and a tick changed by a few percent stay below it.
pub(in crate::clock) const STEP: u64 = 1_000_000;

/// A line is bent towards the truth by at most the rate divided by this.
const BEND: u64 = 512;

/// The number of counts before its base for which a line can still be read.
const FAR: u64 = 1 << 26;

/// The value of `pace` in the two lines that end an anchor.
const CLOSED: u64 = 0;
const CLOSING: u64 = 1;

/// A sample of the true clock, which was read between two readings of the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::clock) struct Sample {
    /// The counter at the middle between its two readings.
    pub(in crate::clock) counter: u64,
    /// The true clock's time.
    pub(in crate::clock) time: u64,
    /// The counts from one reading of the counter to the end of the other one's.
    pub(in crate::clock) width: u64,
}

/// A straight piece of the clock's course: see the module's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::clock) struct Line {
    /// The counter at the line's beginning.
    pub(in crate::clock) base: u64,
    /// The time at `base`.
    pub(in crate::clock) time: u64,
    /// Nanoseconds per count, times 2^32.
    pub(in crate::clock) rate: u64,
    /// The counter at the line's end.
    pub(in crate::clock) end: u64,
    /// The true clock's rate, as far as it is known: `rate` without the bend towards the truth.
    pub(in crate::clock) pace: u64,
    /// The sample that `pace` was last measured to: its counter and its time.
    pub(in crate::clock) sampled: u64,
    pub(in crate::clock) truth: u64,
    /// The time of the very first sample.
    pub(in crate::clock) first: u64,
}

impl Line {
    /// Returns the line by the first two samples.
    ///
    /// # Errors
    /// [`Cause::Inconsistent`] if they make no rate.
    pub(in crate::clock) fn first(a: Sample, b: Sample) -> Result<Line, Cause> {
        let rate = rate(b.counter.wrapping_sub(a.counter), b.time.wrapping_sub(a.time))?;
        Line {
            base: b.counter,
            // The width is what it may be late by: no reading of the true clock so far was later.
            time: b.time.saturating_add(nanos(b.width, rate)),
            rate,
            pace: rate,
            end: 0,
            sampled: b.counter,
            truth: b.time,
            first: a.time,
        }
        .ending(b.counter, SHORTEST)
    }

    /// Returns it so much ahead.
    pub(in crate::clock) fn lifted(self, by: u64) -> Line {
        Line { time: self.time.saturating_add(by), ..self }
    }

    /// Returns `true` if it tells the time. Otherwise it ends the anchor: it covers no counter.
    pub(in crate::clock) fn is_open(&self) -> bool {
        self.pace > CLOSING
    }

    /// Returns where an anchor ended: no reading of it was, or will be, later. `None` if that is not known yet.
    pub(in crate::clock) fn stop(&self) -> Option<u64> {
        (self.pace == CLOSED).then_some(self.time)
    }

    /// Returns what follows an open line first: this line, but none of its times.
    pub(in crate::clock) fn closing(&self) -> Line {
        let Line { time, rate, base, end, .. } = *self;
        Line { time, rate, pace: CLOSING, sampled: base, truth: end, ..Line::NOWHERE }
    }

    /// Returns what follows then, by a counter that was read after [`closing`](Line::closing) was published, if there
    /// is one. Readings of the open line that then went on had read their counters, but for what a cpu has in
    /// flight.
    pub(in crate::clock) fn closed(&self, counter: Option<u64>) -> Line {
        let Line { time, rate, sampled: base, truth: end, .. } = *self;
        let open = Line { base, time, rate, end, ..*self };
        let last = counter.map(|counter| counter.wrapping_add(counter::IN_FLIGHT));
        let last = last.filter(|last| open.covers(*last)).unwrap_or(end);
        Line { time: open.at(last), pace: CLOSED, ..Line::NOWHERE }
    }

    /// A line that covers no counter value except 2^64 - `FAR`.
    const NOWHERE: Line = Line {
        base: 0,
        time: 0,
        rate: 0,
        end: FAR.wrapping_neg(),
        pace: 0,
        sampled: 0,
        truth: 0,
        first: 0,
    };

    /// Returns the time at a counter value up to the end.
    #[inline(always)]
    pub(in crate::clock) fn at(&self, counter: u64) -> u64 {
        // (1) and (3); before the base it is the base.
        let advance = (counter.wrapping_sub(self.base) as i64).max(0) as u64;
        self.time.wrapping_add(advance.wrapping_mul(self.rate) >> 32)
    }

    /// Returns `true` if the line says what the time is at this counter value. Not if it is beyond the end, nor if it
    /// is far before the base: then the counter was set back.
    #[inline(always)]
    pub(in crate::clock) fn covers(&self, counter: u64) -> bool {
        // One comparison for both: from `FAR` before the base to the end.
        counter.wrapping_sub(self.base).wrapping_add(FAR)
            <= self.end.wrapping_sub(self.base).wrapping_add(FAR)
    }

    /// Returns the line after this one, by a sample beyond its end; and whether the clock jumped forward.
    ///
    /// # Errors
    /// [`Cause::Inconsistent`] if the sample contradicts this line more than rates can explain.
    pub(in crate::clock) fn next(&self, sample: Sample) -> Result<(Line, bool), Cause> {
        let (known, elapsed) =
            (sample.counter.wrapping_sub(self.sampled), sample.time.wrapping_sub(self.truth));
        let measured = rate(known, elapsed)?;
        // The first rate is by samples that are some 20 us apart, and off by up to a tenth of a percent.
        if measured.abs_diff(self.pace) > self.pace / 16 {
            return Err(Cause::Inconsistent);
        }
        let period = sample.time.saturating_sub(self.first).clamp(SHORTEST, LONGEST);
        let at_end = self.at(self.end);
        let unseen = sample.counter.wrapping_sub(self.end);
        if nanos(unseen, measured) > period {
            // No reading of the true clock so far was later.
            let time = sample.time.saturating_add(nanos(sample.width, measured)).max(at_end);
            let line = Line { base: sample.counter, time, rate: measured, ..*self };
            return Ok((line.knowing(sample, measured).ending(sample.counter, period)?, false));
        }
        let here = at_end.saturating_add(nanos(unseen, self.rate));
        let doubt = nanos(sample.width, measured) / 2;
        let (early, late) = (sample.time.saturating_sub(doubt), sample.time.saturating_add(doubt));
        let bent = Line { base: self.end, time: at_end, rate: self.pace, ..*self };
        if (early..=late).contains(&here) {
            return Ok((bent.ending(sample.counter, period)?, false));
        }
        if early.saturating_sub(here) > STEP {
            let line = Line { base: sample.counter, time: sample.time, rate: measured, ..*self };
            return Ok((line.knowing(sample, measured).ending(sample.counter, period)?, true));
        }
        if here.saturating_sub(late) > STEP {
            return Err(Cause::Inconsistent);
        }
        // Towards where the truth will be at the end of the next period.
        let counts = unseen.saturating_add(self::counts(period, measured));
        let aim = sample.time.saturating_add(period).saturating_sub(at_end);
        let wanted = rate(counts, aim).unwrap_or(0);
        let most = measured / BEND;
        let bent = Line { rate: wanted.clamp(measured - most, measured + most), ..bent };
        Ok((bent.knowing(sample, measured).ending(sample.counter, period)?, false))
    }

    /// Returns it with this pace, which goes by this sample.
    fn knowing(self, sample: Sample, pace: u64) -> Line {
        Line { pace, sampled: sample.counter, truth: sample.time, ..self }
    }

    /// Returns it ending so long after `counter`.
    fn ending(self, counter: u64, period: u64) -> Result<Line, Cause> {
        let line = Line { end: counter.wrapping_add(counts(period, self.rate)), ..self };
        let length = u128::from(line.end.wrapping_sub(line.base));
        // (3)
        if (length * u128::from(line.rate)) >> 63 == 0 {
            Ok(line)
        } else {
            Err(Cause::Inconsistent)
        }
    }
}

/// Returns so much time in so many counts, as a line's rate.
fn rate(counts: u64, nanos: u64) -> Result<u64, Cause> {
    let rate =
        (u128::from(nanos) << 32).checked_div(u128::from(counts)).ok_or(Cause::Inconsistent)?;
    // From a counter of 64 GHz to one of 4 MHz.
    if (1 << 26..1 << 40).contains(&rate) { Ok(rate as u64) } else { Err(Cause::Inconsistent) }
}

/// Returns the time that so many counts take.
pub(in crate::clock) fn nanos(counts: u64, rate: u64) -> u64 {
    u64::try_from((u128::from(counts) * u128::from(rate)) >> 32).unwrap_or(u64::MAX)
}

/// Returns the counts in so much time.
fn counts(nanos: u64, rate: u64) -> u64 {
    u64::try_from((u128::from(nanos) << 32) / u128::from(rate.max(1))).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(loom)))]
mod tests;
