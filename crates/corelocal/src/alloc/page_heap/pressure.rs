//! Memory pressure: the process's control group is near its memory limit, or tasks stall for memory.
//!
//! The kernel cannot take back memory that the malloc keeps for later, and kills a process without asking. So under
//! pressure nothing is kept: all idle memory goes back at once, caches included, for as long as the pressure lasts.
//!
//! # Invariants
//! 1. The state here is a hint, at best a second old. If nothing can be read, there is no pressure.
//! 2. A check opens files and closes them again.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;

use crate::alloc::config;
use crate::alloc::layout::range::Range;
use crate::sys::kernel_clock::coarse_milliseconds;
use crate::sys::memory::limit;
use crate::sys::topology::FsRoot;
use crate::sys::{in_vfork_child, is_on_signal_stack};

/// Time between checks if there is a limit.
const PERIOD: Duration = Duration::from_secs(1);
/// Time between checks if there is none: one may be set.
const LONG_PERIOD: Duration = Duration::from_secs(10);
/// Share of time with tasks stalled for memory, in hundredths of a percent.
const STALLED: u32 = 1000;

/// The time at which the next check is due, in milliseconds of the clock.
static DUE: AtomicU64 = AtomicU64::new(0);
static IS_HIGH: AtomicBool = AtomicBool::new(false);
static HAS_LIMIT: AtomicBool = AtomicBool::new(false);
/// The malloc's high-water mark at the last check.
static HIGH_SEEN: AtomicUsize = AtomicUsize::new(0);

const R: Ordering = Ordering::Relaxed;

/// If it is time, checks how close the process is to a memory limit: once a second, or every ten seconds without a
/// limit. Returns whether there is pressure.
///
/// Pressure means: 7/8 of the limit of the control group or of one above it are used (`memory.max`, `memory.high`;
/// version 1 as well), not counting reclaimable page cache; or some task of the group or of the machine was stalled for
/// memory in a tenth of the last ten seconds (PSI). Until a check finds no pressure,
/// [`release_idle`](crate::alloc::release_idle) and [`release_by_time`](crate::alloc::release_by_time) give back all
/// idle memory.
///
/// To be called by the thread or the hook that calls those. It opens and closes files, so it must not be used if
/// another thread may close descriptors that it did not open, unless the calling thread has a descriptor table of its
/// own. May be called anywhere; on an alternate signal stack, which is short, it does nothing. With
/// `CORELOCAL_MALLOC=pressure:no` it never does anything.
pub fn watch_pressure() -> bool {
    let (now, due) = (coarse_milliseconds(), DUE.load(R));
    let [period, long_period] = [PERIOD, LONG_PERIOD].map(|period| period.as_millis() as u64);
    // Far ahead: from another time namespace.
    let is_due = now >= due || due > now + 2 * long_period;
    // Relaxed: all of these are hints, and one thread checks at a time.
    let is_looked_at =
        is_due && !config::is_pressure_ignored() && !in_vfork_child() && !is_on_signal_stack();
    if is_looked_at && DUE.compare_exchange(due, now + period, R, R).is_ok() {
        let found = look(FsRoot::SYSTEM);
        HAS_LIMIT.store(found.has_limit, R);
        IS_HIGH.store(found.is_high, R);
        if let Some(range) = Range::get() {
            HIGH_SEEN.store(range.header().high.load(R), R);
        }
        if !found.has_limit && !found.is_high {
            DUE.store(now + long_period, R);
        }
    }
    is_high()
}

#[derive(Debug, PartialEq, Eq)]
struct Found {
    has_limit: bool,
    is_high: bool,
}

fn look(root: FsRoot<'_>) -> Found {
    let nearest = limit::nearest(root);
    let is_near = nearest.is_some_and(|nearest| nearest.is_near());
    let is_high = is_near || limit::stalled(root).is_some_and(|stalled| stalled >= STALLED);
    Found { has_limit: nearest.is_some(), is_high }
}

/// Returns `true` if the last check found pressure.
pub(in crate::alloc) fn is_high() -> bool {
    IS_HIGH.load(R)
}

/// Returns `true` if the last check found a limit.
pub(in crate::alloc) fn has_limit() -> bool {
    HAS_LIMIT.load(R)
}

/// Returns the time between checks; `None` if there are none (`pressure:no`).
pub(in crate::alloc) fn period() -> Option<Duration> {
    let period = if has_limit() { PERIOD } else { LONG_PERIOD };
    (!config::is_pressure_ignored()).then_some(period)
}

/// Returns `true` if the process has a limit and its heap has grown since the last check.
pub(in crate::alloc) fn has_grown(range: Range) -> bool {
    has_limit() && HIGH_SEEN.load(R) < range.header().high.load(R)
}

#[cfg(test)]
pub(in crate::alloc) mod tests {
    use super::*;
    use std::{format, fs};

    /// Pretends that a check found pressure.
    pub(in crate::alloc) fn while_high(f: impl FnOnce()) {
        IS_HIGH.store(true, R);
        f();
        IS_HIGH.store(false, R);
    }

    #[test]
    fn a_limit_that_is_near_and_tasks_that_wait() {
        let folder = tempfile::tempdir().unwrap();
        let root = || look(FsRoot::at(folder.path().to_str().unwrap()));
        let write = |file: &str, text: &str| {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(root(), Found { has_limit: false, is_high: false });
        write("proc/thread-self/cgroup", "0::/\n");
        write("proc/thread-self/mountinfo", "30 1 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
        write("cg/memory.max", "1000\n");
        for (current, is_high) in [("0", false), ("874", false), ("876", true), ("1000", true)] {
            write("cg/memory.current", current);
            assert_eq!(root(), Found { has_limit: true, is_high }, "{current}");
        }
        write("cg/memory.max", "max\n");
        for (stalled, is_high) in [("9.99", false), ("10.00", true)] {
            write("proc/pressure/memory", &format!("some avg10={stalled} avg60=0.00 total=0\n"));
            assert_eq!(root(), Found { has_limit: false, is_high }, "{stalled}");
        }
    }
}
