//! What a load of the suite did.

use std::time::Duration;

/// The work that a load did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Did {
    /// Operations: a piece taken and given back, as a rule.
    pub ops: u64,
    /// The number of threads.
    pub threads: usize,
    /// The wall time.
    pub wall: Duration,
    /// The number of operations at a time, with enough cpus.
    lanes: usize,
}

impl Did {
    /// Returns one thread.
    pub fn alone(ops: u64, wall: Duration) -> Self {
        Self::on(1, ops, wall)
    }

    /// Returns the threads that each do whole operations.
    pub fn on(threads: usize, ops: u64, wall: Duration) -> Self {
        Did { ops, threads, wall, lanes: threads }
    }

    /// Pairs of threads that each do one half.
    pub fn pairs(pairs: usize, ops: u64, wall: Duration) -> Self {
        Did { ops, threads: 2 * pairs, wall, lanes: pairs }
    }

    /// Returns the nanoseconds that an operation took, waiting included: those of the threads that had a cpu.
    pub fn ns(&self, cpus: usize) -> f64 {
        // Pairs take two cpus for each lane.
        let width = self.threads / self.lanes;
        let lanes = self.lanes.min((cpus / width).max(1));
        self.wall.as_nanos() as f64 * lanes as f64 / self.ops.max(1) as f64
    }
}
