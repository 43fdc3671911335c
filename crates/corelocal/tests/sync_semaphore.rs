//! Semaphores: permits as values, counts under storms, and what a forked child has of them.

mod child_checks;
mod forked;
mod sandbox;
mod storm;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use child_checks::{check, fork};
use corelocal::sync::{Deadline, Semaphore, Shared};
use sandbox::run_in_child;
use storm::scaled;

const SHORT: Duration = Duration::from_millis(2);

#[test]
fn a_permit_is_released_when_it_is_dropped() {
    let semaphore = Semaphore::new(2);
    let first = semaphore.acquire();
    let second = semaphore.try_acquire_for(SHORT).expect("one is left");
    assert!(semaphore.try_acquire().is_none());
    assert!(semaphore.try_acquire_until(Deadline::now()).is_none());
    // By another thread, and by a panic.
    thread::scope(|scope| {
        scope.spawn(move || drop(first));
    });
    assert_eq!(semaphore.available(), 1);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _second = second;
        panic!("for the test");
    }));
    assert!(panicked.is_err());
    assert_eq!(semaphore.available(), 2);
    semaphore.acquire().forget();
    assert_eq!(semaphore.available(), 1);
}

#[cfg(feature = "std")]
#[test]
fn a_permit_may_own_a_share_of_its_semaphore() {
    let semaphore = std::sync::Arc::new(Semaphore::new(2));
    let first = semaphore.acquire_arc();
    let second = semaphore.try_acquire_arc().expect("one is left");
    assert!(semaphore.try_acquire_arc_for(SHORT).is_none());
    assert!(semaphore.try_acquire_arc_until(Deadline::now()).is_none());
    thread::spawn(move || drop(first)).join().unwrap();
    assert_eq!(semaphore.available(), 1);
    second.forget();
    assert_eq!((semaphore.available(), std::sync::Arc::strong_count(&semaphore)), (1, 1));
}

/// Never more holders than permits, and all permits are back at the end.
#[test]
fn a_storm_of_permits() {
    const PERMITS: u32 = 2;
    let (semaphore, inside) = (Semaphore::new(PERMITS), AtomicU32::new(0));
    thread::scope(|scope| {
        for thread in 0..6 {
            let (semaphore, inside) = (&semaphore, &inside);
            scope.spawn(move || {
                for round in 0..scaled(3000) {
                    let permit = match (thread + round) % 3 {
                        0 => Some(semaphore.acquire()),
                        1 => semaphore.try_acquire(),
                        _ => semaphore.try_acquire_for(Duration::from_micros(50)),
                    };
                    if permit.is_some() {
                        assert!(inside.fetch_add(1, Ordering::Relaxed) < PERMITS);
                        thread::yield_now();
                        inside.fetch_sub(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(semaphore.available(), PERMITS);
}

/// The copy of a permit releases one of the child's own semaphore, and none of the one that it shares with the parent.
#[test]
fn permits_in_a_child() {
    run_in_child(
        "permits_in_a_child",
        |_| (),
        || {
            let own = Semaphore::new(2);
            let permit = own.acquire();
            let shared = Semaphore::<Shared>::with_scope(2);
            let of_parent = shared.acquire();
            fork(|| {
                drop(permit);
                drop(of_parent);
                check(own.available() == 2, 1)?;
                check(shared.available() == 1, 2)
            });
        },
    );
}

/// A waiter of the parent that was about to have its turn is not there in the child, whose threads go on.
#[test]
fn a_child_does_not_wait_for_waiters_of_its_parent() {
    run_in_child(
        "a_child_does_not_wait_for_waiters_of_its_parent",
        |_| (),
        || {
            let (semaphore, done) = (Semaphore::new(1), std::sync::atomic::AtomicBool::new(false));
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        while !done.load(Ordering::Relaxed) {
                            let _permit = semaphore.acquire();
                            thread::sleep(Duration::from_millis(3));
                        }
                    });
                }
                for _ in 0..20 {
                    thread::sleep(Duration::from_millis(4));
                    fork(|| {
                        semaphore.release();
                        (0..3).for_each(|_| drop(semaphore.acquire()));
                        check(semaphore.available() > 0, 1)
                    });
                }
                done.store(true, Ordering::Relaxed);
            });
        },
    );
}
