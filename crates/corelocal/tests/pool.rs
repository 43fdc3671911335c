//! The pool under attack: an object is with one user at a time, and is dropped once.

mod forked;
mod sandbox;
mod storm;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use corelocal::cid::Busy;
use corelocal::percpu::{Pool, Pooled};
use proptest::prelude::*;
use sandbox::{run_in_child, skip};
use storm::scaled;

/// Objects made and not dropped yet, of one test.
#[derive(Default)]
struct Live(AtomicUsize);

struct Object {
    live: &'static Live,
    used: AtomicBool,
}

impl Live {
    fn object(&'static self) -> Box<Object> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::new(Object { live: self, used: AtomicBool::new(false) })
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        assert!(!*self.used.get_mut() || thread::panicking());
        self.live.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Drops all idle objects; false where the kernel refuses the fence.
fn clear<T: Send, const CAPACITY: usize>(pool: &Pool<T, CAPACITY>) -> bool {
    loop {
        match pool.clear() {
            Ok(_) => return true,
            // Another test's.
            Err(Busy::Frozen) => thread::yield_now(),
            Err(_) => return false,
        }
    }
}

fn one_user_at_a_time(each: u64) {
    static LIVE: Live = Live(AtomicUsize::new(0));
    static POOL: Pool<Box<Object>, 4> = Pool::new(|| LIVE.object());
    static STOP: AtomicBool = AtomicBool::new(false);
    thread::scope(|scope| {
        let users: Vec<_> = (0..8u64)
            .map(|thread| {
                scope.spawn(move || {
                    for n in 0..each {
                        let lent = POOL.lend();
                        assert!(!lent.used.swap(true, Ordering::AcqRel));
                        if n % 1000 == 0 {
                            thread::yield_now();
                        }
                        lent.used.store(false, Ordering::Release);
                        match (n + thread) % 7 {
                            // Both go back, or one is dropped.
                            0 => drop(POOL.lend()),
                            1 => drop(Pooled::detach(lent)),
                            _ => drop(lent),
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !STOP.load(Ordering::Relaxed) {
                let _ = POOL.clear();
                let _ = POOL.trim();
                thread::yield_now();
            }
        });
        for user in users {
            user.join().unwrap();
        }
        STOP.store(true, Ordering::Relaxed);
    });
    assert_eq!(LIVE.count(), POOL.len());
    if !clear(&POOL) {
        return skip("one_user_at_a_time", "membarrier is refused");
    }
    assert_eq!(LIVE.count(), 0);
}

#[test]
fn a_storm() {
    one_user_at_a_time(scaled(100_000));
}

#[test]
fn a_storm_without_sections() {
    let off = |command: &mut std::process::Command| {
        command.env("CORELOCAL_RSEQ", "off");
    };
    run_in_child("a_storm_without_sections", off, || one_user_at_a_time(scaled(20_000)));
}

/// Signal handlers take objects and put them back, in the middle of threads that do the same.
#[test]
fn signal_handlers_take_part() {
    const OBJECTS: usize = 32;
    static POOL: Pool<usize, OBJECTS> = Pool::new(|| 0);
    static USED: [AtomicBool; OBJECTS] = [const { AtomicBool::new(false) }; OBJECTS];
    static WRONG: AtomicUsize = AtomicUsize::new(0);
    fn act() {
        let Some(object) = POOL.try_get() else { return };
        let used = &USED[object];
        let before = used.swap(true, Ordering::AcqRel);
        used.store(false, Ordering::Release);
        if before || POOL.try_put(object).is_err() {
            WRONG.fetch_add(1, Ordering::Relaxed);
        }
    }
    (0..OBJECTS).for_each(|object| POOL.put(object));
    assert_eq!(POOL.len(), OBJECTS);
    storm::rage_doing(8, scaled(100_000), act);
    assert_eq!((WRONG.load(Ordering::Relaxed), POOL.len()), (0, OBJECTS));
}

#[test]
fn what_it_drops() {
    static LIVE: Live = Live(AtomicUsize::new(0));
    let pool: Pool<Box<Object>, 2> = Pool::new(|| LIVE.object());
    assert!(pool.is_empty() && pool.try_get().is_none());
    assert_eq!(pool.capacity(), 2);
    // The surplus, at once; a thread that is moved has room elsewhere.
    (0..10).for_each(|_| pool.put(LIVE.object()));
    assert_eq!(LIVE.count(), pool.len());
    let first = pool.get();
    assert!(pool.try_put(first).is_ok() || LIVE.count() > 0);
    let _ = pool.trim();
    assert_eq!(LIVE.count(), pool.len());
    drop(pool);
    assert_eq!(LIVE.count(), 0);
}

#[test]
fn guards() {
    let pool: Pool<Vec<u8>> = Pool::new(|| vec![1]);
    let mut lent = pool.lend();
    lent.push(2);
    assert_eq!(format!("{lent:?} {pool:?}"), "Pooled([1, 2]) Pool { idle: 0, capacity: 64 }");
    drop(lent);
    assert_eq!(pool.len(), 1);
    let kept = Pooled::detach(pool.adopt(vec![3]));
    assert_eq!((kept, pool.len()), (vec![3], 1));
    // By a panic, too.
    let panics = || {
        let _lent = pool.adopt(vec![4]);
        panic!("while it is lent");
    };
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert_eq!(pool.len(), 2);
}

#[test]
fn a_maker_may_panic() {
    let pool: Pool<u32> = Pool::new(|| panic!("for the test"));
    assert!(catch_unwind(AssertUnwindSafe(|| pool.get())).is_err());
    // Between the two calls the thread may go to another core, whose slot is empty.
    let taken = (0..100).find_map(|_| {
        pool.put(1);
        catch_unwind(AssertUnwindSafe(|| pool.get())).ok()
    });
    assert_eq!(taken, Some(1));
}

/// The child has copies of the idle objects; dropping them there leaves the parent's alone.
#[test]
fn fork_copies_the_objects() {
    static POOL: Pool<[u64; 4], 8> = Pool::new(|| [0; 4]);
    (0..4).for_each(|n| POOL.put([n; 4]));
    let child = forked::judge(|| {
        let whole = POOL.try_get().is_none_or(|object| object == [object[0]; 4]);
        let cleared = POOL.clear().is_err() || POOL.is_empty();
        whole && cleared
    });
    child.succeeds();
    assert_eq!(POOL.len(), 4);
}

#[derive(Clone, Debug)]
enum Op {
    Lend,
    GiveBack(usize),
    Detach(usize),
    Put,
    Clear,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Lend),
        3 => any::<usize>().prop_map(Op::GiveBack),
        1 => any::<usize>().prop_map(Op::Detach),
        1 => Just(Op::Put),
        1 => Just(Op::Clear),
    ]
}

proptest! {
    // The failing script is printed; there is no file of them to keep beside a `tests/*.rs`.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is done, the objects that live are those that are lent and those that are idle.
    #[test]
    fn every_object_is_accounted_for(script in proptest::collection::vec(op(), 1..100)) {
        static LIVE: Live = Live(AtomicUsize::new(0));
        let pool: Pool<Box<Object>, 4> = Pool::new(|| LIVE.object());
        let mut lent = Vec::new();
        for op in script {
            match op {
                Op::Lend => lent.push(pool.lend()),
                Op::GiveBack(which) if !lent.is_empty() => {
                    drop(lent.swap_remove(which % lent.len()));
                }
                Op::Detach(which) if !lent.is_empty() => {
                    drop(Pooled::detach(lent.swap_remove(which % lent.len())));
                }
                Op::Put => pool.put(LIVE.object()),
                Op::Clear => {
                    let _ = pool.clear();
                }
                Op::GiveBack(_) | Op::Detach(_) => {}
            }
            prop_assert_eq!(LIVE.count(), lent.len() + pool.len());
        }
        drop(lent);
        drop(pool);
        prop_assert_eq!(LIVE.count(), 0);
    }
}
