//! From a profile to what is told of it: numbers, names and places.
//!
//! Invariant: locks are in the order of the time that was lost by waiting for them; those that are waited for until
//! something happens come after all others.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use corelocal::sync::profile::{LockProfile, Profile, Stack};
use corelocal_support::output::{complain, path_line};
use corelocal_support::process::proc_files;
use corelocal_support::units::nanos;
use corelocal_symbols::callers::{Files, Program};
use serde::Serialize;

use super::call_stacks::{self, Place};

/// A process.
#[derive(Debug, Default, Serialize)]
pub struct Process {
    /// The process id in the process's own namespace.
    pub process: u32,
    /// The file it runs.
    pub program: String,
    /// The locks, the one with the longest total wait first.
    pub locks: Vec<Lock>,
    /// The number of locks that are left out.
    pub left_out: usize,
    /// The number of waits for locks without room in the profile.
    pub missed_waits: u64,
    /// The number of stacks without room in the profile.
    pub missed_stacks: u64,
}

/// A lock, or what else there is to wait for.
#[derive(Clone, Debug, Serialize)]
pub struct Lock {
    /// The name of the static it is in, or its address.
    pub lock: String,
    pub address: String,
    pub kind: &'static str,
    /// Whether it has an owner that others wait for.
    pub is_lock: bool,
    pub waits: u64,
    pub sleeps: u64,
    /// The number of waits that timed out.
    pub gave_up: u64,
    /// The number of threads that wait at the moment.
    pub waiting: u64,
    pub total_ns: u64,
    pub mean_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub longest_ns: u64,
    /// The longest time in which threads waited and none of them acquired the lock.
    pub longest_held_ns: u64,
    pub histogram: Vec<Bucket>,
    pub worst_holder: Option<Place>,
    pub longest_wait: Option<Place>,
}

/// A bucket of the distribution of waits.
#[derive(Clone, Debug, Serialize)]
pub struct Bucket {
    pub from_ns: u64,
    pub until_ns: u64,
    pub waits: u64,
}

impl Process {
    /// Returns what came of it since `before`, which was at `began`, or from the beginning. `id` is the process, if it
    /// runs; `maps` what /proc said last of its files, if it was asked.
    pub fn of(
        profile: &Profile,
        id: Option<u32>,
        before: &[LockProfile],
        began: Option<Instant>,
        maps: Option<String>,
    ) -> Process {
        // First, for names take their time.
        let told: Vec<LockProfile> = profile.locks().collect();
        let mut listed = Box::new([0; Profile::FILES_BYTES]);
        let len = profile.read_files(&mut listed);
        let mut lines = String::from_utf8_lossy(&listed[..len]).into_owned();
        // Files that came later, too.
        let now = id.and_then(|id| proc_files::maps(id).ok().flatten());
        lines.extend(now.or(maps));
        let root = id.map(|id| PathBuf::from(format!("/proc/{id}/root")));
        let files = Files::new(&lines, root.as_deref());
        let program = Program::new(&files);
        let mut stack = Box::new(Stack::EMPTY);
        // A stack of before the look tells nothing of it.
        let is_recent = |stack: &Stack| began.is_none_or(|began| stack.age() <= began.elapsed());
        let locks = told.into_iter().filter_map(|lock| {
            let earlier =
                before.iter().find(|it| (it.address, it.kind) == (lock.address, lock.kind));
            let lock = earlier.map_or_else(|| lock.clone(), |earlier| lock.since(earlier));
            if lock.waits == 0 && lock.waiting == 0 {
                return None;
            }
            let holder = profile.read_holder(&lock, &mut stack) && is_recent(&stack);
            let worst_holder = holder.then(|| call_stacks::of(&program, &stack));
            let waiter = profile.read_waiter(&lock, &mut stack) && is_recent(&stack);
            let longest_wait = waiter.then(|| call_stacks::of(&program, &stack));
            Some(Lock { worst_holder, longest_wait, ..Lock::of(&lock, &program) })
        });
        let mut locks: Vec<Lock> = locks.collect();
        if let Some(complaint) = program.complaint() {
            complain(complaint);
        }
        locks.sort_by_key(|lock| {
            let most_first = std::cmp::Reverse((lock.total_ns, lock.waiting, lock.waits));
            (!lock.is_lock, most_first, lock.address.clone())
        });
        Process {
            process: profile.process(),
            program: files.program().map_or_else(String::new, path_line),
            locks,
            left_out: 0,
            missed_waits: profile.missed(),
            missed_stacks: profile.stacks_missed(),
        }
    }

    /// Keeps so many locks, and as many other things.
    pub fn keep(&mut self, most: usize) {
        let before = self.locks.len();
        let mut left = [most, most];
        self.locks.retain(|lock| {
            let left = &mut left[usize::from(lock.is_lock)];
            let is_kept = *left > 0;
            *left = left.saturating_sub(1);
            is_kept
        });
        self.left_out = before - self.locks.len();
    }

    /// Returns `true` if no thread has waited.
    pub fn is_empty(&self) -> bool {
        self.locks.is_empty() && self.missed_waits == 0
    }
}

impl Lock {
    fn of(lock: &LockProfile, program: &Program<'_>) -> Lock {
        let address = format!("{:#x}", lock.address);
        let name = call_stacks::variable(program.variable_at(lock.address), lock.address);
        let bucket = |(from, until, waits): (Duration, Duration, u64)| Bucket {
            from_ns: nanos(from),
            until_ns: nanos(until),
            waits,
        };
        Lock {
            lock: name,
            address,
            kind: lock.kind.name(),
            is_lock: lock.kind.is_lock(),
            waits: lock.waits,
            sleeps: lock.sleeps,
            gave_up: lock.gave_up,
            waiting: lock.waiting,
            total_ns: nanos(lock.total),
            mean_ns: nanos(lock.mean()),
            p50_ns: nanos(lock.quantile(0.5)),
            p99_ns: nanos(lock.quantile(0.99)),
            longest_ns: nanos(lock.longest),
            longest_held_ns: nanos(lock.longest_held),
            histogram: lock.times.buckets().map(bucket).collect(),
            worst_holder: None,
            longest_wait: None,
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Returns a lock of so many waits of a microsecond, and one of `longest_us`.
    pub fn lock(name: &str, kind: &'static str, is_lock: bool, longest_us: u64) -> Lock {
        let bucket = |from_ns, until_ns, waits| Bucket { from_ns, until_ns, waits };
        Lock {
            lock: name.to_owned(),
            address: "0x7f0012345678".to_owned(),
            kind,
            is_lock,
            waits: 1001,
            sleeps: 12,
            gave_up: 0,
            waiting: 0,
            total_ns: 1_000_000 + longest_us * 1000,
            mean_ns: 1200,
            p50_ns: 1024,
            p99_ns: 1280,
            longest_ns: longest_us * 1000,
            longest_held_ns: longest_us * 1000 - 400,
            histogram: vec![
                bucket(896, 1024, 500),
                bucket(1024, 1280, 500),
                bucket(longest_us * 1000 - 10, longest_us * 1000 + 10, 1),
            ],
            worst_holder: None,
            longest_wait: None,
        }
    }

    #[test]
    fn the_first_ones_of_each_sort_are_kept() {
        let mut process = Process::default();
        for (nth, is_lock) in [true, true, true, false, false].into_iter().enumerate() {
            process.locks.push(lock(&format!("L{nth}"), "mutex", is_lock, 100));
        }
        process.keep(2);
        let names: Vec<&str> = process.locks.iter().map(|lock| lock.lock.as_str()).collect();
        assert_eq!((names, process.left_out), (vec!["L0", "L1", "L3", "L4"], 1));
        process.keep(0);
        assert!(process.locks.is_empty());
    }
}
