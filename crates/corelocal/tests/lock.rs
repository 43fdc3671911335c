//! The lock under attack: owners, signal handlers, lockers from afar, freezes and trims at once; fork,
//! refused system calls, drops.

mod forked;
mod sandbox;
mod storm;

use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;

use corelocal::cid::{self, Busy, Cid};
use corelocal::percpu::{self, Lock, Shard};
use sandbox::{When, run_in_child, run_refusing};
use storm::scaled;

/// A sum that notices a second thread.
#[derive(Default)]
struct Alone {
    busy: bool,
    sum: u64,
}

impl Alone {
    fn add(&mut self) {
        assert!(!black_box(&mut *self).busy, "two threads hold one part");
        black_box(&mut *self).busy = true;
        black_box(&mut *self).sum += 1;
        if self.sum % 64 == 0 {
            // Off the cpu with the lock in its hands. A system call and nothing else.
            thread::yield_now();
        }
        black_box(&mut *self).busy = false;
    }
}

static LOCK: Lock<Alone> = Lock::new(|| Alone { busy: false, sum: 0 });
static MISSED: AtomicU64 = AtomicU64::new(0);

/// What storms do, in signal handlers too.
fn try_to_add() {
    match LOCK.try_lock() {
        Some(mut alone) => alone.add(),
        None => {
            MISSED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn sum() -> u64 {
    let mut sum = 0;
    LOCK.for_each_locked(|_, alone| sum += alone.sum).expect("membarrier");
    sum
}

/// Owners that are signalled and migrated, owners that wait, lockers on other cores, and freezes by all of them.
fn nobody_is_there_twice(threads: usize, each: u64) {
    let done = AtomicBool::new(false);
    let (before, missed) = (sum(), MISSED.load(Ordering::Relaxed));
    let mut added = 0;
    thread::scope(|scope| {
        let until = |act: fn(u64) -> u64| {
            let done = &done;
            scope.spawn(move || {
                let (mut n, mut added) = (0, 0);
                while !done.load(Ordering::Relaxed) {
                    n += 1;
                    added += act(n);
                }
                added
            })
        };
        let others = [
            until(|_| {
                let mut alone = LOCK.lock();
                alone.add();
                alone.add();
                2
            }),
            until(|_| {
                LOCK.lock().add();
                1
            }),
            until(|_| {
                let mut added = 0;
                let visit = |_: Shard, alone: &mut Alone| {
                    alone.add();
                    added += 1;
                };
                LOCK.for_each_locked(visit).expect("membarrier");
                added
            }),
            until(|n| match LOCK.lock_slot(n as u32 % cid::capacity()) {
                Ok(mut alone) => {
                    alone.add();
                    1
                }
                Err(Busy::NoSlot) => 0,
                Err(busy) => panic!("{busy}"),
            }),
            until(|n| match LOCK.try_lock_slot(n as u32 % 2) {
                Ok(Some(mut alone)) => {
                    alone.add();
                    1
                }
                _ => 0,
            }),
            until(|n| {
                drop(cid::freeze(n as u32 % cid::capacity()));
                if n % 8 == 0 {
                    let _ = percpu::trim();
                }
                thread::yield_now();
                0
            }),
        ];
        added += storm::rage_doing(threads, each, try_to_add);
        done.store(true, Ordering::Relaxed);
        added += others.into_iter().map(|other| other.join().unwrap()).sum::<u64>();
    });
    assert_eq!(sum() - before, added - (MISSED.load(Ordering::Relaxed) - missed));
}

#[test]
fn a_storm() {
    nobody_is_there_twice(32, scaled(100_000));
}

#[test]
fn a_storm_without_sections() {
    let off = |command: &mut std::process::Command| {
        command.env("CORELOCAL_RSEQ", "off");
    };
    run_in_child("a_storm_without_sections", off, || {
        nobody_is_there_twice(8, scaled(20_000));
    });
}

/// Owners that never leave the lock alone cannot keep a locker from afar waiting for ever.
#[test]
fn greedy_owners_do_not_starve_visitors() {
    static GREEDY: Lock<u64> = Lock::new(|| 0);
    let done = AtomicBool::new(false);
    drop(GREEDY.lock());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let mut value = GREEDY.lock();
                    (0..2000).for_each(|_| *black_box(&mut *value) += 1);
                }
            });
        }
        for _ in 0..scaled(100) {
            let result = GREEDY.for_each_locked(|_, value| *value = 0);
            assert!(matches!(result, Ok(()) | Err(Busy::Fence(_))), "{result:?}");
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// An owner may freeze and trim: threads that wait for it have nothing frozen.
#[test]
fn a_holder_may_freeze() {
    static HELD: Lock<u64> = Lock::new(|| 0);
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let mut guard = HELD.lock();
        scope.spawn(move || {
            tell.send(()).unwrap();
            let _ = HELD.for_each_locked(|_, value| *value += 1);
        });
        told.recv().unwrap();
        for n in 0..scaled(500).max(10) {
            thread::yield_now();
            let frozen = cid::freeze(n as u32 % cid::high_water::<Cid>().max(1));
            assert!(matches!(frozen, Ok(_) | Err(Busy::Frozen | Busy::Fence(_))), "{frozen:?}");
            *guard += 1;
        }
        drop(guard);
    });
}

#[test]
fn every_value_is_dropped_once() {
    static LIVE: AtomicUsize = AtomicUsize::new(0);
    struct Value;
    impl Drop for Value {
        fn drop(&mut self) {
            LIVE.fetch_sub(1, Ordering::Relaxed);
        }
    }
    fn made() -> Value {
        LIVE.fetch_add(1, Ordering::Relaxed);
        Value
    }
    for _ in 0..50 {
        let lock: Lock<Value> = Lock::new(made);
        let start = Barrier::new(6);
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..20 {
                        *lock.lock() = made();
                        thread::yield_now();
                    }
                });
            }
        });
        let mut seen = 0;
        lock.for_each_locked(|_, _| seen += 1).expect("membarrier");
        assert!(seen >= 1 && seen == LIVE.load(Ordering::Relaxed), "{seen}");
        drop(lock);
        assert_eq!(LIVE.load(Ordering::Relaxed), 0);
    }
}

/// A drop that panics keeps no other value from being dropped.
#[test]
fn a_panicking_drop() {
    static LEFT: AtomicUsize = AtomicUsize::new(0);
    static PANIC: AtomicBool = AtomicBool::new(true);
    struct Value;
    impl Drop for Value {
        fn drop(&mut self) {
            LEFT.fetch_sub(1, Ordering::Relaxed);
            if PANIC.swap(false, Ordering::Relaxed) {
                panic!("for the test");
            }
        }
    }
    let lock: Lock<Value> = Lock::new(|| {
        LEFT.fetch_add(1, Ordering::Relaxed);
        Value
    });
    // More than one part: the second guard is of another one, where there is one.
    let first = lock.lock();
    drop(lock.try_lock());
    drop(first);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(lock))).is_err());
    assert_eq!(LEFT.load(Ordering::Relaxed), 0);
}

/// A child has copies of all values, and locks that were free at the fork are free there.
#[test]
fn fork_copies_the_values() {
    let lock: Lock<u64> = Lock::default();
    *lock.lock() += 10;
    let child = forked::judge(|| {
        *lock.lock() += 5;
        let mut sum = 0;
        let visited = lock.for_each_locked(|_, value| sum += *value).is_ok();
        visited && sum == 15
    });
    *lock.lock() += 1;
    child.succeeds();
    let mut lock = lock;
    assert_eq!(lock.iter_mut().map(|value| *value).sum::<u64>(), 11);
}

#[test]
fn thread_local_destructors_lock() {
    static LATE: Lock<u64> = Lock::new(|| 0);
    struct Last;
    impl Drop for Last {
        fn drop(&mut self) {
            *LATE.lock() += 1;
        }
    }
    thread_local!(static LAST: Last = const { Last });
    for _ in 0..50 {
        thread::spawn(|| LAST.with(|_| *LATE.lock() += 1)).join().unwrap();
    }
    let mut sum = 0;
    LATE.for_each_locked(|_, value| sum += *value).expect("membarrier");
    assert_eq!(sum, 100);
}

/// Without a fence no thread gets another core's part; the core's own threads are not affected.
#[test]
fn a_refused_fence_is_an_error() {
    const TEST: &str = "a_refused_fence_is_an_error";
    run_refusing(TEST, libc::SYS_membarrier, When::Always, libc::EPERM, || {
        let mut lock: Lock<u64> = Lock::default();
        *lock.lock() += 1;
        let visited = lock.for_each_locked(|_, value| *value += 1);
        if cid::policy() == cid::Policy::Lease {
            assert_eq!(visited, Ok(()));
        } else {
            assert!(matches!(visited, Err(Busy::Fence(_))), "{visited:?}");
            assert!(matches!(lock.lock_slot(cid::current::<Cid>()), Err(Busy::Fence(_))));
        }
        *lock.lock() += 1;
        assert!(lock.iter_mut().map(|value| *value).sum::<u64>() >= 2);
    });
}

/// Without memory for slots there is one lock inside the object.
#[test]
fn without_memory() {
    run_refusing("without_memory", libc::SYS_mmap, When::Always, libc::ENOMEM, || {
        static LOCK: Lock<[u64; 33]> = Lock::new(|| [0; 33]);
        LOCK.lock()[32] += 1;
        let held = LOCK.lock();
        assert!(LOCK.try_lock().is_none());
        drop(held);
        let mut seen = None;
        LOCK.for_each_locked(|part, value| seen = Some((part, value[32]))).unwrap();
        assert_eq!(seen, Some((Shard::Inline, 1)));
        assert!(matches!(LOCK.lock_slot(0), Err(Busy::NoSlot)));
    });
}
