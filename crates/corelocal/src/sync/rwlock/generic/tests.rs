//! The lock as `lock_api` sees it.

use lock_api::{RwLockUpgradableReadGuard, RwLockWriteGuard};

use super::super::state::{FULL, READER, TAG_BITS, UPGRADABLE};
use super::*;
use crate::primitive::atomic::Ordering;
use crate::sync::Shared;
use crate::sys::thread::owner_tag::{self, GENERATION_BITS};

type RwLock<T, S = Private> = lock_api::RwLock<RawRwLock<S>, T>;

const SHORT: Duration = Duration::from_millis(2);

#[test]
fn it_adds_eight_bytes() {
    assert_eq!(size_of::<RwLock<u64>>(), 16);
    assert_eq!(size_of::<RwLock<(), Shared>>(), 8);
}

#[test]
fn readers_beside_readers() {
    let lock: RwLock<u32> = RwLock::new(1);
    assert!(!lock.is_locked() && !lock.is_locked_exclusive());
    let first = lock.read();
    let second = lock.try_read_for(SHORT).expect("readers do not exclude each other");
    let third = lock.try_read_until(Deadline::now()).expect("nor later");
    assert!(lock.is_locked() && !lock.is_locked_exclusive());
    assert!(lock.try_write().is_none());
    assert!(lock.try_write_for(SHORT).is_none());
    assert!(lock.try_write_until(Deadline::now()).is_none());
    assert_eq!(*first + *second + *third, 3);
    drop((first, second, third));
    assert!(!lock.is_locked());
}

/// Reading again on behalf of a guard of `lock_api` must not panic: the guard still exists.
#[test]
fn with_the_most_readers_there_one_waits() {
    use std::thread;

    let lock: RwLock<u32> = RwLock::new(1);
    // SAFETY: only the state is read.
    let state = unsafe { &lock.raw().raw.state };
    state.fetch_add(FULL, Ordering::Relaxed);
    assert!(lock.try_read_for(SHORT).is_none() && lock.try_read_until(Deadline::now()).is_none());
    thread::scope(|scope| {
        let reader = scope.spawn(|| *lock.read());
        // Long enough to fall asleep.
        thread::sleep(20 * SHORT);
        assert!(!reader.is_finished(), "no room, and no panic");
        state.fetch_sub(READER, Ordering::Relaxed);
        assert_eq!(reader.join().unwrap(), 1);
    });
    state.fetch_sub(FULL - READER, Ordering::Relaxed);
    assert!(lock.try_write().is_some());
}

#[test]
fn writers_alone() {
    let lock: RwLock<u32> = RwLock::new(1);
    let mut writer = lock.write();
    *writer += 1;
    assert!(lock.is_locked() && lock.is_locked_exclusive());
    assert!(lock.try_read().is_none() && lock.try_write().is_none());
    assert!(lock.try_read_for(SHORT).is_none());
    assert!(lock.try_read_until(Deadline::now()).is_none());
    assert!(lock.try_upgradable_read().is_none());
    assert!(lock.try_upgradable_read_for(SHORT).is_none());
    assert!(lock.try_upgradable_read_until(Deadline::now()).is_none());
    let reader = RwLockWriteGuard::downgrade(writer);
    assert!(lock.is_locked() && !lock.is_locked_exclusive());
    assert_eq!((*reader, *lock.read()), (2, 2));
}

#[test]
fn one_that_may_upgrade() {
    let lock: RwLock<u32> = RwLock::new(1);
    let upgradable = lock.upgradable_read();
    let reader = lock.try_read().expect("beside one that may upgrade");
    assert!(lock.is_locked() && !lock.is_locked_exclusive());
    assert!(lock.try_upgradable_read().is_none() && lock.try_write().is_none());
    let upgradable = RwLockUpgradableReadGuard::try_upgrade(upgradable).expect_err("two read");
    let upgradable =
        RwLockUpgradableReadGuard::try_upgrade_for(upgradable, SHORT).expect_err("two read");
    let upgradable = RwLockUpgradableReadGuard::try_upgrade_until(upgradable, Deadline::now())
        .expect_err("two read");
    drop(reader);
    let mut writer = RwLockUpgradableReadGuard::upgrade(upgradable);
    *writer += 1;
    assert!(lock.is_locked_exclusive() && lock.try_read().is_none());
    let upgradable = RwLockWriteGuard::downgrade_to_upgradable(writer);
    assert!(lock.try_read().is_some() && lock.try_upgradable_read().is_none());
    let reader = RwLockUpgradableReadGuard::downgrade(upgradable);
    assert_eq!(*reader, 2);
    drop(lock.try_upgradable_read().expect("beside a plain reader"));
    drop(reader);
    assert!(RwLockUpgradableReadGuard::try_upgrade(lock.upgradable_read()).is_ok());
    assert!(!lock.is_locked());
}

/// Readers see a pair whole; writers and upgraders lose no update.
fn crowd<S: Scope>() {
    let lock: RwLock<[u64; 2], S> = RwLock::new([0, 0]);
    let each = crate::scaled::scaled(2_000);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let lock = &lock;
            scope.spawn(move || {
                let add = |pair: &mut [u64; 2]| {
                    pair[0] += 1;
                    assert_eq!(pair[0], pair[1] + 1);
                    pair[1] += 1;
                };
                for round in 0..each {
                    if (round + number) % 2 == 0 {
                        add(&mut lock.write());
                    } else {
                        let before = lock.upgradable_read();
                        let seen = before[0];
                        let mut pair = RwLockUpgradableReadGuard::upgrade(before);
                        assert_eq!(pair[0], seen, "somebody wrote before the upgrade");
                        add(&mut pair);
                    }
                    let pair = lock.read();
                    assert_eq!(pair[0], pair[1], "a writer beside a reader");
                }
            });
        }
    });
    assert_eq!(lock.into_inner(), [4 * each; 2]);
}

#[test]
fn in_a_crowd() {
    crowd::<Private>();
    crowd::<Shared>();
}

/// As a child would find it.
fn left_behind(flags: u64) -> RwLock<u32> {
    let lock: RwLock<u32> = RwLock::new(0);
    drop(lock.write()); // of this generation now
    // SAFETY: nothing is unlocked.
    let raw = &unsafe { lock.raw() }.raw;
    let state = raw.load().0 ^ (1 << (64 - GENERATION_BITS));
    raw.state.store(state | flags, Ordering::Relaxed);
    lock
}

#[test]
fn what_a_fork_left_behind() {
    let gone = u64::from(owner_tag::gone_tag::<TAG_BITS>());
    let lock = left_behind(WRITING | gone);
    assert!(lock.is_locked() && lock.is_locked_exclusive() && lock.try_read().is_none());
    // Blocking returns no guard either, and a guard that lost its lock in this way unlocks nothing.
    let locking: [fn(&RwLock<u32>); 2] = [|lock| drop(lock.read()), |lock| drop(lock.write())];
    for lock_again in locking {
        let locked = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| lock_again(&lock)));
        assert!(locked.is_err());
    }
    // SAFETY: as for a guard that `lock_api` leaves its caller.
    unsafe { lock.force_unlock_write() };
    assert!(lock.is_locked_exclusive() && lock.try_write().is_none());
    // SAFETY: nothing is unlocked, and any number is valid.
    unsafe { assert!(lock.raw().forget_writer() && !lock.raw().forget_writer()) };
    assert!(!lock.is_locked() && lock.try_write().is_some());
    assert!(left_behind(UPGRADABLE | gone).is_locked());

    // Readers are anonymous.
    let lock = left_behind(READER);
    assert!(lock.is_locked() && !lock.is_locked_exclusive() && lock.try_write().is_none());
    // SAFETY: nothing is unlocked, and no guard exists.
    unsafe { lock.raw().forget_readers() };
    assert!(!lock.is_locked() && lock.try_write().is_some());
}
