//! What is done once: by many threads, after panics and failures, from within itself, and in forked children
//! (`sync_fork_once.rs` has the ones that panic).

mod mapped;
mod storm;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

use corelocal::sync::{Deadline, LazyLock, Once, OnceLock};
use proptest::prelude::*;

fn quietly<R>(body: impl FnOnce() -> R) -> std::thread::Result<R> {
    catch_unwind(AssertUnwindSafe(body))
}

#[test]
fn what_they_occupy() {
    assert_eq!(size_of::<Once>(), 4);
    assert_eq!(size_of::<OnceLock<u32>>(), 8);
    assert_eq!(size_of::<LazyLock<u32>>(), 16);
    assert_eq!(size_of::<LazyLock<[u32; 6]>>(), 32);
}

#[test]
fn it_is_done_once_by_many() {
    for _ in 0..storm::scaled(300) {
        let (once, lock) = (Once::new(), OnceLock::new());
        let (runs, start) = (AtomicU32::new(0), Barrier::new(4));
        thread::scope(|scope| {
            for i in 0..4 {
                let (once, lock, runs, start) = (&once, &lock, &runs, &start);
                scope.spawn(move || {
                    start.wait();
                    once.call_once(|| {
                        thread::yield_now();
                        runs.fetch_add(1, Ordering::Relaxed);
                    });
                    assert_eq!(runs.load(Ordering::Relaxed), 1);
                    let value: &String = lock.get_or_init(|| {
                        thread::yield_now();
                        format!("made by {i}")
                    });
                    assert_eq!(Some(value), lock.get());
                });
            }
        });
        assert!(once.is_completed());
    }
}

#[test]
fn a_panic_leaves_it_to_the_next() {
    let once = Once::new();
    assert!(quietly(|| once.call_once(|| panic!("on purpose"))).is_err());
    assert!(!once.is_completed());
    let mut ran = false;
    once.call_once_force(|state| ran = state.was_cut_short());
    assert!(ran && once.is_completed());

    let lock = OnceLock::new();
    assert!(quietly(|| *lock.get_or_init(|| -> u32 { panic!("on purpose") })).is_err());
    assert_eq!(lock.get_or_try_init(|| Err("failed")), Err("failed"));
    assert_eq!(lock.get(), None);
    assert_eq!(lock.get_or_try_init(|| Ok::<u32, ()>(7)), Ok(&7));
}

/// The initialiser of a lazy value runs once, whatever becomes of it: its panic is reported to each later use.
#[test]
fn a_lazy_value_is_poisoned_by_a_panic() {
    let (tries, captured) = (AtomicU32::new(0), Arc::new(()));
    let is_captured = captured.clone();
    let lazy: LazyLock<u32, _> = LazyLock::new(|| {
        drop(is_captured);
        tries.fetch_add(1, Ordering::Relaxed);
        panic!("on purpose")
    });
    let first = quietly(|| *lazy).unwrap_err();
    assert_eq!(*first.downcast::<&str>().unwrap(), "on purpose");
    for _ in 0..2 {
        let later = *quietly(|| *lazy).unwrap_err().downcast::<&str>().unwrap();
        assert!(later.contains("poisoned"), "{later}");
    }
    let mut lazy = lazy;
    assert!(LazyLock::get(&lazy).is_none() && LazyLock::get_mut(&mut lazy).is_none());
    assert!(quietly(|| *LazyLock::force_mut(&mut lazy)).is_err());
    assert_eq!(format!("{lazy:?}"), "LazyLock(<not made>)");
    drop(lazy);
    assert_eq!((tries.into_inner(), Arc::strong_count(&captured)), (1, 1));
}

/// A panic is reported to threads that wait for the lazy value, too.
#[test]
fn waiters_for_a_lazy_value_learn_of_the_panic() {
    let (begun, begins) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let lazy: LazyLock<u32, _> = LazyLock::new(move || {
        begun.send(()).unwrap();
        wait.recv().unwrap();
        panic!("on purpose")
    });
    thread::scope(|scope| {
        let make = scope.spawn(|| quietly(|| *lazy).is_err());
        begins.recv().unwrap();
        let waiter = scope.spawn(|| *quietly(|| *lazy).unwrap_err().downcast::<&str>().unwrap());
        thread::sleep(Duration::from_millis(5));
        go.send(()).unwrap();
        assert!(make.join().unwrap());
        assert!(waiter.join().unwrap().contains("poisoned"));
    });
}

/// What an initialiser captured is moved into it, and dropped once: by it, or with a lazy value that is never made.
#[test]
fn a_lazy_initialiser_is_consumed() {
    let captured = Arc::new(String::from("once"));
    let lazy = LazyLock::new({
        let captured = captured.clone();
        move || captured
    });
    assert!(Arc::ptr_eq(&lazy, &captured) && LazyLock::get(&lazy).is_some());
    assert_eq!(Arc::strong_count(&captured), 2);
    drop(lazy);
    assert_eq!(Arc::strong_count(&captured), 1);
    let unmade = LazyLock::new({
        let captured = captured.clone();
        move || captured
    });
    assert!(LazyLock::get(&unmade).is_none());
    drop(unmade);
    assert_eq!(Arc::strong_count(&captured), 1);
    // Made by one of many threads.
    for _ in 0..storm::scaled(100) {
        let (runs, start) = (AtomicU32::new(0), Barrier::new(4));
        let own = captured.clone();
        let lazy = LazyLock::new(|| {
            thread::yield_now();
            runs.fetch_add(1, Ordering::Relaxed);
            own
        });
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    assert_eq!(**lazy, "once");
                });
            }
        });
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }
    assert_eq!(Arc::strong_count(&captured), 1);
}

/// It would wait for itself.
#[test]
fn who_comes_back_is_told() {
    let once = Once::new();
    let inner = quietly(|| once.call_once(|| once.call_once(|| ())));
    let message = *inner.unwrap_err().downcast::<&str>().unwrap();
    assert!(message.contains("wait for itself"), "{message}");
    once.call_once(|| ());

    let lock: OnceLock<u32> = OnceLock::new();
    assert!(quietly(|| *lock.get_or_init(|| *lock.get_or_init(|| 1))).is_err());
    assert_eq!(*lock.get_or_init(|| 2), 2);

    // From another thread it is no recursion: that one waits.
    let once = Once::new();
    thread::scope(|scope| {
        once.call_once(|| {
            scope.spawn(|| once.call_once(|| unreachable!()));
            thread::sleep(Duration::from_millis(5));
        });
    });
}

#[test]
fn values_are_owned() {
    let counted = std::sync::Arc::new(());
    let mut lock = OnceLock::from(counted.clone());
    assert_eq!(lock.set(counted.clone()), Err(counted.clone()));
    assert_eq!(std::sync::Arc::strong_count(&counted), 2);
    assert!(lock.get_mut().is_some() && lock.clone() == lock);
    assert!(lock.take().is_some() && lock.get().is_none());
    assert_eq!(std::sync::Arc::strong_count(&counted), 1);
    assert_eq!(lock.set(counted.clone()), Ok(()));
    assert_eq!(format!("{lock:?}"), "OnceLock(())");
    drop(lock);
    assert_eq!(std::sync::Arc::strong_count(&counted), 1);
    assert_eq!(OnceLock::from(5).into_inner(), Some(5));
    assert_eq!(format!("{:?}", OnceLock::<u32>::new()), "OnceLock(<empty>)");
    let mut lazy = LazyLock::new(|| 1);
    assert_eq!(LazyLock::get_mut(&mut lazy), None);
    *LazyLock::force_mut(&mut lazy) += 1;
    assert_eq!(*lazy, 2);
}

const LONG: Duration = Duration::from_secs(60);

/// Whatever of beginning and waiting comes first; runs that are cut short end no wait.
#[test]
fn waiters_go_on_when_it_is_done() {
    for round in 0..storm::scaled(200) {
        let (once, lock, sum) = (Once::new(), OnceLock::new(), AtomicU32::new(0));
        thread::scope(|scope| {
            for i in 0..4 {
                let (once, lock, sum) = (&once, &lock, &sum);
                scope.spawn(move || {
                    let value: &u32 = match i {
                        0 => lock.wait(),
                        1 => lock.wait_for(LONG).unwrap(),
                        2 => lock.wait_until(Deadline::after(LONG)).unwrap(),
                        _ => lock
                            .get_or_try_init(|| Err(()))
                            .or_else(|()| Ok::<_, ()>(lock.wait()))
                            .unwrap(),
                    };
                    match i {
                        0 => once.wait(),
                        1 => assert!(!once.wait_for(LONG).timed_out()),
                        _ => assert!(!once.wait_until(Deadline::after(LONG)).timed_out()),
                    }
                    // Relaxed: it happened before.
                    sum.fetch_add(value + once.is_completed() as u32, Ordering::Relaxed);
                });
            }
            if round % 2 == 0 {
                thread::yield_now();
            }
            for _ in 0..2 {
                assert_eq!(lock.get_or_try_init(|| Err(round)), Err(round));
                let cut_short = || std::panic::resume_unwind(Box::new(()));
                assert!(quietly(|| once.call_once(cut_short)).is_err());
            }
            assert_eq!(lock.set(10), Ok(()));
            let mut was_cut_short = false;
            once.call_once_force(|state| was_cut_short = state.was_cut_short());
            assert!(was_cut_short);
        });
        assert_eq!(sum.into_inner(), 44);
    }
}

#[test]
fn to_wait_ends_at_the_deadline() {
    let (once, lock) = (Once::new(), OnceLock::<u32>::new());
    let short = Duration::from_millis(2);
    assert!(once.wait_for(short).timed_out() && once.wait_until(Deadline::now()).timed_out());
    assert!(lock.wait_for(short).is_none() && lock.wait_until(Deadline::now()).is_none());
    // While another thread runs, too.
    let (begun, begins) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(|| {
            lock.get_or_init(|| {
                begun.send(()).unwrap();
                wait.into_iter().count() as u32
            });
        });
        begins.recv().unwrap();
        assert!(lock.wait_for(short).is_none());
        drop(go);
        assert_eq!(lock.wait(), &0);
    });
    // No run has begun, although threads waited.
    let mut was_cut_short = true;
    once.call_once_force(|state| was_cut_short = state.was_cut_short());
    assert!(!was_cut_short);
    once.wait();
    assert!(
        !once.wait_for(Duration::ZERO).timed_out() && lock.wait_for(Duration::ZERO) == Some(&0)
    );
    // By the one that it waits for.
    let once = Once::new();
    let message =
        *quietly(|| once.call_once(|| once.wait())).unwrap_err().downcast::<&str>().unwrap();
    assert!(message.contains("wait for itself"), "{message}");
}

/// Another thread of the parent is in the middle of it, and a third one waits: the child does it itself.
#[test]
fn a_child_does_what_nobody_there_will_end() {
    let (once, lock) = (Once::new(), OnceLock::new());
    let lazy = LazyLock::new(|| 5);
    let (begun, begins) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let (once, lock) = (&once, &lock);
        scope.spawn(move || {
            once.call_once(|| {
                lock.get_or_init(|| {
                    begun.send(()).unwrap();
                    wait.recv().unwrap_err();
                    1
                });
            });
        });
        begins.recv().unwrap();
        scope.spawn(|| once.call_once(|| unreachable!()));
        thread::sleep(Duration::from_millis(5));
        let child = mapped::child(|| {
            let mut was_cut_short = false;
            once.call_once_force(|state| was_cut_short = state.was_cut_short());
            let value = *lock.get_or_init(|| 2);
            let grandchild = mapped::child(|| once.is_completed() && lock.get() == Some(&2));
            mapped::succeeds(grandchild);
            was_cut_short && value == 2 && *lazy == 5
        });
        mapped::succeeds(child);
        drop(go);
    });
    assert_eq!(lock.get(), Some(&1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: storm::scaled(200) as u32, ..Default::default() })]

    /// Attempts that fail or not, here and with std: the same outcomes.
    #[test]
    fn the_same_steps_as_std(steps in prop::collection::vec((0..4u8, any::<u8>()), 1..20)) {
        let (mut ours, mut theirs) = (OnceLock::new(), std::sync::OnceLock::new());
        for (step, value) in steps {
            match step {
                0 => prop_assert_eq!(ours.set(value), theirs.set(value)),
                1 => prop_assert_eq!(ours.get_or_init(|| value), theirs.get_or_init(|| value)),
                2 => {
                    let their = quietly(|| *theirs.get_or_init(|| std::panic::resume_unwind(Box::new(()))));
                    let our = quietly(|| *ours.get_or_init(|| std::panic::resume_unwind(Box::new(()))));
                    prop_assert_eq!(our.ok(), their.ok());
                }
                _ => prop_assert_eq!(ours.take(), theirs.take()),
            }
            prop_assert_eq!(ours.get(), theirs.get());
        }
    }
}
