//! Children that are forked while threads of their parent hold the mutexes, wait for them or for a condition, or are in
//! the middle of what is done once: nothing in a child waits for ever, and what was held is reported.
//!
//! Tests whose children start threads or panic run in a process of their own, and fork while no thread of theirs
//! begins or ends: a lock of libc's or std's that the harness has just then would stay locked in the child.

mod pthreads;
mod sandbox;
mod storm;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use corelocal::sync::{Condvar, Mutex, MutexGuard, OnceLock, Shared};
use sandbox::run_in_child;
use storm::{Tell, scaled};

/// Forks; the child runs `body`, which says what is wrong, and has ten seconds for it.
fn fork(body: impl FnOnce() -> Result<(), u8>) {
    // SAFETY: what `body` does, and the end of the child without destructors.
    match unsafe { libc::fork() } {
        -1 => panic!("no child"),
        0 => {
            // SAFETY: a child that sleeps on is ended by the signal, which the parent sees.
            unsafe { libc::alarm(10) };
            let wrong = body().err().unwrap_or(0);
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(wrong)) };
        }
        child => {
            let mut status = -1;
            // SAFETY: the child is ours, `status` writable.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "a child complained ({}), or slept on", status >> 8);
        }
    }
}

fn check(right: bool, wrong: u8) -> Result<(), u8> {
    if right { Ok(()) } else { Err(wrong) }
}

/// Runs `body` while another thread holds the mutex.
fn while_held<T: Send>(mutex: &Mutex<T>, body: impl FnOnce()) {
    let ((tell, told), (let_go, wait)) = (channel(), channel::<()>());
    thread::scope(|scope| {
        let let_go = let_go;
        scope.spawn(move || {
            let _held = mutex.lock();
            tell.send(()).unwrap();
            let _ = wait.recv();
        });
        told.recv().unwrap();
        body();
        drop(let_go);
    });
}

#[test]
fn a_child_takes_over_what_another_thread_held() {
    let mutex = Mutex::new(7);
    while_held(&mutex, || {
        fork(|| {
            check(!mutex.is_locked(), 1)?;
            let guard = mutex.lock();
            check(MutexGuard::is_recovered(&guard) && *guard == 7, 2)?;
            check(mutex.is_locked() && mutex.try_lock().is_none(), 3)?;
            drop(guard);
            check(!MutexGuard::is_recovered(&mutex.lock()), 4)
        });
        fork(|| check(mutex.try_lock().is_some_and(|guard| MutexGuard::is_recovered(&guard)), 1));
        fork(|| {
            let guard = mutex.try_lock_for(Duration::from_secs(5));
            check(guard.is_some_and(|guard| MutexGuard::is_recovered(&guard)), 1)
        });
        // A child of the child, too.
        fork(|| {
            fork(|| check(MutexGuard::is_recovered(&mutex.lock()), 1));
            Ok(())
        });
        // The parent's is as it was.
        assert!(mutex.is_locked() && mutex.try_lock().is_none());
    });
    assert!(!MutexGuard::is_recovered(&mutex.lock()));
}

#[test]
fn who_asks_is_told_before_it_looks() {
    run_in_child("who_asks_is_told_before_it_looks", |_| (), each_is_told);
}

fn each_is_told() {
    let mutex = Mutex::new(vec![1, 2]);
    while_held(&mutex, || {
        fork(|| {
            let Err(orphaned) = mutex.lock_checked() else { return Err(1) };
            // Undecided, the next one is told too, from another thread of the child as well.
            drop(orphaned);
            let is_told = AtomicBool::new(false);
            let tell = || is_told.store(mutex.lock_checked().is_err(), Ordering::Relaxed);
            check(pthreads::run::<1, _>(tell) && is_told.load(Ordering::Relaxed), 2)?;
            let Err(orphaned) = mutex.lock_checked() else { return Err(3) };
            check(mutex.try_lock().is_none(), 4)?;
            drop(orphaned.reset(vec![3]));
            let guard = mutex.lock_checked().map_err(|_| 5)?;
            check(*guard == [3] && !MutexGuard::is_recovered(&guard), 6)
        });
        fork(|| {
            let Err(orphaned) = mutex.lock_checked() else { return Err(1) };
            let guard = orphaned.accept();
            check(*guard == [1, 2] && MutexGuard::is_recovered(&guard), 2)
        });
    });
    assert!(mutex.lock_checked().is_ok());
}

/// What the thread that forks has locked is locked in the child, until it unlocks it there.
#[test]
fn a_child_keeps_what_its_thread_held() {
    run_in_child("a_child_keeps_what_its_thread_held", |_| (), it_keeps_what_it_held);
}

fn it_keeps_what_it_held() {
    let mutex = Mutex::new(0);
    let mut guard = mutex.lock();
    fork(|| {
        check(mutex.is_locked() && mutex.try_lock().is_none(), 1)?;
        check(mutex.try_lock_for(Duration::from_millis(5)).is_none(), 2)?;
        *guard += 1;
        MutexGuard::unlocked(&mut guard, || check(*mutex.lock() == 1, 3))?;
        drop(guard);
        check(mutex.try_lock().is_some_and(|guard| !MutexGuard::is_recovered(&guard)), 4)?;
        check(pthreads::run::<1, _>(|| *mutex.lock() += 1), 5)?;
        check(*mutex.lock() == 2, 6)
    });
    assert_eq!(*mutex.lock(), 0);
}

/// A storm of holders and waiters, and children that use all of the mutexes, with threads of their own.
#[test]
fn forks_among_holders_and_waiters() {
    run_in_child("forks_among_holders_and_waiters", |_| (), forks_in_a_storm);
}

fn forks_in_a_storm() {
    const THREADS: u32 = 8;
    let mutexes = [const { Mutex::new(0u64) }; 4];
    let (items, changed) = (Mutex::new(0u64), Condvar::new());
    let (begun, done) = (AtomicU32::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let _tell = Tell(&done);
        for number in 0..THREADS as usize {
            let (mutexes, items, changed) = (&mutexes, &items, &changed);
            let (begun, done) = (&begun, &done);
            scope.spawn(move || {
                begun.fetch_add(1, Ordering::Relaxed);
                for round in number.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let mut guard = mutexes[round % 4].lock();
                    *guard += 1;
                    if round % 64 == 0 {
                        thread::sleep(Duration::from_micros(300));
                    }
                    drop(guard);
                    if round % 16 == 0 {
                        let mut guard = items.lock();
                        *guard += 1;
                        changed.notify_all();
                        changed.wait_for(&mut guard, Duration::from_micros(200));
                    }
                }
            });
        }
        while begun.load(Ordering::Relaxed) < THREADS {
            thread::yield_now();
        }
        for _ in 0..scaled(100).max(5) {
            fork(|| {
                let pass = || {
                    for _ in 0..200 {
                        mutexes.iter().for_each(|mutex| *mutex.lock() += 1);
                        *items.lock() += 1;
                        changed.notify_all();
                    }
                };
                check(pthreads::run::<2, _>(pass), 1)?;
                check(mutexes.iter().all(|mutex| mutex.try_lock().is_some()), 2)?;
                let mut guard = items.lock();
                check(!changed.wait_for(&mut guard, Duration::from_millis(1)), 3)
            });
        }
    });
}

/// The thread that forks goes on with it in the child, and is told there that it is in the middle of it.
#[test]
fn a_child_ends_what_its_thread_began() {
    run_in_child(
        "a_child_ends_what_its_thread_began",
        |_| (),
        || {
            let lock = OnceLock::new();
            let value = *lock.get_or_init(|| {
                fork(|| {
                    std::panic::set_hook(Box::new(|_| ()));
                    let begun = catch_unwind(AssertUnwindSafe(|| *lock.get_or_init(|| 1)));
                    check(begun.is_err(), 1)
                });
                3
            });
            assert_eq!(value, 3);
        },
    );
}

/// The parent holds on to it, and lets go of it for the child too.
#[test]
fn a_shared_mutex_stays_locked() {
    // SAFETY: fresh memory; all bytes 0 are an unlocked mutex.
    let mutex: &Mutex<u64, Shared> = unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let at = libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        &*at.cast()
    };
    let guard = mutex.lock();
    fork(|| check(mutex.is_locked() && mutex.try_lock_for(Duration::from_millis(5)).is_none(), 1));
    drop(guard);
    fork(|| {
        *mutex.lock() += 1;
        Ok(())
    });
    assert_eq!(*mutex.lock(), 1);
}
