//! How often a thread wakes for nothing while it waits for a mutex: not at all after a moment, or once a second where
//! a wake-up may be lost.

mod asleep;
mod sandbox;

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use corelocal::sync::{Mutex, Scope, Shared};

/// Longer than any machine takes for what is waited for here.
const LONG: Duration = Duration::from_secs(60);
/// More than the wake-ups of the first second, and than what else may put a thread to sleep.
const FIRST: u64 = 16;

/// How often the thread has gone to sleep; `None` where that cannot be seen.
fn sleeps(thread: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Whether the thread, which sleeps, goes on to do so: it does not wake for three seconds in a row. `None` where that
/// cannot be seen.
fn sleeps_on(thread: i32) -> Option<bool> {
    let began = Instant::now();
    let (mut last, mut since) = (sleeps(thread)?, began);
    while began.elapsed() < LONG {
        thread::sleep(Duration::from_millis(100));
        let now = sleeps(thread)?;
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() > Duration::from_secs(3) {
            return Some(true);
        }
    }
    Some(false)
}

/// Calls `look` with a thread that waits for the mutex, which is held meanwhile, and has begun to sleep.
fn beside_a_waiter<S: Scope>(mutex: &Mutex<u32, S>, look: impl FnOnce(i32)) {
    let held = mutex.lock();
    thread::scope(|scope| {
        let (tell, told) = channel();
        scope.spawn(move || {
            // SAFETY: no preconditions.
            tell.send(unsafe { libc::gettid() }).unwrap();
            *mutex.lock() += 1;
        });
        let waiter = told.recv().unwrap();
        asleep::until_asleep(waiter);
        look(waiter);
        drop(held);
    });
    assert_eq!(*mutex.lock(), 1);
}

#[test]
fn a_private_waiter_sleeps_until_it_is_woken() {
    beside_a_waiter(&Mutex::new(0), |waiter| match sleeps_on(waiter) {
        None => sandbox::skip("a_private_waiter_sleeps_until_it_is_woken", "/proc is not there"),
        is_asleep => assert_eq!(is_asleep, Some(true), "it wakes again and again"),
    });
}

/// Looks at the waiter for some seconds: it wakes, but not more than once in each.
fn looks_once_a_second(test: &str, waiter: i32) {
    let began = Instant::now();
    let Some(before) = sleeps(waiter) else { return sandbox::skip(test, "/proc is not there") };
    loop {
        thread::sleep(Duration::from_millis(100));
        let woken = sleeps(waiter).expect("a thread that waits") - before;
        let seconds = began.elapsed().as_secs();
        assert!(woken <= FIRST + seconds, "{woken} wake-ups in {seconds} s");
        if woken > FIRST {
            return;
        }
        assert!(began.elapsed() < LONG, "{woken} wake-ups in {seconds} s");
    }
}

#[test]
fn a_shared_waiter_looks_once_a_second() {
    let mutex: Mutex<u32, Shared> = Mutex::with_scope(0);
    let test = "a_shared_waiter_looks_once_a_second";
    beside_a_waiter(&mutex, |waiter| looks_once_a_second(test, waiter));
}

/// Set in a mutex's second word once the critical sections were ended that may clear what waiters say.
const FENCED: u32 = 1 << 31;

#[test]
fn a_waiter_looks_once_a_second_where_the_fence_is_refused() {
    let test = "a_waiter_looks_once_a_second_where_the_fence_is_refused";
    let when = sandbox::When::Always;
    sandbox::run_refusing(test, libc::SYS_membarrier, when, libc::EPERM, || {
        let mutex = Mutex::new(0);
        beside_a_waiter(&mutex, |waiter| {
            // SAFETY: the lock's words come first, and are atomic.
            let queue =
                unsafe { &*(&raw const mutex).cast::<[AtomicI32; 2]>() }[1].load(Ordering::Relaxed);
            if queue as u32 & FENCED != 0 {
                return sandbox::skip(
                    "a_waiter_looks_once_a_second_where_the_fence_is_refused",
                    "mutexes are not unlocked by critical sections here",
                );
            }
            looks_once_a_second("a_waiter_looks_once_a_second_where_the_fence_is_refused", waiter);
        });
    });
}

static CHILD: AtomicI32 = AtomicI32::new(0);

extern "C" fn fork_now(_: i32) {
    // SAFETY: the child goes on with its wait, and ends after it.
    let child = unsafe { libc::fork() };
    if child > 0 {
        CHILD.store(child, Ordering::Release);
    }
}

/// The wait goes on in the child, where no thread is left to wake it.
#[test]
fn a_wait_goes_on_in_a_child_of_a_signal_handler() {
    static MUTEX: Mutex<u32> = Mutex::new(0);
    let handler: extern "C" fn(i32) = fork_now;
    // SAFETY: a valid action, and `sigaction` is called with it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()), 0);
    }
    // SAFETY: no preconditions.
    let parent = unsafe { libc::getpid() };
    let held = MUTEX.lock();
    let (tell, told) = channel();
    let waiter = thread::spawn(move || {
        // SAFETY: no preconditions.
        tell.send(unsafe { libc::gettid() }).unwrap();
        let locked = MUTEX.lock_checked();
        // SAFETY: no preconditions; `_exit` ends the child.
        unsafe {
            if libc::getpid() != parent {
                libc::_exit(0);
            }
        }
        assert!(locked.is_ok());
    });
    let number = told.recv().unwrap();
    asleep::until_asleep(number);
    // Until it looks no more.
    let _ = sleeps_on(number);
    // SAFETY: the thread runs, and handles the signal.
    unsafe { libc::syscall(libc::SYS_tgkill, parent, number, libc::SIGUSR2) };
    let began = Instant::now();
    let (mut child, mut status) = (0, -1);
    loop {
        child = if child == 0 { CHILD.load(Ordering::Acquire) } else { child };
        // SAFETY: a child of this process, if it is one; writes one number.
        if child != 0 && unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == child {
            break;
        }
        if began.elapsed() > LONG {
            if child > 0 {
                // SAFETY: a child of this process that was not waited for yet.
                unsafe { libc::kill(child, libc::SIGKILL) };
            }
            panic!("the child {child} still waits");
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(status, 0);
    drop(held);
    waiter.join().unwrap();
}
