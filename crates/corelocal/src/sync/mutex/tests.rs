use std::format;
use std::string::String;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;
use std::vec::Vec;

use super::word::{STARVED, WAITER, WAITERS};
use super::*;
use crate::sync::Shared;

#[test]
fn eight_bytes_and_the_value() {
    assert_eq!(size_of::<Mutex<()>>(), 8);
    assert_eq!(size_of::<Mutex<u32>>(), 12);
    assert_eq!(size_of::<Mutex<u64, Shared>>(), 16);
    // SAFETY: all bytes 0 is an unlocked mutex.
    let zeroed: Mutex<u64, Shared> = unsafe { core::mem::zeroed() };
    assert_eq!(*zeroed.try_lock().expect("unlocked"), 0);
}

#[test]
fn one_holder_at_a_time() {
    let mutex = Mutex::new(1);
    let mut held = mutex.lock();
    assert!(mutex.is_locked() && mutex.try_lock().is_none());
    thread::scope(|scope| {
        scope.spawn(|| assert!(mutex.try_lock().is_none()));
    });
    *held += 1;
    drop(held);
    assert!(!mutex.is_locked());
    assert_eq!(*mutex.lock(), 2);
}

#[test]
fn waits_end_in_time() {
    let mutex: Mutex<u32, Shared> = Mutex::with_scope(0);
    let held = mutex.lock();
    let begin = Instant::now();
    assert!(mutex.try_lock_for(Duration::from_millis(30)).is_none());
    assert!(begin.elapsed() >= Duration::from_millis(30));
    assert!(mutex.try_lock_until(Deadline::now()).is_none());
    drop(held);
    assert!(mutex.try_lock_for(Duration::ZERO).is_some());
    assert!(mutex.try_lock_until(Deadline::now()).is_some());
    // A waiter that gave up left nothing behind.
    assert!(mutex.lock.is_at_rest());
}

#[test]
fn a_waiter_gets_it() {
    let mutex = Mutex::new(0);
    for _ in 0..100 {
        let held = mutex.lock();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| *mutex.lock() += 1);
            thread::yield_now();
            drop(held);
            waiter.join().unwrap();
        });
    }
    assert!(mutex.lock.is_at_rest());
    assert_eq!(mutex.into_inner(), 100);
}

/// The value is taken from a thread that unlocks only for an instant.
#[test]
fn a_waiter_does_not_starve() {
    let mutex = Mutex::new(0u64);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                *mutex.lock() += 1;
            }
        });
        for _ in 0..100 {
            drop(mutex.lock());
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(mutex.lock.is_at_rest());
}

/// A starving waiter that is gone: in the parent of this process, or in a killed process. It costs the next waiter
/// some patience, and later ones nothing.
#[test]
fn nobody_starves_for_ever() {
    let mutex = Mutex::new(0);
    mutex.lock.queue.store(WAITER, Ordering::Relaxed);
    mutex.lock.word.store(STARVED | WAITERS, Ordering::Relaxed);
    drop(mutex.lock());
    assert_eq!(mutex.lock.word.load(Ordering::Relaxed) & STARVED, 0);
}

#[test]
fn a_fair_unlock_goes_to_the_waiter() {
    let mutex = Mutex::new(0);
    let is_first = || {
        let mut held = mutex.lock();
        thread::scope(|scope| {
            scope.spawn(|| *mutex.lock() = 1);
            while !mutex.lock.is_awaited() {
                thread::yield_now();
            }
            *held = 0;
            MutexGuard::unlock_fairly(held);
            *mutex.lock() == 1
        })
    };
    // On a loaded machine a waiter that is off its cpu longer than the hand-off lasts is not first. After an unfair
    // unlock the waiter must first wake up.
    let rounds = (0..2000).filter(|_| is_first()).take(5).count();
    assert_eq!(rounds, 5);
    assert!(mutex.lock.is_at_rest());
}

#[test]
fn guards_map_and_unlock_for_a_while() {
    let mutex = Mutex::new((1, String::from("a")));
    let part = MutexGuard::map(mutex.lock(), |pair| &mut pair.1);
    let mut bytes = MappedMutexGuard::map(part, |text| text.as_mut_str());
    bytes.make_ascii_uppercase();
    assert!(mutex.is_locked());
    drop(bytes);
    let mut guard = mutex.lock();
    MutexGuard::unlocked(&mut guard, || mutex.lock().0 = 5);
    assert_eq!(*guard, (5, String::from("A")));
    drop(guard);
    assert!(!mutex.is_locked());
}

/// A guard of a part that exists; otherwise the guard as it was, still locked.
#[test]
fn guards_of_parts_that_may_be_missing() {
    let mutex = Mutex::new((1, Some(String::from("ab"))));
    let text = MutexGuard::filter_map(mutex.lock(), |pair| pair.1.as_mut()).expect("there");
    assert_eq!(format!("{text} {text:?}"), "ab \"ab\"");
    let text = MappedMutexGuard::filter_map(text, |text| text.get_mut(5..)).expect_err("shorter");
    assert!(mutex.is_locked());
    let text = MappedMutexGuard::try_map(text, |_| None::<&mut u8>).expect_err("none");
    MappedMutexGuard::try_map(text, |text| text.get_mut(..1))
        .expect("there")
        .make_ascii_uppercase();
    assert!(!mutex.is_locked());
    let mut guard = MutexGuard::filter_map(mutex.lock(), |pair| {
        pair.0 = 2;
        None::<&mut u8>
    })
    .expect_err("none");
    assert!(mutex.is_locked() && *guard == (2, Some(String::from("Ab"))));
    guard.1 = None;
    let guard = MutexGuard::try_map(guard, |pair| pair.1.as_mut()).expect_err("none");
    drop(guard);
    assert!(!mutex.is_locked());
    // A panic unlocks, as with any guard.
    fn panics(_: &mut (i32, Option<String>)) -> Option<&mut u8> {
        panic!("on purpose")
    }
    let filter = || drop(MutexGuard::filter_map(mutex.lock(), panics));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(filter)).is_err());
    assert!(mutex.lock.is_at_rest());
}

#[test]
fn as_values_do() {
    let mut mutex: Mutex<u32> = 5.into();
    *mutex.get_mut() += 1;
    assert_eq!(format!("{mutex:?}"), "Mutex { value: 6 }");
    let guard = mutex.lock();
    assert_eq!(format!("{mutex:?} {guard:?} {guard}"), "Mutex { value: <locked> } 6 6");
    drop(guard);
    assert!(Mutex::<Vec<u8>>::default().lock().is_empty());
    let whole: &Mutex<[u8]> = &Mutex::new([1, 2]);
    assert_eq!(whole.lock().len(), 2);
}

#[test]
fn a_panic_unlocks() {
    let mutex = Mutex::new(0);
    let panicked = thread::scope(|scope| {
        scope
            .spawn(|| {
                let _held = mutex.lock();
                std::panic::resume_unwind(std::boxed::Box::new(()));
            })
            .join()
    });
    assert!(panicked.is_err() && mutex.try_lock().is_some());
}
