//! What a converter remembers: the segments, and how a look makes another one. See `convert.rs`.
//!
//! # Invariants
//! Those of `convert.rs`, and:
//! 1. `segments[..len]` in the order of a ring whose newest is `newest`; others are empty.

use super::segment::{self as segment, LONGEST, Segment};
use super::{Before, Look, NoTime, Unknown};
use crate::clock::ticks::Ticks;

/// The largest error of a line at a look that is exact, in nanoseconds. The kernel's own rate wavers by a part in 2^23,
/// so that lines which are drawn as exactly as can be are left by one or two.
const TOLERANCE: u64 = 10;

/// The number of ticks that are converted at once.
const BLOCK: usize = 4096;

/// The segments of the past, newest last: see the module's text.
#[derive(Clone)]
pub(in crate::clock) struct History<const N: usize> {
    segments: [Segment; N],
    newest: usize,
    pub(in crate::clock) len: usize,
    /// The last sample that was used.
    last: Look,
    /// The sample since which the rate has been the present one.
    steady: Look,
    /// The newest segment's rate differs from the clock's, to lead back to it: the segment ends at the next sample.
    is_bent: bool,
    /// The rate that the next sample should show.
    rate: Option<u64>,
    mark: Look,
}

impl<const N: usize> History<N> {
    pub(in crate::clock) fn new() -> History<N> {
        const { assert!(N > 0, "a converter must remember something") };
        let none = Look { ticks: 0, nanos: 0, doubt: 0, rate: None, ahead: None };
        History {
            segments: [Segment::EMPTY; N],
            newest: 0,
            len: 0,
            last: none,
            steady: none,
            is_bent: false,
            rate: None,
            mark: none,
        }
    }

    pub(in crate::clock) fn has_rate(&self) -> bool {
        self.rate.is_some()
    }

    /// Returns `true` if this look does not go on from the last one.
    pub(in crate::clock) fn breaks(&self, look: &Look, before: Before) -> bool {
        /// The assumed time between reading the counter and the clock, for a sample that does not tell it, in
        /// nanoseconds.
        const SLACK: u64 = 2_000;
        /// The most ticks by which one cpu's counter may lag behind another's.
        const LAG: u64 = 1 << 13;
        let passed = look.ticks.wrapping_sub(self.last.ticks);
        if passed > LONGEST {
            return passed.wrapping_neg() > LAG;
        }
        let slack = SLACK.saturating_add(look.doubt).saturating_add(self.last.doubt);
        let elapsed = look.nanos.wrapping_sub(self.last.nanos) as i64;
        if elapsed < 0 {
            return elapsed.unsigned_abs() > slack;
        }
        let elapsed = elapsed as u64;
        let Some(rate) = self.rate else {
            // The first rate of a stretch. From 64 GHz to 4 MHz.
            let (least, most) = (passed / 64, passed.saturating_mul(250));
            return elapsed.saturating_add(slack) < least || elapsed > most.saturating_add(slack);
        };
        // NTP, or an administrator that sets the length of a tick, changes the rate by at most a tenth. After a
        // discontinuity there is no time for a coincidence.
        let expected = segment::nanos(passed, rate);
        let margin = expected / if before == Before::Quiet { 8 } else { 256 };
        elapsed.abs_diff(expected) > margin.saturating_add(slack)
    }

    /// Begins a stretch.
    pub(in crate::clock) fn begin(&mut self, look: &Look, epoch: u64) {
        self.rate = look.rate;
        // The rate until the next reading is never used: the segment has no length.
        let rate = look.rate.unwrap_or(segment::ONE);
        self.push(Segment::new(look.ticks, look.nanos, rate, look.ahead, (epoch, epoch)));
        (self.last, self.steady, self.mark) = (*look, *look, *look);
        self.is_bent = false;
    }

    /// Goes on with the stretch: with the same segment if the look is near its line, else with another.
    pub(in crate::clock) fn go_on(&mut self, look: &Look, epoch: u64) {
        let now = self.segments[self.newest];
        let passed = look.ticks.wrapping_sub(now.last);
        if !(2..=LONGEST).contains(&passed) {
            // Not later, as far as the counters tell.
            return;
        }
        // Of a stretch's beginning alone, which has no line yet.
        let is_point = now.last == now.first;
        let tolerance = TOLERANCE.saturating_add(look.doubt);
        let is_straight = !is_point
            && !self.is_bent
            && look.ticks.wrapping_sub(now.first) <= LONGEST
            && now.at(look.ticks).abs_diff(look.nanos) <= tolerance;
        let ahead = self.ahead(&now, look);
        if !is_straight || ahead != now.ahead || ahead.is_none() {
            // No tick is of two segments of a stretch.
            let first = if is_point { now.first } else { now.last.wrapping_add(1) };
            let start = now.at(first);
            let rate =
                if is_straight { now.rate() } else { self.aim(look, first, start, tolerance) };
            let next = Segment::new(first, start, rate, ahead, now.epochs);
            if is_point {
                self.segments[self.newest] = next;
            } else {
                self.push(next);
            }
        }
        let newest = &mut self.segments[self.newest];
        newest.last = look.ticks;
        newest.epochs.1 = epoch;
        self.measure(look);
        self.last = *look;
    }

    /// Learns the rate that the next look is expected to show, when enough time has passed for it to be right
    /// to a part in thousands.
    fn measure(&mut self, look: &Look) {
        let elapsed = look.nanos.saturating_sub(self.mark.nanos);
        let doubt = look.doubt.saturating_add(self.mark.doubt).saturating_add(1);
        let is_enough = elapsed / 4096 >= doubt;
        if is_enough || self.rate.is_none() {
            self.rate = Some(segment::rate(elapsed, look.ticks.wrapping_sub(self.mark.ticks)));
        }
        if is_enough {
            self.mark = *look;
        }
    }

    /// Returns what the realtime clock is ahead by up to this look; `None` if that changed since the last one.
    fn ahead(&self, now: &Segment, look: &Look) -> Option<u64> {
        /// The smallest difference that counts as a step of the clock, in nanoseconds; less may be an error of the
        /// samples.
        const STEP: u64 = 1000;
        let (last, next) = (self.last.ahead?, look.ahead?);
        if (next.wrapping_sub(last) as i64).unsigned_abs() > STEP {
            return None;
        }
        // What was told already stays, so that the same tick gets the same time.
        let kept =
            now.ahead.filter(|ahead| (next.wrapping_sub(*ahead) as i64).unsigned_abs() <= STEP);
        Some(kept.unwrap_or(next))
    }

    /// Returns the rate of a line from `start` at the tick `from`: the one that the clock has had since `steady`,
    /// which is known best, if it leads near the look; else one that leads there, up to the next look.
    fn aim(&mut self, look: &Look, from: u64, start: u64, tolerance: u64) -> u64 {
        let mean = |since: &Look| {
            let ticks = look.ticks.wrapping_sub(since.ticks);
            let is_far = ticks > LONGEST;
            (!is_far).then(|| segment::rate(look.nanos.saturating_sub(since.nanos), ticks))
        };
        // The time since the last sample by the steady rate must be the measured one, within the uncertainty.
        let is_steady = |rate| {
            let time = segment::nanos(look.ticks.wrapping_sub(self.last.ticks), rate);
            let doubt = tolerance.saturating_add(self.last.doubt);
            time.abs_diff(look.nanos.saturating_sub(self.last.nanos)) <= doubt
        };
        let steady = mean(&self.steady).filter(|rate| is_steady(*rate));
        if steady.is_none() {
            self.steady = self.last;
        }
        let (ticks, rise) = (look.ticks.wrapping_sub(from), look.nanos.saturating_sub(start));
        let leads_near = |rate: &u64| segment::nanos(ticks, *rate).abs_diff(rise) <= tolerance / 2;
        let rate = steady.or_else(|| mean(&self.steady)).filter(leads_near);
        self.is_bent = rate.is_none();
        rate.unwrap_or_else(|| segment::rate(rise, ticks))
    }

    fn push(&mut self, segment: Segment) {
        if self.len > 0 {
            self.newest = (self.newest + 1) % N;
        }
        self.segments[self.newest] = segment;
        self.len = (self.len + 1).min(N);
    }

    /// Walks from the newest to the oldest.
    fn newest_first(&self) -> impl Iterator<Item = &Segment> {
        let (newer, older) = self.segments.split_at((self.newest + 1).min(N));
        newer.iter().rev().chain(older.iter().rev()).take(self.len)
    }

    /// Returns the segment that knows the time of a tick.
    pub(in crate::clock) fn find(&self, tick: u64, epoch: u64) -> Result<&Segment, Unknown> {
        let knows = |segment: &&Segment| is_of(segment, epoch) && segment.covers(tick);
        self.newest_first().find(knows).ok_or_else(|| self.why_not(tick, epoch))
    }

    #[cold]
    fn why_not(&self, tick: u64, epoch: u64) -> Unknown {
        let oldest = self.newest_first().last().unwrap_or(&Segment::EMPTY);
        let newest = self.segments[self.newest];
        let is_after = |of: u64| tick.wrapping_sub(of) <= LONGEST;
        if epoch > newest.epochs.1 || (epoch >= newest.epochs.0 && is_after(newest.last)) {
            Unknown::Later
        } else if epoch < oldest.epochs.0 || (epoch == oldest.epochs.0 && !is_after(oldest.first)) {
            Unknown::Forgotten
        } else {
            Unknown::Doubtful
        }
    }

    /// Converts, adding what `ahead` says of each segment.
    pub(in crate::clock) fn convert(
        &self,
        epoch: u64,
        ticks: &[Ticks],
        times: &mut [u64],
        ahead: impl Fn(&Segment) -> Result<u64, Unknown>,
    ) -> Result<(), NoTime> {
        let look_up = |at: usize, tick: u64| {
            let no_time = |why| NoTime { at, why };
            let segment = self.find(tick, epoch).map_err(no_time)?;
            Ok((segment, ahead(segment).map_err(no_time)?))
        };
        let mut known: Option<(&Segment, u64)> = None;
        let blocks = ticks.chunks(BLOCK).zip(times.chunks_mut(BLOCK));
        for (number, (ticks, times)) in blocks.enumerate() {
            let length = ticks.len().min(times.len());
            let (ticks, times) = (&ticks[..length], &mut times[..length]);
            for (at, tick) in ticks.iter().enumerate() {
                let (tick, place) = (tick.as_raw(), number * BLOCK + at);
                let (segment, ahead) = match known {
                    Some(known) if known.0.covers(tick) => known,
                    _ => *known.insert(look_up(place, tick)?),
                };
                // All at once, if the first one's segment has them all.
                if at == 0 && segment.fill(ticks, times, ahead) {
                    break;
                }
                times[at] = segment.at(tick).wrapping_add(ahead);
            }
        }
        Ok(())
    }
}

/// Returns `true` if ticks of the epoch may be in the segment.
fn is_of(segment: &Segment, epoch: u64) -> bool {
    (segment.epochs.0..=segment.epochs.1).contains(&epoch)
}
