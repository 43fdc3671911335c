//! The record of the order in which mutexes are locked: which pairs there are, and which thread holds and waits for
//! what. Each test has a process of its own, since a record is of a process from its start.

mod forked;
mod sandbox;

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;

use corelocal::sync::profile::order::{Holding, LockOrder, LockPair, LockThread, Missed};
use corelocal::sync::profile::{ProfileError, Stack};
use corelocal::sync::{Condvar, Deadline, Mutex, MutexGuard};
use sandbox::run_in_child;

const LONG: Duration = Duration::from_secs(60);

fn recorded(command: &mut Command) {
    command.env("CORELOCAL_LOCK_ORDER", "on").env_remove("CORELOCAL_LOCKS");
}

fn order() -> LockOrder {
    LockOrder::of_this_process().expect("a record")
}

fn address<T>(mutex: &T) -> u64 {
    std::ptr::from_ref(mutex).addr() as u64
}

fn pair<T>(held: &T, taken: &T) -> Option<LockPair> {
    let locks = (address(held), address(taken));
    order().pairs().find(|pair| (pair.held, pair.taken) == locks)
}

fn this_thread() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() as u32 }
}

/// What the calling thread holds and waits for, by number.
fn holdings_of(number: u32) -> Vec<Holding> {
    let order = order();
    let thread = order.threads().find(|it| it.thread == number);
    thread.map_or(Vec::new(), |thread| order.holdings(&thread).collect())
}

/// Until it is so; a test that waits for ever is ended by `run_in_child`.
fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        thread::sleep(Duration::from_micros(200));
    }
}

#[inline(never)]
fn nested(outer: &Mutex<u32>, inner: &Mutex<u32>) {
    let outer = outer.lock();
    *inner.lock() += *outer;
}

#[test]
fn nothing_is_recorded_when_nobody_wants_it() {
    let none = || {
        nested(&Mutex::new(0), &Mutex::new(0));
        assert!(LockOrder::of_this_process().is_none());
    };
    for wish in [None, Some("off"), Some("")] {
        let wish = |command: &mut Command| {
            command.env_remove("CORELOCAL_LOCK_ORDER");
            command.envs(wish.map(|wish| ("CORELOCAL_LOCK_ORDER", wish)));
        };
        run_in_child("nothing_is_recorded_when_nobody_wants_it", wish, none);
    }
}

#[test]
fn opposite_orders_at_different_times_are_both_there() {
    run_in_child("opposite_orders_at_different_times_are_both_there", recorded, || {
        let (a, b) = (Mutex::new(0), Mutex::new(0));
        nested(&a, &b);
        assert!(pair(&b, &a).is_none());
        let thread = thread::Builder::new().name("the other".into());
        let body = || {
            nested(&b, &a);
            this_thread()
        };
        let other = thread::scope(|scope| {
            thread.spawn_scoped(scope, body).expect("a thread").join().expect("no panic")
        });
        let (forth, back) = (pair(&a, &b).expect("a, then b"), pair(&b, &a).expect("b, then a"));
        assert_eq!((forth.thread, back.thread), (this_thread(), other));
        assert_eq!((forth.times, forth.has_others, forth.gates), (1, false, [0; 4]));
        let order = order();
        let mut stack = Box::new(Stack::EMPTY);
        for read in [LockOrder::read_held, LockOrder::read_taken] {
            assert!(read(&order, &back, &mut stack));
            assert_eq!((stack.thread(), stack.name()), (other, "the other"));
            let is_known = cfg!(all(
                any(target_arch = "x86_64", target_arch = "aarch64"),
                not(corelocal_model)
            ));
            assert_eq!(stack.words().len() > 30, is_known);
        }
        assert_eq!((order.threads().count(), order.missed()), (0, Missed::default()));
    });
}

#[test]
fn one_order_is_one_pair() {
    run_in_child("one_order_is_one_pair", recorded, || {
        let (a, b) = (Mutex::new(0), Mutex::new(0));
        nested(&a, &b);
        nested(&a, &b);
        thread::scope(|scope| drop(scope.spawn(|| nested(&a, &b))));
        let locks: Vec<_> = order().pairs().map(|it| (it.held, it.taken)).collect();
        assert_eq!(locks, [(address(&a), address(&b))]);
        let pair = pair(&a, &b).expect("the pair");
        assert_eq!((pair.times, pair.has_others), (3, true));
    });
}

#[test]
fn what_cannot_wait_for_ever_makes_no_pair() {
    run_in_child("what_cannot_wait_for_ever_makes_no_pair", recorded, || {
        let (a, b, c) = (Mutex::new(0), Mutex::new(0), Mutex::new(0));
        type Way = fn(&Mutex<i32>) -> Option<MutexGuard<'_, i32>>;
        let ways: [Way; 3] = [
            |mutex| mutex.try_lock(),
            |mutex| mutex.try_lock_for(LONG),
            |mutex| mutex.try_lock_until(Deadline::after(LONG)),
        ];
        for way in ways {
            let _a = a.lock();
            let held = way(&b).expect("it is free");
            assert_eq!(order().pairs().count(), 0);
            // Nor does one that fails.
            thread::scope(|scope| {
                scope.spawn(|| {
                    let _c = c.lock();
                    assert!(b.try_lock().is_none());
                    assert!(b.try_lock_for(Duration::from_micros(1)).is_none());
                });
            });
            assert_eq!(order().pairs().count(), 0);
            drop(held);
        }
        // But it is held: what is locked beneath it waits for its end.
        let _b = b.try_lock();
        drop(c.lock());
        assert!(pair(&b, &c).is_some() && order().pairs().count() == 1);
    });
}

#[test]
fn three_in_a_circle() {
    run_in_child("three_in_a_circle", recorded, || {
        let locks: [Mutex<u32>; 3] = Default::default();
        for at in 0..3 {
            nested(&locks[at], &locks[(at + 1) % 3]);
        }
        assert!((0..3).all(|at| pair(&locks[at], &locks[(at + 1) % 3]).is_some()));
        assert_eq!(order().pairs().count(), 3);
    });
}

#[test]
fn what_is_always_held_beside_them_is_known() {
    run_in_child("what_is_always_held_beside_them_is_known", recorded, || {
        let (gate, other) = (Mutex::new(0), Mutex::new(0));
        let (a, b) = (Mutex::new(0), Mutex::new(0));
        {
            let (_gate, _other) = (gate.lock(), other.lock());
            nested(&a, &b);
        }
        assert_eq!(pair(&a, &b).expect("a pair").gates[..2], [address(&gate), address(&other)]);
        {
            let _gate = gate.lock();
            nested(&a, &b);
        }
        assert_eq!(pair(&a, &b).expect("a pair").gates, [address(&gate), 0, 0, 0]);
        nested(&a, &b);
        assert_eq!(pair(&a, &b).expect("a pair").gates, [0; 4]);
    });
}

#[test]
fn a_mutex_locked_again_by_its_holder_is_a_pair_of_itself() {
    run_in_child("a_mutex_locked_again_by_its_holder_is_a_pair_of_itself", recorded, || {
        static LOCK: Mutex<u32> = Mutex::new(0);
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            tell.send(this_thread()).expect("it is waited for");
            let _held = LOCK.lock();
            drop(LOCK.lock());
        });
        let number = told.recv().expect("it starts");
        until(|| pair(&LOCK, &LOCK).is_some() && holdings_of(number).len() == 2);
        let wanted = holdings_of(number).iter().filter(|it| it.is_wanted).count();
        assert_eq!(wanted, 1);
    });
}

#[test]
fn a_deadlock_that_is_there_is_seen() {
    run_in_child("a_deadlock_that_is_there_is_seen", recorded, || {
        static LOCKS: [Mutex<u32>; 2] = [Mutex::new(0), Mutex::new(0)];
        static MET: Barrier = Barrier::new(2);
        let (tell, told) = mpsc::channel();
        for at in 0..2 {
            let tell = tell.clone();
            thread::spawn(move || {
                let _held = LOCKS[at].lock();
                tell.send((at, this_thread())).expect("it is waited for");
                MET.wait();
                drop(LOCKS[1 - at].lock());
            });
        }
        let mut numbers = [0; 2];
        told.iter().take(2).for_each(|(at, number)| numbers[at] = number);
        let locks = |number, is_wanted| {
            let all = holdings_of(number).into_iter().filter(move |it| it.is_wanted == is_wanted);
            all.map(|it| it.lock).collect::<Vec<_>>()
        };
        for at in 0..2 {
            until(|| locks(numbers[at], true) == [address(&LOCKS[1 - at])]);
            assert_eq!(locks(numbers[at], false), [address(&LOCKS[at])]);
        }
        let order = order();
        let mut stack = Box::new(Stack::EMPTY);
        let threads: Vec<LockThread> = order.threads().collect();
        assert_eq!(threads.len(), 2);
        for thread in &threads {
            for holding in order.holdings(thread) {
                assert!(order.read_holding(thread, &holding, &mut stack));
                assert_eq!(stack.thread(), thread.thread);
                assert!(holding.time() < LONG);
            }
        }
    });
}

#[test]
fn who_waits_for_a_condition_holds_nothing() {
    run_in_child("who_waits_for_a_condition_holds_nothing", recorded, || {
        let (mutex, changed) = (Mutex::new(false), Condvar::new());
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            let (mutex, changed) = (&mutex, &changed);
            scope.spawn(move || {
                let mut is_over = mutex.lock();
                tell.send(this_thread()).expect("it is waited for");
                changed.wait_while(&mut is_over, |is_over| !**is_over);
                assert_eq!(holdings_of(this_thread()).len(), 1);
            });
            let number = told.recv().expect("it starts");
            until(|| holdings_of(number).is_empty());
            *mutex.lock() = true;
            changed.notify_all();
        });
        assert_eq!((order().threads().count(), order().pairs().count()), (0, 0));
        let mut guard = mutex.lock();
        MutexGuard::unlocked(&mut guard, || assert!(holdings_of(this_thread()).is_empty()));
        assert_eq!(holdings_of(this_thread()).len(), 1);
        MutexGuard::unlock_fairly(guard);
        assert_eq!(order().threads().count(), 0);
    });
}

#[cfg(feature = "lock_api")]
#[test]
fn locks_of_lock_api_are_recorded() {
    run_in_child("locks_of_lock_api_are_recorded", recorded, || {
        type Raw = lock_api::Mutex<corelocal::sync::RawMutex, u32>;
        let (a, b) = (Raw::new(0), Raw::new(0));
        {
            let _a = a.lock();
            drop(b.lock());
        }
        let raw = |mutex: &Raw| {
            // SAFETY: its address alone is used.
            let raw = unsafe { mutex.raw() };
            address(raw)
        };
        let locks: Vec<_> = order().pairs().map(|it| (it.held, it.taken)).collect();
        assert_eq!((locks, order().threads().count()), (vec![(raw(&a), raw(&b))], 0));
    });
}

/// Mutexes exclude as ever, and each unlock is seen, whether threads wait or not.
#[test]
fn under_contention_every_unlock_is_seen() {
    run_in_child("under_contention_every_unlock_is_seen", recorded, || {
        const ROUNDS: u32 = 3000;
        let (a, b) = (Mutex::new(0_u32), Mutex::new(0_u32));
        thread::scope(|scope| {
            for nth in 0..6 {
                let (a, b) = (&a, &b);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let mut held = a.lock();
                        *held += 1;
                        if (round + nth) % 16 == 0 {
                            thread::yield_now();
                        }
                        if round % 3 == 0 {
                            *b.lock() += 1;
                        }
                        if round % 5 == 0 {
                            MutexGuard::unlock_fairly(held);
                        }
                    }
                    assert!(holdings_of(this_thread()).is_empty());
                });
            }
        });
        assert_eq!(*a.lock(), 6 * ROUNDS);
        assert_eq!(*b.lock(), 6 * ROUNDS / 3);
        let pair = pair(&a, &b).expect("the pair");
        assert_eq!((pair.times, pair.has_others), (u64::from(6 * ROUNDS / 3), true));
        assert_eq!((order().threads().count(), order().missed()), (0, Missed::default()));
    });
}

#[test]
fn what_there_is_no_room_for_is_counted() {
    run_in_child("what_there_is_no_room_for_is_counted", recorded, || {
        let locks: Vec<Mutex<u32>> = (0..20).map(|_| Mutex::new(0)).collect();
        let held: Vec<_> = locks.iter().map(|lock| lock.lock()).collect();
        assert_eq!(order().missed().depth, 4);
        drop(held);
        let (begun, outer) = (AtomicUsize::new(0), Mutex::new(0));
        let (end, is_over) = (Mutex::new(false), Condvar::new());
        thread::scope(|scope| {
            for _ in 0..300 {
                scope.spawn(|| {
                    let own = Mutex::new(0);
                    let _own = own.lock();
                    begun.fetch_add(1, Ordering::Relaxed);
                    is_over.wait_while(&mut end.lock(), |is_over| !**is_over);
                });
            }
            until(|| begun.load(Ordering::Relaxed) == 300);
            assert!(order().missed().threads >= 44, "{:?}", order().missed());
            assert_eq!(order().threads().count(), 256);
            // This thread has no place either: one must wait for a thread that goes.
            *end.lock() = true;
            is_over.notify_all();
        });
        assert_eq!((order().threads().count(), *outer.lock()), (0, 0));
        let many: Vec<Mutex<u32>> = (0..3000).map(|_| Mutex::new(0)).collect();
        many.iter().for_each(|inner| nested(&outer, inner));
        let (kept, missed) = (order().pairs().count(), order().missed().pairs);
        assert!(kept <= 1024 && missed >= 3000 - 1024, "{kept} {missed}");
    });
}

#[test]
fn a_child_has_a_record_of_its_own() {
    run_in_child("a_child_has_a_record_of_its_own", recorded, || {
        let locks: [Mutex<u32>; 3] = Default::default();
        let [a, b, c] = &locks;
        let held = a.lock();
        nested(b, c);
        let child = forked::fork(|| {
            // Held since before the fork, which is not recorded here; let go as ever.
            drop(b.lock());
            let is_empty = order().pairs().count() == 0 && order().process() == std::process::id();
            drop(held);
            drop(a.lock());
            nested(c, b);
            let is_there = pair(c, b).is_some() && pair(b, c).is_none();
            i32::from(!(is_empty && is_there && order().threads().count() == 0))
        });
        assert_eq!(child.wait(), forked::End::Code(0));
        assert!(pair(b, c).is_some() && pair(c, b).is_none());
        assert_eq!((order().pairs().count(), order().process()), (3, std::process::id()));
    });
}

#[test]
fn a_record_in_a_folder_stays_and_is_read_by_others() {
    const TEST: &str = "a_record_in_a_folder_stays_and_is_read_by_others";
    let wish = |command: &mut Command, folder: &std::path::Path| {
        command.env("CORELOCAL_LOCK_ORDER", folder);
    };
    let body = || nested(&Mutex::new(0), &Mutex::new(0));
    let folder = sandbox::run_with_folder(TEST, wish, body);
    let files: Vec<_> = fs::read_dir(&folder).expect("the folder").flatten().collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let open = |path: &std::path::Path| {
        LockOrder::open(&std::ffi::CString::new(path.as_os_str().as_bytes()).expect("no zero"))
    };
    let order = open(&files[0].path()).expect("a record");
    assert_eq!((order.pairs().count(), order.missed()), (1, Missed::default()));
    assert!(order.age() < LONG && format!("{order:?}").contains("pairs: 1"));
    let other = folder.path().join("other");
    fs::write(&other, "no record").expect("a file");
    assert_eq!(open(&other).map(|_| ()), Err(ProfileError::Foreign));
}
