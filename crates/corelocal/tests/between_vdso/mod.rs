//! Our clock between two readings of the vDSO: whatever the machine does meanwhile, ours is never before the
//! one nor after the other.
//!
//! The vDSO's and the kernel page's readings are exact, so there nothing may be outside. Other back-ends follow
//! the vDSO by a sample every 32 ms; between these they may be off by what the clock was slewed meanwhile,
//! for which [`SLACK`] is allowed. Which back-end served is known for a batch of readings: exact only if it was
//! so before and after, in the same epoch.
//!
//! Taking readings takes no lock and no heap: forked children do it.

use corelocal::clock::{self, Backend};

/// A clock of ours, and what libc calls it.
#[derive(Clone, Copy)]
pub struct Clock {
    pub name: &'static str,
    pub id: libc::clockid_t,
    pub ours: fn() -> u64,
}

pub const CLOCKS: [Clock; 4] = [
    Clock { name: "monotonic", id: libc::CLOCK_MONOTONIC, ours: clock::monotonic },
    Clock { name: "realtime", id: libc::CLOCK_REALTIME, ours: clock::realtime },
    Clock { name: "boottime", id: libc::CLOCK_BOOTTIME, ours: clock::boottime },
    Clock { name: "tai", id: libc::CLOCK_TAI, ours: clock::tai },
];

/// Nanoseconds that a back-end may be off which follows the vDSO by samples: 1000 ppm, the most by which these
/// tests change the clock's rate, in three times 32 ms.
const SLACK: u64 = 100_000;
/// Readings of which the back-end is known.
pub const BATCH: u64 = 512;

/// What came of some readings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Readings by an exact back-end.
    pub exact: u64,
    /// Readings by another, or while it changed.
    pub approximate: u64,
    /// Readings between which the clock was set back: they prove nothing.
    pub set_back: u64,
    /// Exact ones outside, and approximate ones that were off by more than the slack.
    pub outside: u64,
    /// By how many nanoseconds an exact, and an approximate one, was outside at most.
    pub worst: [u64; 2],
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.exact += other.exact;
        self.approximate += other.approximate;
        self.set_back += other.set_back;
        self.outside += other.outside;
        self.worst = [0, 1].map(|kind| self.worst[kind].max(other.worst[kind]));
    }

    pub fn readings(&self) -> u64 {
        self.exact + self.approximate
    }
}

/// What libc says, in nanoseconds.
pub fn vdso(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the answer.
    unsafe { libc::clock_gettime(id, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Whether readings are exact just now, and by which back-end, of which epoch.
fn exactness() -> (bool, Backend, u64) {
    let status = clock::status();
    let exact = matches!(status.backend, Backend::KernelPage | Backend::Vdso);
    (exact, status.backend, status.epoch)
}

/// Whether the back-end that serves is one of which nothing may be outside.
pub fn is_exact() -> bool {
    exactness().0
}

/// Takes a batch of readings of one clock.
pub fn batch(clock: Clock) -> Tally {
    let mut tally = Tally::default();
    let (mut readings, mut outside, mut worst) = (0, 0, 0);
    let mut outside_slack = 0;
    let at_first = exactness();
    for _ in 0..BATCH {
        let before = vdso(clock.id);
        let ours = (clock.ours)();
        let after = vdso(clock.id);
        if before > after {
            tally.set_back += 1;
            continue;
        }
        readings += 1;
        let off = before.saturating_sub(ours).max(ours.saturating_sub(after));
        outside += u64::from(off > 0);
        outside_slack += u64::from(off > SLACK);
        worst = worst.max(off);
    }
    let at_last = exactness();
    if at_first.0 && at_first == at_last {
        (tally.exact, tally.outside, tally.worst[0]) = (readings, outside, worst);
    } else {
        (tally.approximate, tally.outside, tally.worst[1]) = (readings, outside_slack, worst);
    }
    tally
}

/// Takes about so many readings, and a batch of each clock at least, of all clocks by turns; calls `between` between batches.
pub fn readings(count: u64, mut between: impl FnMut(u64)) -> [Tally; CLOCKS.len()] {
    let mut tallies = [Tally::default(); CLOCKS.len()];
    for turn in 0..count.div_ceil(BATCH).max(CLOCKS.len() as u64) {
        let which = turn as usize % CLOCKS.len();
        tallies[which].add(&batch(CLOCKS[which]));
        between(turn);
    }
    tallies
}

/// Prints what came of readings, and fails if anything was outside.
pub fn judge(tallies: &[Tally; CLOCKS.len()]) {
    println!("{:?}", clock::status());
    for (clock, tally) in CLOCKS.iter().zip(tallies) {
        println!("{:9} {tally:?}", clock.name);
    }
    assert!(tallies.iter().all(|tally| tally.readings() > 0 && tally.outside == 0), "{tallies:?}");
}
