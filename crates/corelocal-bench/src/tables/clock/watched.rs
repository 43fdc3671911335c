//! The loop that reads a clock, watched: beside its cost it gives how far the clock has run away from
//! `CLOCK_MONOTONIC` since the table began.
//!
//! Invariant: a drift is told only as far as it is certain; below that it is 0.

use corelocal_support::clock::offset::{Offset, kernel};
use corelocal_support::measure::engine::{Body, Plan, Sample};
use corelocal_support::measure::loops::Loop;

/// Name of the extra figure.
pub const DRIFT: &str = "drift us/min";

/// A contestant whose drift is watched: see the module's text.
pub struct Watched {
    run: Loop<'static>,
    clock: Option<Drift>,
}

struct Drift {
    read: Box<dyn FnMut() -> u64>,
    /// The first look, and when it was.
    first: Option<(Offset, u64)>,
}

impl From<Loop<'static>> for Watched {
    /// Returns what is no clock, or one of another kind: its cost alone.
    fn from(run: Loop<'static>) -> Watched {
        Watched { run, clock: None }
    }
}

/// Returns a loop that reads a clock, and the same clock in nanoseconds from any zero.
pub fn watched(run: Loop<'static>, read: impl FnMut() -> u64 + 'static) -> Watched {
    Watched { run, clock: Some(Drift { read: Box::new(read), first: None }) }
}

impl Drift {
    fn look(&mut self) -> (Offset, u64) {
        (Offset::of(libc::CLOCK_MONOTONIC, &mut self.read), kernel(libc::CLOCK_MONOTONIC))
    }

    /// Returns the microseconds a minute since the first look.
    fn so_far(&mut self) -> f64 {
        let (offset, now) = self.look();
        let (first, then) = *self.first.get_or_insert((offset, now));
        let elapsed = now.saturating_sub(then).max(1) as f64;
        offset.since(first).outside() as f64 / elapsed * 60e6
    }
}

impl Body for Watched {
    const SINGLE_THREAD: bool = true;

    fn rounds(plan: &Plan) -> usize {
        Loop::rounds(plan)
    }

    fn prepare(&mut self, x: Option<f64>, plan: &Plan) -> anyhow::Result<()> {
        self.run.prepare(x, plan)?;
        if let Some(clock) = &mut self.clock {
            clock.so_far();
        }
        Ok(())
    }

    fn round(&mut self) -> anyhow::Result<Sample> {
        let mut sample = self.run.round()?;
        if let Some(clock) = &mut self.clock {
            sample.extra.push((DRIFT, clock.so_far()));
        }
        Ok(sample)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use corelocal_support::measure::loops::loop_of;

    /// Returns a clock that gains one part in a hundred: 600 ms a minute.
    fn fast() -> u64 {
        let time = kernel(libc::CLOCK_MONOTONIC);
        time + time / 100
    }

    #[test]
    fn a_fast_clock_is_seen_and_a_right_one_is_not() {
        let plan = Plan { round: Duration::from_millis(2), ..Plan::QUICK };
        let right = || kernel(libc::CLOCK_MONOTONIC);
        for (read, drift) in [(fast as fn() -> u64, 600e3), (right as fn() -> u64, 0.0)] {
            let mut body = watched(loop_of(read), read);
            body.prepare(None, &plan).unwrap();
            let last = (0..5).map(|_| body.round().unwrap()).last().unwrap();
            let (name, value) = *last.extra.last().unwrap();
            assert_eq!(name, DRIFT);
            assert!((value - drift).abs() <= drift / 10.0, "{value} beside {drift}");
        }
        assert_eq!(Watched::from(loop_of(right)).round().unwrap().extra.len(), 1);
    }
}
