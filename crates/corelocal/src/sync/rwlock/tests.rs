//! What a fork leaves behind, and the lock as one thread sees it.

use super::state::{CLOSED, READER_FIRST, SLEEPERS_FIRST, State, TAG_BITS, WRITERS_ASLEEP};
use super::*;
use crate::sync::Shared;
use crate::sync::holder;
use std::sync::atomic::Ordering;

const GENERATION: u64 = 1 << (64 - holder::GENERATION_BITS);

#[test]
fn its_size() {
    assert_eq!(size_of::<RwLock<()>>(), 8);
    assert_eq!(size_of::<RwLock<u64, Shared>>(), 16);
}

#[test]
fn who_excludes_whom() {
    let lock = RwLock::new(1);
    {
        let first = lock.read();
        let second = lock.try_read().expect("readers do not exclude each other");
        assert!(lock.try_write().is_none());
        let upgradable = lock.try_upgradable_read().expect("nor one that may upgrade");
        assert!(lock.try_upgradable_read().is_none(), "but another one");
        let upgradable = RwLockUpgradableGuard::try_upgrade(upgradable).expect_err("two read");
        drop((first, second));
        let mut writer = RwLockUpgradableGuard::upgrade(upgradable);
        *writer += 1;
        assert!(lock.try_read().is_none() && lock.try_write().is_none());
        let reader = RwLockWriteGuard::downgrade(writer);
        assert!(lock.try_write().is_none());
        assert_eq!((*reader, *lock.read()), (2, 2));
    }
    assert!(lock.raw.is_quiet());
    let span = Duration::from_millis(2);
    {
        let _writer = lock.try_write_for(span).expect("free");
        assert!(lock.try_read_for(span).is_none());
        assert!(lock.try_write_for(span).is_none());
        assert!(lock.try_upgradable_read_for(span).is_none());
    }
    assert!(lock.raw.is_quiet());
    {
        let _reader = lock.try_read_for(span).expect("free");
        assert!(lock.try_write_for(span).is_none());
        assert!(lock.try_read().is_some(), "a writer that gave up leaves the lock open");
        let upgradable = lock.try_upgradable_read_for(span).expect("beside a reader");
        let upgradable = RwLockUpgradableGuard::try_upgrade_for(upgradable, span);
        drop(upgradable.expect_err("a reader is there"));
        assert!(lock.try_read().is_some());
    }
    assert!(lock.raw.is_quiet());
}

#[test]
fn guards_of_parts() {
    let lock = RwLock::new((1, Some(2)));
    *RwLockWriteGuard::map(lock.write(), |pair| &mut pair.0) += 10;
    let part = RwLockWriteGuard::filter_map(lock.write(), |pair| pair.1.as_mut());
    *part.expect("there") += 10;
    let part = RwLockReadGuard::map(lock.read(), |pair| &pair.0);
    let other = RwLockReadGuard::filter_map(lock.read(), |pair| pair.1.as_ref());
    assert_eq!((*part, *other.expect("there")), (11, 12));
    assert!(lock.try_write().is_none());
    drop(part);
    assert!(RwLockReadGuard::filter_map(lock.read(), |_| None::<&u8>).is_err());
}

/// As a child would find it.
fn left_behind(flags: u64) -> RwLock<u32> {
    let lock = RwLock::new(0);
    drop(lock.write());
    let state = lock.raw.load();
    lock.raw.state.store((state.0 ^ GENERATION) | flags, Ordering::Relaxed);
    lock
}

#[test]
fn a_gone_writer_is_taken_over_and_reported() {
    let gone = holder::tag::<TAG_BITS>() ^ 1;
    let lock = left_behind(state::WRITING | u64::from(gone));
    assert_eq!(*lock.read(), 0);
    assert!(lock.is_recovered());
    *lock.write() += 1;
    assert!(lock.is_recovered());
    lock.clear_recovered();
    assert!(!lock.is_recovered());

    let lock = left_behind(state::WRITING | u64::from(gone) | WRITERS_ASLEEP);
    assert!(lock.try_write().is_some() && lock.is_recovered());
}

#[test]
fn a_gone_upgradable_reader_is_taken_over() {
    let gone = holder::tag::<TAG_BITS>() ^ 1;
    let lock = left_behind(state::UPGRADABLE | state::UPGRADING | CLOSED | u64::from(gone));
    drop(lock.upgradable_read());
    drop(lock.write());
    assert!(!lock.is_recovered());
}

#[test]
fn gone_readers_are_forgotten_on_demand() {
    let lock = left_behind((2 * state::READER) | CLOSED);
    drop(lock.read()); // that somebody closed it does not count any more
    assert!(lock.try_write().is_none());
    assert!(lock.try_write_for(Duration::from_millis(1)).is_none());
    // SAFETY: no guard exists.
    unsafe { lock.forget_readers() };
    assert!(lock.try_write().is_some());
}

#[test]
fn what_gone_threads_wanted_does_not_count() {
    let lock = left_behind(CLOSED | READER_FIRST | SLEEPERS_FIRST | WRITERS_ASLEEP);
    assert!(lock.try_read().is_some());
    assert!(lock.try_write().is_some());
    assert!(lock.raw.is_quiet());
}

/// Processes that share a lock are of different generations all the time.
#[test]
fn nobody_is_gone_where_processes_share_the_lock() {
    let lock: RwLock<u32, Shared> = RwLock::with_scope(0);
    let guard = lock.write();
    assert_eq!(State(lock.raw.load().0).holder(), 0);
    assert!(!lock.raw.recover(lock.raw.load()));
    drop(guard);
}

#[test]
fn debug_tells_the_value() {
    let lock = RwLock::from(3);
    assert_eq!(std::format!("{lock:?}"), "RwLock { value: 3 }");
    let writer = lock.write();
    assert_eq!(std::format!("{lock:?} {writer:?}"), "RwLock { value: <locked> } 3");
}
