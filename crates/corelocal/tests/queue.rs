//! The queue under attack: signals, migrations, fork, panics, no memory. What is pushed comes out once,
//! whole. (`queue_sleepers.rs` has consumers that sleep, `queue_scripts.rs` random scripts beside a naive
//! model.)

mod cpus;
mod forked;
mod fragile;
mod sandbox;
mod storm;

use std::cell::Cell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use corelocal::cid::CpuId;
use corelocal::percpu::{PushError, Queue};
use forked::End;
use fragile::Fragile;
use sandbox::{run_in_child, skip};
use storm::scaled;
use storm::tokens::{self, Contained, fresh, no_token_is_lost_or_doubled, see, see_wide, wide};

static NARROW: Queue<usize> = Queue::new();
static WIDE: Queue<tokens::Wide> = Queue::new();

enum Queues {}

impl Contained for Queues {
    const CONSUMERS: u32 = 2;

    fn step(number: usize) {
        let Some(token) = fresh() else { return };
        match number % 3 {
            0 => assert!(WIDE.push(wide(token)).is_ok()),
            _ => assert!(NARROW.push(token).is_ok()),
        }
        if number % 16 == 0 {
            NARROW.try_pop().into_iter().for_each(see);
        }
    }

    fn consume(_: u32) {
        NARROW.pop_for(Duration::from_millis(1)).into_iter().for_each(see);
        NARROW.drain().take(100).for_each(see);
        WIDE.drain().take(100).for_each(see_wide);
    }

    fn empty() -> bool {
        NARROW.drain().for_each(see);
        WIDE.drain().for_each(see_wide);
        true
    }

    fn is_empty() -> bool {
        NARROW.is_empty() && WIDE.is_empty()
    }
}

/// The queue holds an item at every moment, in this slot or in that one: what `is_empty` says is of one moment.
fn a_queue_that_is_never_empty_never_says_so() {
    let queue: Queue<u64> = Queue::new();
    let done = AtomicBool::new(false);
    queue.push(0).unwrap();
    thread::scope(|scope| {
        let looker = scope.spawn(|| {
            let _done = storm::Tell(&done);
            let mut looks = 0;
            while !done.load(Ordering::Relaxed) {
                assert!(!queue.is_empty(), "after {looks} looks");
                looks += 1;
            }
        });
        let _done = storm::Tell(&done);
        for n in 1..=scaled(400_000) {
            // To another slot at times, so that the next item goes there before the last one leaves here.
            if n % 64 == 0 {
                cpus::hop(n as u32 / 64);
            }
            queue.push(n).unwrap();
            assert_eq!(queue.drain().take(1).count(), 1, "{n}");
            if looker.is_finished() {
                break;
            }
        }
    });
    assert!(!queue.is_empty());
    assert_eq!(queue.drain().count(), 1);
    assert!(queue.is_empty());
}

#[test]
fn emptiness_is_of_one_moment() {
    a_queue_that_is_never_empty_never_says_so();
}

#[test]
fn emptiness_is_of_one_moment_without_sections() {
    let off = |command: &mut std::process::Command| {
        command.env("CORELOCAL_RSEQ", "off");
    };
    run_in_child("emptiness_is_of_one_moment_without_sections", off, || {
        a_queue_that_is_never_empty_never_says_so()
    });
}

#[test]
fn a_storm() {
    no_token_is_lost_or_doubled::<Queues>(scaled(100_000));
}

#[test]
fn a_storm_without_sections() {
    let off = |command: &mut std::process::Command| {
        command.env("CORELOCAL_RSEQ", "off");
    };
    run_in_child("a_storm_without_sections", off, || {
        no_token_is_lost_or_doubled::<Queues>(scaled(20_000));
    });
}

/// Threads that stay on their cpus: the items of each come in order, at a consumer that sleeps in between.
#[test]
fn each_core_is_in_order() {
    let queue: Queue<(u32, u32), CpuId> = Queue::new();
    let each = scaled(300_000) as u32;
    let last = thread::scope(|scope| {
        for thread in 0..4 {
            let queue = &queue;
            scope.spawn(move || {
                cpus::hop(thread);
                for n in 0..each {
                    queue.push((thread, n)).unwrap();
                    if n % 4096 == 0 {
                        thread::sleep(Duration::from_micros(50));
                    }
                }
            });
        }
        let mut last = HashMap::new();
        for _ in 0..4 * each {
            let (thread, n) = queue.pop();
            let before = last.insert(thread, n);
            assert!(before < Some(n), "{before:?} {n}");
        }
        last
    });
    assert!(last.values().all(|n| *n == each - 1));
    assert_eq!(queue.try_pop(), None);
}

fn resident_kilobytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// Millions of items go through; what the queue needs at a time is all the memory it takes.
fn memory_is_bounded(test: &str) {
    let queue: Queue<u64> = Queue::new();
    let through = |items: u64, at_once: u64| {
        for first in (0..items).step_by(at_once as usize) {
            (first..first + at_once).for_each(|n| queue.push(n).unwrap());
            assert_eq!(queue.drain().count() as u64, at_once);
        }
    };
    through(20_000, 10_000);
    let Some(before) = resident_kilobytes() else {
        return skip(test, "no /proc");
    };
    through(scaled(2_000_000), 10_000);
    let after = resident_kilobytes().unwrap();
    assert!(after < before + 1024, "{before} kB, then {after} kB");
    // A burst of 24 MB, or 8 on an emulated machine, most of which goes back to the kernel. A page stays as long as one of
    // its segments is in use: of pages of 64 KiB more do.
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64 / 1024;
    let burst = scaled(3_000_000).max(1_000_000);
    (0..burst).for_each(|n| queue.push(n).unwrap());
    let full = resident_kilobytes().unwrap();
    assert!(full > after + burst / 150, "{after} kB, then {full} kB");
    assert_eq!(queue.drain().count() as u64, burst);
    let empty = resident_kilobytes().unwrap();
    assert!(empty < after + 8_000 + 32 * page, "{after} kB, then {full} kB, then {empty} kB");
    drop(queue);
    // Another queue finds what this one had. The kernel's count is off by up to 512 KiB on four cpus.
    let queue: Queue<[u64; 2]> = Queue::new();
    (0..1000).for_each(|n| queue.push([n, n]).unwrap());
    let again = resident_kilobytes().unwrap();
    assert!(again < empty + 2048, "{empty} kB, then {again} kB");
}

#[test]
fn segments_come_again() {
    run_in_child("segments_come_again", |_| (), || memory_is_bounded("segments_come_again"));
}

#[test]
fn segments_come_again_without_sections() {
    let test = "segments_come_again_without_sections";
    let off = |command: &mut std::process::Command| {
        command.env("CORELOCAL_RSEQ", "off");
    };
    run_in_child(test, off, || memory_is_bounded(test));
}

/// Queues come and go with items in them; their segments do not stay behind.
#[test]
fn queues_come_and_go() {
    run_in_child(
        "queues_come_and_go",
        |_| (),
        || {
            let come_and_go = |rounds: u64| {
                for round in 0..rounds {
                    let queue: Queue<Box<u64>> = Queue::new();
                    (0..round % 2000).for_each(|n| queue.push(Box::new(n)).unwrap());
                    queue.drain().take(700).for_each(drop);
                }
            };
            come_and_go(scaled(2000).max(400));
            let Some(before) = resident_kilobytes() else {
                return skip("queues_come_and_go", "no /proc");
            };
            come_and_go(scaled(10_000));
            let after = resident_kilobytes().unwrap();
            assert!(after < before + 1024, "{before} kB, then {after} kB");
        },
    );
}

/// Without memory the item comes back; with some again, all is as before.
#[test]
fn out_of_memory() {
    run_in_child(
        "out_of_memory",
        |_| (),
        || {
            let queue: Queue<u64> = Queue::new();
            queue.push(0).unwrap();
            let limit = |bytes| {
                let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
                // SAFETY: a valid limit.
                assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
            };
            limit(1 << 20);
            let refused = (1..).find(|n| queue.push(*n).is_err()).unwrap();
            assert_eq!(queue.push(refused), Err(PushError(refused)));
            let fresh: Queue<u64> = Queue::new();
            let _ = fresh.push(1);
            let mut items: Vec<u64> = Vec::new();
            limit(libc::RLIM_INFINITY);
            items.extend(queue.drain());
            items.sort_unstable();
            assert!(items.into_iter().eq(0..refused));
            for n in 0..10_000 {
                queue.push(n).unwrap();
            }
            assert_eq!(queue.drain().count(), 10_000);
        },
    );
}

/// The child has copies, and both go on from there without meeting; whatever locks other threads held,
/// and although consumers slept.
#[test]
fn fork_while_others_take() {
    let queue: Queue<u64> = Queue::new();
    let asleep: Queue<u64> = Queue::new();
    let done = AtomicBool::new(false);
    // The first child's that is not 0. Told after the threads were.
    let mut end = End::Code(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    queue.push(1).unwrap();
                    queue.drain().for_each(drop);
                }
            });
            scope.spawn(|| asleep.pop());
        }
        for _ in 0..scaled(200) {
            let child = forked::fork(|| {
                // Locks that others held are free again.
                queue.drain().for_each(drop);
                let empty = queue.is_empty();
                let works = (0..2000).all(|n| queue.push(n).is_ok());
                // In some order: the child may move to another cpu.
                let works = works && (0..2000).map(|_| queue.pop()).sum::<u64>() == 1999 * 1000;
                let wakes = (0..10).all(|n| asleep.push(n).is_ok() && asleep.pop() == n)
                    && asleep.pop_for(Duration::from_micros(100)).is_none();
                let flags = [!empty, !works, !wakes].map(i32::from);
                flags[0] + 2 * flags[1] + 4 * flags[2]
            });
            end = child.wait();
            if end != End::Code(0) {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
        (0..2).for_each(|n| asleep.push(n).unwrap());
    });
    assert_eq!(end, End::Code(0), "the child's queue does not work");
}

#[test]
fn what_is_left_is_dropped_once() {
    let drops = Arc::new(AtomicUsize::new(0));
    for panics_at in [5000, 10] {
        drops.store(0, Ordering::Relaxed);
        let queue: Queue<Fragile> = Queue::new();
        for n in 0..2000 {
            let fragile = Fragile { drops: drops.clone(), panics: n == panics_at };
            assert!(queue.push(fragile).is_ok());
        }
        queue.drain().take(5).for_each(drop);
        assert_eq!(drops.load(Ordering::Relaxed), 5);
        let panicked = catch_unwind(AssertUnwindSafe(|| drop(queue))).is_err();
        assert_eq!(panicked, panics_at == 10);
        assert_eq!((drops.load(Ordering::Relaxed), Arc::strong_count(&drops)), (2000, 1));
    }
}

#[test]
fn sends_what_can_be_sent() {
    fn shared<T: Send + Sync>() {}
    shared::<Queue<Cell<u8>>>();
    shared::<Queue<Box<dyn Send>>>();
}
