//! Waiting for several things: exactly one is taken, or all are, and no wake-up is lost on others.

mod asleep;
mod leaked;
mod mapped;
mod storm;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use corelocal::sync::{
    AutoEvent, Latch, MAX_WAITABLES, ManualEvent, Parker, Semaphore, Shared, WaitError, WaitGroup,
    Waitable, wait_all, wait_all_for, wait_any, wait_any_for,
};

#[test]
fn the_first_that_is_there_is_taken() {
    let (auto, permits, parker) = (AutoEvent::new(true), Semaphore::new(1), Parker::new());
    let (manual, latch, group) = (ManualEvent::new(true), Latch::new(0), WaitGroup::new());
    parker.unpark();
    let things: [&dyn Waitable; 6] = [&auto, &permits, &parker, &manual, &latch, &group];
    assert_eq!(wait_any(&things), Ok(0));
    assert_eq!(wait_any(&things), Ok(1));
    assert_eq!(wait_any(&things), Ok(2));
    // Those that stay as they are.
    assert_eq!(wait_any(&things), Ok(3));
    manual.reset();
    assert_eq!(wait_any(&things), Ok(4));
    assert_eq!(wait_any(&things[5..]), Ok(0));
    group.add(1);
    assert_eq!(wait_any_for(&things[5..], Duration::ZERO), Err(WaitError::TimedOut));
}

#[test]
fn how_many_there_may_be() {
    assert_eq!(wait_any(&[]), Err(WaitError::Nothing));
    assert_eq!(wait_all(&[]), Ok(()));
    let events: Vec<_> = (0..=MAX_WAITABLES).map(|_| AutoEvent::new(false)).collect();
    let things: Vec<_> = events.iter().map(|event| event as &dyn Waitable).collect();
    assert_eq!(wait_any(&things), Err(WaitError::TooMany));
    assert_eq!(wait_all(&things), Err(WaitError::TooMany));
    let most = &things[..MAX_WAITABLES];
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(5));
            events[MAX_WAITABLES - 1].set();
        });
        assert_eq!(wait_any(most), Ok(MAX_WAITABLES - 1));
    });
    let start = Instant::now();
    assert_eq!(wait_any_for(most, Duration::from_millis(10)), Err(WaitError::TimedOut));
    assert!(start.elapsed() >= Duration::from_millis(10));
    events[..MAX_WAITABLES].iter().for_each(|event| event.set());
    assert_eq!(wait_all(most), Ok(()));
    assert!(events.iter().all(|event| !event.is_set()));
}

/// Threads that wait for both, threads that wait for one, and as many permits as they take in total. A wake-up that
/// went to the wrong thread would leave another one asleep.
#[test]
fn no_wake_up_is_lost() {
    let (first, second) = (Semaphore::new(0), Semaphore::new(0));
    let each = storm::scaled(4_000);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut moved = 0;
                while moved < each {
                    // What it takes from either is there for those that wait for the second alone.
                    moved += u64::from(wait_any(&[&first, &second]) == Ok(0));
                    second.release();
                }
            });
            scope.spawn(|| (0..each).for_each(|_| second.acquire_raw()));
        }
        for _ in 0..2 * each {
            first.release();
        }
    });
    assert_eq!((first.available(), second.available()), (0, 0));
}

/// Both sleep; the second permit comes before the first one is taken, or right after: both go.
fn two_go(wait: fn(&'static Semaphore)) {
    for _ in 0..storm::scaled(200).max(5) {
        let permits = leaked::forever(Semaphore::new(0));
        let (tell, told) = std::sync::mpsc::channel();
        let takers = [(); 2].map(|()| {
            let tell = tell.clone();
            thread::spawn(move || {
                // SAFETY: no preconditions.
                tell.send(unsafe { libc::gettid() }).unwrap();
                wait(permits);
            })
        });
        told.iter().take(2).for_each(asleep::until_asleep);
        permits.release();
        permits.release();
        let start = Instant::now();
        while !takers.iter().all(|taker| taker.is_finished()) {
            assert!(start.elapsed() < Duration::from_secs(30), "one sleeps on beside a permit");
            thread::sleep(Duration::from_micros(100));
        }
        takers.into_iter().for_each(|taker| taker.join().unwrap());
        assert_eq!(permits.available(), 0);
    }
}

#[test]
fn two_that_sleep_on_one_thing_both_go() {
    two_go(|permits| assert_eq!(wait_any(&[permits]), Ok(0)));
    two_go(|permits| assert_eq!(wait_all(&[permits]), Ok(())));
}

/// Timeouts in between, with both scopes in one wait.
#[test]
fn permits_are_kept_count_of() {
    let (private, shared) = (Semaphore::new(0), Semaphore::<Shared>::with_scope(0));
    let event = AutoEvent::new(false);
    let rounds = storm::scaled(3_000);
    let done = AtomicBool::new(false);
    let taken = AtomicU64::new(0);
    thread::scope(|scope| {
        let _tell = storm::Tell(&done);
        for i in 0..3u64 {
            let (private, shared, event, done, taken) = (&private, &shared, &event, &done, &taken);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let span = Duration::from_micros(20 + 30 * i);
                    if let Ok(0 | 1) = wait_any_for(&[private, shared, event], span) {
                        taken.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for round in 0..rounds {
            if round % 2 == 0 {
                private.release()
            } else {
                shared.release()
            }
            event.set();
        }
    });
    let left = private.available() + shared.available();
    assert_eq!(taken.into_inner() + u64::from(left), rounds);
}

#[test]
fn all_are_to_be_named_once() {
    let (two, other) = (Semaphore::new(2), Semaphore::new(1));
    let twice: [&dyn Waitable; 3] = [&two, &other, &two];
    assert_eq!(wait_all_for(&twice, Duration::from_secs(60)), Err(WaitError::Twice));
    assert_eq!((two.available(), other.available()), (2, 1));
    assert_eq!(wait_any(&twice), Ok(0));
}

/// Philosophers, each of whom takes two of the forks or none, named in orders that would lock each other out.
#[test]
fn all_or_none() {
    let forks: [Semaphore; 3] = std::array::from_fn(|_| Semaphore::new(1));
    let each = storm::scaled(2_000);
    let held: [AtomicU64; 3] = Default::default();
    thread::scope(|scope| {
        for i in 0..3 {
            let (forks, held) = (&forks, &held);
            scope.spawn(move || {
                let (left, right) = (i, (i + 1) % 3);
                let mut meals = 0;
                while meals < each {
                    let both: [&dyn Waitable; 2] = [&forks[left], &forks[right]];
                    let span = Duration::from_micros(100);
                    let ate =
                        if meals % 2 == 0 { wait_all(&both) } else { wait_all_for(&both, span) };
                    if ate.is_ok() {
                        meals += 1;
                        for fork in [left, right] {
                            assert_eq!(held[fork].fetch_add(1, Ordering::Relaxed), 0);
                        }
                        for fork in [left, right] {
                            held[fork].fetch_sub(1, Ordering::Relaxed);
                            forks[fork].release();
                        }
                    }
                }
            });
        }
    });
    assert!(forks.iter().all(|fork| fork.available() == 1));
}

#[test]
fn what_is_missing_is_waited_for_and_nothing_is_taken_before() {
    let (permits, event, latch) = (Semaphore::new(1), ManualEvent::new(false), Latch::new(1));
    let things: [&dyn Waitable; 3] = [&permits, &event, &latch];
    let short = Duration::from_millis(5);
    assert_eq!(wait_all_for(&things, short), Err(WaitError::TimedOut));
    assert_eq!(permits.available(), 1);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(short);
            event.set();
            thread::sleep(short);
            latch.count_down();
        });
        assert_eq!(wait_all(&things), Ok(()));
    });
    assert_eq!(permits.available(), 0);
}

#[test]
fn signals_change_nothing() {
    static PERMITS: [Semaphore; 2] = [const { Semaphore::new(0) }; 2];
    static TURN: AtomicU64 = AtomicU64::new(0);
    let mut taken = 0;
    let given = thread::scope(|scope| {
        let taker = scope.spawn(|| {
            let things: [&dyn Waitable; 2] = [&PERMITS[0], &PERMITS[1]];
            let mut taken = 0;
            while wait_any_for(&things, Duration::from_secs(2)).is_ok() {
                taken += 1;
            }
            taken
        });
        let given = storm::rage_doing(2, storm::scaled(10_000), || {
            PERMITS[TURN.fetch_add(1, Ordering::Relaxed) as usize % 2].release();
        });
        taken += taker.join().unwrap();
        given
    });
    assert_eq!(taken, given);
}

#[test]
fn two_processes_wait_at_two_addresses() {
    let [mine, theirs] = mapped::twice::<[AutoEvent<Shared>; 3]>();
    let rounds = storm::scaled(2_000);
    let child = mapped::child(|| {
        (0..rounds).all(|round| {
            let taken = wait_any(&[&theirs[0], &theirs[1]]);
            theirs[2].set();
            taken == Ok(round as usize % 2)
        })
    });
    for round in 0..rounds {
        mine[round as usize % 2].set();
        mine[2].wait();
    }
    mapped::succeeds(child);
}
