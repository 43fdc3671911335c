//! Children that are forked while threads of their parent hold the mutexes, or wait for them or for a condition: nothing in
//! a child waits for ever, and what was held is reported.
//!
//! Tests whose children start threads or panic run in a process of their own, and fork while no thread of theirs
//! begins or ends: a lock of libc's or std's that the harness has just then would stay locked in the child.

mod child_checks;
mod forked;
mod pthreads;
mod sandbox;
mod storm;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use child_checks::{FOR_EVER, check, fork, panic_of};
use corelocal::sync::{
    Condvar, Deadline, Mutex, MutexGuard, ReentrantMutex, RobustError, RobustMutex, RwLock, Shared,
};
use sandbox::{When, run_in_child};
use storm::{Tell, scaled};

/// Runs `body` while another thread holds the mutex.
fn while_held<T: Send>(mutex: &Mutex<T>, body: impl FnOnce()) {
    let ((tell, told), (let_go, wait)) = (channel(), channel::<()>());
    thread::scope(|scope| {
        let let_go = let_go;
        scope.spawn(move || {
            let _held = mutex.lock();
            tell.send(()).unwrap();
            let _ = wait.recv();
        });
        told.recv().unwrap();
        body();
        drop(let_go);
    });
}

/// Prints that a test is skipped where a new thread of a child cannot find out which thread the child began with, and so
/// waits for a holder that is gone (`sys/forks/survivor.rs`).
fn is_first_thread_unknown(test: &str) -> bool {
    if cfg!(target_env = "musl") {
        eprintln!(
            "skipped: {test}: musl registers a thread's robust list at its first robust mutex"
        );
    }
    cfg!(target_env = "musl")
}

/// What another thread of the parent held cannot be had in the child: not by waiting, which panics, nor otherwise.
#[test]
fn what_a_gone_thread_held_is_not_given_out() {
    let test = "what_a_gone_thread_held_is_not_given_out";
    if !is_first_thread_unknown(test) {
        run_in_child(test, |_| (), nothing_is_given_out);
    }
}

fn nothing_is_given_out() {
    let mutex = Mutex::new(7);
    while_held(&mutex, || {
        let is_refused = || {
            std::panic::set_hook(Box::new(|_| ()));
            check(mutex.is_locked() && mutex.try_lock().is_none(), 1)?;
            check(mutex.try_lock_for(FOR_EVER).is_none(), 2)?;
            check(mutex.try_lock_until(Deadline::after(FOR_EVER)).is_none(), 3)?;
            check(
                panic_of(|| drop(mutex.lock())).is_some_and(|says| says.contains("lock_checked")),
                4,
            )
        };
        // To each thread, whichever is first.
        let is_refused_elsewhere = || {
            let wrong = AtomicU32::new(0);
            let ask = || {
                if let Err(number) = is_refused() {
                    wrong.store(number.into(), Ordering::Relaxed);
                }
            };
            check(pthreads::run::<2, _>(ask), 10)?;
            check(wrong.load(Ordering::Relaxed) == 0, 11)
        };
        fork(|| is_refused().and_then(|()| is_refused_elsewhere()));
        fork(|| is_refused_elsewhere().and_then(|()| is_refused()));
        // A child of the child, too, whether the one in between asked or not.
        fork(|| {
            fork(|| is_refused_elsewhere().and_then(|()| is_refused()));
            is_refused()?;
            fork(|| is_refused_elsewhere().and_then(|()| is_refused()));
            Ok(())
        });
        // The parent's is as it was.
        assert!(mutex.is_locked() && mutex.try_lock().is_none());
    });
    assert!(mutex.lock_checked().is_ok());
}

#[test]
fn who_asks_is_told_before_it_looks() {
    run_in_child("who_asks_is_told_before_it_looks", |_| (), each_is_told);
}

fn each_is_told() {
    let mutex = Mutex::new(vec![1, 2]);
    while_held(&mutex, || {
        fork(|| {
            let Err(orphaned) = mutex.lock_checked() else { return Err(1) };
            // Undecided, the next one is told too, from another thread of the child as well.
            drop(orphaned);
            let is_told = AtomicBool::new(false);
            let tell = || is_told.store(mutex.lock_checked().is_err(), Ordering::Relaxed);
            check(pthreads::run::<1, _>(tell) && is_told.load(Ordering::Relaxed), 2)?;
            let Err(orphaned) = mutex.lock_checked() else { return Err(3) };
            check(mutex.try_lock().is_none(), 4)?;
            drop(orphaned.reset(vec![3]));
            check(mutex.lock_checked().is_ok_and(|guard| *guard == [3]), 5)?;
            check(*mutex.lock() == [3], 6)
        });
        fork(|| {
            let Err(orphaned) = mutex.lock_checked() else { return Err(1) };
            // SAFETY: the other thread has changed nothing.
            check(*unsafe { orphaned.accept() } == [1, 2], 2)?;
            check(*mutex.lock() == [1, 2], 3)
        });
    });
    assert!(mutex.lock_checked().is_ok());
}

/// Threads of a child sleep while one has the mutex and does not decide: none of them sleeps on after that.
#[test]
fn undecided_the_mutex_keeps_no_waiter_asleep() {
    let test = "undecided_the_mutex_keeps_no_waiter_asleep";
    if is_first_thread_unknown(test) {
        return;
    }
    run_in_child(
        test,
        |_| (),
        || {
            let mutex = Mutex::new(0);
            while_held(&mutex, || {
                for _ in 0..20 {
                    fork(|| {
                        let (undecided, refused) = (AtomicBool::new(false), AtomicU32::new(0));
                        let pass = || match mutex.lock_checked() {
                            Err(orphaned) if !undecided.swap(true, Ordering::Relaxed) => {
                                // SAFETY: no memory.
                                unsafe { libc::usleep(5000) };
                                drop(orphaned);
                            }
                            Err(orphaned) => drop(orphaned),
                            Ok(_) => drop(refused.fetch_add(100, Ordering::Relaxed)),
                        };
                        let wait = || {
                            while !undecided.load(Ordering::Relaxed) {
                                std::hint::spin_loop();
                            }
                            if mutex.try_lock_for(FOR_EVER).is_none() {
                                refused.fetch_add(1, Ordering::Relaxed);
                            }
                        };
                        let number = AtomicU32::new(0);
                        let either = || match number.fetch_add(1, Ordering::Relaxed) {
                            0 => pass(),
                            _ => wait(),
                        };
                        check(pthreads::run::<4, _>(either), 1)?;
                        check(refused.load(Ordering::Relaxed) == 3, 2)
                    });
                }
            });
        },
    );
}

/// Guards that own a share of their lock are as those that borrow it; what a child does not decide costs no share.
#[cfg(feature = "std")]
#[test]
fn arc_guards_of_a_gone_thread() {
    run_in_child("arc_guards_of_a_gone_thread", |_| (), arc_guards_in_children);
}

#[cfg(feature = "std")]
fn arc_guards_in_children() {
    use corelocal::sync::ArcRwLockWriteGuard;
    use std::sync::Arc;

    let (mutex, lock) = (Arc::new(Mutex::new(vec![1])), Arc::new(RwLock::new(vec![1])));
    let own = Arc::new(Mutex::new(0));
    let ((tell, told), (let_go, wait)) = (channel(), channel::<()>());
    thread::scope(|scope| {
        let (mutex, lock) = (&mutex, &lock);
        scope.spawn(move || {
            let _held = (mutex.lock_arc(), lock.write_arc());
            tell.send(()).unwrap();
            let _ = wait.recv();
        });
        told.recv().unwrap();
        let mut guard = own.lock_arc();
        // Of this process: one here, one of the guard that is gone.
        let shares = || (Arc::strong_count(mutex), Arc::strong_count(lock));
        fork(|| {
            std::panic::set_hook(Box::new(|_| ()));
            check(mutex.try_lock_arc().is_none() && lock.try_write_arc().is_none(), 1)?;
            check(mutex.try_lock_arc_for(FOR_EVER).is_none(), 2)?;
            check(lock.try_read_arc_for(FOR_EVER).is_none(), 3)?;
            check(panic_of(|| drop(mutex.lock_arc())).is_some(), 4)?;
            check(panic_of(|| drop(lock.read_arc())).is_some(), 5)?;
            for _ in 0..3 {
                check(mutex.lock_arc_checked().is_err(), 6)?;
                check(lock.write_arc_checked().is_err() && lock.read_arc_checked().is_err(), 7)?;
            }
            check(shares() == (2, 2), 8)?;
            let Err(orphaned) = mutex.lock_arc_checked() else { return Err(9) };
            drop(orphaned.reset(vec![2]));
            let Err(orphaned) = lock.read_arc_checked() else { return Err(10) };
            let reader = ArcRwLockWriteGuard::downgrade(orphaned.reset(vec![3]));
            check(*mutex.lock_arc() == [2] && *reader == [3] && *lock.read_arc() == [3], 11)?;
            drop(reader);
            check(lock.write_arc_checked().is_ok() && shares() == (2, 2), 12)?;
            // The forking thread's guard.
            check(own.try_lock_arc().is_none(), 13)?;
            *guard += 1;
            drop(guard);
            check(*own.try_lock_arc().ok_or(14)? == 1, 15)
        });
        drop(let_go);
    });
    assert_eq!(
        (*own.lock_arc(), *mutex.lock_arc() == [1], *lock.read_arc() == [1]),
        (0, true, true)
    );
}

/// A reentrant mutex of a thread that is gone, and one of the thread that forks, which may lock it again in its child.
#[test]
fn reentrant_mutexes_in_children() {
    run_in_child("reentrant_mutexes_in_children", |_| (), reentrant_in_children);
}

fn reentrant_in_children() {
    let (gone, own) = (ReentrantMutex::new(Cell::new(1)), ReentrantMutex::new(Cell::new(1)));
    let ((tell, told), (let_go, wait)) = (channel(), channel::<()>());
    thread::scope(|scope| {
        let gone = &gone;
        scope.spawn(move || {
            let _held = (gone.lock(), gone.lock());
            tell.send(()).unwrap();
            let _ = wait.recv();
        });
        told.recv().unwrap();
        let guards = [own.lock(), own.lock()];
        let is_refused = || {
            check(gone.is_locked() && !gone.is_owned_by_current_thread(), 1)?;
            check(gone.try_lock().is_none() && gone.try_lock_for(FOR_EVER).is_none(), 2)?;
            check(
                panic_of(|| drop(gone.lock())).is_some_and(|says| says.contains("lock_checked")),
                3,
            )?;
            check(gone.lock_checked().is_err(), 4)
        };
        // To threads of the child too, which may have the place of one that is gone.
        let is_refused_elsewhere = || {
            let right = AtomicU32::new(0);
            let ask = || {
                let is_own = own.try_lock().is_some() || own.is_owned_by_current_thread();
                right.fetch_add(u32::from(!is_own && is_refused().is_ok()), Ordering::Relaxed);
            };
            check(pthreads::run::<3, _>(ask) && right.load(Ordering::Relaxed) == 3, 5)
        };
        let child = || {
            std::panic::set_hook(Box::new(|_| ()));
            is_refused()?;
            is_refused_elsewhere()?;
            // Where threads have no words of their own it cannot enter again.
            let has_words =
                cfg!(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"));
            if has_words && !cfg!(corelocal_model) {
                check(own.is_owned_by_current_thread(), 6)?;
                let again = [own.lock(), own.try_lock().ok_or(7)?];
                drop(again);
            }
            is_refused_elsewhere()
        };
        fork(child);
        fork(|| {
            fork(child);
            child()?;
            fork(child);
            // Undecided, not even the thread that has it enters again.
            let Err(orphaned) = gone.lock_checked() else { return Err(8) };
            check(gone.try_lock().is_none() && !gone.is_owned_by_current_thread(), 9)?;
            let reset = orphaned.reset(Cell::new(2));
            let again = gone.lock();
            check(again.get() == 2, 10)?;
            drop(reset);
            let is_locked = AtomicBool::new(false);
            let ask = || is_locked.store(gone.try_lock().is_none(), Ordering::Relaxed);
            check(pthreads::run::<1, _>(ask) && is_locked.load(Ordering::Relaxed), 11)?;
            drop(again);
            check(pthreads::run::<1, _>(|| gone.lock().set(3)) && gone.lock().get() == 3, 12)?;
            // The guards of before the fork count as in the parent.
            let [first, second] = guards;
            drop(first);
            is_locked.store(false, Ordering::Relaxed);
            let ask = || is_locked.store(own.try_lock().is_none(), Ordering::Relaxed);
            check(pthreads::run::<1, _>(ask) && is_locked.load(Ordering::Relaxed), 13)?;
            drop(second);
            check(pthreads::run::<1, _>(|| own.lock().set(2)) && own.lock().get() == 2, 14)
        });
        drop(let_go);
    });
    assert_eq!((gone.lock().get(), own.lock().get()), (1, 1));
}

/// What the thread that forks has locked is locked in the child, until it unlocks it there.
#[test]
fn a_child_keeps_what_its_thread_held() {
    run_in_child("a_child_keeps_what_its_thread_held", |_| (), it_keeps_what_it_held);
}

fn it_keeps_what_it_held() {
    let mutex = Mutex::new(0);
    let mut guard = mutex.lock();
    fork(|| {
        check(mutex.is_locked() && mutex.try_lock().is_none(), 1)?;
        check(mutex.try_lock_for(Duration::from_millis(5)).is_none(), 2)?;
        // Nor does a thread that the child starts get a second guard.
        let got = AtomicU32::new(0);
        let take = || {
            if let Some(guard) = mutex.try_lock_for(Duration::from_millis(5)) {
                got.fetch_add(*guard + 1, Ordering::Relaxed);
            }
        };
        check(pthreads::run::<2, _>(take) && got.load(Ordering::Relaxed) == 0, 7)?;
        *guard += 1;
        MutexGuard::unlocked(&mut guard, || check(*mutex.lock() == 1, 3))?;
        drop(guard);
        check(mutex.try_lock().is_some(), 4)?;
        check(pthreads::run::<1, _>(|| *mutex.lock() += 1), 5)?;
        check(*mutex.lock() == 2, 6)
    });
    assert_eq!(*mutex.lock(), 0);
}

/// Where the kernel wipes no memory in children, a child is not known to be one: there what another thread seems to
/// hold counts as held.
#[test]
fn in_doubt_a_robust_mutex_is_held() {
    let test = "in_doubt_a_robust_mutex_is_held";
    sandbox::run_born_refusing(test, libc::SYS_madvise, When::Always, libc::EINVAL, || {
        // SAFETY: it stays where it is for as long as this test holds it.
        let mutex = unsafe { RobustMutex::new(String::from("held")) };
        let guard = mutex.lock().expect("a free mutex");
        fork(|| {
            let tried = mutex.try_lock_for(Duration::from_millis(5));
            check(matches!(tried, Err(RobustError::Failed(_))), 1)?;
            check(*guard == "held", 2)
        });
        drop(guard);
        assert!(mutex.try_lock().is_ok());
    });
}

/// A storm of holders and waiters, and children that use all of the mutexes, with threads of their own. Of what a holder
/// changes, no child ever sees a half.
#[test]
fn forks_among_holders_and_waiters() {
    let test = "forks_among_holders_and_waiters";
    if !is_first_thread_unknown(test) {
        run_in_child(test, |_| (), forks_in_a_storm);
    }
}

type Pair = [u64; 2];

/// Half of it, and then the other.
fn add(pair: &mut Pair) {
    pair[0] += 1;
    std::hint::black_box(&mut *pair);
    pair[1] += 1;
}

/// Adds to what is in the mutex, which is made anew if it was left behind. Says when it is half.
fn add_checked(mutex: &Mutex<Pair>, is_half: &AtomicBool) {
    let mut guard = mutex.lock_checked().unwrap_or_else(|orphaned| orphaned.reset([0; 2]));
    if guard[0] != guard[1] {
        is_half.store(true, Ordering::Relaxed);
    }
    add(&mut guard);
}

fn forks_in_a_storm() {
    const THREADS: u32 = 8;
    let mutexes = [const { Mutex::new([0u64; 2]) }; 4];
    let (items, changed) = (Mutex::new([0u64; 2]), Condvar::new());
    let (begun, done) = (AtomicU32::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let _tell = Tell(&done);
        for number in 0..THREADS as usize {
            let (mutexes, items, changed) = (&mutexes, &items, &changed);
            let (begun, done) = (&begun, &done);
            scope.spawn(move || {
                begun.fetch_add(1, Ordering::Relaxed);
                for round in number.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let mut guard = mutexes[round % 4].lock();
                    guard[0] += 1;
                    if round % 64 == 0 {
                        thread::sleep(Duration::from_micros(300));
                    }
                    std::hint::black_box(&mut *guard);
                    guard[1] += 1;
                    drop(guard);
                    if round % 16 == 0 {
                        let mut guard = items.lock();
                        add(&mut guard);
                        changed.notify_all();
                        changed.wait_for(&mut guard, Duration::from_micros(200));
                    }
                }
            });
        }
        while begun.load(Ordering::Relaxed) < THREADS {
            thread::yield_now();
        }
        for _ in 0..scaled(200).max(5) {
            fork(|| {
                let is_half = AtomicBool::new(false);
                let is_seen_half = |pair: Pair| {
                    if pair[0] != pair[1] {
                        is_half.store(true, Ordering::Relaxed);
                    }
                };
                let pass = || {
                    // What can be had at once is whole.
                    mutexes.iter().for_each(|mutex| {
                        if let Some(pair) = mutex.try_lock() {
                            is_seen_half(*pair);
                        }
                    });
                    for _ in 0..200 {
                        mutexes.iter().for_each(|mutex| add_checked(mutex, &is_half));
                        add_checked(&items, &is_half);
                        changed.notify_all();
                    }
                };
                check(pthreads::run::<2, _>(pass), 1)?;
                check(!is_half.load(Ordering::Relaxed), 4)?;
                check(mutexes.iter().all(|mutex| mutex.try_lock().is_some()), 2)?;
                let mut guard = items.lock();
                check(changed.wait_for(&mut guard, Duration::from_millis(1)).timed_out(), 3)
            });
        }
    });
}

/// A list of robust locks that is ours lies elsewhere than libc's: it does not tell which thread a child began with.
#[test]
fn a_first_thread_with_a_list_of_ours_is_not_gone() {
    const TEST: &str = "a_first_thread_with_a_list_of_ours_is_not_gone";
    static OURS: Mutex<u32> = Mutex::new(0);
    // SAFETY: a static is neither moved nor freed.
    static ROBUST: RobustMutex<u32> = unsafe { RobustMutex::new(0) };
    thread_local! {
        // So that libc's list and ours are pages apart.
        static LONG: Cell<[u8; 8192]> = const { Cell::new([0; 8192]) };
    }
    run_in_child(
        TEST,
        |_| (),
        || {
            // Else the kernel tells that the child has memory of its own.
            sandbox::refuse(libc::SYS_kcmp, When::Always, libc::EPERM);
            LONG.set([1; 8192]);
            let held = OURS.lock();
            // Not libc's fork: the child has no list before it needs one.
            // SAFETY: a child with a copy of all memory, and of no other thread's locks that it needs.
            let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
            if child == 0 {
                // SAFETY: as in `fork`.
                unsafe { libc::alarm(20) };
                // Where threads have no words of their own there is no list either, and an error.
                drop(ROBUST.lock());
                let other = thread::spawn(|| catch_unwind(|| drop(OURS.lock())).is_ok());
                thread::sleep(Duration::from_millis(50));
                drop(held);
                let is_waited_for = other.join().unwrap();
                // SAFETY: ends the child.
                unsafe { libc::_exit(i32::from(!is_waited_for)) };
            }
            assert!(child > 0);
            let mut status = -1;
            // SAFETY: the child is ours, `status` writable.
            let ended = unsafe { libc::waitpid(child as i32, &raw mut status, 0) };
            assert_eq!(i64::from(ended), child);
            assert_eq!(status, 0, "a thread that is there was taken for a gone one");
        },
    );
}

/// The child must have ended itself, without an exit code.
fn is_aborted(child: libc::pid_t) {
    let mut status = -1;
    // SAFETY: the child is ours, `status` writable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT, "{status:#x}");
}

/// Locking again for a guard that the caller still has ends the child, since the panic must not be caught.
#[test]
fn unlocked_meanwhile_and_gone_ends_the_child() {
    static MUTEX: Mutex<u32> = Mutex::new(0);
    run_in_child(
        "unlocked_meanwhile_and_gone_ends_the_child",
        |_| (),
        || {
            let ((tell, told), (let_go, wait)) = (channel(), channel::<()>());
            let mut child = -1;
            let mut guard = MUTEX.lock();
            let unlocked = || {
                MutexGuard::unlocked(&mut guard, || {
                    thread::spawn(move || {
                        let _held = MUTEX.lock();
                        tell.send(()).unwrap();
                        let _ = wait.recv();
                    });
                    told.recv().unwrap();
                    // SAFETY: the child locks, panics and ends.
                    child = unsafe { libc::fork() };
                    if child == 0 {
                        std::panic::set_hook(Box::new(|_| ()));
                        // SAFETY: as in `fork`.
                        unsafe { libc::alarm(10) };
                        // A thread that is not here may have had the channel's own lock.
                        std::mem::forget(let_go);
                    } else {
                        drop(let_go);
                    }
                });
            };
            let is_done = catch_unwind(AssertUnwindSafe(unlocked)).is_ok();
            if child == 0 {
                // SAFETY: ends the child.
                unsafe { libc::_exit(1) };
            }
            assert!(is_done);
            is_aborted(child);
        },
    );
}

/// What the signal handler's fork returned, or `u32::MAX` before it. One test of a process forks in a handler.
static CHILD: AtomicU32 = AtomicU32::new(0);

extern "C" fn forks(_: libc::c_int) {
    // SAFETY: async-signal-safe.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as in `fork`.
        unsafe { libc::alarm(10) };
    }
    CHILD.store(child as u32, Ordering::Relaxed);
}

/// A signal handler forks while its thread waits on a condition variable, and another thread has the mutex.
fn waits_and_is_forked<G>(lock: impl Fn() -> G + Sync, wait: impl Fn(&mut G) + Sync) {
    CHILD.store(u32::MAX, Ordering::Relaxed);
    let (tell, told) = channel();
    thread::scope(|scope| {
        let (lock, wait) = (&lock, &wait);
        scope.spawn(move || {
            let mut guard = lock();
            // SAFETY: no preconditions.
            tell.send(unsafe { libc::pthread_self() } as usize).unwrap();
            let waits = || {
                // The other thread may lock only after a wait has ended.
                while CHILD.load(Ordering::Relaxed) == u32::MAX {
                    wait(&mut guard);
                }
            };
            let is_done = catch_unwind(AssertUnwindSafe(waits)).is_ok();
            if CHILD.load(Ordering::Relaxed) == 0 {
                // SAFETY: ends the child.
                unsafe { libc::_exit(1) };
            }
            assert!(is_done);
        });
        let waiter = told.recv().unwrap();
        // Had since the other one waits, or wants to.
        let held = lock();
        // SAFETY: the handler is async-signal-safe; the thread lives, for it cannot lock.
        unsafe {
            let handler: extern "C" fn(libc::c_int) = forks;
            libc::signal(libc::SIGUSR1, handler as libc::sighandler_t);
            assert_eq!(libc::pthread_kill(waiter as libc::pthread_t, libc::SIGUSR1), 0);
        }
        while CHILD.load(Ordering::Relaxed) == u32::MAX {
            thread::yield_now();
        }
        is_aborted(CHILD.load(Ordering::Relaxed) as libc::pid_t);
        drop(held);
    });
}

#[test]
fn a_wait_that_locks_again_what_is_gone_ends_the_child() {
    static OURS: Mutex<u32> = Mutex::new(0);
    static CHANGED: Condvar = Condvar::new();
    const A_WHILE: Duration = Duration::from_millis(20);
    run_in_child(
        "a_wait_that_locks_again_what_is_gone_ends_the_child",
        |_| (),
        || {
            std::panic::set_hook(Box::new(|_| ()));
            waits_and_is_forked(
                || OURS.lock(),
                |guard| {
                    CHANGED.wait_for(guard, A_WHILE);
                },
            );
            #[cfg(feature = "lock_api")]
            {
                static THEIRS: lock_api::Mutex<corelocal::sync::RawMutex, u32> =
                    lock_api::Mutex::new(0);
                waits_and_is_forked(
                    || THEIRS.lock(),
                    |guard| {
                        CHANGED.wait_for(guard, A_WHILE);
                    },
                );
            }
        },
    );
}

/// A signal handler forks while its thread waits for a lock. In the child the attempt panics, as the thread that has the
/// lock is not there.
fn is_forked_while_it_locks(lock: impl Fn() + Sync, hold: impl FnOnce(&mut dyn FnMut())) {
    CHILD.store(u32::MAX, Ordering::Relaxed);
    let (tell, told) = channel();
    thread::scope(|scope| {
        let lock = &lock;
        hold(&mut || {
            let tell = tell.clone();
            scope.spawn(move || {
                // SAFETY: no preconditions.
                tell.send(unsafe { libc::pthread_self() } as usize).unwrap();
                let is_had = catch_unwind(AssertUnwindSafe(lock)).is_ok();
                if CHILD.load(Ordering::Relaxed) == 0 {
                    // SAFETY: ends the child.
                    unsafe { libc::_exit(i32::from(is_had)) };
                }
                assert!(is_had);
            });
            let waiter = told.recv().unwrap();
            // Time to fall asleep; it may as well not have begun.
            thread::sleep(Duration::from_millis(30));
            // SAFETY: the handler is async-signal-safe; the thread lives, for it cannot lock. It goes on sleeping after
            // the handler, if it can.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_flags = libc::SA_RESTART;
                action.sa_sigaction = forks as extern "C" fn(libc::c_int) as usize;
                assert_eq!(libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()), 0);
                assert_eq!(libc::pthread_kill(waiter as libc::pthread_t, libc::SIGUSR2), 0);
            }
            while CHILD.load(Ordering::Relaxed) == u32::MAX {
                thread::yield_now();
            }
            let (child, mut status) = (CHILD.load(Ordering::Relaxed) as libc::pid_t, -1);
            // SAFETY: the child is ours, `status` writable.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the child got the lock, or slept on");
        });
    });
}

#[test]
fn a_handler_that_forks_in_the_midst_of_locking() {
    static MUTEX: Mutex<u32> = Mutex::new(0);
    static LOCK: RwLock<u32> = RwLock::new(0);
    run_in_child(
        "a_handler_that_forks_in_the_midst_of_locking",
        |_| (),
        || {
            std::panic::set_hook(Box::new(|_| ()));
            let hold_mutex = |body: &mut dyn FnMut()| {
                let _held = MUTEX.lock();
                body();
            };
            is_forked_while_it_locks(|| drop(MUTEX.lock()), hold_mutex);
            let locking: [fn(); 3] =
                [|| drop(LOCK.read()), || drop(LOCK.write()), || drop(LOCK.upgradable_read())];
            for lock in locking {
                let hold_lock = |body: &mut dyn FnMut()| {
                    let _held = LOCK.write();
                    body();
                };
                is_forked_while_it_locks(lock, hold_lock);
            }
        },
    );
}

/// The parent holds on to it, and lets go of it for the child too.
#[test]
fn a_shared_mutex_stays_locked() {
    // SAFETY: fresh memory; all bytes 0 are an unlocked mutex.
    let mutex: &Mutex<u64, Shared> = unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let at = libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        &*at.cast()
    };
    let guard = mutex.lock();
    let is_held = || mutex.is_locked() && mutex.try_lock_for(Duration::from_millis(5)).is_none();
    fork(|| check(is_held(), 1));
    // Copies of the guard unlock nothing, and do not let go of what the child itself has either.
    // SAFETY: a child makes copies of a guard that it does not use.
    let copied = || unsafe { std::ptr::read(&guard) };
    fork(|| {
        drop(copied());
        MutexGuard::unlock_fairly(copied());
        drop(MutexGuard::map(copied(), |number| number));
        check(is_held(), 2)
    });
    assert!(is_held());
    let copies = thread::scope(|scope| {
        let (tell, told) = channel();
        let parent = &mutex;
        let mut pipe = [0; 2];
        // SAFETY: room for two descriptors.
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        // SAFETY: the child reads, locks and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut byte = 0u8;
            // SAFETY: one byte.
            unsafe { libc::read(pipe[0], (&raw mut byte).cast(), 1) };
            let mine = parent.lock();
            drop(copied());
            let right = is_held();
            drop(mine);
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!(right && parent.try_lock().is_some()))) };
        }
        scope.spawn(move || tell.send(()).unwrap());
        told.recv().unwrap();
        (child, pipe)
    });
    drop(guard);
    // SAFETY: one byte; the child is ours.
    unsafe {
        libc::write(copies.1[1], [1u8].as_ptr().cast(), 1);
        let mut status = -1;
        assert_eq!(libc::waitpid(copies.0, &raw mut status, 0), copies.0);
        assert_eq!(status, 0);
    }
    fork(|| {
        *mutex.lock() += 1;
        Ok(())
    });
    assert_eq!(*mutex.lock(), 1);
}
