//! Versions of data, and functions that run after a grace period.
#![cfg(feature = "std")]

mod forked;
mod sandbox;
mod storm;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use std::{panic, ptr};

use corelocal::rcu::{self, Domain, Error, NotCurrent, Rcu};

const SOON: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(20);

/// Counts its drops, and is poisoned by them.
struct Counted {
    value: u64,
    drops: Arc<AtomicU64>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.value = u64::MAX;
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn versions_are_dropped_once() {
    static DOMAIN: Domain = Domain::new();
    let drops = Arc::new(AtomicU64::new(0));
    let counted = |value| Counted { value, drops: drops.clone() };
    let boxed = Rcu::new_in(Box::new(counted(1)), &DOMAIN);
    let shared = Rcu::new_in(Arc::new(counted(2)), &DOMAIN);
    let optional = Rcu::new_in(None::<Box<Counted>>, &DOMAIN);
    let guard = DOMAIN.read();
    let old = boxed.load(&guard);
    boxed.store(Box::new(counted(3)));
    assert_eq!((old.value, boxed.load(&guard).value), (1, 3));
    let full = shared.load_full();
    let swapped = shared.swap(Arc::new(counted(4)));
    assert!(Arc::ptr_eq(&full, &swapped));
    assert_eq!((full.value, shared.load(&guard).value), (2, 4));
    assert!(optional.load(&guard).is_none());
    optional.store(Some(Box::new(counted(5))));
    assert_eq!(optional.load(&guard).map(|it| it.value), Some(5));
    optional.store(None);
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    drop(guard);
    DOMAIN.barrier().unwrap();
    // The first box, and what was optional. The first `Arc` is ours still.
    assert_eq!(drops.load(Ordering::Relaxed), 2);
    drop((full, swapped));
    drop((boxed, shared, optional));
    assert_eq!(drops.load(Ordering::Relaxed), 5);
    assert_eq!(DOMAIN.deferred_bytes(), 0);
}

#[test]
fn compare_and_swap_takes_what_is_current() {
    let number = Rcu::new(Box::new(1));
    let guard = rcu::read();
    let one = number.load(&guard);
    assert_eq!(number.compare_and_swap(one, Box::new(2), &guard).unwrap(), &1);
    let found: NotCurrent<Box<i32>> =
        number.compare_and_swap(one, Box::new(3), &guard).unwrap_err();
    assert_eq!((*found.current, *found.new), (2, 3));
    assert_eq!(format!("{number:?}"), "Rcu(2)");
}

#[test]
fn changes_are_not_lost() {
    let sum = Rcu::new(Box::new(0));
    let each = storm::scaled(20_000);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..each).for_each(|_| sum.rcu(|sum| Box::new(sum + 1))));
        }
    });
    assert_eq!(*sum.load(&rcu::read()), 4 * each);
    rcu::barrier().unwrap();
}

#[test]
#[should_panic(expected = "the guard is of another domain than this Rcu")]
fn a_guard_of_another_domain_is_refused() {
    static DOMAIN: Domain = Domain::new();
    let number = Rcu::new(Box::new(1));
    number.load(&DOMAIN.read());
}

/// Readers find what was stored, and nothing that was dropped.
#[test]
fn no_dropped_version_is_read() {
    static DOMAIN: Domain = Domain::new();
    let drops = Arc::new(AtomicU64::new(0));
    let new = |value| Arc::new(Counted { value, drops: drops.clone() });
    let current = Rcu::new_in(new(0), &DOMAIN);
    let is_over = AtomicBool::new(false);
    let changes = storm::scaled(200_000);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut last = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let guard = DOMAIN.read();
                    let version = current.load(&guard);
                    assert!(version.value != u64::MAX && version.value >= last);
                    last = version.value;
                    assert!(current.load_full().value >= last);
                }
            });
        }
        (1..=changes).for_each(|value| current.store(new(value)));
        is_over.store(true, Ordering::Relaxed);
    });
    DOMAIN.barrier().unwrap();
    assert_eq!(drops.load(Ordering::Relaxed), changes);
}

#[test]
fn functions_run_after_a_grace_period() {
    static DOMAIN: Domain = Domain::new();
    static RAN: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    let guard = DOMAIN.read();
    (0..1000).for_each(|nth| DOMAIN.defer(move || RAN.lock().unwrap().push(nth)));
    thread::sleep(SOON);
    assert!(RAN.lock().unwrap().is_empty() && DOMAIN.deferred_bytes() > 0);
    drop(guard);
    DOMAIN.barrier().unwrap();
    let mut ran = RAN.lock().unwrap();
    ran.sort_unstable();
    assert!(ran.iter().copied().eq(0..1000));
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        // A payload of no size, so that nothing is lost of what is not dropped.
        panic::resume_unwind(Box::new(()));
    }
}

#[test]
fn a_panic_is_counted() {
    static DOMAIN: Domain = Domain::new();
    let (sender, receiver) = mpsc::channel();
    DOMAIN.defer(|| panic!("planned"));
    DOMAIN.defer(|| panic::panic_any(PanicsWhenDropped));
    DOMAIN.defer(move || sender.send(7).unwrap());
    DOMAIN.barrier().unwrap();
    assert_eq!((receiver.recv(), DOMAIN.panics()), (Ok(7), 2));
}

#[test]
fn a_deferred_function_does_not_wait_for_itself() {
    static DOMAIN: Domain = Domain::new();
    let (sender, receiver) = mpsc::channel();
    DOMAIN.defer(move || {
        DOMAIN.defer(|| ()); // allowed
        let ticket = DOMAIN.start_poll().is_complete();
        sender.send((DOMAIN.synchronize(), DOMAIN.barrier(), ticket.map(drop))).unwrap();
    });
    DOMAIN.barrier().unwrap();
    let refused = Err(Error::InCallback);
    assert_eq!(receiver.recv().unwrap(), (refused, refused, refused));
    DOMAIN.barrier().unwrap();
    assert_eq!(DOMAIN.deferred_bytes(), 0);
}

/// In a process of one thread it runs in a call of `defer` or `barrier`.
#[test]
fn a_deferred_function_of_one_thread_does_not_wait_for_itself() {
    static DOMAIN: Domain = Domain::new();
    static REFUSED: AtomicU64 = AtomicU64::new(0);
    forked::judge(|| {
        DOMAIN.defer(|| {
            DOMAIN.defer(|| ());
            let refused = [DOMAIN.synchronize(), DOMAIN.barrier()];
            REFUSED.store(u64::from(refused == [Err(Error::InCallback); 2]), Ordering::Relaxed);
        });
        DOMAIN.barrier() == Ok(()) && REFUSED.load(Ordering::Relaxed) == 1
    })
    .succeeds();
}

/// The background thread runs the functions of all domains.
#[test]
fn a_deferred_function_may_wait_for_another_domain() {
    static ONE: Domain = Domain::new();
    static OTHER: Domain = Domain::new();
    let (sender, receiver) = mpsc::channel();
    ONE.defer(move || {
        OTHER.set_limits(100, 100);
        (0..10).for_each(|_| OTHER.defer_bytes(1000, || ()));
        sender.send((OTHER.synchronize(), OTHER.barrier())).unwrap();
    });
    assert_eq!(receiver.recv_timeout(LONG), Ok((Ok(()), Ok(()))));
    ONE.barrier().unwrap();
}

/// A reader that stays delays the functions of its domain only.
#[test]
fn a_reader_delays_no_other_domain() {
    static ONE: Domain = Domain::new();
    static OTHER: Domain = Domain::new();
    let guard = ONE.read();
    for domain in [&ONE, &OTHER, &ONE] {
        let (sender, receiver) = mpsc::channel();
        // For `ONE` it runs after the last `recv_timeout`.
        domain.defer(move || _ = sender.send(()));
        let ran = receiver.recv_timeout(if ptr::eq(domain, &ONE) { SOON } else { LONG });
        assert_eq!(ran.is_ok(), ptr::eq(domain, &OTHER));
    }
    drop(guard);
    ONE.barrier().unwrap();
}

/// A function that forks, in the child: it is still a deferred function there, and the others run.
#[test]
fn a_deferred_function_may_fork() {
    static DOMAIN: Domain = Domain::new();
    static RAN: AtomicU64 = AtomicU64::new(0);
    let count = || _ = RAN.fetch_add(1, Ordering::Relaxed);
    forked::judge(move || {
        DOMAIN.defer(|| {
            forked::judge(|| DOMAIN.barrier() == Err(Error::InCallback)).succeeds();
        });
        (0..100).for_each(|_| DOMAIN.defer(count));
        DOMAIN.barrier() == Ok(()) && RAN.load(Ordering::Relaxed) == 100
    })
    .succeeds();
}

/// An idle background thread is woken.
#[test]
fn what_is_deferred_later_runs_without_a_barrier() {
    static DOMAIN: Domain = Domain::new();
    for _ in 0..20 {
        let (sender, receiver) = mpsc::channel();
        DOMAIN.defer(move || sender.send(()).unwrap());
        assert_eq!(receiver.recv_timeout(LONG), Ok(()));
        thread::sleep(Duration::from_millis(5));
    }
}

/// Behind a reader that stays, memory is bounded; all of it goes when the reader ends.
#[test]
fn memory_is_bounded() {
    static DOMAIN: Domain = Domain::new();
    const HARD: usize = 1 << 20;
    DOMAIN.set_limits(HARD / 4, HARD);
    let guard = DOMAIN.read();
    let mut refused = None;
    while refused.is_none() {
        refused = DOMAIN.try_defer(1000, || ()).err();
        assert!(DOMAIN.deferred_bytes() < HARD + 2000);
    }
    let waiting = thread::spawn(move || DOMAIN.defer(refused.unwrap()));
    thread::sleep(SOON);
    assert!(!waiting.is_finished());
    // Under a guard it would wait for ever, and does not.
    DOMAIN.defer(|| ());
    drop(guard);
    waiting.join().unwrap();
    let begin = Instant::now();
    while DOMAIN.deferred_bytes() > 0 {
        assert!(begin.elapsed() < LONG);
        thread::yield_now();
    }
}

/// A process of one thread stays one, and each function is called before `defer` returns.
#[test]
fn a_process_of_one_thread_runs_them_at_once() {
    static DOMAIN: Domain = Domain::new();
    static RAN: AtomicU64 = AtomicU64::new(0);
    forked::judge(|| {
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let at_once = (1..=1000).all(|nth| {
            DOMAIN.defer(|| _ = RAN.fetch_add(1, Ordering::Relaxed));
            RAN.load(Ordering::Relaxed) == nth
        });
        at_once && DOMAIN.deferred_bytes() == 0 && threads() == 1
    })
    .succeeds();
}

/// The background thread of the parent is not in the child.
#[test]
fn a_child_has_a_thread_of_its_own() {
    static DOMAIN: Domain = Domain::new();
    static RAN: AtomicU64 = AtomicU64::new(0);
    let count = || _ = RAN.fetch_add(1, Ordering::Relaxed);
    DOMAIN.defer(count);
    DOMAIN.barrier().unwrap();
    for _ in 0..storm::scaled(50) {
        (0..100).for_each(|_| DOMAIN.defer(count));
        forked::judge(|| {
            DOMAIN.defer(count);
            DOMAIN.barrier() == Ok(()) && DOMAIN.deferred_bytes() == 0
        })
        .succeeds();
    }
    DOMAIN.barrier().unwrap();
    assert_eq!(RAN.load(Ordering::Relaxed), 1 + 100 * storm::scaled(50));
}

#[test]
fn refused_later_nothing_is_freed() {
    sandbox::run_in_child(
        "refused_later_nothing_is_freed",
        |_| (),
        || {
            static DOMAIN: Domain = Domain::new();
            static RAN: AtomicBool = AtomicBool::new(false);
            DOMAIN.defer(|| ());
            DOMAIN.barrier().unwrap();
            // For threads that are made from now on, and this one.
            sandbox::refuse(libc::SYS_membarrier, sandbox::When::Always, libc::EPERM);
            assert!(matches!(DOMAIN.synchronize(), Err(Error::Refused(_))));
            let guard = DOMAIN.read();
            DOMAIN.defer(|| RAN.store(true, Ordering::Relaxed));
            thread::sleep(SOON);
            assert!(!RAN.load(Ordering::Relaxed));
            drop(guard);
        },
    );
}

/// A thread that has a guard until the sender is dropped.
fn reader(domain: &'static Domain) -> (mpsc::Sender<()>, thread::JoinHandle<()>) {
    let (begun, has_begun) = mpsc::channel();
    let (end, is_over) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        let guard = domain.read();
        begun.send(()).unwrap();
        let _ = is_over.recv();
        drop(guard);
    });
    has_begun.recv().unwrap();
    (end, thread)
}

/// A domain whose functions the background thread does not run.
#[test]
fn functions_run_on_the_caller_that_asks() {
    static DOMAIN: Domain = Domain::new();
    static RAN: Mutex<Vec<thread::ThreadId>> = Mutex::new(Vec::new());
    let note = || RAN.lock().unwrap().push(thread::current().id());
    let ran = || RAN.lock().unwrap().len();
    DOMAIN.on_caller();
    let guard = DOMAIN.read();
    DOMAIN.defer(note);
    DOMAIN.flush();
    assert_eq!(ran(), 0, "under a guard");
    drop(guard);
    thread::sleep(SOON);
    DOMAIN.defer(note);
    assert_eq!(ran(), 0, "no call of defer, and no other thread");
    (0..100).for_each(|_| DOMAIN.flush());
    assert_eq!(ran(), 2);
    DOMAIN.defer(note);
    DOMAIN.barrier().unwrap();
    assert_eq!(ran(), 3);
    DOMAIN.defer(note);
    DOMAIN.synchronize().unwrap();
    assert_eq!(ran(), 4);
    DOMAIN.defer(note);
    DOMAIN.synchronize_timeout(LONG).unwrap();
    assert_eq!(ran(), 5);
    assert!(RAN.lock().unwrap().iter().all(|id| *id == thread::current().id()));
    // At the hard limit there is no other thread to wait for.
    DOMAIN.set_limits(100, 1000);
    (0..1000).for_each(|_| DOMAIN.defer_bytes(100, || ()));
    assert!(DOMAIN.deferred_bytes() <= 1000);
}

/// `Rcu::rcu` waits at the hard limit, too, as do large items.
#[test]
fn the_hard_limit_holds_for_every_kind_of_store() {
    static DOMAIN: Domain = Domain::new();
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    const HARD: usize = 1 << 20;
    DOMAIN.set_limits(HARD / 4, HARD);
    let (end, reader) = reader(&DOMAIN);
    thread::scope(|scope| {
        for nth in 0..4 {
            scope.spawn(move || {
                let current = Rcu::new_in(Arc::new([0_u8; 1000]), &DOMAIN);
                while !IS_OVER.load(Ordering::Relaxed) {
                    match nth {
                        0 => current.rcu(|old| Arc::new(*old)),
                        1 => current.store(Arc::new([1; 1000])),
                        2 => drop(current.swap(Arc::new([1; 1000]))),
                        _ => _ = DOMAIN.try_defer(HARD / 5, || ()),
                    }
                }
            });
        }
        let (begin, mut most) = (Instant::now(), 0);
        while begin.elapsed() < Duration::from_millis(500) {
            most = most.max(DOMAIN.deferred_bytes());
        }
        IS_OVER.store(true, Ordering::Relaxed);
        drop(end);
        // All four waited, or were refused.
        assert!((HARD / 2..=HARD).contains(&most), "{most}");
    });
    reader.join().unwrap();
    DOMAIN.barrier().unwrap();
    assert_eq!(DOMAIN.deferred_bytes(), 0);
}

/// It runs on the thread of all domains, which must not wait.
#[test]
fn a_deferred_function_does_not_wait_at_the_limit_of_another_domain() {
    static ONE: Domain = Domain::new();
    static FULL: Domain = Domain::new();
    FULL.set_limits(1 << 10, 1 << 12);
    let (end, reader) = reader(&FULL);
    while FULL.try_defer(1 << 10, || ()).is_ok() {}
    let (sender, receiver) = mpsc::channel();
    ONE.defer(move || {
        FULL.defer_bytes(1 << 10, || ());
        sender.send(()).unwrap();
    });
    assert_eq!(receiver.recv_timeout(LONG), Ok(()));
    drop(end);
    reader.join().unwrap();
    FULL.barrier().unwrap();
    assert_eq!(FULL.deferred_bytes(), 0);
}

#[test]
fn every_pair_of_limits_works() {
    static DOMAIN: Domain = Domain::new();
    let numbers = [0, 1, 1 << 20, isize::MAX as usize, isize::MAX as usize + 1, usize::MAX];
    for (soft, hard) in numbers.iter().flat_map(|soft| numbers.map(|hard| (*soft, hard))) {
        DOMAIN.set_limits(soft, hard);
        let (sender, receiver) = mpsc::channel();
        let again = sender.clone();
        DOMAIN.defer_bytes(usize::MAX, move || sender.send(1).unwrap());
        DOMAIN.defer(move || again.send(2).unwrap());
        DOMAIN.barrier().unwrap();
        assert_eq!(receiver.iter().sum::<i32>(), 3, "{soft}, {hard}");
        let tried = DOMAIN.try_defer(0, || ());
        assert!(tried.is_ok(), "{soft}, {hard}");
        DOMAIN.barrier().unwrap();
        assert_eq!(DOMAIN.deferred_bytes(), 0, "{soft}, {hard}");
    }
    // Under a guard, where no limit holds, sums stay right.
    let guard = DOMAIN.read();
    (0..100).for_each(|_| DOMAIN.defer_bytes(usize::MAX, || ()));
    assert!(DOMAIN.deferred_bytes() >= 100 << 40);
    drop(guard);
    DOMAIN.barrier().unwrap();
    assert_eq!(DOMAIN.deferred_bytes(), 0);
    // Of time: none at all, and the longest.
    for limit in [Duration::ZERO, Duration::MAX] {
        DOMAIN.set_stall_limit(limit);
        assert_eq!(DOMAIN.synchronize_timeout(limit), Ok(()));
    }
}

/// libc makes no thread: callers run the functions, and the failure is counted.
#[test]
fn without_a_background_thread_callers_run_functions() {
    let test = "without_a_background_thread_callers_run_functions";
    sandbox::run_in_child(
        test,
        |_| (),
        || {
            static DOMAIN: Domain = Domain::new();
            static RAN: AtomicU64 = AtomicU64::new(0);
            let count = || _ = RAN.fetch_add(1, Ordering::Relaxed);
            for call in [libc::SYS_clone3, libc::SYS_clone] {
                sandbox::refuse(call, sandbox::When::Always, libc::EAGAIN);
            }
            DOMAIN.defer(count);
            assert!(rcu::thread_failures() > 0 && RAN.load(Ordering::Relaxed) == 0);
            DOMAIN.barrier().unwrap();
            assert_eq!(RAN.load(Ordering::Relaxed), 1);
            DOMAIN.set_limits(100, 10_000);
            (0..1000).for_each(|_| DOMAIN.defer_bytes(100, count));
            assert!(DOMAIN.deferred_bytes() <= 10_000 && RAN.load(Ordering::Relaxed) > 900);
            DOMAIN.flush();
            DOMAIN.synchronize().unwrap();
            assert_eq!(RAN.load(Ordering::Relaxed), 1001);
        },
    );
}
