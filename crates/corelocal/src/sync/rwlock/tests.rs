//! Tests: locks left behind by a fork, and the lock as one thread sees it.

use super::state::{CLOSED, READER_FIRST, SLEEPERS_FIRST, State, TAG_BITS, WRITERS_ASLEEP};
use super::*;
use crate::sync::Shared;
use crate::sys::forks::tests::in_child;
use crate::sys::thread::owner_tag;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const GENERATION: u64 = 1 << (64 - owner_tag::GENERATION_BITS);

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
    assert!(RwLockReadGuard::try_map(lock.read(), |pair| pair.1.as_ref()).is_ok());
    // For parts as well; otherwise the guard comes back unchanged.
    let lock = RwLock::new(std::vec![Some(1), None]);
    let list = RwLockWriteGuard::map(lock.write(), |list| list.as_mut_slice());
    let list = MappedRwLockWriteGuard::filter_map(list, |list| list.get_mut(2)).expect_err("2");
    assert!(lock.try_read().is_none());
    let first = MappedRwLockWriteGuard::filter_map(list, |list| list[0].as_mut()).expect("there");
    assert_eq!(std::format!("{first} {first:?}"), "1 1");
    *MappedRwLockWriteGuard::try_map(first, |first| Some(first)).expect("there") += 1;
    let list = RwLockWriteGuard::try_map(lock.write(), |list| list[1].as_mut()).expect_err("none");
    assert_eq!(*list, [Some(2), None]);
    drop(list);
    assert!(lock.raw.is_quiet());
}

/// As a child would find it.
fn left_behind(flags: u64) -> RwLock<u32> {
    let lock = RwLock::new(0);
    drop(lock.write());
    let state = lock.raw.load();
    lock.raw.state.store((state.0 ^ GENERATION) | flags, Ordering::Relaxed);
    lock
}

/// The message of a panic.
fn panic_of<R>(body: impl FnOnce() -> R) -> std::string::String {
    use std::string::ToString;
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(body())));
    let caught = caught.expect_err("a panic");
    caught.downcast_ref::<&str>().expect("a text").to_string()
}

#[test]
fn what_a_gone_writer_held_is_not_given_out() {
    let gone = owner_tag::gone_tag::<TAG_BITS>();
    for flags in [0, WRITERS_ASLEEP] {
        let lock = left_behind(state::WRITING | u64::from(gone) | flags);
        let soon = Duration::from_secs(3600);
        assert!(lock.try_read().is_none() && lock.try_write().is_none());
        assert!(lock.try_upgradable_read().is_none() && lock.try_read_for(soon).is_none());
        assert!(lock.try_write_for(soon).is_none() && lock.try_upgradable_read_for(soon).is_none());
        assert!(panic_of(|| drop(lock.read())).contains("read_checked"));
        assert!(panic_of(|| drop(lock.write())).contains("write_checked"));
        assert!(panic_of(|| drop(lock.upgradable_read())).contains("write_checked"));
        // If the lock is not reset, it stays orphaned.
        drop(lock.read_checked().expect_err("orphaned"));
        let orphaned = lock.write_checked().expect_err("orphaned");
        assert!(lock.try_read().is_none() && lock.try_write().is_none());
        drop(orphaned);
        *lock.write_checked().expect_err("orphaned").reset(7) += 1;
        assert!(*lock.read() == 8 && lock.try_write().is_some());
        assert!(lock.read_checked().is_ok_and(|value| *value == 8) && lock.write_checked().is_ok());
    }
}

/// They wait for a thread that has taken the lock over and not decided yet.
#[test]
fn waiters_of_an_undecided_holder_look_again() {
    let gone = owner_tag::gone_tag::<TAG_BITS>();
    let lock = left_behind(state::WRITING | u64::from(gone));
    let orphaned = lock.write_checked().expect_err("orphaned");
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert!(lock.try_read_for(Duration::from_secs(3600)).is_none()));
            scope.spawn(|| assert!(lock.try_write_for(Duration::from_secs(3600)).is_none()));
        }
        while !lock.raw.load().has(WRITERS_ASLEEP) || !lock.raw.load().has(state::READERS_ASLEEP) {
            thread::yield_now();
        }
        drop(orphaned);
    });
    assert!(lock.write_checked().is_err());
}

#[test]
fn a_gone_upgradable_reader_stays_a_reader() {
    let gone = owner_tag::gone_tag::<TAG_BITS>();
    let lock = left_behind(state::UPGRADABLE | state::UPGRADING | CLOSED | u64::from(gone));
    drop(lock.upgradable_read());
    drop(lock.read());
    assert!(lock.try_write().is_none());
    assert!(lock.try_write_for(Duration::from_millis(1)).is_none());
    // SAFETY: no guard exists.
    unsafe { lock.forget_readers() };
    assert!(lock.try_write().is_some());
}

#[test]
fn gone_readers_are_forgotten_on_demand() {
    let lock = left_behind((2 * state::READER) | CLOSED);
    drop(lock.read()); // The closing by a gone writer does not count any more
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

/// Visiting readers beside a writer at the moment of a fork do not exist in the child.
#[test]
fn visitors_stay_behind() {
    let lock = RwLock::new(1);
    let visitors = 2 * state::READER;
    let mut writer = lock.write();
    lock.raw.state.fetch_add(visitors, Ordering::Relaxed);
    let is_written = || lock.try_read().is_none() && lock.try_write().is_none();
    assert!(is_written());
    // By a thread that is gone, and by the one that called fork.
    thread::scope(|scope| {
        let lock = &lock;
        let is_taken_over = || {
            let is_right = lock.try_read().is_none() && lock.read_checked().is_err();
            // SAFETY: the writer has written nothing.
            is_right
                && lock.write_checked().is_err_and(|orphaned| *unsafe { orphaned.accept() } == 1)
                && lock.try_write().is_some()
                && lock.raw.is_quiet()
        };
        assert!(scope.spawn(move || in_child(is_taken_over)).join().unwrap());
    });
    let take = |lock: &RwLock<i32>| lock.try_write().is_some() && lock.raw.is_quiet();
    // SAFETY: a child makes one copy, and does not drop the guard itself.
    let copied = || unsafe { core::ptr::read(&raw const writer) };
    assert!(in_child(|| {
        drop(copied());
        take(&lock)
    }));
    assert!(in_child(|| {
        drop(RwLockWriteGuard::downgrade(copied()));
        take(&lock)
    }));
    assert!(in_child(|| {
        drop(RwLockWriteGuard::downgrade_to_upgradable(copied()));
        take(&lock)
    }));
    // In the parent the visitors exist.
    *writer += 1;
    drop(writer);
    assert!(lock.try_write().is_none());
    let left = lock.raw.state.fetch_sub(visitors, Ordering::Relaxed);
    assert_eq!(State(left).readers(), 2);
    assert!(*lock.read() == 2 && lock.raw.is_quiet());
}

/// A visitor that leaves lets the thread in that waits for it.
#[test]
fn a_visitor_leaves() {
    let lock = RwLock::new(1);
    let visits = |lock: &RwLock<i32>| lock.raw.read_at_once();
    let writer = lock.write();
    assert!(!visits(&lock));
    drop(writer);
    assert!(lock.raw.is_quiet());
    lock.raw.state.fetch_add(state::READER, Ordering::Relaxed);
    thread::scope(|scope| {
        let writer = scope.spawn(|| *lock.write() += 1);
        while !State(lock.raw.load().0).has(WRITERS_ASLEEP) {
            thread::yield_now();
        }
        assert!(!visits(&lock), "a writer waits");
        lock.raw.unlock_read();
        writer.join().unwrap();
    });
    assert!(visits(&lock));
    lock.raw.unlock_read();
    assert!(*lock.read() == 2 && lock.raw.is_quiet());
}

/// Processes that share a lock have different generations all the time.
#[test]
fn nobody_is_gone_where_processes_share_the_lock() {
    let lock: RwLock<u32, Shared> = RwLock::with_scope(0);
    let guard = lock.write();
    let process = state::tag::<Shared>();
    assert_eq!(State(lock.raw.load().0).holder(), process);
    let (free, taken) = State::free_and_taken::<Shared>(process);
    assert!(lock.raw.load().0 == taken.0 && free.0 == 0);
    assert!(!Raw::<Shared>::has_gone_writer(lock.raw.load()));
    assert!(!lock.raw.demotes_upgradable(lock.raw.load()));
    drop(guard);
    assert!(lock.raw.is_quiet());
}

#[test]
fn debug_tells_the_value() {
    let lock = RwLock::from(3);
    assert_eq!(std::format!("{lock:?}"), "RwLock { value: 3 }");
    let writer = lock.write();
    assert_eq!(std::format!("{lock:?} {writer:?}"), "RwLock { value: <locked> } 3");
}

/// The advice of threads that died while they waited.
fn with_advice_of_the_dead(advice: u64) -> RwLock<u64, Shared> {
    let lock = RwLock::<u64, Shared>::with_scope(0);
    lock.raw.state.store(advice, Ordering::Relaxed);
    lock
}

/// It is respected, while others come and go and wake sleepers, until a second has passed.
#[test]
fn dead_ones_that_insist_stop_nobody_where_others_come_and_go() {
    const SOON: Duration = Duration::from_secs(20);
    for advice in [READER_FIRST, SLEEPERS_FIRST, CLOSED, READER_FIRST | SLEEPERS_FIRST | CLOSED] {
        let lock = with_advice_of_the_dead(advice);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        let reader = lock.read();
                        thread::sleep(Duration::from_millis(3));
                        drop(reader);
                    }
                });
            }
            let writer = lock.try_write_for(SOON).map(|mut value| *value += 1);
            let other = lock.try_write_for(SOON).map(|mut value| *value += 1);
            is_over.store(true, Ordering::Relaxed);
            assert_eq!((writer, other), (Some(()), Some(())), "{advice:#x}");
        });
        assert_eq!(*lock.read(), 2);
        // A sleeper may have ignored it. It is gone once a thread has waited for a second.
        assert!(lock.try_write_for(SOON).is_some() && lock.raw.is_quiet(), "{advice:#x}");
    }
}

/// The same for a thread that handles signals all the time.
#[test]
fn interruptions_do_not_begin_the_second_anew() {
    extern "C" fn handle(_: i32) {}
    let handler: extern "C" fn(i32) = handle;
    // SAFETY: zero is an empty mask without flags, so waits are interrupted; the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler as usize;
        assert_eq!(libc::sigaction(libc::SIGURG, &action, core::ptr::null_mut()), 0);
    }
    let lock = with_advice_of_the_dead(CLOSED);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // A number, as musl's is a pointer. SAFETY: no preconditions.
        let this = unsafe { libc::pthread_self() } as usize;
        let is_over = &is_over;
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                // SAFETY: that thread waits for this one to end.
                unsafe { libc::pthread_kill(this as libc::pthread_t, libc::SIGURG) };
                thread::sleep(Duration::from_millis(50));
            }
        });
        let reader = lock.try_read_for(Duration::from_secs(20)).is_some();
        is_over.store(true, Ordering::Relaxed);
        assert!(reader);
    });
}
