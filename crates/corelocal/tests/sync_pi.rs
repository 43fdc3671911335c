//! Mutexes and condition variables with priority inheritance: what they promise, what they report, and that
//! priorities are indeed inherited.

mod asleep;
mod forked;
mod leaked;
mod oracle;
mod sandbox;
mod storm;

use std::mem::forget;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use corelocal::sync::{
    LockError, PiCondvar, PiMutex, PiMutexGuard, Private, RobustMutex, RobustPiMutex, Scope, Shared,
};
use forked::{End, fork};
use leaked::forever;

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(20);

fn leaked<T, S: Scope>(value: T) -> &'static PiMutex<T, S> {
    forever(PiMutex::with_scope(value))
}

fn is_shared<S: Scope>() -> bool {
    std::any::type_name::<S>() == std::any::type_name::<Shared>()
}

macro_rules! of_each_scope {
    ($($name:ident = $body:ident;)*) => {
        $(
            #[test]
            fn $name() {
                $body::<Private>();
                $body::<Shared>();
            }
        )*
    };
}

of_each_scope! {
    one_owner_at_a_time = counting;
    errors_are_told = errors;
    two_that_wait_for_each_other_are_told = embrace;
    an_owner_that_ended_is_told = gone;
    an_owner_that_ends_is_told_to_all_who_wait = gone_while_waited_for;
    a_guard_copied_by_fork_owns_nothing = copies;
    nobody_is_notified_in_vain = rally;
    all_who_wait_are_notified = all;
    a_wait_ends_with_its_deadline = deadlines;
    one_notification_is_for_one = one;
}

fn counting<S: Scope>() {
    let mutex = leaked::<_, S>((0u64, 0u64));
    let each = storm::scaled(20_000);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..each {
                    let mut pair = mutex.lock().unwrap();
                    pair.0 += 1;
                    assert_eq!(pair.0, pair.1 + 1);
                    pair.1 += 1;
                }
            });
        }
    });
    assert_eq!(*mutex.lock().unwrap(), (4 * each, 4 * each));
}

fn errors<S: Scope>() {
    let mutex = leaked::<_, S>(0);
    let guard = mutex.lock().unwrap();
    assert_eq!(mutex.lock().err(), Some(LockError::Deadlock));
    assert_eq!(mutex.try_lock().err(), Some(LockError::Busy));
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(mutex.try_lock().err(), Some(LockError::Busy));
            let begin = Instant::now();
            assert_eq!(mutex.try_lock_for(SHORT).err(), Some(LockError::TimedOut));
            assert!(begin.elapsed() >= SHORT);
        });
    });
    drop(guard);
    drop(mutex.try_lock().unwrap());
    drop(mutex.try_lock_for(SHORT).unwrap());
}

/// Each owns what the other wants: the kernel tells the second one.
fn embrace<S: Scope>() {
    let (a, b) = (leaked::<_, S>(()), leaked::<_, S>(()));
    let barrier = std::sync::Barrier::new(2);
    let outcomes = thread::scope(|scope| {
        let threads = [(a, b), (b, a)].map(|(first, second)| {
            let barrier = &barrier;
            scope.spawn(move || {
                let _first = first.lock().unwrap();
                barrier.wait();
                second.lock().err()
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    // One may let go before the other asks; but not both wait for ever.
    assert!(outcomes.contains(&Some(LockError::Deadlock)), "{outcomes:?}");
    assert!(a.lock().is_ok() && b.lock().is_ok());
}

fn gone<S: Scope>() {
    let mutex = leaked::<_, S>(0);
    thread::spawn(|| forget(mutex.lock().unwrap())).join().unwrap();
    for _ in 0..2 {
        assert_eq!(mutex.lock().err(), Some(LockError::OwnerGone));
        assert_eq!(mutex.try_lock_for(SHORT).err(), Some(LockError::OwnerGone));
        // The kernel may know a thread for a moment after it was joined.
        let begin = Instant::now();
        let mut tried = mutex.try_lock().err();
        while !is_shared::<S>() && tried == Some(LockError::Busy) && begin.elapsed() < LONG {
            thread::yield_now();
            tried = mutex.try_lock().err();
        }
        match is_shared::<S>() {
            false => assert_eq!(tried, Some(LockError::OwnerGone)),
            // Whether the owner of another process lives is not asked.
            true => assert!(matches!(tried, Some(LockError::OwnerGone | LockError::Busy))),
        }
    }
}

fn gone_while_waited_for<S: Scope>() {
    let mutex = leaked::<_, S>(0);
    let is_owned = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let guard = mutex.lock().unwrap();
            is_owned.store(true, Ordering::Release);
            thread::sleep(SHORT);
            forget(guard);
        });
        while !is_owned.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let waiters = [(); 3].map(|()| scope.spawn(|| mutex.try_lock_for(LONG).err()));
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Some(LockError::OwnerGone));
        }
    });
    assert_eq!(mutex.lock().err(), Some(LockError::OwnerGone));
}

/// In a child the copy of a guard is good if the memory is private, where attempts to lock fail until it is dropped; else it
/// does nothing.
fn copies<S: Scope>() {
    let mutex = leaked::<_, S>(0);
    let guard = mutex.lock().unwrap();
    let child = fork(|| {
        let told = mutex.try_lock().err();
        let expected = if is_shared::<S>() { LockError::Busy } else { LockError::OwnerGone };
        let waited = is_shared::<S>() || mutex.lock().err() == Some(LockError::OwnerGone);
        // SAFETY: the child's copy of the guard, which it forgets.
        drop(unsafe { std::ptr::read(&guard) });
        let is_unlocked = mutex.try_lock().is_ok() && mutex.lock().is_ok();
        i32::from(!(told == Some(expected) && waited && is_unlocked != is_shared::<S>()))
    });
    assert_eq!(child.wait(), End::Code(0));
    drop(guard);
    assert!(mutex.lock().is_ok());
}

/// Two threads in turns: each waits until it is its turn.
fn rally<S: Scope>() {
    let turn = leaked::<_, S>(0u64);
    let changed = PiCondvar::<S>::with_scope();
    let each = storm::scaled(2_000);
    thread::scope(|scope| {
        for player in 0..2 {
            let changed = &changed;
            scope.spawn(move || {
                for _ in 0..each {
                    let guard = turn.lock().unwrap();
                    let mut guard = changed.wait_while(guard, |turn| *turn % 2 != player).unwrap();
                    *guard += 1;
                    changed.notify_one(&guard);
                }
            });
        }
    });
    assert_eq!(*turn.lock().unwrap(), 2 * each);
}

fn all<S: Scope>() {
    const WAITERS: u32 = 8;
    let state = leaked::<_, S>((0u32, false));
    let changed = PiCondvar::<S>::with_scope();
    for _ in 0..storm::scaled(50).max(3) {
        thread::scope(|scope| {
            let waiters: Vec<_> = (0..WAITERS)
                .map(|_| {
                    scope.spawn(|| {
                        let mut guard = state.lock().unwrap();
                        guard.0 += 1;
                        let guard = changed.wait_while(guard, |state| !state.1).unwrap();
                        assert!(guard.1);
                    })
                })
                .collect();
            loop {
                let mut guard = state.lock().unwrap();
                if guard.0 == WAITERS {
                    guard.1 = true;
                    changed.notify_all(&guard);
                    break;
                }
                drop(guard);
                thread::yield_now();
            }
            for waiter in waiters {
                waiter.join().unwrap();
            }
        });
        *state.lock().unwrap() = (0, false);
    }
}

fn deadlines<S: Scope>() {
    let mutex = leaked::<_, S>(());
    let never = PiCondvar::<S>::with_scope();
    let begin = Instant::now();
    let mut guard = mutex.lock().unwrap();
    // It may end for nothing.
    loop {
        let (again, result) = never.wait_for(guard, SHORT).unwrap();
        guard = again;
        if result.timed_out() {
            break;
        }
    }
    assert!(begin.elapsed() >= SHORT);
    // There is no waiter any more: this must not reach a thread, nor take a notification from a later one.
    never.notify_all(&guard);
    let (_guard, result) = never.wait_for(guard, SHORT).unwrap();
    assert!(result.timed_out());
}

/// As many go on as notifications are made, if they look for what was meant.
fn one<S: Scope>() {
    const WAITERS: u64 = 6;
    // Tickets to take, and the number of threads that have begun to wait.
    let state = leaked::<_, S>((0u64, 0u64));
    let changed = PiCondvar::<S>::with_scope();
    let went_on = AtomicU64::new(0);
    /// Lets all go in the end, for the scope waits for them if a notification was lost, too.
    struct LetGo<'a, S: Scope>(&'a PiMutex<(u64, u64), S>, &'a PiCondvar<S>);
    impl<S: Scope> Drop for LetGo<'_, S> {
        fn drop(&mut self) {
            if let Ok(mut guard) = self.0.lock() {
                guard.0 += WAITERS;
                self.1.notify_all(&guard);
            }
        }
    }
    thread::scope(|scope| {
        let _let_go = LetGo(state, &changed);
        for _ in 0..WAITERS {
            scope.spawn(|| {
                let mut guard = state.lock().unwrap();
                guard.1 += 1;
                let mut guard = changed.wait_while(guard, |state| state.0 == 0).unwrap();
                guard.0 -= 1;
                went_on.fetch_add(1, Ordering::Relaxed);
            });
        }
        while state.lock().unwrap().1 < WAITERS {
            thread::yield_now();
        }
        for ticket in 1..=WAITERS {
            let mut guard = state.lock().unwrap();
            guard.0 += 1;
            changed.notify_one(&guard);
            drop(guard);
            let begin = Instant::now();
            while went_on.load(Ordering::Relaxed) < ticket {
                assert!(begin.elapsed() < LONG, "a notification was lost");
                thread::yield_now();
            }
            assert_eq!(went_on.load(Ordering::Relaxed), ticket);
        }
    });
}

/// Waits with deadlines that race with notifications: no notification is lost that a thread waits for.
#[test]
fn deadlines_race_with_notifications() {
    let tickets = leaked::<_, Private>(0u64);
    let changed = PiCondvar::new();
    let (total, taken) = (storm::scaled(5_000), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while taken.load(Ordering::Relaxed) < total {
                    let guard = tickets.lock().unwrap();
                    let span = Duration::from_micros(200);
                    let (mut guard, _) = changed.wait_for(guard, span).unwrap();
                    taken.fetch_add(std::mem::take(&mut *guard), Ordering::Relaxed);
                }
            });
        }
        for _ in 0..total {
            let mut guard = tickets.lock().unwrap();
            *guard += 1;
            changed.notify_one(&guard);
        }
    });
    assert_eq!(taken.load(Ordering::Relaxed), total);
}

/// Sets the calling thread's real-time priority; false where that is not permitted.
fn become_fifo(priority: i32) -> bool {
    // The kernel's call, as musl's function of this name fails. SAFETY: valid parameters, for the calling thread.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &priority) == 0 }
}

fn stay_on(cpu: usize) {
    // SAFETY: a valid set that is zero at first; the calling thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

fn this_cpu() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::sched_getcpu() as usize }
}

/// Low owns a lock, high wants it, middle runs for long; all on one cpu. Says how long high waited, and
/// whether it got the lock before middle ended.
fn inversion<G>(lock: impl Fn() -> G + Sync) -> (Duration, bool) {
    // Longer than low needs, by far; short enough for a cpu that does nothing else meanwhile.
    const MIDDLE_RUNS: Duration = Duration::from_millis(300);
    const LOW_RUNS: Duration = Duration::from_millis(30);
    let run = |span: Duration| {
        let begin = Instant::now();
        while begin.elapsed() < span {
            std::hint::spin_loop();
        }
    };
    let cpu = this_cpu();
    // A stage for each of the others that is there, then: low owns the lock, high is about to ask for it.
    let stage = AtomicU32::new(0);
    let await_stage = |which: u32| {
        while stage.load(Ordering::Acquire) < which {
            thread::sleep(Duration::from_micros(200));
        }
    };
    let middle_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            stay_on(cpu);
            assert!(become_fifo(1));
            await_stage(2);
            let guard = lock();
            stage.store(3, Ordering::Release);
            run(LOW_RUNS);
            drop(guard);
        });
        let high = scope.spawn(|| {
            stay_on(cpu);
            assert!(become_fifo(3));
            stage.fetch_add(1, Ordering::Release);
            await_stage(3);
            stage.store(4, Ordering::Release);
            let begin = Instant::now();
            let _guard = lock();
            (begin.elapsed(), !middle_ended.load(Ordering::Relaxed))
        });
        scope.spawn(|| {
            stay_on(cpu);
            assert!(become_fifo(2));
            stage.fetch_add(1, Ordering::Release);
            await_stage(4);
            run(MIDDLE_RUNS);
            middle_ended.store(true, Ordering::Relaxed);
        });
        high.join().unwrap()
    })
}

#[test]
fn a_middle_priority_does_not_keep_the_highest_waiting() {
    const NAME: &str = "a_middle_priority_does_not_keep_the_highest_waiting";
    if !thread::spawn(|| become_fifo(1)).join().unwrap() {
        return sandbox::skip(NAME, "SCHED_FIFO is not permitted here");
    }
    // Without inheritance it waits: else nothing would be shown.
    // SAFETY: leaked, so neither moved nor freed.
    let plain: &RobustMutex<()> = forever(unsafe { RobustMutex::new(()) });
    let (waited_plain, before_middle) = inversion(|| plain.lock().unwrap());
    if before_middle {
        return sandbox::skip(NAME, "threads are not run by their priority here, or not at once");
    }
    let inherits = leaked::<_, Private>(());
    let (waited, before_middle) = inversion(|| inherits.lock().unwrap());
    assert!(before_middle, "the highest waited for the middle one: {waited:?}");
    // SAFETY: leaked, so neither moved nor freed.
    let both: &RobustPiMutex<()> = forever(unsafe { RobustPiMutex::with_scope(()) });
    let (waited_robust, before_middle) = inversion(|| both.lock().unwrap());
    assert!(before_middle, "the highest waited for the middle one: {waited_robust:?}");
    eprintln!("the highest waited {waited:?}, robust {waited_robust:?}, plain {waited_plain:?}");
}

/// Of the waiters for a condition the one with the highest priority continues first.
#[test]
fn the_highest_is_notified_first() {
    const NAME: &str = "the_highest_is_notified_first";
    if !thread::spawn(|| become_fifo(1)).join().unwrap() {
        return sandbox::skip(NAME, "SCHED_FIFO is not permitted here");
    }
    // The number of waiters, tickets, and the order in which they were taken.
    let state = leaked::<_, Private>((0usize, 0usize, Vec::<i32>::new()));
    let changed = PiCondvar::new();
    thread::scope(|scope| {
        for priority in [2, 1, 4, 3] {
            let changed = &changed;
            let begun = state.lock().unwrap().0;
            scope.spawn(move || {
                assert!(become_fifo(priority));
                let mut guard = state.lock().unwrap();
                guard.0 += 1;
                while guard.1 == 0 {
                    guard = changed.wait(guard).unwrap();
                }
                guard.1 -= 1;
                guard.2.push(priority);
            });
            while state.lock().unwrap().0 == begun {
                thread::sleep(Duration::from_millis(1));
            }
        }
        // All have unlocked, so all sleep, or are about to.
        thread::sleep(SHORT);
        for ticket in 1..=4 {
            let mut guard = state.lock().unwrap();
            guard.1 += 1;
            changed.notify_one(&guard);
            drop(guard);
            while state.lock().unwrap().2.len() < ticket {
                thread::sleep(Duration::from_millis(1));
            }
        }
    });
    assert_eq!(state.lock().unwrap().2, [4, 3, 2, 1]);
}

struct Mutex(PiMutex<()>);

fn told(
    outcome: Result<PiMutexGuard<'static, ()>, LockError>,
) -> (i32, Option<PiMutexGuard<'static, ()>>) {
    match outcome {
        Ok(guard) => (0, Some(guard)),
        Err(error) => (error.errno().0, None),
    }
}

impl oracle::Ours for Mutex {
    type Held = PiMutexGuard<'static, ()>;

    fn try_lock(&'static self) -> (i32, Option<Self::Held>) {
        told(self.0.try_lock())
    }

    fn lock(&'static self) -> (i32, Option<Self::Held>) {
        told(self.0.lock())
    }

    fn lock_for(&'static self, span: Duration) -> (i32, Option<Self::Held>) {
        told(self.0.try_lock_for(span))
    }

    fn make_consistent(held: Self::Held) -> Self::Held {
        held
    }
}

#[test]
fn libc_agrees() {
    for seed in 1..=storm::scaled(60).max(3) {
        let mutex = forever(Mutex(PiMutex::new(())));
        let kind = oracle::Kind { robust: false, inherits: true };
        if !oracle::agree(mutex, kind, 200, seed * 0x9e37_79b9) {
            return sandbox::skip("libc_agrees", "libc has no mutexes of this kind here");
        }
    }
}

/// A sandbox that refuses such locks: a thread that finds one owned gets an error, and none hangs. The calling thread
/// ends its process if it yields.
fn end_at_yield() -> bool {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let is_call = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let mut program = [
        // The call's number comes first.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter { jf: 1, ..statement(is_call, libc::SYS_sched_yield as u32) },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: PR_SET_NO_NEW_PRIVS takes no address; the filter outlives the call, which copies it.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    }
}

/// On one cpu the owner does not run while a thread looks again and again: that has the kernel queue it at once.
#[test]
fn a_thread_with_one_cpu_does_not_look_again() {
    let test = "a_thread_with_one_cpu_does_not_look_again";
    sandbox::run_in_child(
        test,
        |_| (),
        || {
            let mutex = leaked::<_, Private>(0);
            stay_on(this_cpu());
            let owned = mutex.lock().unwrap();
            thread::scope(|scope| {
                let (tell, told) = std::sync::mpsc::channel();
                scope.spawn(move || {
                    if !end_at_yield() {
                        sandbox::skip(
                            "a_thread_with_one_cpu_does_not_look_again",
                            "no seccomp filters",
                        );
                    }
                    // SAFETY: no preconditions.
                    tell.send(unsafe { libc::gettid() }).unwrap();
                    *mutex.lock().unwrap() += 1;
                });
                asleep::until_asleep(told.recv().unwrap());
                drop(owned);
            });
            assert_eq!(*mutex.lock().unwrap(), 1);
        },
    );
}

/// A waiter that no notification could reach does not go to sleep.
#[test]
fn without_moves() {
    let when = sandbox::When::Operation(libc::FUTEX_CMP_REQUEUE_PI as u32);
    sandbox::run_refusing("without_moves", libc::SYS_futex, when, libc::EPERM, || {
        let mutex = leaked::<_, Private>(0);
        let changed: PiCondvar = PiCondvar::new();
        let refused = LockError::Refused(corelocal::sys::Errno::EPERM);
        assert_eq!(changed.wait(mutex.lock().unwrap()).err(), Some(refused));
        assert_eq!(changed.wait_for(mutex.lock().unwrap(), SHORT).err(), Some(refused));
        changed.notify_all(&mutex.lock().unwrap());
        assert!(mutex.try_lock().is_ok());
    });
}

#[test]
fn without_inheritance() {
    let when = sandbox::When::Operation(libc::FUTEX_LOCK_PI as u32);
    sandbox::run_refusing("without_inheritance", libc::SYS_futex, when, libc::ENOSYS, || {
        let mutex = leaked::<_, Private>(0);
        let guard = mutex.lock().unwrap();
        thread::scope(|scope| {
            let refused = LockError::Refused(corelocal::sys::Errno::ENOSYS);
            scope.spawn(move || assert_eq!(mutex.lock().err(), Some(refused)));
        });
        drop(guard);
        assert!(mutex.lock().is_ok());
    });
}
