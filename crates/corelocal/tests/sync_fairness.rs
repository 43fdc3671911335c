//! A thread that takes a lock, sleeps with it, releases it and takes it again at once does not starve another one: the
//! other has its turn within a few of the greedy thread's.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use corelocal::sync::{
    AutoEvent, Mutex, PiMutex, ReentrantMutex, RobustMutex, RwLock, Semaphore, Shared,
};

/// How long the greedy thread has the lock each time: longer than any waiter's patience.
const HELD: Duration = Duration::from_millis(3);
/// Turns of the greedy thread within which the other one has its own. It waits for 2 ms, so one or two pass; more where
/// the machine runs the other thread late.
const MOST_TURNS: u32 = 25;

/// The most turns that the greedy thread had while the other waited for one.
fn turns_while_waiting(hold: impl Fn(&dyn Fn()) + Sync, take: impl Fn() + Sync) -> u32 {
    let (stop, turns) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        let greedy = || {
            while !stop.load(Ordering::Relaxed) {
                hold(&|| thread::sleep(HELD));
                turns.fetch_add(1, Ordering::Relaxed);
            }
        };
        scope.spawn(greedy);
        let most = (0..100).map(|_| {
            thread::sleep(HELD / 2);
            let before = turns.load(Ordering::Relaxed);
            take();
            turns.load(Ordering::Relaxed) - before
        });
        let most = most.max().unwrap_or(0);
        stop.store(true, Ordering::Relaxed);
        most
    })
}

macro_rules! fair {
    ($($name:ident: $made:expr, $it:ident => $lock:expr;)*) => { $(
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
    mutex: Mutex::new(()), it => it.lock();
    shared_mutex: Mutex::<(), Shared>::with_scope(()), it => it.lock();
    reentrant: ReentrantMutex::new(()), it => it.lock();
    rwlock: RwLock::new(()), it => it.write();
    // SAFETY: dropped once no thread owns it; no guard is forgotten.
    robust: Box::pin(unsafe { RobustMutex::<()>::new(()) }), it => it.lock().unwrap();
    // SAFETY: dropped once no thread owns it; no guard is forgotten.
    shared_robust: Box::pin(unsafe { RobustMutex::<(), Shared>::with_scope(()) }),
        it => it.lock().unwrap();
    inheriting: Box::pin(PiMutex::new(())), it => it.lock().unwrap();
    semaphore: Semaphore::new(1), it => it.acquire_permit();
    shared_semaphore: Semaphore::<Shared>::with_scope(1), it => it.acquire_permit();
}

#[test]
fn event() {
    let event = AutoEvent::new(true);
    let turns = turns_while_waiting(
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
