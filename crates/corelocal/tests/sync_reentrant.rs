//! The reentrant mutex: counted by its owner, exclusive for all others (`sync_fork.rs` has the children).

mod storm;

use std::cell::{Cell, RefCell};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use corelocal::sync::{Deadline, ReentrantMutex};

const SHORT: Duration = Duration::from_millis(2);

/// Whether another thread finds it locked, in whatever way it asks.
fn is_refused_elsewhere<T: Send>(mutex: &ReentrantMutex<T>) -> bool {
    thread::scope(|scope| {
        let ask = || {
            assert!(!mutex.is_owned_by_current_thread());
            // Each guard is dropped before the next question.
            let at_once = mutex.try_lock().is_none();
            let in_time = mutex.try_lock_for(SHORT).is_none();
            let until_then = mutex.try_lock_until(Deadline::after(SHORT)).is_none();
            assert!(at_once == in_time && in_time == until_then);
            at_once
        };
        scope.spawn(ask).join().unwrap()
    })
}

#[test]
fn it_is_unlocked_when_the_last_guard_goes() {
    let mutex = ReentrantMutex::new(RefCell::new(vec![1]));
    assert!(!mutex.is_locked() && !mutex.is_owned_by_current_thread());
    let first = mutex.lock();
    let second = mutex.try_lock().expect("its own");
    let third = mutex.try_lock_for(Duration::ZERO).expect("its own");
    let fourth = mutex.try_lock_until(Deadline::now()).expect("its own");
    let fifth = mutex.lock_checked().expect("its own");
    second.borrow_mut().push(2);
    assert_eq!(*fifth.borrow(), [1, 2]);
    // In no order.
    for guard in [third, first, fifth, second] {
        assert!(is_refused_elsewhere(&mutex) && mutex.is_owned_by_current_thread());
        drop(guard);
    }
    assert!(is_refused_elsewhere(&mutex) && mutex.is_locked());
    drop(fourth);
    assert!(!mutex.is_locked() && !mutex.is_owned_by_current_thread());
    assert!(!is_refused_elsewhere(&mutex));
    // And again.
    drop((mutex.lock(), mutex.lock()));
    assert!(!is_refused_elsewhere(&mutex));
    assert_eq!(mutex.into_inner().into_inner(), [1, 2]);
}

#[test]
fn threads_exclude_each_other() {
    let rounds = storm::scaled(20_000);
    let (mutex, start) = (ReentrantMutex::new([Cell::new(0u64), Cell::new(0)]), Barrier::new(4));
    fn add(mutex: &ReentrantMutex<[Cell<u64>; 2]>, depth: u64) {
        let pair = mutex.lock();
        assert_eq!(pair[0].get(), pair[1].get());
        if depth > 0 {
            add(mutex, depth - 1);
        }
        pair[0].set(pair[0].get() + 1);
        std::hint::black_box(&pair);
        pair[1].set(pair[1].get() + 1);
    }
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                start.wait();
                for round in 0..rounds {
                    add(&mutex, round % 3);
                }
            });
        }
    });
    let sum: u64 = (0..rounds).map(|round| round % 3 + 1).sum();
    assert_eq!(mutex.lock()[1].get(), 4 * sum);
}

/// A waiter gets it only after the last guard of the owner.
#[test]
fn a_waiter_gets_it_once_it_is_unlocked() {
    let (mutex, start) = (ReentrantMutex::new(Cell::new(0)), Barrier::new(2));
    thread::scope(|scope| {
        let first = mutex.lock();
        scope.spawn(|| {
            start.wait();
            let again = (mutex.lock(), mutex.lock());
            assert_eq!(again.0.replace(2), 1);
        });
        start.wait();
        let second = mutex.lock();
        drop(first);
        thread::sleep(SHORT);
        second.set(1);
        drop(second);
    });
    assert_eq!(mutex.lock().get(), 2);
}

#[test]
fn as_values_do() {
    let mut mutex = ReentrantMutex::from(1);
    *mutex.get_mut() += 1;
    assert_eq!(format!("{mutex:?}"), "ReentrantMutex { value: 2 }");
    let guard = mutex.lock();
    assert_eq!(format!("{guard} {guard:?} {mutex:?}"), "2 2 ReentrantMutex { value: 2 }");
    thread::scope(|scope| {
        let print = || assert_eq!(format!("{mutex:?}"), "ReentrantMutex { value: <locked> }");
        scope.spawn(print).join().unwrap();
    });
    drop(guard);
    assert_eq!(size_of::<ReentrantMutex<u64>>(), 32);
    assert_eq!(*ReentrantMutex::<u8>::default().lock(), 0);
    let unsized_one: &ReentrantMutex<[u8]> = &ReentrantMutex::new([1, 2]);
    assert_eq!(*unsized_one.lock(), [1, 2]);
    static STATIC: ReentrantMutex<Cell<u8>> = ReentrantMutex::new(Cell::new(1));
    STATIC.lock().set(STATIC.lock().get() + 1);
    assert_eq!(STATIC.lock().get(), 2);
}

/// A panic unlocks as often as it drops guards.
#[test]
fn a_panic_unlocks() {
    let mutex = ReentrantMutex::new(());
    let guard = mutex.lock();
    let panics = || {
        let _held = (mutex.lock(), mutex.lock());
        std::panic::resume_unwind(Box::new(()));
    };
    assert!(std::panic::catch_unwind(panics).is_err());
    assert!(is_refused_elsewhere(&mutex));
    drop(guard);
    assert!(!is_refused_elsewhere(&mutex));
}
