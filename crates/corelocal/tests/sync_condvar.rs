//! The condition variable among many threads, with timeouts that race with notifications, with every lock of the
//! module, in two processes, and beside pthread's, which does the same scripts.

mod asleep;
mod forked;
mod leaked;
mod sandbox;
mod storm;

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ops::DerefMut;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use corelocal::sync::{
    Condvar, Deadline, Mutex, MutexGuard, OwnedGuard, PiMutex, RobustError, RobustMutex,
    RobustPiMutex, RwLock, Shared,
};
use proptest::prelude::*;
use storm::scaled;

#[test]
fn twelve_bytes() {
    assert_eq!(size_of::<Condvar>(), 12);
    let changed: Condvar<Shared> = Condvar::default();
    changed.notify_one();
    changed.notify_all();
    assert_eq!(format!("{changed:?}"), "Condvar { waiters: 0, .. }");
}

#[test]
fn waits_end_in_time() {
    let (mutex, changed) = (Mutex::new(0), Condvar::new());
    let mut guard = mutex.lock();
    let begin = Instant::now();
    let until = Deadline::after(Duration::from_millis(30));
    assert!(changed.wait_while_until(&mut guard, until, |number| **number == 0).timed_out());
    assert!(begin.elapsed() >= Duration::from_millis(30));
    assert!(changed.wait_until(&mut guard, Deadline::now()).timed_out());
    assert!(
        !changed.wait_while_until(&mut guard, Deadline::now(), |number| **number == 1).timed_out()
    );
    *guard += 1;
    assert!(mutex.try_lock().is_none());
}

/// How producers tell consumers.
#[derive(Clone, Copy)]
enum Way {
    One,
    All,
    OneLocked,
    AllLocked,
}

/// Items through a queue with little room: a thread that sleeps although there are room or items sleeps for ever.
fn a_queue(way: Way, gives_up: bool) {
    let (queue, room, items) = (Mutex::new(VecDeque::new()), Condvar::new(), Condvar::new());
    let (each, pairs) = (scaled(4_000), 4);
    let sum = AtomicU64::new(0);
    let tell = |changed: &Condvar, guard: MutexGuard<'_, VecDeque<u64>>| match way {
        Way::One => {
            drop(guard);
            changed.notify_one();
        }
        Way::All => {
            drop(guard);
            changed.notify_all();
        }
        Way::OneLocked => changed.notify_one_locked(&guard),
        Way::AllLocked => changed.notify_all_locked(&guard),
    };
    thread::scope(|scope| {
        for _ in 0..pairs {
            scope.spawn(|| {
                for item in 1..=each {
                    let mut guard = queue.lock();
                    while guard.len() >= 3 {
                        room.wait(&mut guard);
                    }
                    guard.push_back(item);
                    tell(&items, guard);
                }
            });
            scope.spawn(|| {
                for round in 0..each {
                    let mut guard = queue.lock();
                    while guard.is_empty() {
                        if gives_up {
                            items.wait_for(&mut guard, Duration::from_micros(round % 50));
                        } else {
                            items.wait(&mut guard);
                        }
                    }
                    sum.fetch_add(guard.pop_front().unwrap(), Ordering::Relaxed);
                    tell(&room, guard);
                }
            });
        }
    });
    assert_eq!(sum.into_inner(), pairs * each * (each + 1) / 2);
    assert!(queue.lock().is_empty());
}

#[test]
fn one_by_one() {
    a_queue(Way::One, false);
    a_queue(Way::One, true);
}

#[test]
fn all_at_once() {
    a_queue(Way::All, false);
    a_queue(Way::All, true);
}

#[test]
fn one_by_one_under_the_lock() {
    a_queue(Way::OneLocked, false);
    a_queue(Way::OneLocked, true);
}

#[test]
fn all_at_once_under_the_lock() {
    a_queue(Way::AllLocked, false);
    a_queue(Way::AllLocked, true);
}

/// Rounds in which all wait for all: each is a notification of all that no thread may miss.
#[test]
fn thirty_two_meet() {
    let (arrived, changed) = (Mutex::new((0, 0)), Condvar::new());
    let (threads, rounds) = (32, scaled(300).max(3));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for round in 0..rounds {
                    let mut guard = arrived.lock();
                    guard.0 += 1;
                    if guard.0 == threads {
                        *guard = (0, round + 1);
                        drop(guard);
                        changed.notify_all();
                    } else {
                        changed.wait_while(&mut guard, |guard| guard.1 == round);
                    }
                }
            });
        }
    });
    assert_eq!(arrived.into_inner(), (0, rounds));
}

/// Longer than any machine takes to wake a thread.
const LONG: Duration = Duration::from_secs(60);

/// Three threads that wait until the mutex says true, and sleep; the notification of all of them. None sleeps on.
fn all_wake(mutex: &'static Mutex<bool>, changed: &'static Condvar, notify: impl FnOnce()) {
    let (tell, told) = channel();
    for _ in 0..3 {
        let tell = tell.clone();
        thread::spawn(move || {
            let mut ready = mutex.lock();
            // SAFETY: no preconditions.
            tell.send(unsafe { libc::gettid() }).unwrap();
            changed.wait_while(&mut ready, |ready| !**ready);
            drop(ready);
            tell.send(0).unwrap();
        });
    }
    (0..3).for_each(|_| asleep::until_asleep(told.recv_timeout(LONG).unwrap()));
    notify();
    for woken in 0..3 {
        assert!(told.recv_timeout(LONG).is_ok(), "{woken} of 3 have woken");
    }
    // Nothing is left of them.
    assert_eq!(format!("{changed:?}"), "Condvar { waiters: 0, .. }");
    drop(mutex.lock());
}

/// By all notifications that move waiters.
fn all_wake_in_every_way() {
    static MUTEXES: [Mutex<bool>; 3] = [const { Mutex::new(false) }; 3];
    static CHANGED: [Condvar; 3] = [const { Condvar::new() }; 3];
    all_wake(&MUTEXES[0], &CHANGED[0], || {
        *MUTEXES[0].lock() = true;
        CHANGED[0].notify_all();
    });
    all_wake(&MUTEXES[1], &CHANGED[1], || {
        let mut ready = MUTEXES[1].lock();
        *ready = true;
        CHANGED[1].notify_all_locked(&ready);
    });
    all_wake(&MUTEXES[2], &CHANGED[2], || {
        let mut ready = MUTEXES[2].lock();
        *ready = true;
        (0..3).for_each(|_| CHANGED[2].notify_one_locked(&ready));
    });
}

#[test]
fn all_wake_where_the_move_is_refused() {
    let when = sandbox::When::Operation(libc::FUTEX_CMP_REQUEUE as u32);
    let test = "all_wake_where_the_move_is_refused";
    sandbox::run_refusing(test, libc::SYS_futex, when, libc::EPERM, all_wake_in_every_way);
}

#[test]
fn all_wake_where_the_move_is_unknown() {
    let when = sandbox::When::Operation(libc::FUTEX_CMP_REQUEUE as u32);
    let test = "all_wake_where_the_move_is_unknown";
    sandbox::run_refusing(test, libc::SYS_futex, when, libc::ENOSYS, all_wake_in_every_way);
}

#[test]
fn another_mutex_gets_no_waiters() {
    static MUTEX: Mutex<bool> = Mutex::new(false);
    static OTHER: Mutex<()> = Mutex::new(());
    static CHANGED: Condvar = Condvar::new();
    all_wake(&MUTEX, &CHANGED, || {
        *MUTEX.lock() = true;
        let other = OTHER.lock();
        CHANGED.notify_all_locked(&other);
    });
    assert!(OTHER.try_lock().is_some());
}

#[test]
fn waiters_of_two_mutexes_wake() {
    static MUTEX: Mutex<bool> = Mutex::new(false);
    static OTHER: Mutex<bool> = Mutex::new(false);
    static CHANGED: Condvar = Condvar::new();
    for _ in 0..scaled(100) {
        let (tell, told) = channel();
        (*MUTEX.lock(), *OTHER.lock()) = (false, false);
        for mutex in [&MUTEX, &OTHER, &MUTEX, &OTHER] {
            let tell = tell.clone();
            thread::spawn(move || {
                CHANGED.wait_while(&mut mutex.lock(), |ready| !**ready);
                tell.send(()).unwrap();
            });
        }
        while !format!("{CHANGED:?}").contains("waiters: 4") {
            thread::yield_now();
        }
        *OTHER.lock() = true;
        let mut ready = MUTEX.lock();
        *ready = true;
        CHANGED.notify_all_locked(&ready);
        drop(ready);
        (0..4).for_each(|_| told.recv_timeout(LONG).expect("a waiter that wakes"));
        while !format!("{CHANGED:?}").contains("waiters: 0") {
            thread::yield_now();
        }
    }
}

/// While the notifier holds the mutex all come to it, and none of them waits for another one's turn.
#[test]
fn a_few_wake_at_once() {
    let (mutex, changed) = (Mutex::new(false), Condvar::new());
    // SAFETY: the lock's words come first, and are atomic: the second one counts the threads that wait for it.
    let words = unsafe { &*(&raw const mutex).cast::<[AtomicU32; 2]>() };
    let waiters = || words[1].load(Ordering::Relaxed) >> 1 & 0x7fff;
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| changed.wait_while(&mut mutex.lock(), |ready| !**ready));
        }
        while !format!("{changed:?}").contains("waiters: 8") {
            thread::yield_now();
        }
        let mut ready = mutex.lock();
        *ready = true;
        changed.notify_all();
        let began = Instant::now();
        while waiters() < 8 {
            assert!(began.elapsed() < LONG, "{} of 8 are awake", waiters());
            thread::sleep(Duration::from_millis(1));
        }
    });
}

/// So many that they are not woken at once, but moved to the mutex and woken one after the other.
#[test]
fn three_hundred_wake() {
    static MUTEX: Mutex<u32> = Mutex::new(0);
    static CHANGED: Condvar = Condvar::new();
    let (tell, told) = channel();
    for _ in 0..300 {
        let tell = tell.clone();
        let waiter = move || {
            CHANGED.wait_while(&mut MUTEX.lock(), |round| **round == 0);
            tell.send(()).unwrap();
        };
        thread::Builder::new().stack_size(64 * 1024).spawn(waiter).unwrap();
    }
    while !format!("{CHANGED:?}").contains("waiters: 300") {
        thread::sleep(Duration::from_millis(10));
    }
    *MUTEX.lock() = 1;
    CHANGED.notify_all();
    for woken in 0..300 {
        assert!(told.recv_timeout(LONG).is_ok(), "{woken} of 300 have woken");
    }
    assert_eq!(format!("{CHANGED:?}"), "Condvar { waiters: 0, .. }");
}

/// Threads that wait, with one lock, for a number to be high enough.
fn wait_together<L, G>(lock: L, get: fn(&'static L) -> G, again: fn(G::Locked) -> G)
where
    L: Sync + 'static,
    G: OwnedGuard + DerefMut<Target = u64>,
{
    let lock: &'static L = leaked::forever(lock);
    let changed = Condvar::new();
    let last = scaled(1_000).max(10);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut number = get(lock);
                while *number < last {
                    number = again(changed.wait_owned(number));
                }
            });
        }
        for round in 1..=last {
            *get(lock) += 1;
            if round == last || round % 3 == 0 {
                changed.notify_all();
            } else {
                changed.notify_one();
            }
        }
    });
    let (locked, result) = changed.wait_owned_for(get(lock), Duration::from_millis(2));
    assert!(*again(locked) == last && result.timed_out());
    assert_eq!(format!("{changed:?}"), "Condvar { waiters: 0, .. }");
}

#[test]
fn every_exclusive_lock() {
    // SAFETY: kept, and no guard of it is forgotten.
    let robust = unsafe { RobustMutex::new(0) };
    wait_together::<RobustMutex<u64>, _>(robust, |lock| lock.lock().unwrap(), |it| it.unwrap());
    // SAFETY: kept, and no guard of it is forgotten.
    let robust = unsafe { RobustPiMutex::with_scope(0) };
    wait_together::<RobustPiMutex<u64>, _>(robust, |lock| lock.lock().unwrap(), |it| it.unwrap());
    let inherits = PiMutex::new(0);
    wait_together::<PiMutex<u64>, _>(inherits, |lock| lock.lock().unwrap(), |it| it.unwrap());
    wait_together::<RwLock<u64>, _>(RwLock::new(0), |lock| lock.write(), |number| number);
}

#[test]
fn an_owner_dies_while_one_waits() {
    // SAFETY: kept.
    let mutex: &RobustMutex<u64> = leaked::forever(unsafe { RobustMutex::new(0) });
    let changed = Condvar::new();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| match changed.wait_owned(mutex.lock().unwrap()) {
            Err(RobustError::OwnerDied(recovered)) => *recovered.make_consistent(),
            other => panic!("{other:?}"),
        });
        while !format!("{changed:?}").contains("waiters: 1") {
            thread::yield_now();
        }
        let dies = scope.spawn(|| {
            let mut number = mutex.lock().unwrap();
            *number = 7;
            changed.notify_one();
            std::mem::forget(number);
        });
        dies.join().unwrap();
        assert_eq!(waiter.join().unwrap(), 7);
    });
}

/// A private condition variable with a shared mutex: their waiters cannot be moved to one another.
#[test]
fn scopes_may_differ() {
    let mutex: Mutex<u32, Shared> = Mutex::with_scope(0);
    let changed = Condvar::new();
    for round in 0..scaled(200) as u32 {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut guard = mutex.lock();
                    changed.wait_while(&mut guard, |number| **number <= round);
                });
            }
            let mut guard = mutex.lock();
            *guard = round + 1;
            if round % 2 == 0 {
                changed.notify_all_locked(&guard);
            } else {
                drop(guard);
                changed.notify_all();
            }
        });
    }
}

#[test]
fn two_processes() {
    #[repr(C)]
    struct Table {
        turn: Mutex<u64, Shared>,
        changed: Condvar<Shared>,
    }
    // SAFETY: fresh memory; all bytes 0 are an unlocked mutex and a condition variable.
    let table: &Table = unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let at = libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        &*at.cast::<Table>()
    };
    let rounds = scaled(5_000);
    // By turns; sometimes all are told, sometimes one.
    let play = |side: u64| {
        for round in 0..rounds {
            let mut turn = table.turn.lock();
            table.changed.wait_while(&mut turn, |turn| **turn % 2 != side);
            *turn += 1;
            match round % 3 {
                0 => table.changed.notify_one_locked(&turn),
                1 => table.changed.notify_all(),
                _ => table.changed.notify_one(),
            }
        }
    };
    let child = forked::fork(|| {
        play(1);
        0
    });
    play(0);
    child.succeeds();
    assert_eq!(*table.turn.lock(), 2 * rounds);
}

/// A lock with a condition variable, ours or pthread's, and the number of permits it protects.
trait Oracle: Default + Sync {
    /// Waits for a permit and takes it; false if there was none until the end of a moment, if it is to end.
    fn take(&self, is_timed: bool, tell_waiting: &dyn Fn()) -> bool;
    /// More permits; all are told of them, or one.
    fn give(&self, permits: u32, all: bool);
}

const MOMENT: Duration = Duration::from_millis(1);

#[derive(Default)]
struct Ours(Mutex<u32>, Condvar);

impl Oracle for Ours {
    fn take(&self, is_timed: bool, tell_waiting: &dyn Fn()) -> bool {
        let mut permits = self.0.lock();
        if *permits == 0 {
            tell_waiting();
        }
        let until = Deadline::after(MOMENT);
        while *permits == 0 {
            if !is_timed {
                self.1.wait(&mut permits);
            } else if self.1.wait_until(&mut permits, until).timed_out() && *permits == 0 {
                return false;
            }
        }
        *permits -= 1;
        true
    }

    fn give(&self, permits: u32, all: bool) {
        *self.0.lock() += permits;
        if all { self.1.notify_all() } else { self.1.notify_one() }
    }
}

struct Pthread {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    changed: UnsafeCell<libc::pthread_cond_t>,
    permits: UnsafeCell<u32>,
}

// SAFETY: the permits are used under the mutex only.
unsafe impl Sync for Pthread {}

impl Default for Pthread {
    fn default() -> Self {
        Pthread {
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            changed: UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER),
            permits: UnsafeCell::new(0),
        }
    }
}

impl Oracle for Pthread {
    fn take(&self, is_timed: bool, tell_waiting: &dyn Fn()) -> bool {
        let (mutex, changed, permits) = (self.mutex.get(), self.changed.get(), self.permits.get());
        let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: initialised, and not moved while they are used; the permits under the mutex.
        unsafe {
            libc::pthread_mutex_lock(mutex);
            if *permits == 0 {
                tell_waiting();
            }
            libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut until);
            until.tv_nsec += MOMENT.as_nanos() as i64;
            until.tv_sec += until.tv_nsec / 1_000_000_000;
            until.tv_nsec %= 1_000_000_000;
            while permits.read_volatile() == 0 {
                if !is_timed {
                    libc::pthread_cond_wait(changed, mutex);
                } else if libc::pthread_cond_timedwait(changed, mutex, &raw const until) != 0
                    && *permits == 0
                {
                    libc::pthread_mutex_unlock(mutex);
                    return false;
                }
            }
            *permits -= 1;
            libc::pthread_mutex_unlock(mutex);
        }
        true
    }

    fn give(&self, permits: u32, all: bool) {
        // SAFETY: initialised, and not moved while they are used; the permits are used under the mutex.
        unsafe {
            libc::pthread_mutex_lock(self.mutex.get());
            *self.permits.get() += permits;
            libc::pthread_mutex_unlock(self.mutex.get());
            if all {
                libc::pthread_cond_broadcast(self.changed.get());
            } else {
                libc::pthread_cond_signal(self.changed.get());
            }
        }
    }
}

/// The operations of a script: threads that are not waiting take permits, or wait for them, and permits are added. It
/// is unspecified which of several waiters gets one, so threads have no numbers in it.
#[derive(Clone, Copy, Debug)]
enum Step {
    Take,
    /// Waits a moment.
    TryFor,
    GiveOne,
    /// One for each that waits, and one more; all are told.
    GiveAll,
}

const THREADS: usize = 3;

/// The number of waiters after each step, and at the end the number of permits taken and of time-outs. A step is
/// complete when all threads have come to rest: as many waiters as permits were added, or the one that the step is
/// about.
fn outcomes<O: Oracle>(script: &[Step]) -> Vec<usize> {
    enum News {
        Waits,
        Took(usize, bool),
    }
    let oracle = O::default();
    let mut outcomes = Vec::new();
    thread::scope(|scope| {
        let (tell, told) = channel();
        let threads: Vec<Sender<bool>> = (0..THREADS)
            .map(|number| {
                let (send, steps) = channel();
                let (oracle, tell) = (&oracle, tell.clone());
                scope.spawn(move || {
                    for is_timed in steps {
                        let took = oracle.take(is_timed, &|| {
                            if !is_timed {
                                tell.send(News::Waits).unwrap();
                            }
                        });
                        tell.send(News::Took(number, took)).unwrap();
                    }
                });
                send
            })
            .collect();
        let (mut is_waiting, mut taken, mut failed) = ([false; THREADS], 0, 0);
        let mut hear = |is_waiting: &mut [bool; THREADS]| match told.recv().unwrap() {
            News::Waits => {}
            News::Took(number, took) => {
                is_waiting[number] = false;
                taken += usize::from(took);
                failed += usize::from(!took);
            }
        };
        let last = [Step::GiveAll];
        for &step in script.iter().chain(&last) {
            let waiting = is_waiting.iter().filter(|is| **is).count();
            match step {
                Step::Take | Step::TryFor => {
                    let Some(free) = is_waiting.iter().position(|is| !is) else { continue };
                    let is_timed = matches!(step, Step::TryFor);
                    is_waiting[free] = !is_timed;
                    threads[free].send(is_timed).unwrap();
                    hear(&mut is_waiting);
                }
                Step::GiveOne => {
                    oracle.give(1, false);
                    (0..waiting.min(1)).for_each(|_| hear(&mut is_waiting));
                }
                Step::GiveAll => {
                    oracle.give(waiting as u32 + 1, true);
                    (0..waiting).for_each(|_| hear(&mut is_waiting));
                }
            }
            outcomes.push(is_waiting.iter().filter(|is| **is).count());
        }
        outcomes.push(taken);
        outcomes.push(failed);
    });
    outcomes
}

fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![Just(Step::Take), Just(Step::TryFor), Just(Step::GiveOne), Just(Step::GiveAll)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: scaled(200) as u32, ..ProptestConfig::default() })]

    #[test]
    fn as_pthread_does(script in prop::collection::vec(a_step(), 1..24)) {
        prop_assert_eq!(outcomes::<Ours>(&script), outcomes::<Pthread>(&script));
    }
}
