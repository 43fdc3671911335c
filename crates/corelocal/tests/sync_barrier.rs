//! Barriers under load: no thread passes before all have arrived, one leads, and a thread that times out is not
//! counted. Beside them the C library's.

mod mapped;
mod storm;

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use corelocal::sync::{Barrier, Shared};

/// Each of these threads meets the others this many times. One leads each time, and no thread is a round ahead.
fn meet(threads: u32, rounds: u64, wait: &(impl Fn() -> bool + Sync)) {
    let arrived = AtomicU64::new(0);
    let leads = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for round in 1..=rounds {
                    arrived.fetch_add(1, Ordering::Relaxed);
                    leads.fetch_add(u64::from(wait()), Ordering::Relaxed);
                    let seen = arrived.load(Ordering::Relaxed);
                    assert!(seen >= round * u64::from(threads), "passed before all were there");
                    assert!(seen <= (round + 1) * u64::from(threads), "a round ahead");
                }
            });
        }
    });
    assert_eq!(leads.into_inner(), rounds);
}

/// The C library's.
struct Theirs(UnsafeCell<libc::pthread_barrier_t>);

// SAFETY: it is made for threads.
unsafe impl Sync for Theirs {}

impl Theirs {
    /// Whether the caller is the one that is told apart.
    fn wait(&self) -> bool {
        // SAFETY: initialised by its constructor.
        let result = unsafe { libc::pthread_barrier_wait(self.0.get()) };
        result == libc::PTHREAD_BARRIER_SERIAL_THREAD
    }
}

/// The same script on both.
#[test]
fn all_meet_as_with_the_c_library() {
    for threads in [1, 2, 3, 8, 32] {
        let rounds = storm::scaled(2_000) / u64::from(threads);
        let ours = Barrier::new(threads);
        meet(threads, rounds, &|| ours.wait().is_leader());
        // SAFETY: initialised before use; a plain structure.
        let theirs: Theirs = unsafe { std::mem::zeroed() };
        // SAFETY: memory of its type.
        let made = unsafe { libc::pthread_barrier_init(theirs.0.get(), std::ptr::null(), threads) };
        assert_eq!(made, 0);
        meet(threads, rounds, &|| theirs.wait());
    }
}

#[test]
fn nobody_waits_at_a_barrier_of_one() {
    for threads in [0, 1] {
        let barrier = Barrier::new(threads);
        assert!((0..3).all(|_| barrier.wait().is_leader()));
        assert!(barrier.wait_for(Duration::ZERO).is_some_and(|result| result.is_leader()));
    }
    assert_eq!(size_of::<Barrier>(), 16);
}

/// More threads than places: each round takes the first that come.
#[test]
fn more_threads_than_places() {
    let barrier = Barrier::new(3);
    let leads = AtomicU64::new(0);
    let each = storm::scaled(600) / 2 * 3;
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..each {
                    // At the end fewer than three may be left: these give up.
                    match barrier.wait_for(Duration::from_millis(200)) {
                        Some(result) => {
                            leads.fetch_add(u64::from(result.is_leader()), Ordering::Relaxed);
                        }
                        None => return,
                    }
                }
            });
        }
    });
    assert!(leads.into_inner() >= each);
}

#[test]
fn who_gives_up_was_not_there() {
    let barrier = Barrier::new(2);
    let start = Instant::now();
    assert!(barrier.wait_for(Duration::from_millis(10)).is_none());
    assert!(start.elapsed() >= Duration::from_millis(10));
    // Were the first one still counted, this one would lead.
    assert!(barrier.wait_for(Duration::ZERO).is_none());
    thread::scope(|scope| {
        scope.spawn(|| barrier.wait());
        barrier.wait();
    });
}

/// Both meet or neither does.
#[test]
fn deadlines_race_with_arrivals() {
    let barrier = Barrier::new(2);
    let rounds = storm::scaled(2_000);
    let met = |barrier: &Barrier| {
        (0..rounds)
            .filter(|round| barrier.wait_for(Duration::from_micros(round * 7 % 90)).is_some())
            .count()
    };
    let (mine, theirs) = thread::scope(|scope| {
        let other = scope.spawn(|| met(&barrier));
        (met(&barrier), other.join().unwrap())
    });
    assert_eq!(mine, theirs);
}

#[test]
fn signals_change_nothing() {
    use std::sync::OnceLock;
    static BARRIER: OnceLock<Barrier> = OnceLock::new();
    BARRIER.get_or_init(|| Barrier::new(2));
    thread::scope(|scope| {
        let partner = scope.spawn(|| {
            while let Some(barrier) = BARRIER.get() {
                if barrier.wait_for(Duration::from_millis(100)).is_none() {
                    break;
                }
            }
        });
        // The handlers interrupt waits, and wait for a moment themselves.
        storm::rage_doing(2, storm::scaled(3_000), || {
            if let Some(barrier) = BARRIER.get() {
                barrier.wait_for(Duration::from_micros(50));
            }
        });
        partner.join().unwrap();
    });
    assert!(BARRIER.get().is_some_and(|barrier| barrier.wait_for(Duration::ZERO).is_none()));
}

/// A barrier in shared memory cannot be all zero: it is written there by one, before the other comes.
#[test]
fn two_processes_meet_at_two_addresses() {
    struct Place(UnsafeCell<std::mem::MaybeUninit<Barrier<Shared>>>, AtomicU64);
    // SAFETY: written once, before the child exists.
    unsafe impl Sync for Place {}
    let [mine, theirs] = mapped::twice::<Place>();
    // SAFETY: no other thread has it yet.
    unsafe { (*mine.0.get()).write(Barrier::with_scope(2)) };
    let rounds = storm::scaled(2_000);
    let meet = |place: &Place| {
        // SAFETY: written above.
        let barrier = unsafe { (*place.0.get()).assume_init_ref() };
        (1..=rounds).all(|round| {
            place.1.fetch_add(1, Ordering::Relaxed);
            barrier.wait();
            place.1.load(Ordering::Relaxed) >= 2 * round
        })
    };
    let child = mapped::child(|| meet(theirs));
    assert!(meet(mine));
    mapped::succeeds(child);
}
