//! The read-write lock under load: excluded, fair, timed, signalled, shared by processes, forked; and beside
//! the C library's.

mod mapped;
mod pthreads;
mod sandbox;
mod storm;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use corelocal::sync::{RwLock, RwLockUpgradableGuard, RwLockWriteGuard, Shared};
use proptest::prelude::*;

/// Two numbers that are equal whenever no writer is active.
#[derive(Default)]
struct Pair(AtomicU64, AtomicU64);

impl Pair {
    fn check(&self) -> u64 {
        let first = self.0.load(Ordering::Relaxed);
        assert_eq!(first, self.1.load(Ordering::Relaxed), "a writer beside a reader");
        first
    }

    /// A lost update would show, as would a reader in between.
    fn add(&self) {
        let sum = self.check() + 1;
        self.0.store(sum, Ordering::Relaxed);
        std::hint::spin_loop();
        self.1.store(sum, Ordering::Relaxed);
    }
}

/// A cheap random number.
fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// One operation on the lock. Returns whether it wrote.
fn act<S: corelocal::sync::Scope>(lock: &RwLock<Pair, S>, seed: &mut u64) -> bool {
    let span = Duration::from_micros(random(seed) % 100);
    match random(seed) % 10 {
        0 => {
            lock.write().add();
            true
        }
        1 => lock.try_write_for(span).map(|guard| guard.add()).is_some(),
        2 => lock.try_write().map(|guard| guard.add()).is_some(),
        3 => {
            let guard = RwLockUpgradableGuard::upgrade(lock.upgradable_read());
            guard.add();
            RwLockWriteGuard::downgrade(guard).check();
            true
        }
        4 => {
            let guard = lock.upgradable_read();
            let before = guard.check();
            match RwLockUpgradableGuard::try_upgrade_for(guard, span) {
                Ok(guard) => {
                    assert_eq!(guard.check(), before, "somebody wrote before the upgrade");
                    guard.add();
                    let guard = RwLockWriteGuard::downgrade_to_upgradable(guard);
                    guard.check();
                    RwLockUpgradableGuard::downgrade(guard).check();
                    true
                }
                Err(guard) => {
                    assert_eq!(guard.check(), before);
                    false
                }
            }
        }
        5 => {
            lock.try_read_for(span).map(|guard| guard.check());
            false
        }
        6 => {
            lock.try_read().map(|guard| guard.check());
            false
        }
        _ => {
            lock.read().check();
            false
        }
    }
}

#[test]
fn everybody_does_everything() {
    let lock = RwLock::new(Pair::default());
    let each = storm::scaled(20_000);
    let written: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|i| {
                let lock = &lock;
                scope.spawn(move || {
                    let mut seed = 0x9e37_79b9_7f4a_7c15 + i;
                    (0..each).filter(|_| act(lock, &mut seed)).count() as u64
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(lock.read().check(), written);
    assert!(lock.try_write().is_some());
}

#[test]
fn signals_and_moves_change_nothing() {
    static LOCK: RwLock<Pair> = RwLock::new(Pair(AtomicU64::new(0), AtomicU64::new(0)));
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    // The handler only tries: it may have interrupted the holder.
    storm::rage_doing(4, storm::scaled(50_000), || {
        if let Some(guard) = LOCK.try_write() {
            guard.add();
            WRITTEN.fetch_add(1, Ordering::Relaxed);
        } else if let Some(guard) = LOCK.try_read() {
            guard.check();
        }
    });
    assert_eq!(LOCK.read().check(), WRITTEN.load(Ordering::Relaxed));
}

/// Readers that overlap all the time, and a writer; writers that do, and a reader.
#[test]
fn nobody_starves() {
    let hold = |is_write: bool, lock: &RwLock<()>| {
        let start = Instant::now();
        let busy = || while start.elapsed() < Duration::from_micros(50) {};
        if is_write {
            let _guard = lock.write();
            busy();
        } else {
            let _guard = lock.read();
            busy();
        }
    };
    for crowd_writes in [false, true] {
        let (lock, done) = (RwLock::new(()), AtomicBool::new(false));
        thread::scope(|scope| {
            let _tell = storm::Tell(&done);
            for _ in 0..4 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        hold(crowd_writes, &lock);
                    }
                });
            }
            // Ends at all: no speed is asked for.
            for _ in 0..storm::scaled(200) {
                hold(!crowd_writes, &lock);
            }
        });
    }
}

/// The lock may be freed by the thread that gets it after the last one.
#[test]
fn it_may_be_freed_at_once() {
    for _ in 0..storm::scaled(300) {
        let lock = std::sync::Arc::new(RwLock::new(0));
        let other = lock.clone();
        let thread = thread::spawn(move || *other.write() += 1);
        loop {
            if *lock.read() == 1 {
                break;
            }
        }
        drop(lock);
        thread.join().unwrap();
    }
}

#[test]
fn two_processes_share_it_at_two_addresses() {
    let [mine, theirs] = mapped::twice::<RwLock<Pair, Shared>>();
    let each = storm::scaled(20_000);
    let work = |lock: &RwLock<Pair, Shared>, mut seed: u64| {
        (0..each).filter(|_| act(lock, &mut seed)).count() as u64
    };
    let child = mapped::child(|| {
        // What it has written is told in the value itself: each adds as often as it says.
        let written = work(theirs, 77);
        for _ in written..each {
            theirs.write().add();
        }
        true
    });
    let written = work(mine, 78);
    mapped::succeeds(child);
    assert_eq!(mine.read().check(), written + each);
}

/// Threads of the parent hold it, wait for it, and are not there in the child.
#[test]
fn a_child_is_not_left_waiting() {
    let lock = RwLock::new(Pair::default());
    let (held, holds) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let shared = &lock;
        scope.spawn(move || {
            let _guard = shared.write();
            held.send(()).unwrap();
            wait.recv().unwrap_err();
        });
        holds.recv().unwrap();
        for _ in 0..2 {
            scope.spawn(|| lock.read().check());
            scope.spawn(|| lock.write().add());
        }
        // They are asleep, or about to be.
        thread::sleep(Duration::from_millis(20));
        let child = mapped::child(|| {
            let is_refused = || {
                let soon = Duration::from_secs(3600);
                lock.try_read().is_none() && lock.try_write_for(soon).is_none()
            };
            // And a child of the child.
            mapped::succeeds(mapped::child(is_refused));
            let was_left_behind = is_refused() && lock.read_checked().is_err();
            let Err(orphaned) = lock.write_checked() else { return false };
            orphaned.reset(Pair::default()).add();
            drop(RwLockUpgradableGuard::upgrade(lock.upgradable_read()));
            mapped::succeeds(mapped::child(|| lock.try_write().is_some()));
            was_left_behind && lock.read().check() == 1
        });
        mapped::succeeds(child);
        assert!(lock.try_read().is_none());
        drop(go);
    });
    assert_eq!(lock.read().check(), 2);
}

/// What the thread that forks has, no other thread of the child gets, nor does it get a second guard itself; and what it
/// has is good until it is dropped.
#[test]
fn no_thread_of_a_child_gets_a_second_guard() {
    let lock = RwLock::new(Pair::default());
    let refused = |lock: &RwLock<Pair>, exclusive: bool| {
        let right = AtomicU32::new(0);
        let try_all = || {
            let soon = Duration::from_millis(5);
            let is_refused = lock.try_write().is_none()
                && lock.try_write_for(soon).is_none()
                && (!exclusive || lock.try_read_for(soon).is_none() && lock.try_read().is_none());
            right.fetch_add(u32::from(is_refused), Ordering::Relaxed);
        };
        let is_run = pthreads::run::<2, _>(try_all);
        try_all();
        is_run && right.load(Ordering::Relaxed) == 3
    };
    let free = |lock: &RwLock<Pair>| {
        let right = AtomicU32::new(0);
        let take = || {
            right.fetch_add(lock.try_write().is_some().into(), Ordering::Relaxed);
        };
        pthreads::run::<1, _>(take) && right.load(Ordering::Relaxed) == 1
    };
    let (held, holds) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let shared = &lock;
        // Readers that are gone change nothing of it.
        scope.spawn(move || {
            let _guard = shared.read();
            held.send(()).unwrap();
            wait.recv().unwrap_err();
        });
        holds.recv().unwrap();
        let guard = lock.read();
        mapped::succeeds(mapped::child(|| refused(&lock, false) && guard.check() == 0));
        drop(guard);
        let guard = lock.upgradable_read();
        mapped::succeeds(mapped::child(|| refused(&lock, false) && guard.check() == 0));
        drop(guard);
        drop(go);
    });
    let mut guard = Some(lock.upgradable_read());
    mapped::succeeds(mapped::child(|| {
        let is_refused = refused(&lock, false);
        drop(guard.take());
        is_refused && free(&lock)
    }));
    drop(guard);
    let mut guard = Some(lock.write());
    mapped::succeeds(mapped::child(|| {
        mapped::succeeds(mapped::child(|| refused(&lock, true)));
        let is_refused = refused(&lock, true);
        drop(guard.take());
        is_refused && free(&lock)
    }));
}

/// The copy of a guard in a child unlocks nothing of what the parent holds.
#[test]
fn a_copied_guard_of_a_shared_lock_unlocks_nothing() {
    let lock: &RwLock<u64, Shared> = mapped::twice()[0];
    let is_held =
        |by_reader: bool| lock.try_write().is_none() && lock.try_read().is_some() == by_reader;
    let guard = lock.read();
    mapped::succeeds(mapped::child(|| {
        // SAFETY: a copy of a guard that the child does not use.
        drop(unsafe { std::ptr::read(&guard) });
        is_held(true)
    }));
    assert!(is_held(true));
    drop(guard);
    let guard = lock.upgradable_read();
    mapped::succeeds(mapped::child(|| {
        // SAFETY: a copy of a guard that the child does not use.
        let copied = || unsafe { std::ptr::read(&guard) };
        drop(copied());
        drop(RwLockUpgradableGuard::downgrade(copied()));
        RwLockUpgradableGuard::try_upgrade(copied()).is_err() && is_held(true)
    }));
    assert!(lock.try_upgradable_read().is_none());
    drop(guard);
    let guard = lock.write();
    mapped::succeeds(mapped::child(|| {
        // SAFETY: a copy of a guard that the child does not use.
        let copied = || unsafe { std::ptr::read(&guard) };
        drop(copied());
        drop(RwLockWriteGuard::downgrade(copied()));
        drop(RwLockWriteGuard::downgrade_to_upgradable(copied()));
        drop(RwLockWriteGuard::map(copied(), |value| value));
        is_held(false)
    }));
    assert!(is_held(false));
    drop(guard);
    assert!(lock.try_write().is_some());
}

#[test]
fn a_child_keeps_what_its_thread_holds() {
    let lock = RwLock::new(Pair::default());
    let guard = lock.write();
    mapped::succeeds(mapped::child(|| lock.try_read().is_none()));
    drop(guard);
    let guard = lock.read();
    mapped::succeeds(mapped::child(|| {
        lock.try_write().is_none() && lock.try_read().is_some() && guard.check() == 0
    }));
}

/// A child that would wait for readers that are gone is told so; or makes them leave.
#[test]
fn a_child_learns_of_readers_that_are_gone() {
    // By a panic: locks of std's must be in order in the child, whatever other tests do.
    sandbox::run_in_child("a_child_learns_of_readers_that_are_gone", |_| (), it_learns_of_readers);
}

fn it_learns_of_readers() {
    let lock = RwLock::new(Pair::default());
    let (held, holds) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let shared = &lock;
        scope.spawn(move || {
            let _guard = shared.read();
            held.send(()).unwrap();
            wait.recv().unwrap_err();
        });
        holds.recv().unwrap();
        let child = mapped::child(|| {
            std::panic::set_hook(Box::new(|_| ()));
            let panics = std::panic::catch_unwind(|| lock.write().add()).is_err();
            let fails = lock.try_write_for(Duration::from_millis(1)).is_none();
            let reads = lock.read().check() == 0;
            // SAFETY: no guard of this thread exists.
            unsafe { lock.forget_readers() };
            lock.write().add();
            panics && fails && reads && lock.read().check() == 1
        });
        mapped::succeeds(child);
        drop(go);
    });
}

/// What one of three threads does; threads are asked one after another, so an outcome depends on nothing else.
#[derive(Clone, Copy, Debug)]
enum Step {
    TryRead,
    TryWrite,
    TimedRead,
    TimedWrite,
    Unlock,
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    use Step::*;
    let step = prop::sample::select(vec![TryRead, TryWrite, TimedRead, TimedWrite, Unlock, Unlock]);
    prop::collection::vec((0..3usize, step), 1..40)
}

unsafe extern "C" {
    fn pthread_rwlock_timedrdlock(
        lock: *mut libc::pthread_rwlock_t,
        deadline: *const libc::timespec,
    ) -> libc::c_int;
    fn pthread_rwlock_timedwrlock(
        lock: *mut libc::pthread_rwlock_t,
        deadline: *const libc::timespec,
    ) -> libc::c_int;
}

/// The C library's lock, as the same steps see it.
struct Pthread(std::cell::UnsafeCell<libc::pthread_rwlock_t>);

// SAFETY: it is made for threads.
unsafe impl Sync for Pthread {}

impl Pthread {
    /// What ours does with a guard, which it holds if `held`.
    fn step(&self, step: Step, held: bool) -> bool {
        let lock = self.0.get();
        // SAFETY: all zero is an unlocked one; a deadline of long ago is a valid one.
        unsafe {
            let past = libc::timespec { tv_sec: 1, tv_nsec: 0 };
            match step {
                Step::TryRead => libc::pthread_rwlock_tryrdlock(lock) == 0,
                Step::TryWrite => libc::pthread_rwlock_trywrlock(lock) == 0,
                Step::TimedRead => pthread_rwlock_timedrdlock(lock, &past) == 0,
                Step::TimedWrite => pthread_rwlock_timedwrlock(lock, &past) == 0,
                Step::Unlock => held && libc::pthread_rwlock_unlock(lock) == 0,
            }
        }
    }
}

enum Guard<'a> {
    Read(#[allow(dead_code, reason = "held")] corelocal::sync::RwLockReadGuard<'a, ()>),
    Write(#[allow(dead_code, reason = "held")] RwLockWriteGuard<'a, ()>),
}

fn our_step<'a>(lock: &'a RwLock<()>, step: Step, held: &mut Option<Guard<'a>>) -> bool {
    let guard = match step {
        Step::TryRead => lock.try_read().map(Guard::Read),
        Step::TryWrite => lock.try_write().map(Guard::Write),
        Step::TimedRead => lock.try_read_for(Duration::ZERO).map(Guard::Read),
        Step::TimedWrite => lock.try_write_for(Duration::ZERO).map(Guard::Write),
        Step::Unlock => return held.take().is_some(),
    };
    let got = guard.is_some();
    *held = guard;
    got
}

proptest! {
    #![proptest_config(ProptestConfig { cases: storm::scaled(100) as u32, ..Default::default() })]

    /// Scripts of three threads, each of which holds one lock at most.
    #[test]
    fn the_same_steps_as_the_c_library(steps in steps()) {
        // SAFETY: all bytes 0 is PTHREAD_RWLOCK_INITIALIZER.
        let theirs: Pthread = unsafe { std::mem::zeroed() };
        let ours = RwLock::new(());
        thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let (ask, asked) = mpsc::channel::<Step>();
                    let (tell, told) = mpsc::channel();
                    let (ours, theirs) = (&ours, &theirs);
                    scope.spawn(move || {
                        let mut held = None;
                        for step in asked {
                            let is_held = held.is_some();
                            if is_held && !matches!(step, Step::Unlock) {
                                tell.send((false, false)).unwrap();
                                continue;
                            }
                            let their = theirs.step(step, is_held);
                            let our = our_step(ours, step, &mut held);
                            tell.send((our, their)).unwrap();
                        }
                    });
                    (ask, told)
                })
                .collect();
            for (at, (thread, step)) in steps.iter().enumerate() {
                let (ask, told) = &threads[*thread];
                ask.send(*step).unwrap();
                let (our, their) = told.recv().unwrap();
                assert_eq!(our, their, "step {at}");
            }
        });
    }
}
