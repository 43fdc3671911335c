//! Times of events: from ticks to nanoseconds.
//!
//! A recording has readings of both clocks: at its start, when each buffer was begun, and at its end. Between two of them
//! time is a line; before the first and after the last one it goes on as fast as overall.
//!
//! # Invariant
//! 1. Of two ticks, the later one has no earlier time: readings that would go back are left out.

/// Readings of both clocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    /// Ticks, and nanoseconds of CLOCK_MONOTONIC: both ascending, without two that are the same.
    readings: Vec<(u64, u64)>,
}

impl Clock {
    pub(crate) fn new(mut readings: Vec<(u64, u64)>) -> Clock {
        readings.retain(|&reading| reading != (0, 0));
        readings.sort_unstable();
        let mut ascending: Vec<(u64, u64)> = Vec::with_capacity(readings.len());
        for (ticks, nanos) in readings {
            if ascending.last().is_none_or(|last| last.0 < ticks && last.1 <= nanos) {
                ascending.push((ticks, nanos));
            }
        }
        Clock { readings: ascending }
    }

    /// Returns the time of these ticks: nanoseconds of CLOCK_MONOTONIC. With one reading only, a tick counts as a
    /// nanosecond.
    pub(crate) fn time(&self, ticks: u64) -> u64 {
        let (Some(&first), Some(&last)) = (self.readings.first(), self.readings.last()) else {
            return ticks;
        };
        let after = self.readings.partition_point(|reading| reading.0 <= ticks);
        let (from, to) = match self.readings.get(after) {
            Some(&to) if after > 0 => (self.readings[after - 1], to),
            _ => (first, last),
        };
        let base = if after == 0 { first } else { self.readings[after - 1] };
        let (ticks_between, nanos_between) = match to.0 - from.0 {
            0 => (1, 1),
            between => (i128::from(between), i128::from(to.1 - from.1)),
        };
        let distance = i128::from(ticks) - i128::from(base.0);
        let nanos = i128::from(base.1) + distance.saturating_mul(nanos_between) / ticks_between;
        nanos.clamp(0, i128::from(u64::MAX)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_between_readings() {
        let clock = Clock::new(vec![(3000, 1600), (0, 0), (1000, 500), (2000, 1000), (2500, 900)]);
        let times = [0, 1000, 1500, 2500, 3000, 4000].map(|ticks| clock.time(ticks));
        assert_eq!(times, [0, 500, 750, 1300, 1600, 2150]);
    }

    #[test]
    fn few_readings() {
        assert_eq!(Clock::new(vec![]).time(7), 7);
        assert_eq!(Clock::new(vec![(100, 5)]).time(107), 12);
        assert_eq!(Clock::new(vec![(100, 5)]).time(0), 0);
        assert_eq!(Clock::new(vec![(0, 5), (u64::MAX, u64::MAX)]).time(u64::MAX), u64::MAX);
    }
}
