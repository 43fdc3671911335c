//! The published rate and bound: truth lies within [earliest, latest] for every reading after a publication.
//!
//! A vmclock page is read by the cpu's counter alone. It holds the time C of `CLOCK_REALTIME` at a point, a rate P,
//! an error E at the point, and a growth D of that error. A ClockBound page holds E and D only: its reader takes the
//! time from `CLOCK_REALTIME`.
//!
//! # What chronyd promises
//! A report, made at t0, says how far the clock is from truth: C(t0) - truth is within `max_error` of 0. It also
//! says at what rate truth passes: while `CLOCK_MONOTONIC_RAW`, which is never slewed, counts a second, truth
//! advances by 1 - f, where f is the reported frequency, off by at most the skew, the residual frequency and 1 ppm:
//! together U.
//!
//! # Derivation
//! At a publication t1, the clock has moved by M = (C(t1) - C(t0)) - (1 - f) (RAW(t1) - RAW(t0)) against truth as
//! chronyd believes in it. M is measured. So slews that began, ended or turned since the report, and steps, are all
//! in it, however short they were:
//!
//! ```text
//!   |C(t1) - truth(t1)|  <=  max_error + |M| + U (t1 - t0)                  = E
//! ```
//!
//! The counter and RAW advance in a constant ratio, which is measured over the last seconds with an error R. The
//! published rate is P = ratio (1 - f), the rate of truth. It owes nothing to the rate of `CLOCK_REALTIME`: with a
//! slew in P, a page would go on with the slew after its end. So D = U + R, and no later slew, no end of one and no
//! death of chronyd or of the publisher makes a vmclock page wrong.
//!
//! The reader of a ClockBound page sees slews that come after the publication. D then contains the slew that is
//! under way, s = |k + f| for the kernel's correction k, since it goes on if chronyd dies. The reader counts time
//! by a clock that is slewed too, so D = (U + s) / (1 - s). A slew that begins later moves
//! the clock from one place within the bound towards another one. That holds while chronyd lives, so such a page
//! expires soon (`BELIEVED` in `state_tracker.rs`).
//!
//! # Without chronyd
//! The kernel knows an error that grows by its tolerance, 500 ppm. P is then the clock's mean rate over the last
//! seconds, and D is the tolerance and |P / ratio - 1|: truth is within the tolerance of the counter's nominal rate.
//! A clock that leaves RAW by more than the tolerance is slewed by its daemon, or runs away after its daemon's
//! death. What it gains or loses beyond the tolerance is added to E until the kernel is told an error anew.
//!
//! # Invariants
//! 1. Everything is rounded outwards.
//! 2. Nothing depends on how often the clock is looked at.

use corelocal::clock::page::Period;

use corelocal_support::clock::counter::Point;

/// chronyd's report on the clock's rate, and the clocks before the request and after the reply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// The gain of `CLOCK_MONOTONIC_RAW` on true time, in parts per million.
    pub frequency_ppm: f64,
    /// The clocks before the request.
    pub asked: Point,
    /// The clocks after the reply.
    pub answered: Point,
}

impl Report {
    /// Returns how far the clock has moved since the report, and the time since then: nanoseconds, rounded up.
    ///
    /// The report was made between its two points.
    pub fn moved(&self, now: &Point) -> (u64, u64) {
        let since = |then: &Point| {
            let passed = now.raw.wrapping_sub(then.raw) as i64;
            let clock = now.nanos.wrapping_sub(then.nanos) as i64;
            let gained = clock.saturating_sub(passed) as f64;
            let moved = gained + passed as f64 * self.frequency_ppm * 1e-6;
            up(moved.abs()).saturating_add(now.width).saturating_add(then.width)
        };
        let elapsed = now.raw.saturating_sub(self.asked.raw);
        (since(&self.asked).max(since(&self.answered)), elapsed)
    }
}

/// A rate of the counter, and how far it may be off, in parts per billion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The time from tick to tick.
    pub period: Period,
    /// Rounded up.
    pub error_ppb: u32,
}

/// Returns the rate at which truth passes from one point to another.
///
/// With a report it is that of `CLOCK_MONOTONIC_RAW`, corrected; without one it is the clock's own, and the error
/// contains what that differs from the nominal rate by.
pub fn rate(first: &Point, last: &Point, report: Option<&Report>) -> Option<Rate> {
    let ticks = last.counter.checked_sub(first.counter)?;
    let raw = last.raw.checked_sub(first.raw)?;
    let nanos = match report {
        Some(report) => (raw as f64 * (1.0 - report.frequency_ppm * 1e-6)).round() as u64,
        None => last.nanos.checked_sub(first.nanos)?,
    };
    let period = Period::from_ratio(nanos, ticks)?;
    let deviation = if report.is_some() { 0 } else { nanos.abs_diff(raw) };
    let blur = first.width.saturating_add(last.width).saturating_add(2);
    let error = deviation.saturating_add(blur) as f64 / raw.max(1) as f64;
    Some(Rate { period, error_ppb: ppb(error) })
}

/// Returns what a clock gained or lost from one point to another beyond so many parts per billion: nanoseconds.
pub fn excess(first: &Point, last: &Point, tolerance_ppb: u32) -> u64 {
    let raw = last.raw.saturating_sub(first.raw);
    let gained = last.nanos.wrapping_sub(first.nanos).wrapping_sub(raw) as i64;
    gained.unsigned_abs().saturating_sub(growth(raw, tolerance_ppb))
}

/// Returns what an error grows by in so much time, rounded up.
pub fn growth(nanos: u64, drift_ppb: u32) -> u64 {
    let grown = (u128::from(nanos) * u128::from(drift_ppb)).div_ceil(1_000_000_000);
    u64::try_from(grown).unwrap_or(u64::MAX)
}

/// Returns a part of one in parts per billion, below a billion, which would mean nothing.
pub fn ppb(part: f64) -> u32 {
    (part * 1e9).ceil().min(999_999_999.0) as u32
}

/// Returns how fast the error grows for a reader of the counter: in parts of truth, which RAW may gain on by 500 ppm.
pub fn growth_by_counter(drift_ppb: u32, rate: &Rate) -> u32 {
    let drift = f64::from(drift_ppb) * RAW_GAINS;
    ppb((drift + f64::from(rate.error_ppb)) * 1e-9)
}

/// Returns how fast the error grows for a reader of the kernel's clocks: by a monotonic clock that is slewed as well,
/// so the reader counts fewer seconds than pass.
pub fn growth_by_clock(drift_ppb: u32, slew_ppb: u32) -> u32 {
    let slew = f64::from(slew_ppb) * RAW_GAINS;
    let left = (1.0 - slew * 1e-9).max(0.1);
    ppb((f64::from(drift_ppb) * RAW_GAINS + slew) * 1e-9 / left)
}

/// More than a second of RAW may be, in seconds of truth.
const RAW_GAINS: f64 = 1.001;

fn up(nanos: f64) -> u64 {
    nanos.ceil() as u64
}

#[cfg(test)]
mod tests;
