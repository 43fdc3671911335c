//! A thread that takes a lock, sleeps with it, releases it and takes it again at once does not starve another one: the
//! other has its turn within a few of the greedy thread's. Nor do threads that try with a short time limit, again and again.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use corelocal::sync::{
    AutoEvent, Mutex, PiMutex, ReentrantMutex, RobustMutex, RwLock, Semaphore, Shared,
};

/// How long the greedy thread has the lock each time: longer than any waiter's patience.
const HELD: Duration = Duration::from_millis(3);
/// Turns of the greedy thread within which the other one has its own. It waits for 2 ms, so one or two pass; more where
/// the machine wakes it late. What passes while it is ready and no cpu runs it is the machine's doing, and not counted.
const MOST_TURNS: u32 = 25;

/// How long the calling thread has been ready to run and not run so far; zero where the kernel does not tell.
fn run_delay() -> Duration {
    let line = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let delay = line.split_whitespace().nth(1).and_then(|delay| delay.parse().ok());
    Duration::from_nanos(delay.unwrap_or(0))
}

/// How often the other one waits; less often where all is slow.
fn waits() -> u32 {
    let scale = std::env::var("CORELOCAL_TEST_SCALE").ok().and_then(|scale| scale.parse().ok());
    (100.0 * scale.unwrap_or(1.0_f64)).clamp(5.0, 1000.0) as u32
}

/// The most turns that the greedy thread had while the other waited for one.
fn turns_while_waiting(hold: impl Fn(&dyn Fn()) + Sync, take: impl Fn() + Sync) -> u32 {
    turns_beside(&[], hold, take)
}

/// The same while threads do this again and again.
fn turns_beside(
    others: &[&(dyn Fn() + Sync)],
    hold: impl Fn(&dyn Fn()) + Sync,
    take: impl Fn() + Sync,
) -> u32 {
    let (stop, turns) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        let greedy = || {
            while !stop.load(Ordering::Relaxed) {
                hold(&|| thread::sleep(HELD));
                turns.fetch_add(1, Ordering::Relaxed);
            }
        };
        scope.spawn(greedy);
        for other in others {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    other();
                }
            });
        }
        let most = (0..waits()).map(|_| {
            thread::sleep(HELD / 2);
            let (before, delay) = (turns.load(Ordering::Relaxed), run_delay());
            take();
            let late = (run_delay() - delay).div_duration_f64(HELD).ceil() as u32;
            (turns.load(Ordering::Relaxed) - before).saturating_sub(late)
        });
        let most = most.max().unwrap_or(0);
        stop.store(true, Ordering::Relaxed);
        most
    })
}

/// The time limit of those that try.
const TRIED: Duration = Duration::from_millis(1);

macro_rules! fair {
    ($($name:ident: $made:expr, $it:ident => $lock:expr, $tries:ident: $try:expr;)*) => { $(
        #[test]
        fn $tries() {
            let $it = $made;
            let try_it = || drop($try);
            let turns = turns_beside(
                &[&try_it as &(dyn Fn() + Sync); 4],
                |hold| {
                    let _held = $lock;
                    hold();
                },
                || drop($lock),
            );
            assert!(turns <= MOST_TURNS, "{turns} turns");
        }

        #[test]
        fn $name() {
            let $it = $made;
            let turns = turns_while_waiting(
                |hold| {
                    let _held = $lock;
                    hold();
                },
                || drop($lock),
            );
            assert!(turns <= MOST_TURNS, "{turns} turns");
        }
    )* };
}

fair! {
    mutex: Mutex::new(()), it => it.lock(), mutex_beside_tries: it.try_lock_for(TRIED);
    shared_mutex: Mutex::<(), Shared>::with_scope(()), it => it.lock(), shared_mutex_beside_tries: it.try_lock_for(TRIED);
    reentrant: ReentrantMutex::new(()), it => it.lock(), reentrant_beside_tries: it.try_lock_for(TRIED);
    rwlock: RwLock::new(()), it => it.write(), rwlock_beside_tries: it.try_write_for(TRIED);
    // SAFETY: dropped once no thread owns it; no guard is forgotten.
    robust: Box::pin(unsafe { RobustMutex::<()>::new(()) }), it => it.lock().unwrap(), robust_beside_tries: it.try_lock_for(TRIED);
    // SAFETY: dropped once no thread owns it; no guard is forgotten.
    shared_robust: Box::pin(unsafe { RobustMutex::<(), Shared>::with_scope(()) }),
        it => it.lock().unwrap(), shared_robust_beside_tries: it.try_lock_for(TRIED);
    inheriting: Box::pin(PiMutex::new(())), it => it.lock().unwrap(), inheriting_beside_tries: it.try_lock_for(TRIED);
    semaphore: Semaphore::new(1), it => it.acquire(), semaphore_beside_tries: it.try_acquire_for(TRIED);
    shared_semaphore: Semaphore::<Shared>::with_scope(1), it => it.acquire(), shared_semaphore_beside_tries: it.try_acquire_for(TRIED);
}

#[test]
fn event() {
    event_beside(0);
}

#[test]
fn event_beside_tries() {
    event_beside(4);
}

fn event_beside(tries: usize) {
    let event = AutoEvent::new(true);
    let try_it = || {
        if !event.wait_for(TRIED).timed_out() {
            event.set();
        }
    };
    let turns = turns_beside(
        &vec![&try_it as &(dyn Fn() + Sync); tries],
        |hold| {
            event.wait();
            hold();
            event.set();
        },
        || {
            event.wait();
            event.set();
        },
    );
    assert!(turns <= MOST_TURNS, "{turns} turns");
}
