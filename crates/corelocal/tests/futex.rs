//! Every futex operation between threads, also without private futexes.
//!
//! No test relies on a sleep: a waker repeats until the kernel reports that it found a waiter.

mod sandbox;

use corelocal::sys::Errno;
use corelocal::sys::futex::{self, Deadline, Requeue, Scope, Wake, futex2, vector};
use sandbox::{When, run_refusing, skip};
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vector::{Waiter, WakeAny};

const SCOPES: [Scope; 2] = [Scope::Private, Scope::Shared];
const SHORT: Duration = Duration::from_millis(20);

/// Repeats `attempt`, which says how many waiters it reached, until it has reached `count` in all.
fn reach(count: usize, mut attempt: impl FnMut() -> usize) {
    let mut reached = 0;
    while reached < count {
        reached += attempt();
        thread::yield_now();
    }
    assert_eq!(reached, count);
}

/// Moves `count` waiters and wakes them where they are then, and nowhere else. One may come back in between, and is
/// moved again (`futex::requeue`).
fn reach_moved(count: usize, mut moves: impl FnMut() -> usize, mut wakes: impl FnMut() -> usize) {
    let mut moved = 0;
    reach(count, || {
        moved += moves();
        wakes()
    });
    assert!(moved >= count, "{moved} were moved");
}

fn moved(result: Result<Requeue, Errno>) -> usize {
    match result.unwrap() {
        Requeue::Moved(waiters) => waiters,
        Requeue::Differed => panic!("the word has not changed"),
    }
}

fn wake_reaches_waiters(scope: Scope) {
    let word = AtomicU32::new(7);
    thread::scope(|threads| {
        let waiters = [(); 3].map(|()| threads.spawn(|| futex::wait(&word, 7, None, scope)));
        reach(1, || futex::wake(&word, 1, scope).unwrap());
        reach(2, || futex::wake_all(&word, scope).unwrap());
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Ok(Wake::Woken));
        }
    });
}

#[test]
fn wake_reaches_exactly_the_waiters() {
    SCOPES.into_iter().for_each(wake_reaches_waiters);
}

#[test]
fn waiting_for_another_value_does_not_begin() {
    let word = AtomicU32::new(u32::MAX);
    for scope in SCOPES {
        assert_eq!(futex::wait(&word, 7, None, scope), Ok(Wake::Differed));
        assert_eq!(futex::requeue(&word, 7, 1, 1, &word, scope), Ok(Requeue::Differed));
        assert_eq!(futex::wake(&word, 1, scope), Ok(0));
        assert_eq!(futex::wake(&word, 0, scope), Ok(0));
    }
}

#[test]
fn deadlines() {
    let word = AtomicU32::new(0);
    for scope in SCOPES {
        let begin = Instant::now();
        let wait = |deadline| futex::wait(&word, 0, Some(deadline), scope);
        assert_eq!(wait(Deadline::after(SHORT)), Ok(Wake::TimedOut));
        assert!(begin.elapsed() >= SHORT);
        assert_eq!(wait(Deadline::now()), Ok(Wake::TimedOut));
    }
}

#[test]
fn a_signal_interrupts() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler does nothing; the mask is empty and flags ask for no restart.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
    static WORD: AtomicU32 = AtomicU32::new(0);
    let waiter = thread::spawn(|| futex::wait(&WORD, 0, None, Scope::Private));
    while !waiter.is_finished() {
        // SAFETY: the thread has not been joined.
        unsafe { libc::pthread_kill(waiter.as_pthread_t() as libc::pthread_t, libc::SIGUSR1) };
        // One signal after the other would let it do nothing else.
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(waiter.join().unwrap(), Ok(Wake::Interrupted));
}

#[test]
fn requeued_waiters_wait_elsewhere() {
    for scope in SCOPES {
        let (from, to) = (AtomicU32::new(1), AtomicU32::new(2));
        thread::scope(|threads| {
            let waiters = [(); 3].map(|()| threads.spawn(|| futex::wait(&from, 1, None, scope)));
            reach_moved(
                3,
                || moved(futex::requeue(&from, 1, 0, 3, &to, scope)),
                || futex::wake_all(&to, scope).unwrap(),
            );
            assert_eq!(futex::wake_all(&from, scope), Ok(0));
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), Ok(Wake::Woken));
            }
        });
    }
}

/// Why a scope must not change its meaning while threads wait.
#[test]
fn private_and_shared_never_meet() {
    if !futex::features().private {
        return skip("private_and_shared_never_meet", "this kernel has no private futexes");
    }
    let (from, to) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|threads| {
        let waiter = threads.spawn(|| futex::wait(&from, 0, None, Scope::Private));
        reach_moved(
            1,
            || moved(futex::requeue(&from, 0, 0, 1, &to, Scope::Private)),
            || {
                // Where it was just moved to.
                assert_eq!(futex::wake(&to, 1, Scope::Shared), Ok(0));
                futex::wake(&to, 1, Scope::Private).unwrap()
            },
        );
        assert_eq!(waiter.join().unwrap(), Ok(Wake::Woken));
    });
}

#[test]
fn wait_any_names_the_word() {
    if !futex::features().waitv {
        return skip("wait_any_names_the_word", "futex_waitv needs Linux 5.16");
    }
    let words: Vec<AtomicU32> = (0..129).map(AtomicU32::new).collect();
    let waiters = |scope: Scope, count: usize| -> Vec<Waiter<'_>> {
        let expecting = |(word, value)| Waiter::new(word, value, scope);
        words.iter().zip(0..).take(count).map(expecting).collect()
    };
    for scope in SCOPES {
        thread::scope(|threads| {
            let all = waiters(scope, vector::MAX_WAITERS);
            let waiter = threads.spawn(move || vector::wait_any(&all, None));
            reach(1, || futex::wake(&words[99], 1, scope).unwrap());
            assert_eq!(waiter.join().unwrap(), Ok(WakeAny::Woken(99)));
        });
        let mut differing = waiters(scope, 3);
        let soon = Some(Deadline::after(SHORT));
        assert_eq!(vector::wait_any(&differing, soon), Ok(WakeAny::TimedOut));
        differing[1] = Waiter::new(&words[1], 9, scope);
        assert_eq!(vector::wait_any(&differing, None), Ok(WakeAny::Differed));
        assert_eq!(vector::wait_any(&waiters(scope, 129), None), Err(Errno::EINVAL));
        assert_eq!(vector::wait_any(&[], None), Err(Errno::EINVAL));
    }
}

#[test]
fn futex2_meets_futex() {
    if !futex::features().futex2 {
        return skip("futex2_meets_futex", "futex_wait and its kin need Linux 6.7");
    }
    for scope in SCOPES {
        let (word, target) = (AtomicU32::new(0), AtomicU32::new(0));
        let soon = Some(Deadline::after(SHORT));
        assert_eq!(futex2::wait(&word, 1, None, scope), Ok(Wake::Differed));
        assert_eq!(futex2::wait(&word, 0, soon, scope), Ok(Wake::TimedOut));
        thread::scope(|threads| {
            let new = threads.spawn(|| futex2::wait(&word, 0, None, scope));
            reach(1, || futex::wake(&word, 1, scope).unwrap());
            assert_eq!(new.join().unwrap(), Ok(Wake::Woken));

            let old = threads.spawn(|| futex::wait(&word, 0, None, scope));
            assert_eq!(futex2::requeue(&word, 1, 0, 1, &target, scope), Ok(Requeue::Differed));
            reach_moved(
                1,
                || moved(futex2::requeue(&word, 0, 0, 1, &target, scope)),
                || futex2::wake(&target, 1, scope).unwrap(),
            );
            assert_eq!(futex2::wake(&word, 1, scope), Ok(0));
            assert_eq!(old.join().unwrap(), Ok(Wake::Woken));
        });
    }
}

/// A kernel or sandbox that does not know the private flag: private operations are carried out
/// shared, for waiters and wakers alike.
///
/// One waiter at a time: glibc ends a process in which one of its own locks, private all of them,
/// has to be waited for.
#[test]
fn without_the_private_flag() {
    let bit = When::Bits(libc::FUTEX_PRIVATE_FLAG as u32);
    run_refusing("without_the_private_flag", libc::SYS_futex, bit, libc::ENOSYS, || {
        assert!(!futex::features().private);
        for waiting in SCOPES {
            for waking in SCOPES {
                let word = AtomicU32::new(0);
                thread::scope(|threads| {
                    let waiter = threads.spawn(|| futex::wait(&word, 0, None, waiting));
                    reach(1, || futex::wake(&word, 1, waking).unwrap());
                    assert_eq!(waiter.join().unwrap(), Ok(Wake::Woken));
                });
            }
        }
    });
}

/// A sandbox that refuses futexes outright is an error, not a hang and not a fallback.
#[test]
fn without_futexes() {
    run_refusing("without_futexes", libc::SYS_futex, When::Always, libc::EPERM, || {
        let word = AtomicU32::new(0);
        for scope in SCOPES {
            assert_eq!(futex::wait(&word, 0, None, scope), Err(Errno::EPERM));
            assert_eq!(futex::wake(&word, 1, scope), Err(Errno::EPERM));
        }
        word.store(1, Ordering::Relaxed);
    });
}
