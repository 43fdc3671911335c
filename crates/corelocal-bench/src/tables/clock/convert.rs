//! Converting stored counter values to times: what a tracer does with its events when they are examined.
//!
//! Invariants:
//! - All contestants convert the same values, a thousand in a row; a figure is for one of them.
//! - corelocal's results are checked against the clock.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

use anyhow::anyhow;
use corelocal::clock::{self, Converter, Stamp, Ticks};
use corelocal_support::measure::loops::{Loop, repeating};
use corelocal_support::schema::{self, Row};

use super::FEWER;
use crate::contest::{Contest, Context, Table};

/// The table.
pub struct ClockConvert;

const BASELINE: &str = "wide";

/// Values in a row: 8 KiB.
const BATCH: usize = 1000;

impl Table for ClockConvert {
    fn id(&self) -> &'static str {
        "clock_convert"
    }

    fn title(&self) -> &'static str {
        "Converting time stamps to times"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        cx.plan.rounds /= FEWER;
        let about = "For one of a thousand values that were stored within some milliseconds. The usual way is a \
             multiplication of 128 bits. corelocal's converter also finds the rate and epoch of each value.";
        let stored = Stored::new()?;
        let contest = Contest::new(self, about)
            .baseline(BASELINE)
            .row(Row::new(BASELINE, "one multiplication of 128 bits each"), wide(&stored))
            .row(Row::new("quanta", "quanta Clock::delta_as_nanos"), by_quanta(&stored))
            .row(Row::ours("one", "corelocal Converter::monotonic"), one_by_one(&stored))
            .row(Row::ours("all", "corelocal Converter::monotonic_all"), all_at_once(&stored));
        Ok(contest.measure(cx))
    }
}

/// Ticks, and a converter that knows of them.
#[derive(Clone)]
struct Stored {
    converter: Converter,
    epoch: u64,
    ticks: Vec<Ticks>,
}

impl Stored {
    fn new() -> anyhow::Result<Stored> {
        clock::settle();
        // Something may happen to the clocks just now.
        for _ in 0..5 {
            let stored = Stored::take();
            let mut times = [0; BATCH];
            if stored.converter.monotonic_all(stored.epoch, &stored.ticks, &mut times).is_ok() {
                return Ok(stored);
            }
        }
        Err(anyhow!("the clocks are disrupted continually"))
    }

    fn take() -> Stored {
        let mut converter = Converter::new();
        let epoch = clock::epoch();
        let first = Ticks::now_ordered().as_raw();
        thread::sleep(Duration::from_millis(3));
        let last = Ticks::now_ordered().as_raw();
        converter.refresh();
        let step = last.saturating_sub(first) / BATCH as u64;
        let ticks = (0..BATCH as u64).map(|nth| Ticks::from_raw(first + nth * step)).collect();
        Stored { converter, epoch, ticks }
    }

    /// Returns a contestant that converts them all, again and again.
    fn each(&self, mut convert: impl FnMut(&Stored, &mut [u64]) + 'static) -> Loop<'static> {
        let (stored, mut times) = (self.clone(), vec![0; BATCH]);
        repeating(move |values| {
            for _ in 0..values.div_ceil(BATCH as u64) {
                convert(black_box(&stored), &mut times);
                black_box(&mut times);
            }
        })
    }
}

fn wide(stored: &Stored) -> Loop<'static> {
    // About 2.6 GHz; how it is with other rates makes no difference.
    let (base, multiplier) = black_box((stored.ticks[0].as_raw(), 6_461_335_109_u64));
    stored.each(move |stored, times| {
        for (tick, time) in stored.ticks.iter().zip(times) {
            let delta = tick.as_raw().wrapping_sub(base);
            *time = ((u128::from(delta) * u128::from(multiplier)) >> 34) as u64;
        }
    })
}

fn by_quanta(stored: &Stored) -> Loop<'static> {
    let clock = quanta::Clock::new();
    let base = stored.ticks[0].as_raw();
    stored.each(move |stored, times| {
        for (tick, time) in stored.ticks.iter().zip(times) {
            *time = clock.delta_as_nanos(base, tick.as_raw());
        }
    })
}

fn one_by_one(stored: &Stored) -> Loop<'static> {
    stored.each(|stored, times| {
        for (tick, time) in stored.ticks.iter().zip(times) {
            let stamp = Stamp { ticks: *tick, epoch: stored.epoch };
            *time = stored.converter.monotonic(stamp).unwrap_or(0);
        }
    })
}

fn all_at_once(stored: &Stored) -> Loop<'static> {
    stored.each(|stored, times| {
        // Checked when they were stored.
        let _ = stored.converter.monotonic_all(stored.epoch, &stored.ticks, times);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_values_have_times() {
        let before = clock::monotonic();
        let stored = Stored::new().unwrap();
        let mut times = vec![0; BATCH];
        stored.converter.monotonic_all(stored.epoch, &stored.ticks, &mut times).unwrap();
        assert!(times.is_sorted());
        // Back-ends that follow by samples may be off by some nanoseconds.
        assert!(times[0] + 1000 > before && times[BATCH - 1] < clock::monotonic() + 1000);
    }
}
