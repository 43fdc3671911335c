//! The recent part of a histogram's counts.
//!
//! Counters of buckets only grow, so the recent part is the difference from earlier counts. Readers keep the counts
//! that they have read, so no clock is read when values are recorded.
//!
//! # Invariant
//! `newer` was read at least `length` after `older`. So the difference from `older` covers at least `length`, unless
//! the window is younger, and less than twice that plus the longest time between two reads.

use std::time::{Duration, Instant};

use super::loglinear::Counts;

/// The recent part of a histogram's counts.
#[derive(Debug)]
pub(crate) struct Window {
    older: Counts,
    newer: Counts,
    seen: Instant,
}

impl Window {
    /// Since now, nothing.
    pub(crate) fn new(now: Instant) -> Self {
        Window { older: Counts::new(), newer: Counts::new(), seen: now }
    }

    /// Returns what came to the counts in the recent past.
    pub(crate) fn recent(&mut self, all: &Counts, length: Duration, now: Instant) -> Counts {
        if now.saturating_duration_since(self.seen) >= length {
            self.older = std::mem::replace(&mut self.newer, all.clone());
            self.seen = now;
        }
        let recent = all.iter().map(|(&key, &count)| {
            let before = self.older.get(&key).copied().unwrap_or(0);
            (key, count.saturating_sub(before))
        });
        recent.filter(|&(_, count)| count > 0).collect()
    }
}

#[cfg(test)]
mod tests;
