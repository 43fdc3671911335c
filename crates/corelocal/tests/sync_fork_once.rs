//! Children that are forked in the middle of what is done once: it goes on, begins anew, or is reported.
//!
//! Tests whose children start threads or panic run in a process of their own, and fork while no thread of theirs
//! begins or ends: a lock of libc's or std's that the harness has just then would stay locked in the child.

mod child_checks;
mod forked;
mod pthreads;
mod sandbox;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use child_checks::{FOR_EVER, check, fork, panic_of};
use corelocal::sync::{Deadline, LazyLock, Once, OnceLock};
use sandbox::run_in_child;

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

/// What a gone thread was doing never ends: to wait for it panics in the child, until it was done anew.
#[test]
fn a_wait_for_what_a_gone_thread_was_doing_is_refused() {
    let test = "a_wait_for_what_a_gone_thread_was_doing_is_refused";
    run_in_child(test, |_| (), waits_in_children);
}

fn waits_in_children() {
    let ((tell, told), (go, wait)) = (channel(), channel::<()>());
    let (once, lock) = (Once::new(), OnceLock::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            once.call_once(|| {
                lock.get_or_init(move || {
                    tell.send(()).unwrap();
                    wait.into_iter().count()
                });
            });
        });
        told.recv().unwrap();
        let is_refused = || {
            std::panic::set_hook(Box::new(|_| ()));
            check(once.wait_for(FOR_EVER).timed_out() && lock.wait_for(FOR_EVER).is_none(), 1)?;
            check(once.wait_until(Deadline::after(FOR_EVER)).timed_out(), 2)?;
            check(lock.wait_until(Deadline::after(FOR_EVER)).is_none(), 3)?;
            let is_told =
                |says: Option<String>| says.is_some_and(|says| says.contains("left behind"));
            check(is_told(panic_of(|| once.wait())), 4)?;
            check(is_told(panic_of(|| *lock.wait())), 5)
        };
        fork(|| {
            is_refused()?;
            let right = AtomicU32::new(0);
            let ask = || _ = right.fetch_add(u32::from(is_refused().is_ok()), Ordering::Relaxed);
            check(pthreads::run::<2, _>(ask) && right.load(Ordering::Relaxed) == 2, 6)?;
            // Done anew, by a thread of the child, it is there for all that wait.
            let number = AtomicU32::new(0);
            let either = || match number.fetch_add(1, Ordering::Relaxed) {
                0 => once.call_once(|| assert_eq!(*lock.get_or_init(|| 7), 7)),
                _ => while once.wait_for(FOR_EVER).timed_out() {},
            };
            check(pthreads::run::<3, _>(either), 7)?;
            once.wait();
            check(*lock.wait() == 7, 8)
        });
        drop(go);
        once.wait();
        assert_eq!(*lock.wait(), 0);
    });
}

/// The initialiser of a lazy value may be used up where it was begun: it is reported in a child, and does not run there.
#[test]
fn a_lazy_value_that_a_gone_thread_was_making_is_reported() {
    let test = "a_lazy_value_that_a_gone_thread_was_making_is_reported";
    run_in_child(test, |_| (), lazy_values_in_children);
}

fn lazy_values_in_children() {
    let runs = AtomicU32::new(0);
    let ((tell, told), (go, wait)) = (channel(), channel::<()>());
    let counted = &runs;
    let begun = LazyLock::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        tell.send(()).unwrap();
        let _ = wait.recv();
        1
    });
    let not_begun = LazyLock::new(|| runs.fetch_add(1, Ordering::Relaxed));
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(*begun, 1));
        told.recv().unwrap();
        let is_reported = || {
            std::panic::set_hook(Box::new(|_| ()));
            // Each time.
            for number in 1..3 {
                let says = panic_of(|| *begun);
                check(says.is_some_and(|says| says.contains("before the fork")), number)?;
            }
            check(LazyLock::get(&begun).is_none() && runs.load(Ordering::Relaxed) == 1, 3)
        };
        fork(|| {
            is_reported()?;
            let wrong = AtomicBool::new(false);
            let ask = || wrong.store(is_reported().is_err(), Ordering::Relaxed);
            check(pthreads::run::<1, _>(ask) && !wrong.load(Ordering::Relaxed), 4)?;
            fork(is_reported);
            // What no thread had begun is made here.
            check(*not_begun == 1 && runs.load(Ordering::Relaxed) == 2, 5)
        });
        drop(go);
    });
    assert_eq!((*not_begun, runs.load(Ordering::Relaxed)), (1, 2));
    // The forking thread goes on with its own.
    let own = LazyLock::new(|| {
        // SAFETY: the child ends below.
        unsafe { libc::fork() }
    });
    if *own == 0 {
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(LazyLock::get(&own) != Some(&0))) };
    }
    let mut status = -1;
    // SAFETY: the child is ours, `status` writable.
    assert_eq!(unsafe { libc::waitpid(*own, &raw mut status, 0) }, *own);
    assert_eq!(status, 0);
}

/// A thread of the child waits while the one that forked goes on with it.
#[test]
fn no_thread_of_a_child_begins_what_goes_on() {
    run_in_child(
        "no_thread_of_a_child_begins_what_goes_on",
        |_| (),
        || {
            let (lock, runs) = (OnceLock::new(), AtomicU32::new(0));
            let mut is_child = false;
            lock.get_or_init(|| {
                // SAFETY: the child starts threads of libc's, and ends below.
                let child = unsafe { libc::fork() };
                is_child = child == 0;
                if !is_child {
                    let mut status = -1;
                    // SAFETY: the child is ours, `status` writable.
                    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                    assert_eq!(status, 0);
                    return 3;
                }
                let begin = || runs.fetch_add(1, Ordering::Relaxed);
                extern "C" fn ask(at: *mut libc::c_void) -> *mut libc::c_void {
                    // SAFETY: what is passed below, and stays until the process ends.
                    let (lock, runs) = unsafe { &*at.cast::<(&OnceLock<i32>, &AtomicU32)>() };
                    lock.get_or_init(|| runs.fetch_add(1, Ordering::Relaxed) as i32);
                    std::ptr::null_mut()
                }
                let at = Box::into_raw(Box::new((&lock, &runs)));
                // SAFETY: `at` is leaked, so the thread that `ask` runs in may use it until the process ends.
                unsafe {
                    let mut thread = std::mem::zeroed();
                    libc::alarm(10);
                    libc::pthread_create(&mut thread, std::ptr::null(), ask, at.cast());
                    libc::usleep(20_000);
                }
                let begun_elsewhere = runs.load(Ordering::Relaxed) > 0;
                begin();
                if begun_elsewhere { 4 } else { 5 }
            });
            if is_child {
                let is_right = *lock.get().unwrap() == 5 && runs.load(Ordering::Relaxed) == 1;
                // SAFETY: ends the child.
                unsafe { libc::_exit(i32::from(!is_right)) };
            }
        },
    );
}
