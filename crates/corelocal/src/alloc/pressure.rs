//! Pressure: the process's control group is near its limit of memory, or tasks wait for memory.
//!
//! The kernel cannot take back what the malloc keeps for later, and ends a process before it asks. So near a limit
//! nothing is kept: all that is idle goes back at once, caches included, as long as the pressure lasts.
//!
//! # Invariants
//! 1. What is known here is a hint, a second old at best. Where nothing can be read there is no pressure.
//! 2. A look opens files for a moment, and keeps none open.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;

use super::range::Range;
use super::timed_release::milliseconds;
use crate::sys::topology::Root;
use crate::sys::{in_vfork_child, is_on_signal_stack, memory_limit};

/// From one look to the next, where there is a limit.
const PERIOD: Duration = Duration::from_secs(1);
/// Where there is none: one may be set.
const LONG_PERIOD: Duration = Duration::from_secs(10);
/// Hundredths of a percent of the time in which some task waits for memory.
const STALLED: u32 = 1000;

/// When the next look is due, in milliseconds of the clock.
static DUE: AtomicU64 = AtomicU64::new(0);
static IS_HIGH: AtomicBool = AtomicBool::new(false);
static HAS_LIMIT: AtomicBool = AtomicBool::new(false);
static IS_IGNORED: AtomicBool = AtomicBool::new(false);
/// The malloc's high water at the last look.
static HIGH_SEEN: AtomicUsize = AtomicUsize::new(0);

const R: Ordering = Ordering::Relaxed;

/// Looks how near the process is to a limit of memory, if it is time for that: once a second, where there is no limit
/// every ten. Whether there is pressure.
///
/// Pressure is: 7 of 8 bytes of a limit of the control group or one above it are used (`memory.max`, `memory.high`;
/// version 1 too), without files that only wait to be dropped; or some task of the group, or of the machine, waited for
/// memory in a tenth of the last ten seconds (PSI). From then on until a look finds none
/// [`release_idle`](super::release_idle) and [`release_by_time`](super::release_by_time) give back all that is idle.
///
/// For the thread, or the hook, that calls these. It opens files and closes them: not for processes in which another
/// thread may close descriptors that are not its own meanwhile, unless the calling thread has a table of its own. May be
/// called everywhere; on a signal's alternative stack, which is short, it looks at nothing. With
/// `CORELOCAL_MALLOC=pressure:no` it never does.
pub fn watch_pressure() -> bool {
    let (now, due) = (milliseconds(), DUE.load(R));
    let [period, long_period] = [PERIOD, LONG_PERIOD].map(|period| period.as_millis() as u64);
    // Far ahead: of another time namespace.
    let is_due = now >= due || due > now + 2 * long_period;
    // Relaxed: hints all, and one thread looks at a time.
    let is_looked_at = is_due && !IS_IGNORED.load(R) && !in_vfork_child() && !is_on_signal_stack();
    if is_looked_at && DUE.compare_exchange(due, now + period, R, R).is_ok() {
        let found = look(Root::SYSTEM);
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

fn look(root: Root<'_>) -> Found {
    let nearest = memory_limit::nearest(root);
    let is_near = nearest.is_some_and(|nearest| nearest.is_near());
    let is_high = is_near || memory_limit::stalled(root).is_some_and(|stalled| stalled >= STALLED);
    Found { has_limit: nearest.is_some(), is_high }
}

/// Whether there was pressure at the last look.
pub(super) fn is_high() -> bool {
    IS_HIGH.load(R)
}

/// Whether there was a limit at the last look.
pub(super) fn has_limit() -> bool {
    HAS_LIMIT.load(R)
}

/// How long it is from one look to the next; `None` if there are no looks (`pressure:no`).
pub(super) fn period() -> Option<Duration> {
    let period = if has_limit() { PERIOD } else { LONG_PERIOD };
    (!IS_IGNORED.load(R)).then_some(period)
}

/// Whether the process has a limit and has taken memory since the last look.
pub(super) fn has_grown(range: Range) -> bool {
    has_limit() && HIGH_SEEN.load(R) < range.header().high.load(R)
}

/// From here on nothing is looked at.
pub(super) fn ignore() {
    IS_IGNORED.store(true, R);
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::{format, fs};

    /// As if a look had found pressure.
    pub(in crate::alloc) fn while_high(f: impl FnOnce()) {
        IS_HIGH.store(true, R);
        f();
        IS_HIGH.store(false, R);
    }

    #[test]
    fn a_limit_that_is_near_and_tasks_that_wait() {
        let folder = tempfile::tempdir().unwrap();
        let root = || look(Root::at(folder.path().to_str().unwrap()));
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
