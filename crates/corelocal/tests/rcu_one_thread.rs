//! A process of one thread, as libc knows it: tests' harness has two. So a constructor runs the bodies, before there is
//! another thread, in a process of its own.
#![cfg(all(feature = "std", target_os = "linux"))]

use std::env;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use corelocal::rcu::{self, Domain, Error, Rcu, RcuHashMap};

const BODY: &str = "CORELOCAL_TEST_BODY";
const LONG: Duration = Duration::from_secs(20);

/// Versions that exist.
static LIVE: AtomicI64 = AtomicI64::new(0);

/// As large as one likes, which its type does not tell.
struct Version(#[allow(dead_code, reason = "its length counts")] Vec<u8>);

impl Version {
    fn new() -> Arc<Version> {
        LIVE.fetch_add(1, Ordering::Relaxed);
        Arc::new(Version(vec![1; 1 << 20]))
    }
}

impl Drop for Version {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

fn live() -> i64 {
    LIVE.load(Ordering::Relaxed)
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").map_or(0, |tasks| tasks.count())
}

/// Each store frees the old version before it returns.
fn stores_free_at_once() {
    let current = Rcu::new(Version::new());
    for _ in 0..100 {
        current.store(Version::new());
        assert_eq!(live(), 1);
        current.rcu(|_| Version::new());
        assert_eq!(live(), 1);
    }
    assert_eq!((threads(), rcu::GLOBAL.deferred_bytes()), (1, 0));
}

/// Stores before there was a second thread change nothing for those after.
fn an_early_store_retains_no_later_version() {
    let current = Arc::new(Rcu::new(Version::new()));
    current.store(Version::new());
    let begin = Instant::now();
    thread::spawn(move || {
        for _ in 0..20 {
            current.store(Version::new());
            while live() > 1 {
                assert!(begin.elapsed() < LONG, "{} versions are alive", live());
                thread::sleep(Duration::from_millis(1));
            }
        }
    })
    .join()
    .expect("no panic");
}

/// What a drop locks is not locked by it later, in an unrelated call.
fn a_store_calls_no_function_of_another_store() {
    static LOCKED: Mutex<u64> = Mutex::new(0);
    struct Locks([u8; 4000]);
    impl Drop for Locks {
        fn drop(&mut self) {
            *LOCKED.lock().unwrap() += u64::from(self.0[0]);
        }
    }
    let other = Rcu::new(Arc::new(0));
    let current = Rcu::new(Arc::new(Locks([1; 4000])));
    for nth in 0..200 {
        current.store(Arc::new(Locks([1; 4000])));
        // In which the drop above would wait for ever.
        let locked = LOCKED.lock().unwrap();
        assert_eq!(*locked, nth + 1);
        other.store(Arc::new(nth));
        rcu::defer(|| ());
    }
}

/// Under a guard functions wait; a program that wants no second thread gets none.
fn under_a_guard_functions_wait() {
    static RAN: AtomicU64 = AtomicU64::new(0);
    static DOMAIN: Domain = Domain::new();
    DOMAIN.on_caller();
    let guard = DOMAIN.read();
    DOMAIN.defer(|| _ = RAN.fetch_add(1, Ordering::Relaxed));
    assert_eq!((RAN.load(Ordering::Relaxed), threads()), (0, 1));
    drop(guard);
    // At once, and the one before stays where it is.
    DOMAIN.defer(|| _ = RAN.fetch_add(10, Ordering::Relaxed));
    assert_eq!(RAN.load(Ordering::Relaxed), 10);
    (0..10).for_each(|_| DOMAIN.flush());
    assert_eq!((RAN.load(Ordering::Relaxed), threads()), (11, 1));
    // Else the thread is started.
    let guard = rcu::read();
    rcu::defer(|| _ = RAN.fetch_add(100, Ordering::Relaxed));
    assert_eq!(RAN.load(Ordering::Relaxed), 11);
    drop(guard);
    let begin = Instant::now();
    while RAN.load(Ordering::Relaxed) < 111 {
        assert!(begin.elapsed() < LONG);
        thread::yield_now();
    }
    assert_eq!(threads(), 2);
}

/// A map, too, needs no second thread, also where it holds a guard itself for a while.
fn a_map_frees_at_once() {
    let map: RcuHashMap<u32, Arc<Version>> = (0..10).map(|key| (key, Version::new())).collect();
    assert!(map.insert(1, Version::new()) && map.remove(&2));
    assert_eq!(live(), 9);
    map.retain(|key, _| key % 2 == 0);
    assert_eq!(live(), 4);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut left = 2;
        map.retain(|_, _| {
            left -= 1;
            if left == 0 { std::panic::resume_unwind(Box::new(())) } else { false }
        });
    }));
    assert!(caught.is_err());
    assert_eq!((live(), map.len()), (3, 3));
    map.clear();
    assert_eq!((live(), threads()), (0, 1));
}

/// A function that is called at once is a deferred function all the same.
fn functions_at_once_are_deferred_functions() {
    static DOMAIN: Domain = Domain::new();
    DOMAIN.defer(|| {
        assert_eq!(DOMAIN.synchronize(), Err(Error::InCallback));
        assert_eq!(DOMAIN.barrier(), Err(Error::InCallback));
        DOMAIN.defer(|| ());
    });
    DOMAIN.defer(|| std::panic::resume_unwind(Box::new(())));
    assert_eq!(DOMAIN.panics(), 1);
    assert_eq!(DOMAIN.barrier(), Ok(()));
}

const BODIES: &[(&str, fn())] = &[
    ("stores_free_at_once", stores_free_at_once),
    ("an_early_store_retains_no_later_version", an_early_store_retains_no_later_version),
    ("a_store_calls_no_function_of_another_store", a_store_calls_no_function_of_another_store),
    ("a_map_frees_at_once", a_map_frees_at_once),
    ("under_a_guard_functions_wait", under_a_guard_functions_wait),
    ("functions_at_once_are_deferred_functions", functions_at_once_are_deferred_functions),
];

extern "C" fn early() {
    let Ok(name) = env::var(BODY) else { return };
    let Some((_, body)) = BODIES.iter().find(|(known, _)| *known == name) else { return };
    // SAFETY: ends the process if it hangs.
    unsafe { libc::alarm(60) };
    let code = if std::panic::catch_unwind(body).is_ok() { 0 } else { 101 };
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static EARLY: extern "C" fn() = early;

#[test]
fn a_process_of_one_thread_keeps_the_rule() {
    for (name, _) in BODIES {
        let status = Command::new(env::current_exe().unwrap()).env(BODY, name).status().unwrap();
        assert!(status.success(), "{name}: {status}");
    }
}
