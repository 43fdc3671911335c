//! Guards that own a share of their lock: they outlive every other owner, and else behave as those that borrow it
//! (`sync_fork.rs` has the children).
#![cfg(feature = "std")]

mod storm;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use corelocal::sync::{
    ArcMutexGuard, ArcRwLockReadGuard, ArcRwLockUpgradableGuard, ArcRwLockWriteGuard, Condvar,
    Deadline, Mutex, RwLock, Shared,
};

const SHORT: Duration = Duration::from_millis(2);

/// Counts how often it is dropped.
struct Counted(Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_guard_keeps_its_lock_alive() {
    let drops = Arc::new(AtomicU32::new(0));
    let mutex = Arc::new(Mutex::new(Counted(drops.clone())));
    let guard = mutex.lock_arc();
    assert_eq!(Arc::strong_count(&mutex), 2);
    assert!(Arc::ptr_eq(ArcMutexGuard::mutex(&guard), &mutex));
    drop(mutex);
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    drop(guard);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    let lock = Arc::new(RwLock::new(Counted(drops.clone())));
    let guard = lock.upgradable_read_arc();
    assert!(Arc::ptr_eq(ArcRwLockUpgradableGuard::rwlock(&guard), &lock));
    drop(lock);
    let guard = ArcRwLockUpgradableGuard::upgrade(guard);
    let guard = ArcRwLockWriteGuard::downgrade(guard);
    assert_eq!(Arc::strong_count(ArcRwLockReadGuard::rwlock(&guard)), 1);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    drop(guard);
    assert_eq!(drops.load(Ordering::Relaxed), 2);
    // Fairly, too.
    let mutex = Arc::new(Mutex::new(Counted(drops.clone())));
    let guard = mutex.lock_arc();
    drop(mutex);
    ArcMutexGuard::unlock_fairly(guard);
    assert_eq!(drops.load(Ordering::Relaxed), 3);
}

#[test]
fn a_mutex_is_locked_by_it() {
    let mutex = Arc::new(Mutex::new(1));
    let mut guard = mutex.lock_arc();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(mutex.try_lock_arc().is_none() && mutex.try_lock().is_none());
            assert!(mutex.try_lock_arc_for(SHORT).is_none());
            assert!(mutex.try_lock_arc_until(Deadline::after(SHORT)).is_none());
        });
    });
    *guard += 1;
    assert_eq!(format!("{guard} {guard:?}"), "2 2");
    ArcMutexGuard::unlocked(&mut guard, || *mutex.try_lock().expect("unlocked") += 1);
    assert!(*guard == 3 && mutex.is_locked());
    drop(guard);
    assert!(!mutex.is_locked());
    ArcMutexGuard::unlock_fairly(mutex.try_lock_arc().expect("unlocked"));
    assert!(mutex.try_lock_arc_for(SHORT).is_some());
    assert!(mutex.try_lock_arc_until(Deadline::now()).is_some());
    assert!(mutex.lock_arc_checked().is_ok_and(|guard| *guard == 3));
    assert!(!mutex.is_locked() && Arc::strong_count(&mutex) == 1);
}

/// What borrows, what has no size, and what processes could share.
#[test]
fn of_any_value() {
    let text = String::from("text");
    let mutex = Arc::new(Mutex::new(text.as_str()));
    *mutex.lock_arc() = &text[1..];
    assert_eq!(*mutex.lock_arc(), "ext");
    let slice: Arc<Mutex<[u8]>> = Arc::new(Mutex::new([1, 2]));
    slice.lock_arc()[1] = 3;
    assert_eq!(*slice.lock_arc(), [1, 3]);
    let call: Arc<RwLock<dyn Fn() -> u8 + Send + Sync>> = Arc::new(RwLock::new(|| 7));
    assert_eq!((call.read_arc()(), call.upgradable_read_arc()()), (7, 7));
    let shared: Arc<Mutex<u8, Shared>> = Arc::new(Mutex::with_scope(1));
    *shared.lock_arc() += 1;
    let shared_lock: Arc<RwLock<u8, Shared>> = Arc::new(RwLock::with_scope(1));
    *ArcRwLockUpgradableGuard::upgrade(shared_lock.upgradable_read_arc()) += *shared.lock_arc();
    assert_eq!(*shared_lock.read_arc(), 3);
    assert!(shared_lock.try_write_arc().is_some());
}

#[test]
fn a_lock_is_held_by_it_in_its_way() {
    let lock = Arc::new(RwLock::new(1));
    let reader = lock.read_arc();
    assert_eq!(format!("{reader} {reader:?}"), "1 1");
    assert!(lock.try_read_arc().is_some() && lock.try_read_arc_for(SHORT).is_some());
    assert!(lock.try_read_arc_until(Deadline::now()).is_some());
    assert!(lock.read_arc_checked().is_ok());
    assert!(lock.try_write_arc().is_none() && lock.try_write_arc_for(SHORT).is_none());
    assert!(lock.try_write_arc_until(Deadline::now()).is_none());
    // Beside a reader, until it leaves.
    let upgradable = lock.try_upgradable_read_arc().expect("no other one");
    assert!(lock.try_upgradable_read_arc().is_none());
    assert!(lock.try_upgradable_read_arc_for(SHORT).is_none());
    assert!(lock.try_upgradable_read_arc_until(Deadline::now()).is_none());
    let upgradable = ArcRwLockUpgradableGuard::try_upgrade(upgradable).expect_err("a reader");
    let upgradable =
        ArcRwLockUpgradableGuard::try_upgrade_for(upgradable, SHORT).expect_err("a reader");
    let upgradable = ArcRwLockUpgradableGuard::try_upgrade_until(upgradable, Deadline::now())
        .expect_err("a reader");
    drop(reader);
    let mut writer = ArcRwLockUpgradableGuard::try_upgrade(upgradable).expect("alone");
    *writer += 1;
    assert_eq!(format!("{writer} {writer:?}"), "2 2");
    assert!(lock.try_read_arc().is_none() && lock.try_read_arc_for(SHORT).is_none());
    let upgradable = ArcRwLockWriteGuard::downgrade_to_upgradable(writer);
    assert!(lock.try_read_arc().is_some() && *upgradable == 2);
    let reader = ArcRwLockUpgradableGuard::downgrade(upgradable);
    assert!(lock.try_upgradable_read_arc().is_some());
    drop(reader);
    assert!(lock.try_write_arc_for(SHORT).is_some() && lock.write_arc_checked().is_ok());
    assert!(Arc::ptr_eq(ArcRwLockWriteGuard::rwlock(&lock.write_arc()), &lock));
    assert_eq!(Arc::strong_count(&lock), 1);
}

#[test]
fn threads_exclude_each_other() {
    let (mutex, lock) = (Arc::new(Mutex::new([0u64; 2])), Arc::new(RwLock::new([0u64; 2])));
    let rounds = storm::scaled(20_000);
    let threads = [(); 4].map(|()| {
        let (mutex, lock) = (mutex.clone(), lock.clone());
        thread::spawn(move || {
            let add = |pair: &mut [u64; 2]| {
                assert_eq!(pair[0], pair[1]);
                pair[0] += 1;
                std::hint::black_box(&mut *pair);
                pair[1] += 1;
            };
            for round in 0..rounds {
                add(&mut mutex.lock_arc());
                if round % 16 == 0 {
                    add(&mut lock.write_arc());
                    add(&mut ArcRwLockUpgradableGuard::upgrade(lock.upgradable_read_arc()));
                }
                let pair = lock.read_arc();
                assert_eq!(pair[0], pair[1]);
            }
        })
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(*mutex.lock(), [4 * rounds; 2]);
    assert_eq!(*lock.read(), [8 * rounds.div_ceil(16); 2]);
}

#[test]
fn a_condition_is_waited_for_with_it() {
    let (mutex, lock) = (Arc::new(Mutex::new(0)), Arc::new(RwLock::new(0)));
    let changed = Arc::new(Condvar::new());
    let (ready, are_ready) = mpsc::channel();
    let threads = [(); 3].map(|()| {
        let (mutex, lock, changed) = (mutex.clone(), lock.clone(), changed.clone());
        let ready = ready.clone();
        thread::spawn(move || {
            let mut guard = mutex.lock_arc();
            ready.send(()).unwrap();
            changed.wait_while(&mut guard, |number| **number == 0);
            *guard += 1;
            drop(guard);
            let mut guard = lock.write_arc();
            while *guard == 0 {
                guard = changed.wait_owned(guard);
            }
            *guard += 1;
        })
    });
    are_ready.iter().take(3).for_each(drop);
    *mutex.lock_arc() = 1;
    changed.notify_all();
    *lock.write_arc() = 1;
    while threads.iter().any(|thread| !thread.is_finished()) {
        changed.notify_all();
        thread::yield_now();
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!((*mutex.lock(), *lock.read()), (4, 4));
}
