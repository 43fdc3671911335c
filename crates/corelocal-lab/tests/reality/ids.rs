//! The largest concurrency id of many threads, free and confined, is within what the rules say.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use corelocal_lab::sim::plan::{Policy, Process, ids};

use crate::common::{agree, allowed, confine, release};

const RUN: Duration = Duration::from_millis(150);

#[test]
fn ids_are_within_the_rules() {
    if corelocal::cid::policy() != corelocal::cid::Policy::MmCid {
        return eprintln!(
            "skipped: ids_are_within_the_rules: this kernel has no concurrency ids, or they are not used"
        );
    }
    let (major, minor) = release();
    let policy = Policy::of(major, minor);
    let allowed = allowed();
    let possible = corelocal::sys::Caps::get().topology.possible.set.count() as u32;
    let mut ends = Vec::new();
    for threads in [16, 128] {
        for confined in [allowed.len(), 1] {
            let now = &allowed[..confined];
            let largest = largest(threads, now);
            // This process has other threads, too, and was allowed to use all cpus.
            let process = Process {
                possible,
                allowed: now.to_vec(),
                ever_allowed: allowed.len() as u32,
                threads: threads + 64,
            };
            let told = ids(policy, &process);
            assert!(
                largest < told.most,
                "{threads} threads on {confined} cpus: id {largest}, {policy:?}: {told:?}"
            );
            ends.push(format!("{} of {}", largest + 1, told.most));
        }
    }
    agree(
        "range of ids",
        ends.len() as u32,
        "free run of 16 or 128 threads, on all cpus or on one",
        format_args!("ids below {}", ends.join(", ")),
    );
}

/// The largest id that any of the threads has seen.
fn largest(threads: u32, cpus: &[u32]) -> u32 {
    let (largest, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                confine(cpus);
                while !is_over.load(Ordering::Relaxed) {
                    largest.fetch_max(corelocal::rseq::cid(), Ordering::Relaxed);
                    thread::yield_now();
                }
            });
        }
        thread::sleep(RUN);
        is_over.store(true, Ordering::Relaxed);
    });
    largest.into_inner()
}
