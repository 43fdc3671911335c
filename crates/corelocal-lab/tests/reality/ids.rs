//! The largest concurrency id of many threads, free and confined, is within what the rules say.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use corelocal_lab::sim::plan::{Policy, Process, ids};

const RUN: Duration = Duration::from_millis(150);

#[test]
fn ids_are_within_the_rules() {
    if corelocal::cid::policy() != corelocal::cid::Policy::MmCid {
        return eprintln!(
            "skipped: ids_are_within_the_rules: this kernel has no concurrency ids, or they are not used"
        );
    }
    let release =
        std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a kernel has a release");
    let mut parts = release.split('.').map(|part| part.parse::<u32>());
    let (Some(Ok(major)), Some(Ok(minor))) = (parts.next(), parts.next()) else {
        panic!("{release}")
    };
    let policy = Policy::of(major, minor);
    let allowed = allowed();
    let possible = corelocal::sys::Caps::get().topology.possible.set.count() as u32;
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
            println!(
                "{threads} threads on {confined} cpus: ids below {}, the rules say {}",
                largest + 1,
                told.most
            );
            assert!(
                largest < told.most,
                "{threads} threads on {confined} cpus: id {largest}, {policy:?}: {told:?}"
            );
        }
    }
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

fn allowed() -> Vec<u32> {
    // SAFETY: a set of this size, written by the kernel.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        (0..libc::CPU_SETSIZE as u32).filter(|&cpu| libc::CPU_ISSET(cpu as usize, &set)).collect()
    }
}

fn confine(cpus: &[u32]) {
    // SAFETY: a set of this size; the calling thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cpus.iter().for_each(|&cpu| libc::CPU_SET(cpu as usize, &mut set));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}
