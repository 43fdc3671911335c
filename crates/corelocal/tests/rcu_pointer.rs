//! How a pointer is made, what a thread keeps of it, and readers that last.
#![cfg(feature = "std")]

mod forked;
mod storm;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use corelocal::rcu::{self, Cache, Domain, Error, LazyRcu, Rcu};
#[cfg(feature = "serde")]
use corelocal::rcu::{RcuCopy, RcuHashMap};

const SOON: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_static_is_made_at_its_first_use() {
    static MADE: AtomicU64 = AtomicU64::new(0);
    static DOMAIN: Domain = Domain::new();
    static NUMBER: LazyRcu<Arc<u64>> =
        LazyRcu::new_in(|| Arc::new(MADE.fetch_add(1, Ordering::Relaxed) + 7), &DOMAIN);
    assert_eq!(format!("{NUMBER:?}"), "LazyRcu(<not made yet>)");
    let guard = DOMAIN.read();
    let threads: Vec<_> = (0..4).map(|_| thread::spawn(|| *NUMBER.load_full())).collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap() == 7));
    assert_eq!((*NUMBER.load(&guard), MADE.load(Ordering::Relaxed)), (7, 1));
    static BY_STORE: LazyRcu<Arc<u64>> = LazyRcu::new(|| Arc::new(20));
    assert_eq!(*BY_STORE.swap(Arc::new(1)), 20);
    assert_eq!(format!("{BY_STORE:?}"), "Rcu(1)");
    assert_eq!(**Cache::new(&*BY_STORE).load(), 1);
    drop(LazyRcu::<Box<u64>>::new(|| unreachable!("not used")));
}

#[test]
fn a_pointer_is_made_and_taken_apart_in_every_way() {
    static NONE: Rcu<Option<Arc<u32>>> = Rcu::none();
    assert_eq!(NONE.load_full(), None);
    NONE.store(Some(Arc::new(1)));
    assert_eq!(NONE.load_full().as_deref(), Some(&1));
    NONE.store(None);
    let default: Rcu<Box<u32>> = Rcu::default();
    assert_eq!(*default.load(&rcu::read()), 0);
    assert_eq!(*Rcu::from(Arc::new(5)).into_inner(), 5);
    let mut boxed: Rcu<Box<u32>> = Rcu::from_pointee(6);
    *boxed.get_mut() += 1;
    assert_eq!(*boxed.into_inner(), 7);
    let mut shared: Rcu<Arc<u32>> = Rcu::from_pointee(8);
    *shared.get_mut().unwrap() += 1;
    let full = shared.load_full();
    assert!(shared.get_mut().is_none() && *full == 9);
    drop(full);
    assert_eq!(shared.get_mut(), Some(&mut 9));
}

#[test]
fn a_box_comes_back_from_a_swap() {
    static DOMAIN: Domain = Domain::new();
    let current = Rcu::new_in(Box::new(String::from("a")), &DOMAIN);
    assert_eq!(*current.swap_synchronized(Box::new("b".into())).unwrap(), "a");
    let guard = DOMAIN.read();
    let refused = current.swap_synchronized(Box::new("c".into())).unwrap_err();
    assert!(refused == Error::UnderGuard && refused.to_string().contains("drop the guard"));
    assert_eq!(current.load(&guard), "c");
    drop(guard);
    DOMAIN.barrier().unwrap();
    assert_eq!(DOMAIN.deferred_bytes(), 0);
}

#[test]
fn a_change_may_fail() {
    let number = Rcu::new(Box::new(1));
    assert_eq!(number.try_rcu(|old| Ok::<_, ()>(Box::new(old + 1))), Ok(()));
    assert_eq!(number.try_rcu(|old| Err(*old)), Err(2));
    assert_eq!(number.into_inner(), Box::new(2));
}

#[test]
fn a_cache_follows_what_is_stored() {
    let current = Arc::new(Rcu::new(Arc::new(0_u64)));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let (mut cache, mut last) = (Cache::new(current.clone()), 0);
                while !is_over.load(Ordering::Relaxed) {
                    let now = **cache.load();
                    assert!(now >= last);
                    last = now;
                }
                let mut other = cache.clone();
                assert_eq!(**cache.load(), **other.load());
            });
        }
        let _tell = storm::Tell(&is_over);
        let mut own = Cache::new(&*current);
        for n in 1..=storm::scaled(20_000) {
            current.store(Arc::new(n));
            assert_eq!(**own.load(), n);
        }
    });
    let mut none: Cache<_, _> = Cache::new(Arc::new(Rcu::<Option<Arc<u8>>>::none()));
    assert_eq!(*none.load(), None);
    none.rcu().store(Some(Arc::new(1)));
    assert_eq!(none.load().as_deref(), Some(&1));
}

#[test]
fn a_guard_that_is_renewed_delays_nothing() {
    static DOMAIN: Domain = Domain::new();
    let mut guard = DOMAIN.read();
    let ticket = DOMAIN.start_poll();
    assert_eq!(ticket.is_complete(), Ok(false));
    guard.repin();
    assert_eq!(ticket.is_complete(), Ok(true));
    assert_eq!(DOMAIN.synchronize_timeout(SOON), Err(Error::TimedOut));
    // In a child that begins each guard when the last one has ended, too.
    forked::judge(|| {
        guard.repin();
        let ticket = DOMAIN.start_poll();
        (0..10).for_each(|_| guard.repin());
        (0..10).any(|_| {
            guard.repin();
            ticket.is_complete() == Ok(true)
        })
    })
    .succeeds();
}

#[test]
fn a_quiescent_reader_is_awaited_until_it_says_so() {
    static DOMAIN: Domain = Domain::new();
    let mut reader = DOMAIN.quiescent_reader();
    for _ in 0..10 {
        let ticket = DOMAIN.start_poll();
        assert_eq!(ticket.is_complete(), Ok(false));
        reader.quiescent();
        assert_eq!(ticket.is_complete(), Ok(true));
    }
    assert_eq!(DOMAIN.synchronize_timeout(SOON), Err(Error::TimedOut));
    reader.offline(|| DOMAIN.synchronize_timeout(LONG)).unwrap();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        reader.offline(|| std::panic::resume_unwind(Box::new(())))
    }));
    assert!(caught.is_err());
    assert_eq!(DOMAIN.synchronize_timeout(SOON), Err(Error::TimedOut));
    forked::judge(|| {
        let ticket = DOMAIN.start_poll();
        let waits = ticket.is_complete() == Ok(false);
        waits
            && (0..10).any(|_| {
                reader.quiescent();
                ticket.is_complete() == Ok(true)
            })
    })
    .succeeds();
    drop(reader);
    DOMAIN.synchronize().unwrap();
}

/// What a task has loaded is not freed before its end; threads that have tasks delay grace periods for no longer.
#[test]
fn quiescent_readers_beside_a_writer() {
    static DOMAIN: Domain = Domain::new();
    const POISON: u64 = u64::MAX;
    struct Poisoned(u64);
    impl Drop for Poisoned {
        fn drop(&mut self) {
            // SAFETY: a valid place; volatile, so that a reader that comes too late sees it.
            unsafe { std::ptr::write_volatile(&raw mut self.0, POISON) };
        }
    }
    let current = Rcu::new_in(Arc::new(Poisoned(0)), &DOMAIN);
    let (is_over, tasks) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut reader = DOMAIN.quiescent_reader();
                let mut last = 0;
                while !is_over.load(Ordering::Relaxed) {
                    tasks.fetch_add(1, Ordering::Relaxed);
                    for _ in 0..100 {
                        let version = current.load(&reader);
                        assert!(version.0 != POISON && version.0 >= last);
                        last = version.0;
                    }
                    reader.quiescent();
                }
            });
        }
        let _tell = storm::Tell(&is_over);
        // Until a reader was there too, however late its thread starts.
        let mut n = 0;
        while n < storm::scaled(20_000) || tasks.load(Ordering::Relaxed) == 0 {
            n += 1;
            current.store(Arc::new(Poisoned(n)));
            if n % 100 == 0 {
                DOMAIN.synchronize_timeout(LONG).unwrap();
            }
        }
    });
    DOMAIN.barrier().unwrap();
}

#[test]
#[cfg(feature = "serde")]
fn versions_are_what_serde_sees() {
    let json = |value: &dyn erased::Json| value.json();
    mod erased {
        pub trait Json {
            fn json(&self) -> String;
        }
        impl<T: serde::Serialize> Json for T {
            fn json(&self) -> String {
                serde_json::to_string(self).unwrap()
            }
        }
    }
    let pointer: Rcu<Arc<Vec<u32>>> = serde_json::from_str("[1,2]").unwrap();
    let none: Rcu<Option<Box<u32>>> = serde_json::from_str("null").unwrap();
    let copy: RcuCopy<[u8; 2]> = serde_json::from_str("[3,4]").unwrap();
    let map: RcuHashMap<String, u32> = serde_json::from_str("{\"a\":1}").unwrap();
    assert_eq!((json(&pointer), json(&none)), ("[1,2]".into(), "null".into()));
    assert_eq!((json(&copy), json(&map)), ("[3,4]".into(), "{\"a\":1}".into()));
}

#[test]
fn a_quiescent_reader_ends_with_its_thread() {
    // Loads in a thread that has never had a guard, and ends at once.
    static DOMAIN: Domain = Domain::new();
    let current = Arc::new(Rcu::new_in(Box::new(1), &DOMAIN));
    let (sender, receiver) = mpsc::channel();
    let other = current.clone();
    thread::spawn(move || sender.send(*other.load(&DOMAIN.quiescent_reader())).unwrap());
    assert_eq!(receiver.recv_timeout(LONG), Ok(1));
    DOMAIN.synchronize_timeout(LONG).unwrap();
}
