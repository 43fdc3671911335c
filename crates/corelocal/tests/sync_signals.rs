//! Semaphores, events, parkers, latches and wait groups under load: nothing is lost, deadlines are kept, signals
//! and processes do not matter, and a semaphore does what the C library's does.

mod mapped;
mod storm;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use corelocal::sync::{
    AutoEvent, Deadline, Latch, ManualEvent, Parker, Semaphore, Shared, WaitGroup,
};
use proptest::prelude::*;

#[test]
fn what_they_occupy() {
    assert_eq!(size_of::<Semaphore>(), 4);
    assert_eq!(size_of::<(AutoEvent, ManualEvent)>(), 8);
    assert_eq!(size_of::<(Parker, Latch, WaitGroup)>(), 12);
}

/// As many permits as there are, taken in all ways, by more threads than cpus.
#[test]
fn permits_are_kept_count_of() {
    let permits = Semaphore::new(3);
    let (inside, each) = (AtomicU64::new(0), storm::scaled(20_000));
    thread::scope(|scope| {
        for i in 0..8 {
            let (permits, inside) = (&permits, &inside);
            scope.spawn(move || {
                for turn in 0..each {
                    let taken = match (turn + i) % 4 {
                        0 => permits.try_acquire_raw(),
                        1 => permits.try_acquire_raw_for(Duration::from_micros(turn % 60)),
                        _ => {
                            permits.acquire_raw();
                            true
                        }
                    };
                    if taken {
                        assert!(inside.fetch_add(1, Ordering::Relaxed) < 3);
                        inside.fetch_sub(1, Ordering::Relaxed);
                        permits.release();
                    }
                }
            });
        }
    });
    assert_eq!(permits.available(), 3);
}

#[test]
fn too_many_permits_are_refused() {
    let permits = Semaphore::new(Semaphore::<corelocal::sync::Private>::MAX);
    let released = std::panic::catch_unwind(|| permits.release());
    assert!(released.is_err());
    assert_eq!(permits.available(), Semaphore::<corelocal::sync::Private>::MAX);
    permits.release_many(0);
    assert!(std::panic::catch_unwind(|| Semaphore::new(1 << 30)).is_err());
}

/// A signal handler releases what threads wait for, while they are signalled.
#[test]
fn handlers_release() {
    static PERMITS: Semaphore = Semaphore::new(0);
    let taken = AtomicU64::new(0);
    let given = thread::scope(|scope| {
        let taker = scope.spawn(|| {
            // The last one is given when all others were.
            while PERMITS.try_acquire_raw_for(Duration::from_secs(5)) {
                taken.fetch_add(1, Ordering::Relaxed);
            }
        });
        let given = storm::rage_doing(3, storm::scaled(20_000), || PERMITS.release());
        taker.join().unwrap();
        given
    });
    assert_eq!(taken.into_inner() + u64::from(PERMITS.available()), given);
    assert_eq!(PERMITS.available(), 0, "it waited in vain beside a permit");
}

/// A deadline that has passed is no reason to leave a permit there, and a wait does not end before its time.
#[test]
fn deadlines() {
    let span = Duration::from_millis(10);
    let event = ManualEvent::new(false);
    let waits: [(&str, &dyn Fn() -> bool); 6] = [
        ("semaphore", &|| Semaphore::new(0).try_acquire_raw_for(span)),
        ("auto", &|| !AutoEvent::new(false).wait_for(span).timed_out()),
        ("manual", &|| !event.wait_for(span).timed_out()),
        ("parker", &|| !Parker::new().park_for(span).timed_out()),
        ("latch", &|| !Latch::new(1).wait_for(span).timed_out()),
        ("group", &|| {
            let group = WaitGroup::new();
            group.add(1);
            !group.wait_for(span).timed_out()
        }),
    ];
    for (name, wait) in waits {
        let start = Instant::now();
        assert!(!wait(), "{name}");
        assert!(start.elapsed() >= span, "{name}");
    }
    let past = Deadline::now();
    assert!(Semaphore::new(1).try_acquire_raw_until(past));
    assert!(!AutoEvent::new(true).wait_until(past).timed_out());
    assert!(!ManualEvent::new(true).wait_until(past).timed_out());
    assert!(!Latch::new(0).wait_until(past).timed_out());
    assert!(!WaitGroup::new().wait_until(past).timed_out());
    let parker = Parker::new();
    parker.unpark();
    assert!(!parker.park_until(past).timed_out());
}

/// Each permit is taken once, whether the wait for it ends in time or not.
#[test]
fn deadlines_race_with_releases() {
    let permits = Semaphore::new(0);
    let rounds = storm::scaled(3_000);
    let mut taken = 0;
    thread::scope(|scope| {
        let (ask, asked) = std::sync::mpsc::channel::<Duration>();
        let permits = &permits;
        scope.spawn(move || {
            for span in asked {
                let start = Instant::now();
                while start.elapsed() < span {}
                permits.release();
            }
        });
        for round in 0..rounds {
            let span = Duration::from_micros(round % 120);
            ask.send(Duration::from_micros(60)).unwrap();
            taken += u64::from(permits.try_acquire_raw_for(span));
        }
        drop(ask);
    });
    assert_eq!(taken + u64::from(permits.available()), rounds);
}

/// Two threads that let each other go, a number of times.
fn rounds(mut mine: impl FnMut(), mut other: impl FnMut() + Send) {
    let each = storm::scaled(5_000);
    thread::scope(|scope| {
        scope.spawn(move || (0..each).for_each(|_| other()));
        (0..each).for_each(|_| mine());
    });
}

#[test]
fn auto_events_let_one_go() {
    let (ping, pong) = (AutoEvent::new(false), AutoEvent::new(false));
    rounds(
        || {
            ping.set();
            pong.wait();
        },
        || {
            ping.wait();
            pong.set();
        },
    );
    assert!(!ping.is_set() && !pong.is_set());
    ping.set();
    ping.set();
    assert!(ping.try_wait() && !ping.try_wait());
    ping.set();
    assert!(ping.reset() && !ping.reset());
}

#[test]
fn parkers_let_their_thread_go() {
    let (ping, pong) = (Parker::new(), Parker::new());
    rounds(
        || {
            ping.unpark();
            pong.park();
        },
        || {
            ping.park();
            pong.unpark();
        },
    );
    assert!(!ping.is_unparked() && !pong.is_unparked());
}

/// A thread that waits when it is set continues, even if it is reset at once: pulses are enough.
#[test]
fn pulses_let_all_go_that_were_there() {
    let event = ManualEvent::new(false);
    for _ in 0..storm::scaled(100) {
        let gone = Latch::new(3);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    event.wait();
                    gone.count_down();
                });
            }
            while gone.wait_for(Duration::from_micros(200)).timed_out() {
                event.set();
                assert!(event.reset());
            }
        });
    }
}

#[test]
fn latches_open_for_good() {
    let latch = Latch::new(4);
    let order = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                latch.wait();
                assert_eq!(order.load(Ordering::Relaxed), 1);
            });
        }
        latch.count_down_by(3);
        assert!(!latch.is_open() && latch.count() == 1);
        order.store(1, Ordering::Relaxed);
        latch.arrive_and_wait();
    });
    latch.count_down();
    assert!(latch.is_open());
}

#[test]
fn groups_are_used_again_and_again() {
    let group = WaitGroup::new();
    let done = AtomicU64::new(0);
    let rounds = storm::scaled(300);
    for round in 1..=rounds {
        thread::scope(|scope| {
            for _ in 0..3 {
                let (task, done) = (group.enter(), &done);
                scope.spawn(move || {
                    done.fetch_add(1, Ordering::Relaxed);
                    drop(task);
                });
            }
            group.wait();
            assert_eq!(done.load(Ordering::Relaxed), 3 * round);
        });
    }
    assert_eq!(group.tasks(), 0);
    assert!(std::panic::catch_unwind(|| group.done()).is_err());
}

/// Each object in one place, and seen at another by another process.
#[repr(C)]
struct Place {
    ping: Semaphore<Shared>,
    pong: AutoEvent<Shared>,
    stop: ManualEvent<Shared>,
    parker: Parker<Shared>,
    group: WaitGroup<Shared>,
}

#[test]
fn two_processes_share_them_at_two_addresses() {
    let [mine, theirs] = mapped::twice::<Place>();
    let each = storm::scaled(3_000);
    mine.group.add(1);
    let child = mapped::child(|| {
        for _ in 0..each {
            theirs.ping.acquire_raw();
            theirs.pong.set();
        }
        theirs.group.done();
        theirs.stop.wait();
        theirs.parker.unpark();
        true
    });
    for _ in 0..each {
        mine.ping.release();
        mine.pong.wait();
    }
    mine.group.wait();
    mine.stop.set();
    mine.parker.park();
    mapped::succeeds(child);
}

/// The C library's semaphore.
struct Theirs(std::cell::UnsafeCell<libc::sem_t>);

#[derive(Clone, Copy, Debug)]
enum Step {
    Post,
    TryWait,
    TimedWait,
    Value,
}

impl Theirs {
    fn step(&self, step: Step) -> u32 {
        let semaphore = self.0.get();
        let past = libc::timespec { tv_sec: 1, tv_nsec: 0 };
        // SAFETY: initialised by the caller.
        unsafe {
            match step {
                Step::Post => u32::from(libc::sem_post(semaphore) == 0),
                Step::TryWait => u32::from(libc::sem_trywait(semaphore) == 0),
                Step::TimedWait => u32::from(libc::sem_timedwait(semaphore, &past) == 0),
                Step::Value => {
                    let mut value = -1;
                    assert_eq!(libc::sem_getvalue(semaphore, &mut value), 0);
                    value as u32
                }
            }
        }
    }
}

fn our_step(semaphore: &Semaphore, step: Step) -> u32 {
    match step {
        Step::Post => {
            semaphore.release();
            1
        }
        Step::TryWait => u32::from(semaphore.try_acquire_raw()),
        Step::TimedWait => u32::from(semaphore.try_acquire_raw_for(Duration::ZERO)),
        Step::Value => semaphore.available(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: storm::scaled(200) as u32, ..Default::default() })]

    #[test]
    fn the_same_steps_as_the_c_library(
        first in 0u32..4,
        steps in prop::collection::vec(
            prop::sample::select(vec![Step::Post, Step::TryWait, Step::TimedWait, Step::Value]),
            1..60,
        ),
    ) {
        // SAFETY: initialised before use; a plain structure.
        let theirs: Theirs = unsafe { std::mem::zeroed() };
        // SAFETY: memory of its type.
        assert_eq!(unsafe { libc::sem_init(theirs.0.get(), 0, first) }, 0);
        let ours = Semaphore::new(first);
        for (at, step) in steps.iter().enumerate() {
            prop_assert_eq!(our_step(&ours, *step), theirs.step(*step), "step {}", at);
        }
    }
}
