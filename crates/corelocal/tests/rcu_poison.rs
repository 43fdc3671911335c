//! Memory that RCU frees is poisoned, and stays so: no reader sees poison, with guards and without.
//!
//! `ci/test` makes 10^8 reads of each kind; `CORELOCAL_TEST_SCALE` takes fewer, and `ci/rcu` makes 10^9.
#![cfg(feature = "std")]

mod forked;
mod sandbox;
mod storm;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, ptr, thread};

use corelocal::rcu::{self, Domain, Rcu, RcuCopy};
use sandbox::When;

const POISON: u8 = 0xA5;
const POISONED: u64 = u64::from_ne_bytes([POISON; 8]);

/// Never frees what is as long as a version, but poisons it, and keeps it in a list. The rest is as usual.
struct Poisoning;

/// The last poisoned block. Its last word, which is no part of a version, links it to the one before.
static LAST: AtomicPtr<u64> = AtomicPtr::new(ptr::null_mut());

#[global_allocator]
static ALLOCATOR: Poisoning = Poisoning;

/// As long as a version of an `RcuCopy`, and as the test's own versions.
const LEN: usize = 128;

// SAFETY: the system's allocator, but for memory that is not freed.
unsafe impl GlobalAlloc for Poisoning {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the conditions.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if layout.size() == LEN && layout.align() == 64 {
            // SAFETY: memory that the caller gives up; other threads may read it by mistake, atomically.
            let word = |nth| unsafe { AtomicU64::from_ptr(at.cast::<u64>().add(nth)) };
            (0..LEN / 8 - 1).for_each(|nth| word(nth).store(POISONED, Ordering::Relaxed));
            let before = LAST.swap(at.cast(), Ordering::Relaxed);
            word(LEN / 8 - 1).store(before as u64, Ordering::Relaxed);
            return;
        }
        // SAFETY: the caller keeps the conditions.
        unsafe { System.dealloc(at, layout) };
    }
}

fn reads() -> u64 {
    let reads = env::var("CORELOCAL_RCU_READS").ok().map(|reads| reads.parse().unwrap());
    reads.unwrap_or_else(|| storm::scaled(100_000_000))
}

/// Stores until it is told to stop. Poisoned memory is not freed, so it stores a limited number of times, over the time
/// that the reads take.
fn store_until(is_over: &AtomicBool, mut store: impl FnMut(u64)) -> u64 {
    const MOST: u64 = 2_000_000;
    let mut stores = 0;
    while !is_over.load(Ordering::Relaxed) {
        stores += 1;
        store(stores);
        if stores > MOST {
            thread::sleep(Duration::from_millis(1));
        }
    }
    stores
}

/// Several tests store.
static COPY: RcuCopy<[u64; 8]> = RcuCopy::new([0; 8]);
static ONE: RcuCopy<u64> = RcuCopy::new(0);

/// Reads in threads and signal handlers, on changing cpus.
#[test]
fn copies_are_whole_and_not_poisoned() {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            store_until(&is_over, |n| {
                COPY.store([n; 8]);
                ONE.store(n);
            })
        });
        let _tell = storm::Tell(&is_over);
        const AT_ONCE: u64 = 1000;
        storm::rage_doing(3, (reads() / 3 / AT_ONCE).max(1), || {
            for _ in 0..AT_ONCE {
                let copy = COPY.load();
                assert!(copy == [copy[0]; 8] && copy[0] != POISONED);
                assert_ne!(ONE.load(), POISONED);
            }
        });
        is_over.store(true, Ordering::Relaxed);
        assert!(writer.join().unwrap() > 0);
    });
}

/// Later loads of a thread yield no older version.
#[test]
fn copies_only_become_newer() {
    static NUMBER: RcuCopy<u64> = RcuCopy::new(0);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| store_until(&is_over, |n| NUMBER.store(n)));
        let _tell = storm::Tell(&is_over);
        let mut last = 0;
        for _ in 0..reads() / 10 {
            let now = NUMBER.load();
            assert!(now >= last);
            last = now;
        }
    });
}

/// As long and as aligned as what is poisoned.
#[repr(align(64))]
struct Version([u64; 9]);

/// With guards, which half of the readers keep for a while.
#[test]
fn versions_under_guards_are_not_poisoned() {
    static DOMAIN: Domain = Domain::new();
    const _: () = assert!(size_of::<Version>() == LEN);
    let current = Rcu::new_in(Box::new(Version([0; 9])), &DOMAIN);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            store_until(&is_over, |n| {
                current.store(Box::new(Version([n; 9])));
                DOMAIN.barrier().unwrap();
            })
        });
        let _tell = storm::Tell(&is_over);
        let readers: Vec<_> = (1..=2)
            .map(|times| {
                let current = &current;
                scope.spawn(move || {
                    for _ in 0..reads() / 2 / times {
                        let guard = DOMAIN.read();
                        for _ in 0..times {
                            let version = current.load(&guard);
                            assert!(version.0 == [version.0[0]; 9] && version.0[0] != POISONED);
                        }
                    }
                })
            })
            .collect();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
        assert!(writer.join().unwrap() > 0);
    });
}

/// Reads when it is dropped: at the end of its thread.
struct AtExit;

impl Drop for AtExit {
    fn drop(&mut self) {
        read_once();
    }
}

fn read_once() {
    let copy = COPY.load();
    assert!(copy == [copy[0]; 8] && copy[0] != POISONED);
    drop(rcu::read());
}

/// Threads that come and go, which read first and last of all.
#[test]
fn short_threads_read() {
    thread_local!(static AT_EXIT: AtExit = const { AtExit });
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            store_until(&is_over, |n| {
                COPY.store([n; 8]);
                rcu::synchronize().unwrap();
            })
        });
        let _tell = storm::Tell(&is_over);
        for _ in 0..storm::scaled(10_000) / 10 {
            let readers: Vec<_> = (0..10)
                .map(|_| {
                    scope.spawn(|| {
                        AT_EXIT.with(|_| ());
                        read_once();
                    })
                })
                .collect();
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        }
    });
}

/// A child has the version of the fork, and stores its own.
#[test]
fn children_read_and_store() {
    static NUMBER: RcuCopy<[u64; 2]> = RcuCopy::new([0; 2]);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| store_until(&is_over, |n| NUMBER.store([n; 2])));
        let _tell = storm::Tell(&is_over);
        for _ in 0..storm::scaled(100) {
            forked::judge(|| {
                let before = NUMBER.load();
                NUMBER.store([7; 2]);
                NUMBER.rcu(|[a, b]| [a + 1, b + 1]);
                before[0] == before[1] && before[0] != POISONED && NUMBER.load() == [8; 2]
            })
            .succeeds();
        }
    });
}

/// In a child with a guard from before the fork, of whichever domain, a store does not wait for it.
#[test]
fn a_guard_from_before_a_fork_delays_no_store() {
    static NUMBER: RcuCopy<u64> = RcuCopy::new(0);
    NUMBER.store(1);
    let guard = rcu::read();
    forked::judge(|| {
        let begin = Instant::now();
        (2..5).for_each(|n| NUMBER.store(n));
        NUMBER.load() == 4 && begin.elapsed() < Duration::from_secs(5)
    })
    .succeeds();
    drop(guard);
}

/// Like `vfork`, with a stack of its own: it shares its parent's memory and thread-local state, while that waits.
#[test]
fn a_child_of_vfork_reads_by_guard() {
    extern "C" fn child(_: *mut libc::c_void) -> libc::c_int {
        i32::from(COPY.load_by_guard()[0] == POISONED)
    }
    COPY.store([1; 8]);
    let mut stack = vec![0u64; 64 << 10];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let top = stack.as_mut_ptr_range().end.cast();
    // SAFETY: the child runs on this stack, and this thread waits for its end.
    let pid = unsafe { libc::clone(child, top, flags, ptr::null_mut()) };
    let mut status = -1;
    // SAFETY: waits for the child just made; writes one number.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0);
    COPY.store([2; 8]);
}

fn store_and_read() {
    let copy = Cell::new(0);
    for n in 1..storm::scaled(2000) {
        COPY.store([n; 8]);
        assert_eq!((COPY.load(), COPY.load_by_guard()), ([n; 8], [n; 8]));
        copy.set(n);
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _tell = storm::Tell(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                read_once();
            }
        });
        for n in copy.get()..copy.get() + storm::scaled(2000) {
            COPY.store([n; 8]);
        }
    });
}

#[test]
fn without_sections_guards_are_used() {
    sandbox::run_born_refusing(
        "without_sections_guards_are_used",
        libc::SYS_rseq,
        When::Always,
        libc::ENOSYS,
        store_and_read,
    );
}

#[test]
fn without_membarrier_guards_are_used() {
    sandbox::run_born_refusing(
        "without_membarrier_guards_are_used",
        libc::SYS_membarrier,
        When::Always,
        libc::EPERM,
        store_and_read,
    );
}

/// Then nothing is freed any more.
#[test]
fn membarrier_may_be_refused_later() {
    sandbox::run_in_child(
        "membarrier_may_be_refused_later",
        |_| (),
        || {
            store_and_read();
            sandbox::refuse(libc::SYS_membarrier, When::Always, libc::EPERM);
            store_and_read();
        },
    );
}
