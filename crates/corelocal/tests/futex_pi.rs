//! Priority-inheritance locks between threads, on both clocks.

mod sandbox;

use corelocal::sys::Errno;
use corelocal::sys::futex::{self, Deadline, Requeue, Scope, Wake, pi};
use sandbox::{When, run_refusing};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const SCOPES: [Scope; 2] = [Scope::Private, Scope::Shared];

fn thread_id() -> u32 {
    // SAFETY: gettid takes no arguments.
    unsafe { libc::gettid() as u32 }
}

fn owner(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed) & libc::FUTEX_TID_MASK
}

fn wait_for_a_waiter(word: &AtomicU32) {
    while word.load(Ordering::Relaxed) & libc::FUTEX_WAITERS == 0 {
        thread::yield_now();
    }
}

#[test]
fn unlocking_hands_over() {
    for scope in SCOPES {
        let word = AtomicU32::new(0);
        assert_eq!(pi::lock(&word, None, scope), Ok(pi::Lock::Acquired));
        assert_eq!(owner(&word), thread_id());
        thread::scope(|threads| {
            let waiter = threads.spawn(|| {
                assert_eq!(pi::lock(&word, None, scope), Ok(pi::Lock::Acquired));
                assert_eq!(owner(&word), thread_id());
                assert_eq!(pi::unlock(&word, scope), Ok(()));
            });
            wait_for_a_waiter(&word);
            assert_eq!(pi::unlock(&word, scope), Ok(()));
            waiter.join().unwrap();
        });
        assert_eq!(word.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn misuse_is_told_apart() {
    for scope in SCOPES {
        let word = AtomicU32::new(0);
        assert_eq!(pi::try_lock(&word, scope), Ok(true));
        assert_eq!(pi::lock(&word, None, scope), Err(Errno::EDEADLK));
        thread::scope(|threads| {
            let other = threads.spawn(|| (pi::try_lock(&word, scope), pi::unlock(&word, scope)));
            assert_eq!(other.join().unwrap(), (Ok(false), Err(Errno::EPERM)));
        });
        assert_eq!(pi::unlock(&word, scope), Ok(()));
        // Beyond the largest thread id Linux gives (2^22).
        word.store((1 << 22) + 1, Ordering::Relaxed);
        assert_eq!(pi::lock(&word, None, scope), Err(Errno::ESRCH));
    }
}

fn a_lock_times_out() {
    let short = Duration::from_millis(20);
    for scope in SCOPES {
        let word = AtomicU32::new(0);
        assert_eq!(pi::lock(&word, None, scope), Ok(pi::Lock::Acquired));
        thread::scope(|threads| {
            let lock = |deadline| pi::lock(&word, Some(deadline), scope);
            let waiter = threads.spawn(move || {
                let begin = Instant::now();
                let outcomes = [lock(Deadline::after(short)), lock(Deadline::now())];
                (outcomes, begin.elapsed())
            });
            let (outcomes, elapsed) = waiter.join().unwrap();
            assert_eq!(outcomes, [Ok(pi::Lock::TimedOut); 2]);
            // Not at once, as with the wrong clock; nor in years.
            assert!(elapsed > short / 2 && elapsed < Duration::from_secs(30), "{elapsed:?}");
        });
        assert_eq!(pi::unlock(&word, scope), Ok(()));
    }
}

#[test]
fn deadlines_are_monotonic() {
    a_lock_times_out();
}

#[test]
fn deadlines_without_lock_pi2() {
    let lock_pi2 = When::Operation(libc::FUTEX_LOCK_PI2 as u32);
    run_refusing("deadlines_without_lock_pi2", libc::SYS_futex, lock_pi2, libc::ENOSYS, || {
        assert!(!futex::features().lock_pi2);
        a_lock_times_out();
    });
}

#[test]
fn a_requeued_waiter_wakes_as_the_owner() {
    for scope in SCOPES {
        let (condition, lock) = (AtomicU32::new(0), AtomicU32::new(0));
        let wait =
            |expected, deadline| pi::wait_requeue(&condition, expected, &lock, deadline, scope);
        assert_eq!(wait(1, None), Ok(Wake::Differed));
        let soon = Some(Deadline::after(Duration::from_millis(20)));
        assert_eq!(wait(0, soon), Ok(Wake::TimedOut));
        assert_eq!(pi::requeue(&condition, 1, 1, &lock, scope), Ok(Requeue::Differed));

        assert_eq!(pi::lock(&lock, None, scope), Ok(pi::Lock::Acquired));
        thread::scope(|threads| {
            let waiters = [(); 2].map(|()| {
                threads.spawn(|| {
                    // The kernel may wake one by mistake, which then has to begin anew.
                    let ended = loop {
                        match wait(0, None) {
                            Ok(Wake::Differed) => {}
                            ended => break ended,
                        }
                    };
                    assert_eq!(ended, Ok(Wake::Woken));
                    assert_eq!(owner(&lock), thread_id());
                    assert_eq!(pi::unlock(&lock, scope), Ok(()));
                })
            });
            let mut reached = 0;
            while reached < waiters.len() {
                match pi::requeue(&condition, 0, u32::MAX, &lock, scope).unwrap() {
                    Requeue::Moved(waiters) => reached += waiters,
                    Requeue::Differed => panic!("the word has not changed"),
                }
                thread::yield_now();
            }
            assert_eq!(owner(&lock), thread_id());
            assert_eq!(pi::unlock(&lock, scope), Ok(()));
            for waiter in waiters {
                waiter.join().unwrap();
            }
        });
        assert_eq!(lock.load(Ordering::Relaxed), 0);
    }
}
